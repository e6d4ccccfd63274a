"""A whole platform: Fairlead, priority tiers with GPU quotas, classes of service, node pools with prices, queues, and a service.

pulumi config set image registry.example/fairlead:1.0
pulumi up
"""

from pathlib import Path

import pulumi
import yaml

from fairlead.pulumi import (
    AutoscaledDeployment,
    Budget,
    Fairlead,
    JobLimits,
    LabelSelector,
    Monitoring,
    NodePools,
    NodePoolSpec,
    PoolSize,
    Preemption,
    Price,
    PriorityTiers,
    Queue,
    QueueLength,
    QueueResource,
    QueueSpec,
    QueueTree,
    Quota,
    ScaleDown,
    ServiceClasses,
    ServiceClassSpec,
    TimeLimit,
)

GPU = "nvidia.com/gpu"

config = pulumi.Config()
manifests = config.get("manifests")  # a file with those of the image's version, where it is not this one

platform = Fairlead(
    "fairlead",
    image=config.require("image"),
    manifests=list(yaml.safe_load_all(Path(manifests).read_text())) if manifests else None,
    history_storage="10Gi",
    prometheus=config.get("prometheus"),
)
installed = pulumi.ResourceOptions(depends_on=[platform])

tiers = PriorityTiers(
    "tiers",
    quotas={"high-priority": Quota(cpu=20, memory="100Gi", gpus=4)},
)

classes = ServiceClasses(
    "classes",
    {
        "production": ServiceClassSpec(
            priority_class_name="high-priority",
            preemption=Preemption(mode="Never", scope="Cluster"),
            default_for=["Inference"],
        ),
        "training": ServiceClassSpec(
            priority_class_name="medium-priority",
            preemption=Preemption(mode="Suspend", min_runtime="10m", grace_period="2m"),
            checkpoint_interval="30m",
            time_limit=TimeLimit(default="24h", max="336h"),
            max_wait="12h",
            default_for=["Training"],
        ),
        "spare-time": ServiceClassSpec(priority_class_name="low-priority"),
    },
    priority_classes=[tier.name for tier in tiers.tiers],
    opts=installed,
)

pools = NodePools(
    "pools",
    {
        "h100": NodePoolSpec(
            node_selector=LabelSelector(match_labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
            size=PoolSize(min=0, max=16),
            price=Price(per_node_hour=55.04),
        ),
        "h100-spot": NodePoolSpec(
            node_selector=LabelSelector(match_labels={"fairlead.dev/pool": "h100-spot"}),
            price=Price(per_node_hour=19.8, kind="Spot"),
        ),
    },
    priced=True,
    opts=installed,
)

queues = QueueTree(
    "queues",
    [
        Queue(
            "research",
            QueueSpec(resources=[QueueResource(name=GPU, quota=64, weight=3)], budget=Budget(amount=120_000)),
            [
                Queue("vision", QueueSpec(resources=[QueueResource(name=GPU, quota=24, limit=48)], jobs=JobLimits(running=100))),
                Queue("language", QueueSpec(resources=[QueueResource(name=GPU, quota=40)])),
            ],
        ),
        Queue("serving", QueueSpec(priority=10, resources=[QueueResource(name=GPU, quota=16, limit=32)])),
    ],
    opts=installed,
)

watched = Monitoring(
    "watched",
    create_namespace=True,
    runbook="https://example.org/fairlead/runbook",
    opts=installed,
)

workers = AutoscaledDeployment(
    "workers",
    app="batch-inference",
    image=config.get("worker_image") or "python:3.11-slim",
    min_replicas=2,
    max_replicas=5,
    gpus=1,
    queue="serving",
    metrics=[QueueLength("serving", jobs=4)],
    scale_down=ScaleDown(stabilization=120, pods=1),
    opts=pulumi.ResourceOptions(depends_on=[queues]),
)

pulumi.export("scheduler", platform.scheduler_name)
pulumi.export("operator", platform.operator_name)
pulumi.export("queues", queues.queue_names)
pulumi.export("classes", classes.class_names)
pulumi.export("pools", pools.pool_names)
pulumi.export("rules", watched.rules_name)
pulumi.export("dashboards", watched.dashboard_names)
pulumi.export("workers", workers.deployment_name)

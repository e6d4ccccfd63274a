"""A Deployment that a HorizontalPodAutoscaler (autoscaling/v2) keeps as large as its work asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from fairlead.api.names import QUEUE_LABEL, SCHEDULER_NAME
from fairlead.api.quantity import parse
from fairlead.pulumi import checks
from fairlead.pulumi.checks import InvalidArgument

_LONGEST_WINDOW = 3600  # seconds, Kubernetes' own bound


@dataclass(frozen=True)
class CpuUtilization:
    """Mean use of CPU by the replicas. percent: of what they request."""

    percent: int = 50

    def metric(self) -> dict[str, Any]:
        """As in `spec.metrics`."""
        return _utilization("cpu", self.percent)


@dataclass(frozen=True)
class MemoryUtilization:
    """Mean use of memory by the replicas. percent: of what they request."""

    percent: int = 80

    def metric(self) -> dict[str, Any]:
        """As in `spec.metrics`."""
        return _utilization("memory", self.percent)


@dataclass(frozen=True)
class GpuUtilization:
    """Mean use of a replica's GPUs. percent: 1 to 100. name: of pods; an adapter must serve custom.metrics.k8s.io for it."""

    percent: int = 70
    name: str = "DCGM_FI_DEV_GPU_UTIL"

    def metric(self) -> dict[str, Any]:
        """As in `spec.metrics`."""
        checks.whole(self.percent, "GpuUtilization.percent", 1, 100)
        return _of_pods(self.name, str(self.percent))


@dataclass(frozen=True)
class RequestRate:
    """Requests per second and replica. name: a metric of pods, for which an adapter must serve custom.metrics.k8s.io."""

    per_second: float
    name: str = "http_requests_per_second"

    def metric(self) -> dict[str, Any]:
        """As in `spec.metrics`."""
        return _of_pods(self.name, _positive(self.per_second, "RequestRate.per_second"))


@dataclass(frozen=True)
class QueueLength:
    """Jobs that wait in a Fairlead queue. jobs: how many of them for each replica."""

    queue: str
    jobs: float = 1

    def metric(self) -> dict[str, Any]:
        """As in `spec.metrics`; served by `fairlead scheduler --external-metrics-address`."""
        return _of_queue("fairlead_queue_pending_jobs", self.queue, _positive(self.jobs, "QueueLength.jobs"))


@dataclass(frozen=True)
class PendingGpus:
    """GPUs for which jobs wait in a Fairlead queue. gpus: how many of them for each replica."""

    queue: str
    gpus: float = 1

    def metric(self) -> dict[str, Any]:
        """As in `spec.metrics`; served by `fairlead scheduler --external-metrics-address`."""
        return _of_queue("fairlead_queue_pending_gpus", self.queue, _positive(self.gpus, "PendingGpus.gpus"))


@dataclass(frozen=True)
class ExpectedWait:
    """The longest actual or expected wait of a job in a Fairlead queue. seconds: the target; a longer wait scales up."""

    queue: str
    seconds: float

    def metric(self) -> dict[str, Any]:
        """As in `spec.metrics`; served by `fairlead scheduler --external-metrics-address`."""
        target = _positive(self.seconds, "ExpectedWait.seconds")
        return _of_queue("fairlead_queue_expected_wait_seconds", self.queue, target, "Value")


Metric = CpuUtilization | MemoryUtilization | GpuUtilization | RequestRate | QueueLength | PendingGpus | ExpectedWait


@dataclass(frozen=True)
class ScaleDown:
    """How it shrinks. stabilization: seconds for which it must have been too large. pods, percent: so many at most in a period.

    period: seconds. With pods and percent both given, the slower of the two counts.
    """

    stabilization: int = 300
    pods: int | None = None
    percent: int | None = None
    period: int = 60

    def behaviour(self) -> dict[str, Any]:
        """As `spec.behavior.scaleDown`."""
        checks.whole(self.stabilization, "ScaleDown.stabilization", 0, _LONGEST_WINDOW)
        checks.whole(self.period, "ScaleDown.period", 1, 1800)
        given = (("Pods", self.pods), ("Percent", self.percent))
        policies = [
            {"type": kind, "value": checks.whole(value, f"ScaleDown.{kind.lower()}", 1), "period_seconds": self.period}
            for kind, value in given
            if value is not None
        ]
        return {
            "stabilization_window_seconds": self.stabilization,
            **({"policies": policies, "select_policy": "Min"} if policies else {}),
        }


class AutoscaledDeployment(pulumi.ComponentResource):
    """A Deployment and its HorizontalPodAutoscaler.

    app: the name of both. replicas: their initial number; what the autoscaler makes of it later is left
    alone. requests, limits: quantities by resource, for each replica. gpus: whole devices for each replica. metrics: what is
    followed; that which asks for most counts. scale_down: absent, Kubernetes' own (300 s of stabilization, then all at once).
    queue: the Fairlead queue whose replicas they are; scheduled by Fairlead then, under scheduler_name. priority_class: by name.
    env: by name.

    Raises InvalidArgument: min_replicas > max_replicas, requests above limits, a percentage of a resource that is not
    requested, and whatever Kubernetes would refuse of the above.
    """

    deployment_name: pulumi.Output[str]
    """The Deployment's name, once it exists."""
    autoscaler_name: pulumi.Output[str]
    """The HorizontalPodAutoscaler's name."""

    def __init__(
        self,
        name: str = "autoscaled-deployment",
        app: str = "ai-model-training",
        image: pulumi.Input[str] = "python:3.11-slim",
        *,
        namespace: pulumi.Input[str] = "default",
        replicas: int = 2,
        min_replicas: int = 2,
        max_replicas: int = 5,
        requests: Mapping[str, str | int] | None = None,
        limits: Mapping[str, str | int] | None = None,
        gpus: int = 0,
        gpu_resource: str = "nvidia.com/gpu",
        metrics: Sequence[Metric] = (CpuUtilization(),),
        scale_down: ScaleDown | None = None,
        command: Sequence[str] = (),
        env: Mapping[str, pulumi.Input[str]] | None = None,
        ports: Sequence[int] = (),
        queue: str | None = None,
        scheduler_name: str = SCHEDULER_NAME,
        priority_class: pulumi.Input[str] | None = None,
        labels: Mapping[str, str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        _check_app(app, namespace, image)
        _check_replicas(replicas, min_replicas, max_replicas)
        checks.whole(gpus, "gpus", 0)
        resources = _resources(requests, limits, gpus, gpu_resource)
        followed = _followed(metrics, resources["requests"])
        if queue is not None:
            checks.name(queue, "queue", 63)
        process = _process(command, env, ports)
        behaviour = {"behavior": {"scale_down": scale_down.behaviour()}} if scale_down is not None else {}
        super().__init__("fairlead:index:AutoscaledDeployment", name, None, opts)
        chosen = {**(labels or {}), "app": app}
        metadata: Any = {"name": app, "namespace": namespace, "labels": chosen}
        pod = _pod({"name": app, "image": image, "resources": resources, **process}, priority_class)
        template = _queued(pod, chosen, queue, scheduler_name)
        spec: Any = {"replicas": replicas, "selector": {"match_labels": {"app": app}}, "template": template}
        deployment = kubernetes.apps.v1.Deployment(
            f"{name}-deployment",
            metadata=metadata,
            spec=spec,
            # From now on the autoscaler sets the number of replicas: the next `up` must not set it back.
            opts=pulumi.ResourceOptions(parent=self, ignore_changes=["spec.replicas"]),
        )
        scaling: Any = {
            "scale_target_ref": {"api_version": "apps/v1", "kind": "Deployment", "name": deployment.metadata.name},
            "min_replicas": min_replicas,
            "max_replicas": max_replicas,
            "metrics": followed,
            **behaviour,
        }
        inside = pulumi.ResourceOptions(parent=self)
        autoscaler = kubernetes.autoscaling.v2.HorizontalPodAutoscaler(
            f"{name}-autoscaler", metadata=metadata, spec=scaling, opts=inside
        )
        self.deployment_name = deployment.metadata.name
        self.autoscaler_name = autoscaler.metadata.name
        self.register_outputs({"deployment_name": self.deployment_name, "autoscaler_name": self.autoscaler_name})


def _check_app(app: str, namespace: pulumi.Input[str], image: pulumi.Input[str]) -> None:
    """Raises `InvalidArgument` where a name is none, or the image is empty, as far as they are known by now."""
    checks.name(app, "app", 63)
    if isinstance(namespace, str):
        checks.name(namespace, "namespace", 63)
    if isinstance(image, str) and not image.strip():
        raise InvalidArgument("image is empty; give the image that the replicas run")


def _check_replicas(replicas: int, least: int, most: int) -> None:
    """Raises `InvalidArgument` where the number of replicas and its bounds do not go together."""
    checks.whole(least, "min_replicas", 1)
    checks.whole(most, "max_replicas", 1)
    if least > most:
        raise InvalidArgument(f"min_replicas {least} is above max_replicas {most}; swap them or raise max_replicas")
    checks.whole(replicas, "replicas", least, most)


def _process(command: Sequence[str], env: Mapping[str, pulumi.Input[str]] | None, ports: Sequence[int]) -> dict[str, Any]:
    """What a container runs, with which environment, and where it listens, as fields of the container."""
    return {
        **({"command": list(command)} if command else {}),
        **({"env": [{"name": key, "value": value} for key, value in env.items()]} if env else {}),
        **({"ports": [{"container_port": checks.whole(port, "port", 1, 65535)} for port in ports]} if ports else {}),
    }


def _pod(container: dict[str, Any], priority_class: pulumi.Input[str] | None) -> dict[str, Any]:
    """The spec of pods of one container."""
    pod: dict[str, Any] = {"containers": [container]}
    if priority_class is not None:
        pod["priority_class_name"] = priority_class
    return pod


def _queued(pod: dict[str, Any], labels: Mapping[str, str], queue: str | None, scheduler_name: str) -> dict[str, Any]:
    """A template of pods of a queue, scheduled by Fairlead then; None: of pods that Kubernetes schedules."""
    if queue is None:
        return {"metadata": {"labels": labels}, "spec": pod}
    return {"metadata": {"labels": {**labels, QUEUE_LABEL: queue}}, "spec": {**pod, "scheduler_name": scheduler_name}}


def _resources(
    requests: Mapping[str, str | int] | None, limits: Mapping[str, str | int] | None, gpus: int, gpu_resource: str
) -> dict[str, dict[str, str]]:
    asked = checks.amounts({"cpu": "500m", "memory": "512Mi"} if requests is None else requests, "requests")
    capped = checks.amounts({"cpu": "1000m", "memory": "1024Mi"} if limits is None else limits, "limits")
    if gpus:
        capped[gpu_resource] = asked[gpu_resource] = str(gpus)
    for resource in sorted({*asked, *capped}):
        if "/" in resource or resource.startswith("hugepages-"):
            _check_whole_share(resource, asked.get(resource), capped.get(resource))
    for resource, value in asked.items():
        if resource in capped and parse(value) > parse(capped[resource]):
            raise InvalidArgument(
                f"requests of {resource} ({value}) are above its limits ({capped[resource]}); raise the limit or lower it"
            )
    return {"requests": asked, "limits": capped}


def _check_whole_share(resource: str, asked: str | None, capped: str | None) -> None:
    """Devices and huge pages are not shared: Kubernetes takes no request of them that is not also the limit."""
    if capped is None:
        raise InvalidArgument(f"{resource} is requested without a limit; give {resource} in `limits` instead")
    if asked is not None and parse(asked) != parse(capped):
        raise InvalidArgument(f"requests of {resource} ({asked}) are not its limits ({capped}); give it in `limits` only")
    if "/" in resource and parse(capped).denominator != 1:
        raise InvalidArgument(f"limits of {resource} are {capped}; give a whole number")


def _followed(metrics: Sequence[Metric], requests: Mapping[str, str]) -> list[dict[str, Any]]:
    if not metrics:
        raise InvalidArgument("there are no metrics; give at least one, such as CpuUtilization(50)")
    for each in metrics:
        resource = {CpuUtilization: "cpu", MemoryUtilization: "memory"}.get(type(each))
        if resource is not None and not parse(requests.get(resource, "0")):
            raise InvalidArgument(
                f"{type(each).__name__} is a percentage of the requested {resource}, and none is requested; add it to `requests`"
            )
    return [each.metric() for each in metrics]


def _utilization(resource: str, percent: int) -> dict[str, Any]:
    checks.whole(percent, f"percentage of {resource}", 1)
    target = {"type": "Utilization", "average_utilization": percent}
    return {"type": "Resource", "resource": {"name": resource, "target": target}}


def _of_pods(name: str, average: str) -> dict[str, Any]:
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "average_value": average}}}


def _of_queue(name: str, queue: str, target: str, kind: str = "AverageValue") -> dict[str, Any]:
    checks.name(queue, "queue of a metric", 63)
    key = "value" if kind == "Value" else "average_value"
    metric = {"name": name, "selector": {"match_labels": {"queue": queue}}}
    return {"type": "External", "external": {"metric": metric, "target": {"type": kind, key: target}}}


def _positive(value: float, what: str) -> str:
    """A number above zero as a quantity of thousandths. NaN is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise InvalidArgument(f"{what} is {value!r}; give a number above zero")
    return str(value) if isinstance(value, int) else f"{max(1, round(value * 1000))}m"

"""Pulumi components: priorities and quotas, autoscaled Deployments, and Fairlead with its queues, as Python programs.

Needs `pip install fairlead[pulumi]`. The components only describe Kubernetes resources; `pulumi up` makes them. Wrong arguments
raise `InvalidArgument` when the program runs.
"""

from fairlead.api.kinds.common import LabelRequirement, LabelSelector
from fairlead.api.kinds.node_pool import MigConfig, MigDevices, MigPolicy, NodePoolSpec, PoolSize, Price, TopologyLevel
from fairlead.api.kinds.queue import Budget, JobLimits, QueueResource, QueueSpec, UserLimits
from fairlead.api.kinds.service_class import Preemption, ServiceClassSpec, TimeLimit, TimeSlicing, UtilizationPolicy
from fairlead.pulumi.autoscaling import (
    AutoscaledDeployment,
    CpuUtilization,
    ExpectedWait,
    GpuUtilization,
    MemoryUtilization,
    PendingGpus,
    QueueLength,
    RequestRate,
    ScaleDown,
)
from fairlead.pulumi.checks import InvalidArgument
from fairlead.pulumi.devices import ClaimTemplate, DeviceClasses, DeviceRequest
from fairlead.pulumi.monitoring import Monitoring
from fairlead.pulumi.platform import Fairlead
from fairlead.pulumi.program import manifests, manifests_of
from fairlead.pulumi.queues import NodePools, Queue, QueueTree, ServiceClasses
from fairlead.pulumi.tiers import DEFAULT_QUOTAS, DEFAULT_TIERS, PriorityTiers, Quota, Tier, admission_configuration

__all__ = [
    "DEFAULT_QUOTAS",
    "DEFAULT_TIERS",
    "AutoscaledDeployment",
    "Budget",
    "ClaimTemplate",
    "CpuUtilization",
    "DeviceClasses",
    "DeviceRequest",
    "ExpectedWait",
    "Fairlead",
    "GpuUtilization",
    "InvalidArgument",
    "JobLimits",
    "LabelRequirement",
    "LabelSelector",
    "MemoryUtilization",
    "MigConfig",
    "MigDevices",
    "MigPolicy",
    "Monitoring",
    "NodePoolSpec",
    "NodePools",
    "PendingGpus",
    "PoolSize",
    "Preemption",
    "Price",
    "PriorityTiers",
    "Queue",
    "QueueLength",
    "QueueResource",
    "QueueSpec",
    "QueueTree",
    "Quota",
    "RequestRate",
    "ScaleDown",
    "ServiceClassSpec",
    "ServiceClasses",
    "Tier",
    "TimeLimit",
    "TimeSlicing",
    "TopologyLevel",
    "UserLimits",
    "UtilizationPolicy",
    "admission_configuration",
    "manifests",
    "manifests_of",
]

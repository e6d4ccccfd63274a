"""How items of lists of built-in kinds are identified when versions are merged or applied, and which fields hold any JSON."""

from __future__ import annotations

# (type, field) -> keys by which server-side apply identifies the items (x-kubernetes-list-map-keys of the OpenAPI).
LIST_KEYS: dict[tuple[str, str], tuple[str, ...]] = {
    ("PodSpec", "containers"): ("name",),
    ("PodSpec", "initContainers"): ("name",),
    ("PodSpec", "ephemeralContainers"): ("name",),
    ("PodSpec", "volumes"): ("name",),
    ("PodSpec", "imagePullSecrets"): ("name",),
    ("PodSpec", "hostAliases"): ("ip",),
    ("PodSpec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
    ("PodSpec", "schedulingGates"): ("name",),
    ("PodSpec", "resourceClaims"): ("name",),
    ("Container", "ports"): ("containerPort", "protocol"),
    ("Container", "env"): ("name",),
    ("Container", "volumeMounts"): ("mountPath",),
    ("Container", "volumeDevices"): ("devicePath",),
    ("PodStatus", "podIPs"): ("ip",),
    ("PodStatus", "hostIPs"): ("ip",),
    ("PodStatus", "resourceClaimStatuses"): ("name",),
    ("NodeStatus", "addresses"): ("type",),
    ("ResourceClaimStatus", "reservedFor"): ("uid",),
    ("ResourceClaimStatus", "devices"): ("driver", "device", "pool", "shareID"),
    ("ServiceSpec", "ports"): ("port", "protocol"),
    ("ServiceAccount", "secrets"): ("name",),
    ("ObjectMeta", "ownerReferences"): ("uid",),
    ("LabelSelector", "matchExpressions"): (),
}
# Where strategic merge differs: its patchMergeKey; an empty one means that the list is replaced.
MERGE_KEYS: dict[tuple[str, str], str] = {
    ("Container", "ports"): "containerPort",
    ("ServiceSpec", "ports"): "port",
    ("PodSpec", "topologySpreadConstraints"): "topologyKey",
    ("ResourceClaimStatus", "devices"): "",
}
SETS = {("ObjectMeta", "finalizers"), ("NodeSpec", "podCIDRs"), ("JobStatus", "completedIndexes")}
RAW = {("OpaqueDeviceConfiguration", "parameters"), ("AllocatedDeviceStatus", "data")}
"""Fields that hold any JSON."""

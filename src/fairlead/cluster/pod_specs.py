"""What decides where a pod may run: amounts in exact integers, and its relations to nodes, other pods and volumes."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from fairlead.api import names, quantity
from fairlead.api.quantity import QuantityError
from fairlead.cluster import bounds, numa, selection, views
from fairlead.cluster.requests import RESIZE_PENDING, pod_requests, scored_requests
from fairlead.cluster.workloads import Workloads
from fairlead.core.model.pods import AffinityTerm, ClaimUse, Disk, HostPort, Mistake, PodSpec, Toleration
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.holdings import EVERY_ADDRESS

_MOST_DEVICES = 1024
_NO_STATUS = views.PodStatus()
_NO_AFFINITY = views.Affinity()
_MOST_KEPT = 8192
_known_amounts: dict[bytes, tuple[PodSpec, str]] = {}


def pod_spec(view: views.Pod, workloads: Workloads | None = None, complaints: list[str] | None = None) -> PodSpec:
    """What decides where a pod may run. Raises `QuantityError` where its size cannot be known.

    complaints: takes what else of it cannot be read; such a pod counts by its requests. None: that is passed over.
    """
    excess = bounds.excess(view)
    fields = {} if excess else _relations(view)
    if workloads and not view.spec.topology_spread_constraints:
        fields["default_spread"] = workloads.selector_of(view.metadata)
    amounts, complaint = _amounts(view)
    if complaints is not None:
        complaints += [each for each in (excess, complaint) if each]
    wanted = msgspec.structs.replace(amounts, **fields) if fields else amounts
    return wanted if fields and bounds.is_bulky(fields) else _interned(wanted)


def _amounts(view: views.Pod) -> tuple[PodSpec, str]:
    """The part of a core pod that depends on the pod alone, and why it cannot be read, if it cannot.

    It is cached, since most pods repeat the amounts of others, or are read again; what is absurdly long is not cached.
    """
    spec, status = view.spec, view.status or _NO_STATUS
    source = msgspec.json.encode(
        (
            spec.containers,
            spec.init_containers,
            spec.resources,
            spec.overhead,
            spec.node_selector,
            spec.tolerations,
            [each.image for each in spec.volumes or () if each.image is not None],
            (spec.host_network, spec.host_users),
            (view.metadata.annotations or {}).get(names.GPU_FRACTION_ANNOTATION),
            has_half(view),
            (_sizes(status.container_statuses), _sizes(status.init_container_statuses)),
            (status.resources, status.allocated_resources),
            [each for each in status.conditions or () if each.type == RESIZE_PENDING],
        )
    )
    known = _known_amounts.get(source)
    if known is None:
        if len(_known_amounts) >= _MOST_KEPT:
            _known_amounts.clear()
        known = _read_amounts(view)
        if len(source) <= bounds.MOST_REMEMBERED:
            _known_amounts[source] = known
    return known


def has_half(view: views.Pod) -> bool:
    """Whether a pod that requests a GPU was given half of one, which it may share with one other pod.

    Only Fairlead gives that: the annotation of a pod that another scheduler has bound was written by its user.
    """
    return (
        bool(view.spec.node_name)
        and names.GPU_PARTNER_ANNOTATION in (view.metadata.annotations or {})
        and view.spec.scheduler_name in names.SCHEDULERS
    )


def _sizes(statuses: list[views.ContainerStatus] | None) -> list[tuple[object, ...]]:
    """Containers' sizes in their statuses, without the times when they ended: these differ for every pod."""
    return [(each.name, each.resources, each.allocated_resources) for each in statuses or ()]


def _read_amounts(view: views.Pod) -> tuple[PodSpec, str]:
    spec, metadata = view.spec, view.metadata
    requests = pod_requests(view)
    gpus, milli = 0, WHOLE
    for resource in names.GPU_RESOURCES:
        if requests.get(resource):
            gpus = requests[resource]
            break
    if gpus > _MOST_DEVICES:
        raise QuantityError(f"{gpus} GPUs are more than any node has", too_large=True)
    fraction, complaint = (metadata.annotations or {}).get(names.GPU_FRACTION_ANNOTATION), ""
    if fraction is not None:
        try:
            milli = gpu_fraction(fraction)
            if gpus:
                raise QuantityError(
                    f"annotation {names.GPU_FRACTION_ANNOTATION}: {bounds.shown(fraction)} and a request for {gpus} whole GPUs "
                    "exclude each other: remove one of them"
                )
            gpus = 1
        except QuantityError as error:
            milli, complaint = WHOLE, str(error)
    if gpus == 1 and milli == WHOLE and requests.get(names.GPU_RESOURCES[0]) and has_half(view):
        milli = WHOLE // 2
        del requests[names.GPU_RESOURCES[0]]
    requests["pods"] = 1
    counts_as, asks_as = scored_requests(view)
    containers = [*(spec.init_containers or ()), *spec.containers]
    wanted = PodSpec(
        requests=tuple(sorted((resource, amount) for resource, amount in requests.items() if amount)),
        gpus=gpus,
        gpu_milli=milli,
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        tolerations=tuple(sorted(_tolerations(spec), key=repr)) if spec.tolerations else (),
        ports=_ports(spec),
        images=_images(spec, containers),
        containers=len(containers),
        scored=counts_as,
        scored_new=None if asks_as == counts_as else asks_as,
        features=_features(spec, containers),
        numa=numa.need(view),
    )
    return wanted, complaint


def _relations(view: views.Pod) -> dict[str, Any]:
    """The fields of a spec that speak of nodes' labels, other pods, and volumes; for most pods, none."""
    spec, metadata = view.spec, view.metadata
    fields: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    affinity = spec.affinity or _NO_AFFINITY
    if affinity.node_affinity is not None:
        if affinity.node_affinity.required is not None:
            fields["affinity"] = selection.node_terms(affinity.node_affinity.required)
        fields["preferred_nodes"], wrong = selection.preferred_nodes(affinity.node_affinity.preferred)
        mistakes += wrong
    preferred: list[tuple[int, AffinityTerm]] = []
    for sign, field, given in ((1, "pod_affinity", affinity.pod_affinity), (-1, "pod_anti_affinity", affinity.pod_anti_affinity)):
        if given is not None:
            fields[field], wrong = selection.pod_terms(given.required or (), metadata.namespace)
            terms, wrong_too = selection.pod_terms((each.pod_affinity_term for each in given.preferred or ()), metadata.namespace)
            preferred += [
                (sign * selection.weight_of(each), term) for each, term in zip(given.preferred or (), terms, strict=False)
            ]
            mistakes += wrong + wrong_too
    if preferred:
        fields["preferred_pods"] = tuple(preferred)
    if spec.topology_spread_constraints:
        fields["spread"], fields["preferred_spread"], wrong = selection.spread_constraints(
            spec.topology_spread_constraints, metadata.labels or {}
        )
        mistakes += wrong
    if spec.volumes:
        fields["claims"], fields["disks"] = _volumes(view)
    if mistakes:
        fields["mistakes"] = tuple(mistakes)
    return fields


def _tolerations(spec: views.PodSpec) -> list[Toleration]:
    return [Toleration(each.key, each.operator or "Equal", each.value, each.effect) for each in spec.tolerations or ()]


def _ports(spec: views.PodSpec) -> tuple[HostPort, ...]:
    """The ports of the node that containers, and sidecars, want for as long as the pod runs."""
    lasting = [*(each for each in spec.init_containers or () if each.restart_policy == "Always"), *spec.containers]
    return tuple(
        HostPort(port.host_ip or EVERY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in lasting
        for port in container.ports or ()
        if port.host_port > 0
    )


def _images(spec: views.PodSpec, containers: list[views.Container]) -> tuple[str, ...]:
    named = [each.image for each in containers] + [each.image.reference for each in spec.volumes or () if each.image is not None]
    return tuple(name if name.rfind(":") > name.rfind("/") else f"{name}:latest" for name in named)


def _features(spec: views.PodSpec, containers: list[views.Container]) -> tuple[str, ...]:
    """What the node must declare to be able to do."""
    features = []
    if any(rule.action == "RestartAllContainers" for each in containers for rule in each.restart_policy_rules or ()):
        features.append("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        features.append("UserNamespacesHostNetworkSupport")
    return tuple(features)


def _volumes(view: views.Pod) -> tuple[tuple[ClaimUse, ...], tuple[Disk, ...]]:
    metadata = view.metadata
    claims: list[ClaimUse] = []
    disks: list[Disk] = []
    for each in view.spec.volumes or ():
        if each.persistent_volume_claim is not None:
            claims.append(ClaimUse(f"{metadata.namespace}/{each.persistent_volume_claim.claim_name}"))
        elif each.ephemeral is not None:
            claims.append(ClaimUse(f"{metadata.namespace}/{metadata.name}-{each.name}", metadata.uid))
        if each.gce_persistent_disk is not None:
            disks.append(Disk("gce", each.gce_persistent_disk.pd_name, each.gce_persistent_disk.read_only))
        if each.aws_elastic_block_store is not None:
            disks.append(Disk("aws", each.aws_elastic_block_store.volume_id))
        disks += _countable(each, metadata.namespace)
        if each.iscsi is not None:
            disks.append(Disk("iscsi", each.iscsi.iqn, each.iscsi.read_only))
        if each.rbd is not None:
            name = f"{each.rbd.pool}/{each.rbd.image}"
            disks.append(Disk("rbd", name, each.rbd.read_only, tuple(sorted(each.rbd.monitors or ()))))
    return tuple(claims), tuple(disks)


def _countable(volume: views.PodVolume, namespace: str) -> list[Disk]:
    """Inline volumes that count against the limit of the driver to which their plugin was migrated, and exclude no pod."""
    found = []
    if volume.azure_disk is not None:
        found.append(("azure-disk", volume.azure_disk.disk_uri))
    if volume.azure_file is not None:
        found.append(("azure-file", f"{namespace}/{volume.azure_file.secret_name}/{volume.azure_file.share_name}"))
    if volume.cinder is not None:
        found.append(("cinder", volume.cinder.volume_id))
    if volume.portworx_volume is not None:
        found.append(("portworx", volume.portworx_volume.volume_id))
    if volume.vsphere_volume is not None:
        found.append(("vsphere", volume.vsphere_volume.volume_path))
    return [Disk(kind, name, read_only=True) for kind, name in found]


def gpu_fraction(text: str) -> int:
    """Milli of one device from the annotation's text, rounded up. Raises `QuantityError`."""
    value: Fraction | None
    try:
        value = quantity.parse(text)
    except QuantityError:
        value = None
    if value is None or not 0 < value < 1:
        what = f"annotation {names.GPU_FRACTION_ANNOTATION}: {bounds.shown(text)} is not a GPU fraction"
        raise QuantityError(f"{what}: write a number between 0 and 1, such as 0.5")
    return -(-value.numerator * WHOLE // value.denominator)


@lru_cache(maxsize=8192)
def _interned(spec: PodSpec) -> PodSpec:
    """One object per distinct spec: 50,000 pods of few shapes stay small."""
    return spec

"""VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone: where the volumes of a pod can be mounted.

Restrictions: an inline disk or a ReadWriteOncePod claim that another pod has. Limits: how many volumes of a driver
a node attaches. Binding: bound volumes by the nodes they can be reached from; claims that wait for their first
consumer by a volume that suits, or capacity to make one. Zone: the zone and region labels of bound volumes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from typing_extensions import override

from fairlead.api.names import REGION_LABEL, ZONE_LABEL
from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Mask
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.selectors import any_term_holds, matches
from fairlead.core.model.transactions import VolumeChoice
from fairlead.core.nodes.storage import BINDS_LATE, SINGLE_POD, Claim, StorageClass, Volume
from fairlead.core.pods.filters.base import Refusal, Relation, Stop, Surroundings, sparse

if TYPE_CHECKING:
    from fairlead.core.pods.shapes import Shape

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_OLD_LABELS = {"failure-domain.beta.kubernetes.io/zone": ZONE_LABEL, "failure-domain.beta.kubernetes.io/region": REGION_LABEL}
# Inline disks that are attached through these drivers since their own plugins were migrated; they count with them.
_MIGRATED = {
    "aws": "ebs.csi.aws.com",
    "azure-disk": "disk.csi.azure.com",
    "azure-file": "file.csi.azure.com",
    "cinder": "cinder.csi.openstack.org",
    "gce": "pd.csi.storage.gke.io",
    "portworx": "pxd.portworx.com",
    "vsphere": "csi.vsphere.vmware.com",
}
_PLACE_LABELS = (*_OLD_LABELS, ZONE_LABEL, REGION_LABEL)


class VolumeRestrictions(Relation):
    """Disks and claims that go to one pod only."""

    plugin = "VolumeRestrictions"
    code = ReasonCode.VOLUMES
    complaint = "node(s) had a disk or a claim that another pod uses"

    @override
    def stop(self) -> Stop | None:
        if self.spec.claims and not self.around.storage.known:
            return Stop(self.plugin, "the volumes of the cluster are still being listed")
        for use in self.spec.claims:
            if not use.owner and use.key not in self.around.storage.claims:
                return Stop(self.plugin, f"claim {use.key} does not exist")
        return None

    def __init__(self, shape: Shape, around: Surroundings) -> None:
        super().__init__(shape, around)
        self._before: dict[str, int] = {}

    @override
    def version(self) -> int:
        # A claim for one pod may be held on another node.
        return self.around.storage.version + self.around.holdings.version

    @override
    def applies(self) -> bool:
        storage, holdings = self.around.storage, self.around.holdings
        claims = (use.key for use in self.spec.claims if not use.owner)
        single = [key for key in claims if key in storage.claims and SINGLE_POD in storage.claims[key].access_modes]
        self._before = {key: holdings.uses(key) for key in single}
        return bool(self.spec.disks) or any(self._before.values())

    def _taken(self) -> int:
        """How many single-pod claims of this pod are in use, wherever."""
        holdings = self.around.holdings
        if holdings.trial is None:
            return sum(bool(holdings.uses(key)) for key in self._before)
        names = {key.partition("/")[2] for key in self._before}
        return sum(map(bool, self._before.values())) + sum(holdings.trial.claims[name] for name in names)

    def _disks(self) -> list[dict[int, int]]:
        return [rows for disk in self.spec.disks for rows in self.around.holdings.disk_rows(disk)]

    @override
    def refused(self) -> Mask | None:
        if self._taken() > 0:
            everywhere: Mask = np.ones(self.nodes.count, np.bool_)
            return everywhere
        return sparse(self.nodes.count, self._disks())

    @override
    def refuses(self, row: int) -> Refusal | None:
        if self._taken() > 0 or any(rows.get(row, 0) > 0 for rows in self._disks()):
            return Refusal.UNSCHEDULABLE
        return None


class _ByRow(Relation):
    """Judges row by row, in plain Python; the verdicts of rows and objects that did not change are kept."""

    def __init__(self, shape: Shape, around: Surroundings) -> None:
        super().__init__(shape, around)
        self._kept: Mask = np.zeros(0, np.bool_)
        self._seen: tuple[int, int] = (-1, -1)

    def refused(self) -> Mask | None:
        seen = (self.around.storage.version, self.nodes.topologies.version)
        if seen != self._seen:
            self._seen = seen
            self._kept = np.zeros(self.nodes.count, np.bool_)
            for row in self.nodes.rows.values():
                self._kept[row] = self.refuses(row) is not None
        return self._kept


class NodeVolumeLimits(Relation):
    """How many volumes of each driver a node attaches."""

    plugin = "NodeVolumeLimits"
    code = ReasonCode.VOLUMES
    complaint = "node(s) exceed max volume count"

    @override
    def refused(self) -> Mask | None:
        mask: Mask = np.zeros(self.nodes.count, np.bool_)
        if not self._wanted(self.spec)[0]:
            return None
        for name in self.around.storage.node_drivers:
            row = self.nodes.rows.get(name)
            if row is not None:
                mask[row] = self.refuses(row) is not None
        return mask

    @override
    def refuses(self, row: int) -> Refusal | None:
        storage, name = self.around.storage, self.nodes.names[row]
        new, wrong = self._wanted(self.spec)
        if wrong:
            return Refusal.ERROR
        drivers = storage.node_drivers.get(name)
        if not new or drivers is None or not drivers.limits:
            return None
        mounted: dict[str, str] = {}
        for task in self.nodes.pods[row].values():
            if task.shape.spec.claims or task.shape.spec.disks:
                theirs, wrong = self._wanted(task.shape.spec)
                if wrong:
                    return Refusal.ERROR
                mounted |= theirs
        attached = Counter({**storage.attached_to(name), **mounted}.values())
        more = Counter(driver for volume, driver in new.items() if volume not in mounted)
        limits = dict(drivers.limits)
        if any(driver in limits and attached[driver] + count > limits[driver] for driver, count in more.items()):
            return Refusal.UNSCHEDULABLE
        return None

    def _wanted(self, spec: PodSpec) -> tuple[dict[str, str], bool]:
        """Unique volume name -> driver, and whether a claim belongs to another pod."""
        storage = self.around.storage
        wanted = {f"{_MIGRATED[disk.kind]}/{disk.name}": _MIGRATED[disk.kind] for disk in spec.disks if disk.kind in _MIGRATED}
        for use in spec.claims:
            claim = storage.claims.get(use.key)
            if claim is None:
                continue
            if use.owner and claim.owner != use.owner:
                return wanted, True
            attachable = storage.attachable(claim)
            if attachable is not None:
                wanted[attachable[1]] = attachable[0]
        return wanted, False


class _Claims(NamedTuple):
    """The claims of a pod: bound ones, and those that wait for their first consumer, smallest first."""

    bound: tuple[Claim, ...]
    waiting: tuple[Claim, ...]


class VolumeBinding(_ByRow):
    """Whether every claim is bound to a volume within reach, or could be."""

    plugin = "VolumeBinding"
    code = ReasonCode.VOLUMES
    complaint = "node(s) have no volume for a claim, and none can be provisioned there"

    @override
    def stop(self) -> Stop | None:
        storage = self.around.storage
        for use in self.spec.claims:
            claim = storage.claims.get(use.key)
            if claim is None:
                return Stop(self.plugin, f"claim {use.key} does not exist")
            if claim.lost:
                return Stop(self.plugin, f"claim {use.key} has lost its volume {claim.volume}")
            if claim.deleting:
                return Stop(self.plugin, f"claim {use.key} is being deleted")
            if use.owner and claim.owner != use.owner:
                return Stop(self.plugin, f"claim {use.key} was not created for this pod")
        immediate = False
        for use in self.spec.claims:
            claim = storage.claims[use.key]
            if claim.volume and claim.bound:
                continue
            made_by = storage.classes.get(claim.storage_class) if claim.storage_class else None
            if made_by is not None and not made_by.mode:
                return Stop(self.plugin, f"storage class {made_by.name} has no volumeBindingMode", error=True)
            immediate |= made_by is None or made_by.mode != BINDS_LATE or bool(claim.volume)
        return Stop(self.plugin, "a claim that binds at once is not bound yet") if immediate else None

    def claims(self) -> _Claims:
        """The claims as they stand; asked only where nothing stops the pod."""
        claims = [self.around.storage.claims[use.key] for use in self.spec.claims]
        bound = tuple(claim for claim in claims if claim.volume and claim.bound)
        waiting = sorted((claim for claim in claims if not (claim.volume and claim.bound)), key=lambda claim: claim.size or 0)
        return _Claims(bound, tuple(waiting))

    @override
    def refuses(self, row: int) -> Refusal | None:
        decided = self.decide(row)
        return decided if isinstance(decided, Refusal) else None

    def decide(self, row: int) -> Refusal | list[VolumeChoice]:
        """What each waiting claim would get on a row, or why there is nothing for one."""
        node = self.nodes.objects[row]
        if node is None:
            return Refusal.UNRESOLVABLE
        labels, storage = node.labels, self.around.storage
        claims = self.claims()
        for claim in claims.bound:
            volume = storage.volumes.get(claim.volume)
            if volume is None or not reaches(volume, labels):
                return Refusal.UNRESOLVABLE
        provisioned: list[Claim] = []
        waiting: list[Claim] = []
        for claim in claims.waiting:
            chosen = storage.chosen.get(claim.key, claim.chosen_node)
            if chosen and chosen != node.name:
                return Refusal.UNRESOLVABLE
            (provisioned if chosen else waiting).append(claim)
        given: dict[str, str] = {}
        for claim in waiting:
            found = self.find(claim, labels, set(given))
            if found is None:
                provisioned.append(claim)
            else:
                given[found.name] = claim.key
        for claim in provisioned:
            refusal = self._can_provision(claim, labels)
            if refusal is not None:
                return refusal
        return [
            *(VolumeChoice(claim, volume) for volume, claim in given.items()),
            *(VolumeChoice(each.key) for each in provisioned),
        ]

    def find(self, claim: Claim, labels: dict[str, str], taken: set[str]) -> Volume | None:
        """The volume for a claim on a node with these labels: the one reserved for it, else the smallest that suits."""
        storage = self.around.storage
        candidates = [
            volume
            for volume in storage.volumes_of(claim.storage_class)
            if volume.name not in taken and storage.suits(volume, claim)
        ]
        for volume in candidates:
            if storage.kept_for(volume, claim):
                return volume if reaches(volume, labels) else None
        for volume in candidates:
            if (
                volume.available
                and matches(claim.selector, dict(volume.labels))
                and reaches(volume, labels)
                and set(claim.access_modes) <= set(volume.access_modes)
            ):
                return volume
        return None

    def _can_provision(self, claim: Claim, labels: dict[str, str]) -> Refusal | None:
        storage = self.around.storage
        made_by = storage.classes.get(claim.storage_class) if claim.storage_class else None
        if made_by is None:
            return Refusal.ERROR
        if made_by.provisioner in ("", _NO_PROVISIONER) or not _is_in(made_by, labels):
            return Refusal.UNRESOLVABLE
        driver = storage.drivers.get(made_by.provisioner)
        size = claim.size
        if size is None or driver is None or not driver.reports_capacity:
            return None
        enough = any(
            each.storage_class == made_by.name and each.size is not None and each.size >= size and matches(each.nodes, labels)
            for each in storage.capacities.values()
        )
        return None if enough else Refusal.UNRESOLVABLE


class VolumeZone(_ByRow):
    """Zone and region labels of bound volumes, where the node has such labels at all."""

    plugin = "VolumeZone"
    code = ReasonCode.VOLUMES
    complaint = "node(s) had no available volume zone"

    @override
    def stop(self) -> Stop | None:
        storage = self.around.storage
        for use in self.spec.claims:
            if use.owner:
                continue
            claim = storage.claims.get(use.key)
            if claim is None:
                return Stop(self.plugin, f"claim {use.key} does not exist")
            if claim.volume:
                if claim.volume not in storage.volumes:
                    return Stop(self.plugin, f"volume {claim.volume} does not exist")
                continue
            made_by = storage.classes.get(claim.storage_class) if claim.storage_class else None
            if made_by is None:
                return Stop(self.plugin, f"claim {use.key} has neither a volume nor a storage class that exists")
            if made_by.mode != BINDS_LATE:
                return Stop(self.plugin, f"claim {use.key} is not bound yet")
        return None

    @override
    def applies(self) -> bool:
        return bool(self._places())

    def _places(self) -> list[tuple[str, frozenset[str]]]:
        storage = self.around.storage
        places = []
        for use in self.spec.claims:
            claim = storage.claims.get(use.key)
            volume = storage.volumes.get(claim.volume) if claim is not None and not use.owner else None
            if volume is not None:
                labels = dict(volume.labels)
                zones = ((key, _zones(labels[key])) for key in _PLACE_LABELS if key in labels)
                places += [(key, values) for key, values in zones if values]
        return places

    @override
    def refuses(self, row: int) -> Refusal | None:
        node = self.nodes.objects[row]
        if node is None:
            return Refusal.UNRESOLVABLE
        if not any(key in node.labels for key in _PLACE_LABELS):
            return None
        for key, values in self._places():
            value = node.labels.get(key, node.labels.get(_OLD_LABELS.get(key, key)))
            if value is None or value not in values:
                return Refusal.UNRESOLVABLE
        return None


def reaches(volume: Volume, labels: dict[str, str]) -> bool:
    """Whether a node with these labels can reach a volume."""
    return volume.nodes is None or any_term_holds(volume.nodes, labels, "")


def _is_in(made_by: StorageClass, labels: dict[str, str]) -> bool:
    if not made_by.topologies:
        return True
    return any(term and all(labels.get(key) in values for key, values in term) for term in made_by.topologies)


def _zones(text: str) -> frozenset[str]:
    """The zones of a label such as `a__b`; none if it cannot be read."""
    zones = [zone.strip() for zone in text.split("__")]
    return frozenset(zones) if all(zones) else frozenset()

"""Volumes as far as placing pods depends on them: claims, volumes, classes, drivers, and what nodes can attach.

Objects are immutable, as in `model.py`. The `Storage` catalogue answers what filters ask of them; `version` is
raised by every change, so that verdicts drawn from it can be drawn anew.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.core.model.selectors import Labels, Selector, SelectorTerm
from fairlead.core.model.undo import UndoLog, new_version

BINDS_LATE = "WaitForFirstConsumer"
SINGLE_POD = "ReadWriteOncePod"


class Claim(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A PersistentVolumeClaim. key: `namespace/name`.

    volume: the one it names; bound: the binding is complete. size: bytes, None where none is asked.
    chosen_node: where a provisioner is asked to make the volume. owner: UID of the pod it was made for.
    """

    key: str
    uid: str = ""
    storage_class: str = ""
    volume: str = ""
    bound: bool = False
    lost: bool = False
    deleting: bool = False
    chosen_node: str = ""
    access_modes: tuple[str, ...] = ()
    size: int | None = None
    selector: Selector = ()
    block: bool = False
    owner: str = ""
    attributes_class: str = ""


class Volume(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A PersistentVolume. claim, claim_uid: to which it is bound, or for which reserved; nodes: where it is reached, None
    anywhere.

    driver, handle: what attaches it and by which name; empty for kinds that nodes do not count.
    """

    name: str
    storage_class: str = ""
    size: int = 0
    access_modes: tuple[str, ...] = ()
    claim: str = ""
    claim_uid: str = ""
    available: bool = False
    deleting: bool = False
    nodes: tuple[SelectorTerm, ...] | None = None
    labels: Labels = ()
    block: bool = False
    driver: str = ""
    handle: str = ""
    attributes_class: str = ""


class StorageClass(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A StorageClass. mode: when it binds, empty where it has none.

    topologies: alternatives of (label key, values), all of which a node must have; none: everywhere.
    """

    name: str
    provisioner: str = ""
    mode: str = ""
    topologies: tuple[tuple[tuple[str, tuple[str, ...]], ...], ...] = ()


class NodeDrivers(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A CSINode. limits: (driver, how many volumes of it the node can attach)."""

    node: str
    limits: tuple[tuple[str, int], ...] = ()


class Driver(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A CSIDriver. reports_capacity: volumes are provisioned only where it published enough capacity."""

    name: str
    reports_capacity: bool = False


class StorageCapacity(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A CSIStorageCapacity. size: bytes of the largest volume that can be made; nodes: from where it can be reached."""

    key: str
    storage_class: str
    size: int | None = None
    nodes: Selector = None


class Attachment(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A VolumeAttachment: a driver attaches a volume to a node, or should."""

    name: str
    driver: str
    node: str
    volume: str


StorageObject = Claim | Volume | StorageClass | NodeDrivers | Driver | StorageCapacity | Attachment


class Storage:
    """All storage objects by name. known: whether all that exist were received; before, no pod with claims is placed."""

    def __init__(self) -> None:
        self.known = False
        self.claims: dict[str, Claim] = {}
        self.volumes: dict[str, Volume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.node_drivers: dict[str, NodeDrivers] = {}
        self.drivers: dict[str, Driver] = {}
        self.capacities: dict[str, StorageCapacity] = {}
        self.attachments: dict[str, Attachment] = {}
        # What was decided for pods that are not bound yet: claim -> volume, volume -> claim, claim -> node to make one on.
        self.given: dict[str, str] = {}
        self.taken: dict[str, str] = {}
        self.chosen: dict[str, str] = {}
        self.version = 0
        self._of_class: dict[str, dict[str, Volume]] = {}
        self._attached: dict[str, dict[str, Attachment]] = {}
        self._tables: dict[type, dict[str, Any]] = {
            Claim: self.claims,
            Volume: self.volumes,
            StorageClass: self.classes,
            NodeDrivers: self.node_drivers,
            Driver: self.drivers,
            StorageCapacity: self.capacities,
            Attachment: self.attachments,
        }

    # -- events --------------------------------------------------------------------------------

    def upsert(self, item: StorageObject) -> None:
        """An object came or changed."""
        self.remove(type(item), _name(item))
        self.version = new_version()
        self._tables[type(item)][_name(item)] = item
        if isinstance(item, Volume):
            self._of_class.setdefault(item.storage_class, {})[item.name] = item
        elif isinstance(item, Attachment):
            self._attached.setdefault(item.node, {})[item.name] = item

    def remove(self, kind: type[StorageObject], name: str) -> None:
        """An object is gone; one that is not known is no news."""
        gone = self._tables[kind].pop(name, None)
        if gone is None:
            return
        self.version = new_version()
        if isinstance(gone, Volume):
            self._of_class[gone.storage_class].pop(name)
        elif isinstance(gone, Attachment):
            self._attached[gone.node].pop(name)

    # -- decisions, under the undo log -----------------------------------------------------------

    def reserve(self, log: UndoLog, claim: str, volume: str, node: str) -> None:
        """A claim gets a volume, or (empty) one made for a node."""
        log.renew(self)
        if volume:
            log.insert(self.given, claim, volume)
            log.insert(self.taken, volume, claim)
        else:
            log.insert(self.chosen, claim, node)

    def release(self, log: UndoLog, claim: str) -> None:
        """The pod that a claim was decided for goes elsewhere, or nowhere."""
        if claim in self.given:
            log.renew(self)
            log.remove(self.taken, self.given[claim])
            log.remove(self.given, claim)
        elif claim in self.chosen:
            log.renew(self)
            log.remove(self.chosen, claim)

    def drop(self, claim: str) -> None:
        """Whatever was decided for a claim, perhaps in part, is forgotten."""
        volume = self.given.pop(claim, None)
        if volume is not None:
            self.taken.pop(volume, None)
        self.chosen.pop(claim, None)
        self.version = new_version()

    def kept_for(self, volume: Volume, claim: Claim) -> bool:
        """Whether a volume is bound to a claim, or reserved for it."""
        if self.taken.get(volume.name) == claim.key:
            return True
        return volume.claim == claim.key and volume.claim_uid in ("", claim.uid)

    def suits(self, volume: Volume, claim: Claim) -> bool:
        """Whether a volume could be bound to a claim at all, wherever it can be reached; the class is the caller's."""
        return (
            not volume.deleting
            and volume.size >= (claim.size or 0)
            and volume.block == claim.block
            and volume.attributes_class == claim.attributes_class
            and self.taken.get(volume.name, claim.key) == claim.key
            and (not volume.claim or self.kept_for(volume, claim))
        )

    # -- questions -----------------------------------------------------------------------------

    def volumes_of(self, storage_class: str) -> list[Volume]:
        """The volumes of a class, smallest first, then by name."""
        return sorted(self._of_class.get(storage_class, {}).values(), key=lambda each: (each.size, each.name))

    def attached_to(self, node: str) -> dict[str, str]:
        """What is attached to a node by the attachments' word: unique volume name -> driver."""
        result = {}
        for each in self._attached.get(node, {}).values():
            volume = self.volumes.get(each.volume)
            if each.driver and volume is not None and volume.driver:
                result[f"{each.driver}/{volume.handle}"] = each.driver
        return result

    def attachable(self, claim: Claim) -> tuple[str, str] | None:
        """(driver, unique volume name) by which a claim counts towards what a node can attach; None: it does not."""
        volume = self.volumes.get(claim.volume) if claim.volume else None
        if volume is not None:
            return (volume.driver, f"{volume.driver}/{volume.handle}") if volume.driver and volume.handle else None
        made_by = self.classes.get(claim.storage_class) if claim.storage_class else None
        if made_by is None or not made_by.provisioner:
            return None
        return made_by.provisioner, f"{made_by.provisioner}/?{claim.key}"


def _name(item: StorageObject) -> str:
    match item:
        case Claim() | StorageCapacity():
            return item.key
        case NodeDrivers():
            return item.node
        case _:
            return item.name

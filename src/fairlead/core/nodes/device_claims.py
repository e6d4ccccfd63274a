"""ResourceClaims as far as placing pods depends on them: what they ask for, have, and are to get.

What claims hold by their status is counted, and what was decided for pods whose claims are not written yet. A pod that leaves
its node in a trial, or as a victim, gives back what no other pod on a node uses. All of that is under the undo log. `version` is
raised by every change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fairlead.core.dra import model
from fairlead.core.dra.model import Allocation, DeviceClaim, DeviceClass, DeviceObject, DeviceTemplate, Slice
from fairlead.core.model.arrays import Mask
from fairlead.core.model.pods import DeviceNeed, DeviceUse, Pod
from fairlead.core.model.transactions import DeviceChoice
from fairlead.core.model.undo import UndoLog, new_version
from fairlead.core.nodes.claims_by_pool import ClaimsByPool
from fairlead.core.nodes.device_failures import AvoidedDevices, DeviceFailures, Unserved
from fairlead.core.nodes.device_needs import DeviceNeeds
from fairlead.core.nodes.device_rows import DeviceRows
from fairlead.core.nodes.device_verdicts import SharedVerdicts
from fairlead.core.nodes.extended_resources import ExtendedResources
from fairlead.core.nodes.node_devices import NodeDevices
from fairlead.core.nodes.table import NodeTable

MOST_USERS = 256
"""Pods for which one claim can be reserved, as the API allows them."""


class DeviceClaims(AvoidedDevices):
    """All objects of `resource.k8s.io`. known: whether all that exist were received; before, no pod with claims is placed.

    assumed: what was decided for claims, by key, until they have it in their status. devices: what nodes can use. by_pool: what
    claims hold. wants: what pods ask for, and the pods that use claims. failures: devices whose binding failed. unserved: whether
    the cluster refuses claims for extended resources. verdicts: where what shapes ask for fits. extended: which of the resources
    that pods request are had by devices.
    """

    def __init__(self, nodes: NodeTable, log: UndoLog) -> None:
        self.known = False
        self.version = 0
        self.claims: dict[str, DeviceClaim] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.templates: dict[str, DeviceTemplate] = {}
        self.assumed: dict[str, Allocation] = {}
        self.devices = NodeDevices(nodes, log)
        self.failures = DeviceFailures(self._avoid)
        self.unserved = Unserved()
        self.verdicts = SharedVerdicts()
        self.by_pool = ClaimsByPool(log)
        nodes.claimed.follow(self)
        self.wants = DeviceNeeds(self.devices, self.classes, self.asks_of)
        self.extended = ExtendedResources(self.classes)
        self.rows = DeviceRows(self.devices, self.classes)
        self._log = log
        self._counted: dict[str, Allocation] = {}  # what is in `held` for a claim
        self._placed: dict[str, int] = {}  # claim -> pods on rows that use it
        # Claims that have an allocation of which all pods have lost their places: what of it others do not get, None: nothing.
        self._given: dict[str, Allocation | None] = {}
        # Of `assumed`: those that were in the status since. They are kept: a binding that is on its way writes them again.
        self._observed: dict[str, None] = {}
        self._unseen: dict[str, None] = {}  # claims written for a pod that has no place now, and not observed since

    @property
    def used(self) -> bool:
        """Whether any pod uses a claim, or any claim holds devices."""
        return bool(self.wants.any or self._placed or self._counted or self._given)

    # -- events --------------------------------------------------------------------------------

    def upsert(self, item: DeviceObject) -> None:
        """An object came or changed."""
        self.version = new_version()
        match item:
            case Slice():
                self.devices.put(item)
                self.wants.follow_sizes()
            case DeviceClass():
                before = self.classes.get(item.name)
                self.classes[item.name] = item
                self.devices.renew_all()
                if before != item:
                    self.wants.class_changed(item.name)
                self._class_changed(item.name, before, item)
            case DeviceTemplate():
                self.templates[item.key] = item
                self.wants.concern(item.key)
            case DeviceClaim():
                key, claim = self.extended.note(item)
                self._claim_changed(key, claim)
                if item.extended:
                    self.wants.concerned[item.owner] = None

    def _claim_changed(self, key: str, claim: DeviceClaim) -> None:
        before = self.claims.get(key)
        self.claims[key] = claim
        self._seen_now(key)
        if claim.allocation is not None and key in self.assumed:
            self._observed[key] = None
        self._recount(key)
        self._forget_released(before)
        self.wants.concern(key)

    def _class_changed(self, name: str, before: DeviceClass | None, now: DeviceClass | None) -> None:
        """Pods that request resources which a class serves, or served, need something else."""
        self.wants.concerned.update(dict.fromkeys(self.extended.class_changed(name, before, now)))

    def remove(self, kind: type[DeviceObject], name: str) -> None:
        """An object is gone; one that is not known is no news."""
        self.version = new_version()
        if kind is Slice:
            self.devices.remove(name)
            self.wants.follow_sizes()
        elif kind is DeviceClass:
            before = self.classes.pop(name, None)
            self.devices.renew_all()
            self._class_changed(name, before, None)
        elif kind is DeviceTemplate:
            self.templates.pop(name, None)
            self.wants.concern(name)
        else:
            key, other = self.extended.forget(name)
            if other is not None:
                self._claim_changed(key, other)
            elif (claim := self.claims.pop(key, None)) is not None:
                self._seen_now(key)
                self._observed.pop(key, None)
                self.failures.claim_gone(key)
                self._recount(key)
                self._forget_released(claim)
                self.wants.concern(key)

    def all_known(self) -> None:
        """All objects that exist have been received."""
        self.known = True
        self.version = new_version()

    def _seen_now(self, key: str) -> None:
        """What was written for a pod that is gone is observed: its status counts."""
        if key in self._unseen:
            del self._unseen[key]
            if key not in self._placed:
                self.assumed.pop(key, None)

    def _forget_released(self, before: DeviceClaim | None) -> None:
        """What a claim had by its status, and has no more, need not be known if no slice has it."""
        if before is not None and before.allocation is not None:
            self.devices.forget_released(each.device for each in before.allocation.devices)

    # -- pods that use claims --------------------------------------------------------------------

    def leave(self, pod: Pod) -> None:
        """A pod is gone: what its claims still hold by their status is held, until the status changes."""
        self.wants.leave(pod)
        for key in (key_of(pod.uid, use) for use in pod.claims):
            if key not in self._placed:
                if key in self._observed or key not in self.claims:
                    self._observed.pop(key, None)
                    self.assumed.pop(key, None)
                    self._recount(key)
                elif key in self.assumed:
                    self._unseen[key] = None
                self._hold_again(key)

    # -- decisions, under the undo log -----------------------------------------------------------

    def allocation_of(self, key: str) -> Allocation | None:
        """What a claim has by its status, or is to get; None: nothing. It has it as long as a pod that uses it leaves."""
        claim = self.claims.get(key)
        if claim is not None and claim.allocation is not None:
            return claim.allocation
        return self.assumed.get(key)

    def unobserved(self, pod: Pod) -> dict[str, Allocation]:
        """What was decided for the claims of a pod with a place, and is not in their status as far as is known."""
        return {key: self.assumed[key] for key in self.keys_of(pod) if key in self.assumed and key not in self._observed}

    def place(self, pod: Pod, decided: Sequence[tuple[str, Allocation]]) -> None:
        """A pod has a place; decided: what its claims get there, those that have nothing yet."""
        log = self._log
        for use in pod.claims:
            key = key_of(pod.uid, use)
            log.add(self._placed, key, 1)
            if key in self._unseen:
                log.remove(self._unseen, key)
            if key in self._given:
                log.remove(self._given, key)
                log.renew(self)
                self._recount(key)
        for key, allocation in decided:
            if self._placed[key] > 1 and self.allocation_of(key) is not None:
                continue  # another pod has it by now: where it cannot be used here, this one is not bound
            log.insert(self.assumed, key, allocation)
            self._recount(key)

    def displace(self, pod: Pod) -> None:
        """A pod loses its place: what its claims hold becomes free where no other pod with a place uses them."""
        log = self._log
        for use in pod.claims:
            key = key_of(pod.uid, use)
            if self._placed.get(key, 0) > 1:
                log.add(self._placed, key, -1)
                continue
            if key in self._placed:
                log.remove(self._placed, key)
            claim = self.claims.get(key)
            written = claim is not None and claim.allocation is not None
            if key in self.assumed and not pod.node:
                log.remove(self.assumed, key)
                if key in self._observed:
                    log.remove(self._observed, key)
            elif key in self.assumed:
                written = True  # as its pod is bound, although the claim's status was not observed yet
            if written and (claim is None or (not claim.foreign and set(claim.users) <= {pod.uid})):
                log.insert(self._given, key, None)
                log.renew(self)
            elif key in self.assumed:
                log.insert(self._unseen, key, None)
            self._recount(key)

    @staticmethod
    def keys_of(pod: Pod) -> list[str]:
        """The keys of the claims of a pod."""
        return [key_of(pod.uid, use) for use in pod.claims]

    def uid_of(self, key: str) -> str:
        """The UID of a claim; empty: it does not exist."""
        claim = self.claims.get(key)
        return claim.uid if claim is not None else ""

    def users_with_places(self, key: str) -> int:
        """How many pods with places use a claim."""
        return self._placed.get(key, 0)

    def rows_for(self, needs: tuple[DeviceNeed, ...], count: int) -> Mask:
        """For each of so many rows whether its node could have devices for these needs one day."""
        allocated = (self.allocation_of(need.claim) if need.claim and not need.missing else None for need in needs)
        asked = [(need, self.wants.content(need.content), each) for need, each in zip(needs, allocated, strict=True)]
        return self.rows.serving(asked, count)

    def is_given(self, key: str) -> bool:
        """Whether the pod that uses a claim leaves, so that the claim has its devices only until then."""
        return key in self._given

    def close(self, pod: Pod, row: int) -> None:
        """A victim's devices that its beneficiaries do not take stay closed until it is gone. row: its node."""
        for use in pod.claims:
            key = key_of(pod.uid, use)
            allocation = self.allocation_of(key)
            if key in self._given and allocation is not None:
                if self._given[key] is not None:
                    self._log.insert(self._given, key, None)
                    self._recount(key)
                rest = (self.devices.rest_of(key, each, row) for each in allocation.devices)
                left = tuple(each for each in rest if each is not None)
                if left:
                    self._log.insert(self._given, key, Allocation(left))
                    self._recount(key)

    def idle(self, pod: Pod) -> tuple[DeviceChoice, ...]:
        """Claims that have devices by their status, for no other pod than this one, and one that was created to bind this pod."""
        found = []
        for use in pod.claims:
            claim = self.claims.get(use.key)
            if claim is not None and use.extended:
                if not claim.deleting and not self._placed.get(use.key):
                    found.append(DeviceChoice(claim.key, claim.allocation, decided=True, uid=claim.uid, removed=True))
                continue
            if claim is None or claim.allocation is None or claim.foreign or claim.deleting:
                continue
            if set(claim.users) <= {pod.uid} and len(self.wants.users(use.key)) == 1 and not self._placed.get(use.key):
                found.append(DeviceChoice(use.key, claim.allocation, decided=True))
        return tuple(found)

    def keep(self, pod: Pod) -> None:
        """A pod lost its place, and no other is to have its devices: they are held until the status changes."""
        for use in pod.claims:
            self._hold_again(key_of(pod.uid, use))

    def _hold_again(self, key: str) -> None:
        if key in self._given:
            del self._given[key]
            self._log.renew(self)
            if key in self.assumed and key not in self._placed:
                self._unseen[key] = None  # its pod was bound, and is on no node that is known
            self.devices.forget_rest(key)
            self._recount(key)

    def drop(self, pod: Pod) -> None:
        """Whatever was decided for a pod, perhaps in part, is forgotten."""
        for use in pod.claims:
            key = key_of(pod.uid, use)
            self._placed.pop(key, None)
            self.assumed.pop(key, None)

    def still_held(self, pod: Pod) -> bool:
        """Whether claims of a pod still have their devices by their status although no pod with a place uses them."""
        for use in pod.claims:
            claim = self.claims.get(use.key)
            if claim is not None and claim.allocation is not None and not self._placed.get(use.key):
                return True
        return False

    def chosen(self) -> Iterator[tuple[model.Chosen, model.Device | None, bool]]:
        """Devices that claims hold, with what is counted instead of them, and whether that is closed for beneficiaries."""
        for key, allocation in self._counted.items():
            for each in allocation.devices:
                yield each, self.devices.stand_in(each.device), key in self._given

    def _to_count(self, key: str) -> Allocation | None:
        """What of a claim's devices others do not get: all of them, or while its pod leaves what no beneficiary takes."""
        found = self.allocation_of(key)
        return self._given[key] if found is not None and key in self._given else found

    def _recount(self, key: str) -> None:
        """Count what a claim holds from now on: by its status, else what was decided for it."""
        wanted = self._to_count(key)
        before = self._counted.get(key)
        if before is wanted:
            return
        log = self._log
        if before is not None and wanted is not None and _holds(before) == _holds(wanted):
            log.insert(self._counted, key, wanted)  # as it was decided: an echo of our own write
            return
        if before is not None:
            log.remove(self._counted, key)
            self.by_pool.drop(key, before)
        if wanted is not None:
            log.insert(self._counted, key, wanted)
            self.by_pool.put(key, wanted)
        self.devices.exchange(before, wanted)
        if before is not None and not log.depth and self.allocation_of(key) is None:
            self.devices.forget_released(each.device for each in before.devices)
        log.renew(self)

    def asks_of(self, key: str) -> model.Claim | None:
        """What a claim or a template asks for, by `namespace/name`; None: there is none."""
        found = self.claims.get(key) or self.templates.get(key)
        return found.asks if found is not None else None

    # -- what must hold ----------------------------------------------------------------------------

    def problems(self, placed: Iterable[Pod], starting: Iterable[Pod]) -> list[str]:
        """What is not as it follows from claims and from the pods that have places; empty: nothing.

        starting: those of them that are being bound: what they are to get, no other has or gets.
        """
        users: dict[str, int] = {}
        for pod in placed:
            for use in pod.claims:
                key = key_of(pod.uid, use)
                users[key] = users.get(key, 0) + 1
        wrong = [f"claims are used by pods with places {users}, and counted are {self._placed}"] if users != self._placed else []
        idle = self.assumed.keys() - users.keys() - self._given.keys() - self._unseen.keys()
        wrong += [f"{key} is to get devices, and no pod that uses it has a place" for key in sorted(idle)]
        wrong += [f"{key} gives its devices away, and a pod that uses it has a place" for key in self._given if key in users]
        expected = {}
        for key in {*self.claims, *self.assumed}:
            wanted = self._to_count(key)
            if wanted is not None:
                expected[key] = _holds(wanted)
        counted = {key: _holds(each) for key, each in self._counted.items()}
        if counted != expected:
            wrong.append(f"claims hold {expected}, and counted are {counted}")
        taken, held = self.devices.hold(self._counted.values()).amounts(), self.devices.held.amounts()
        wrong += self.by_pool.problems(self._counted)
        if taken != held:
            wrong.append(f"devices are held {held}, and claims hold {taken}")
        return wrong + self._given_twice({key_of(pod.uid, use) for pod in starting for use in pod.claims})

    def _given_twice(self, starting: set[str]) -> list[str]:
        """Devices that a claim is to get which another one has."""
        holders: dict[model.DeviceId, list[str]] = {}
        for key, allocation in self._counted.items():
            for each in allocation.devices:
                if not each.admin and not each.shared:
                    holders.setdefault(each.device, []).append(key)
        return [
            f"{device} is given to {', '.join(sorted(keys))}"
            for device, keys in holders.items()
            if len(keys) > 1 and any(key in self.assumed and key in starting for key in keys)
        ]

    # -- upkeep ----------------------------------------------------------------------------------

    def recount(self, placed: Iterable[Pod], leaving: Iterable[Pod]) -> None:
        """Reckon anew what is held. placed: the pods that have places; leaving: victims. Nothing may be tried meanwhile."""
        self._placed.clear()
        self._given.clear()
        self._counted = {}
        self.by_pool.clear()
        self.devices.hold_again()
        keys = set()
        for pod in placed:
            for use in pod.claims:
                key = key_of(pod.uid, use)
                self._placed[key] = self._placed.get(key, 0) + 1
                keys.add(key)
        for key in (key_of(pod.uid, use) for pod in leaving for use in pod.claims):
            if key in self.assumed and key not in keys:
                self._unseen[key] = None  # it is written, and not observed
        for key in [key for key in self.assumed if key not in keys and key not in self._unseen]:
            del self.assumed[key]
        for key in [*self.claims, *self.assumed]:
            self._recount(key)
        self.version = new_version()


def _holds(allocation: Allocation) -> tuple[tuple[object, ...], ...]:
    """What of an allocation keeps devices from others, and where it can be used."""
    devices = tuple((each.request, each.device, each.admin, each.shared, each.consumed) for each in allocation.devices)
    return (*devices, (allocation.terms,))


def key_of(uid: str, use: DeviceUse) -> str:
    """By which key a claim of a pod is known; one that is not created yet has the pod's UID in it."""
    return use.key or f"{uid}//{use.name}"

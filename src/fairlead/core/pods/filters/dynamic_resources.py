"""DynamicResources: whether a node has devices for the ResourceClaims of a pod, and which.

Claims that have an allocation are to be had where it can be used; the others get theirs from what the node can use, all of them
at once. Verdicts are kept by row until what its node can use changes, for all shapes that ask for the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from typing_extensions import override

from fairlead.api.reasons import ReasonCode
from fairlead.core.dra import refusals
from fairlead.core.dra.model import Allocation, Claim, DeviceId
from fairlead.core.model.arrays import Ints, Mask, RowNumbers
from fairlead.core.model.late import late
from fairlead.core.model.pods import DeviceNeed, Served
from fairlead.core.model.selectors import any_term_holds
from fairlead.core.nodes.device_claims import MOST_USERS
from fairlead.core.nodes.extended_resources import content_of
from fairlead.core.pods.filters.base import MANY, Refusal, Relation, Stop, Surroundings
from fairlead.core.pods.filters.extended_resources import ExtendedResources

if TYPE_CHECKING:
    from fairlead.core.dra import allocator, held, needs, problem
    from fairlead.core.dra.held import NodeState
    from fairlead.core.pods.shapes import Shape
else:
    allocator = late("fairlead.core.dra.allocator")
    held, needs, problem = (late(f"fairlead.core.dra.{each}") for each in ("held", "needs", "problem"))

_ASKED = 16  # rows whose reasons are compared for a message


class _Question(NamedTuple):
    """positions: of the needs that are to get devices; asked: what they ask for."""

    state: NodeState
    node: str
    positions: list[int]
    asked: list[Claim]


class DynamicResources(Relation):
    """The claims of a pod and what nodes have for them."""

    plugin = "DynamicResources"
    code = ReasonCode.DEVICES
    complaint = "cannot allocate all claims"

    def __init__(self, shape: Shape, around: Surroundings) -> None:
        super().__init__(shape, around)
        self._claims = around.device_claims
        self._verdicts = self._claims.verdicts.of(self._asked())
        self._contents: dict[tuple[str, ...], Claim] = {}  # by the extended resources that devices serve

    @classmethod
    def of(cls, relations: Iterable[Relation]) -> DynamicResources | None:
        """The one of a shape's relations that judges its claims; None: it has none."""
        return next((each for each in relations if isinstance(each, cls)), None)

    @override
    def version(self) -> int:
        return self._claims.version

    @override
    def stop(self) -> Stop | None:
        if not self._claims.known:
            return Stop(self.plugin, "the devices of the cluster are still being listed")
        for need in self.spec.devices:
            wrong = self._wrong(need)
            if wrong:
                return Stop(self.plugin, wrong)
        return None

    def _wrong(self, need: DeviceNeed) -> str:
        """Why a claim is to be had on no node, whatever they have."""
        claim = self._claims.claims.get(need.claim)
        if claim is not None and claim.extended:
            return f"resourceclaim {claim.key} of an earlier binding is not deleted yet"
        if need.missing or (need.claim and claim is None):
            return self._missing(need)
        if claim is None:
            return self._mistake(self._claims.wants.content(need.content))
        if claim.deleting:
            return f"resourceclaim {need.claim} is being deleted"
        if (users := self._claims.users_with_places(need.claim)) >= MOST_USERS:
            return f"resourceclaim {need.claim} is used by {users} pods, and more than {MOST_USERS} cannot use it"
        return "" if claim.allocation is not None else self._mistake(claim.asks)

    def _missing(self, need: DeviceNeed) -> str:
        if need.content:
            return (
                f"waiting for resourceclaim {need.claim} to be created"
                if need.claim not in self._claims.templates
                else (f"waiting for a resourceclaim to be created from template {need.claim}")
            )
        return f"resourceclaim or resourceclaimtemplate {need.claim} does not exist"

    def _mistake(self, asks: Claim) -> str:
        if asks.mistake:
            return asks.mistake
        for each in (each for request in asks.requests for each in request.alternatives):
            if each.device_class not in self._claims.classes:
                return f"request {each.name}: device class {each.device_class} does not exist"
        return ""

    @override
    def refused(self) -> Mask | None:
        devices = self._claims.devices
        seen = (devices.everywhere, self._pinned_version())
        return self._verdicts.refused(devices.versions(self.nodes.count), seen, lambda row: self.refuses(row) is not None)

    @override
    def most(self, *, empty: bool = False) -> Ints | None:
        """Of claims that pods have each for themselves: by the devices, and the counters, that these consume at least."""
        devices, counts = self._claims.devices, self._verdicts.empty if empty else self._verdicts.free
        versions = devices.versions(self.nodes.count)
        return counts.counted(versions, (devices.everywhere,), lambda row: self._most_on(row, empty=empty))

    def _most_on(self, row: int, *, empty: bool) -> int:
        state = self._claims.devices.state_of(row)
        if state is None:
            return 0
        asked = [self.content_on(row, need) if need.served else self._own(need) for need in self.spec.devices]
        contents = [each for each in asked if each is not None]
        if not contents:
            return MANY
        free = held.Held().on(state.inventory)
        problem_ = problem.prepare(free, contents, self._claims.classes)
        if isinstance(problem_, refusals.Refusal):
            return 0
        there = needs.sums(free if empty else state)
        return min((int(there.get(name, 0) // amount) for name, amount in needs.least(problem_).items()), default=MANY)

    def _own(self, need: DeviceNeed) -> Claim | None:
        """What a claim asks for that no other pod uses, and that has no devices yet."""
        return self._claims.wants.content(need.content) if need.content and not need.claim else None

    def _asked(self) -> tuple[object, ...]:
        """What decides where it fits: what claims ask for but for parameters of drivers, and which claims where that matters."""
        found: list[object] = []
        for need in self.spec.devices:
            asks = msgspec.structs.replace(self._claims.wants.content(need.content), configs=())
            found += (asks, msgspec.structs.replace(need, content=0, milli=0, sharers=1))
        return tuple(found)

    def _pinned_version(self) -> int:
        """Changes when it may matter that claims that others use, too, have another allocation."""
        return self._claims.version if any(need.claim for need in self.spec.devices) else 0

    @override
    def words(self, rows: Ints | RowNumbers) -> str:
        """The complaint with the reason of most of these rows, of those that have devices at all if there are any."""
        reasons: Counter[tuple[bool, str]] = Counter()
        for row in rows.tolist():
            decided = self.decide(row)
            if self._is_unserved(row):
                reasons[True, self._claims.unserved.why] += 1
            elif isinstance(decided, refusals.Refusal):
                reasons[bool(decided.counts.devices), decided.text_of_claim()] += 1
            elif isinstance(decided, Refusal):
                reasons[True, "a claim is allocated elsewhere"] += 1
            if reasons.total() == _ASKED and any(there for there, _ in reasons):
                break
        served = ", ".join(
            f"{each.resource} by device class {each.device_class}" for need in self.spec.devices for each in need.served
        )
        _, common = min(reasons, key=lambda each: (not each[0], -reasons[each], each[1]), default=(False, ""))
        common = f"{served}: {common}" if served and common else common
        return f"{self.complaint} ({common})" if common else self.complaint

    @override
    def refuses(self, row: int) -> Refusal | None:
        question = self._question(row)
        if isinstance(question, Refusal):
            return question
        found = (
            allocator.refusal(question.state, question.node, question.asked, self._claims.classes, allocator.PACKED)
            if question.asked
            else None
        )
        if found is None:
            return None
        return Refusal.UNSCHEDULABLE if found.can_change_by_itself else Refusal.UNRESOLVABLE

    def claims_can_be_had(self, row: int) -> bool:
        """Whether the cluster does not refuse the claims for extended resources that a pod needs on a row."""
        return not self._is_unserved(row)

    def _is_unserved(self, row: int) -> bool:
        """Whether a row's devices would serve extended resources, and the cluster refuses claims for these."""
        return bool(self._claims.unserved.why) and any(
            need.served and self.content_on(row, need) is not None for need in self.spec.devices
        )

    def reaches(self, row: int) -> bool:
        """Whether the claims that are allocated can be used on a row."""
        node = self.nodes.objects[row]
        held = (self._claims.allocation_of(need.claim) for need in self.spec.devices if need.claim)
        return node is not None and all(
            each is None or each.terms is None or any_term_holds(each.terms, node.labels, node.name) for each in held
        )

    def served_on(self, row: int, need: DeviceNeed) -> tuple[Served, ...]:
        """The extended resources of a need that the node of a row does not advertise, so that devices must serve them."""
        nodes = self.nodes
        return tuple(each for each in need.served if not nodes.alloc[nodes.resource(each.resource)].item(row))

    def content_on(self, row: int, need: DeviceNeed) -> Claim | None:
        """What a claim for extended resources asks for on a row; None: no claim is needed there."""
        served = self.served_on(row, need)
        if not served:
            return None
        names = tuple(each.resource for each in served)
        content = self._contents.get(names)
        if content is None:
            content = self._contents[names] = content_of(served)
        return content

    def decide(self, row: int, state: NodeState | None = None) -> Refusal | refusals.Refusal | list[tuple[int, Allocation]]:
        """What each need without devices would get on a row, as (its position, allocation), or why there is nothing for one.

        state: what is free there; None: what is free now.
        """
        question = self._question(row, state)
        if isinstance(question, Refusal) or not question.asked:
            return question if isinstance(question, Refusal) else []
        found = allocator.allocate(question.state, question.node, question.asked, self._claims.classes, allocator.PACKED)
        return found if isinstance(found, refusals.Refusal) else list(zip(question.positions, found, strict=True))

    def _question(self, row: int, state: NodeState | None = None) -> Refusal | _Question:
        """What is to be allocated on a row, and from what; a refusal where that does not matter."""
        node, state = self.nodes.objects[row], state or self._claims.devices.state_of(row)
        if node is None or state is None:
            return Refusal.UNRESOLVABLE
        open_, asked = [], []
        closed: dict[DeviceId, str] = {}
        for at, need in enumerate(self.spec.devices):
            if need.served:
                content = self.content_on(row, need)
                if content is not None and self._claims.unserved.why:
                    return Refusal.UNSCHEDULABLE
                if content is not None:
                    open_.append(at)
                    asked.append(content)
                continue
            held = self._claims.allocation_of(need.claim) if need.claim else None
            if need.claim and self._claims.is_given(need.claim):
                return Refusal.UNSCHEDULABLE
            if held is None:
                open_.append(at)
                closed.update(self._claims.failures.of_claim(need.claim))
                asked.append(self._claims.wants.content(need.content))
            elif held.terms is not None and not any_term_holds(held.terms, node.labels, node.name):
                return Refusal.UNRESOLVABLE
        return _Question(state.without(closed) if closed else state, node.name, open_, asked)


def only_claims(relations: Iterable[Relation]) -> bool:
    """Whether nothing but devices, of claims or for extended resources, must be judged of a shape beyond nodes by themselves."""
    return all(isinstance(each, DynamicResources | ExtendedResources) for each in relations)

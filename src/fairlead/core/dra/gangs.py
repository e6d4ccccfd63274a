"""Devices for a gang: every member on a node, with devices for its own claims and for claims that members share.

Equal members are one kind. Kinds are spread over nodes, the largest first, each to the nodes that have least left for it; how
many of a kind a node takes beside what it has is asked of `allocate`, over the claims of all of them at once. So the alternatives
of all members on a node are decided together: one member takes half a device where two must share it. Where a spread leads
nowhere, fewer of a kind are put on a node; states that failed are remembered up to nodes that are alike. Members that share a
claim are placed as one where they fit on a node; else the claim is allocated first, if its devices can be used from
several nodes, and its members follow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.core.dra.allocator import BUDGET, DEFAULT, Options, Work, allocate, fits
from fairlead.core.dra.covering import GaveUp, Vector
from fairlead.core.dra.held import Held, NodeState
from fairlead.core.dra.inventory import Inventory, bits
from fairlead.core.dra.model import Allocation, Claim, DeviceClass
from fairlead.core.dra.needs import Needs, counted, least, sums
from fairlead.core.dra.problem import Problem, prepare
from fairlead.core.dra.refusals import Kind, Refusal, unknown
from fairlead.core.dra.steps import Steps, walk
from fairlead.core.model.nodes import Node
from fairlead.core.model.selectors import NAME_FIELD, any_term_holds

_MOST_ASKED, _MOST_ONE_BY_ONE = 4000, 200
"""How often one gang may ask whether a set of members fits on a node."""

_MOST_WORK = 2 * BUDGET
"""Units of work for all questions of a gang and for the steps by which its members are spread over nodes."""

_MOST_REMEMBERED = 256
"""Nodes up to which states are remembered for each node, not only for each kind: one takes as long as there are nodes."""


class Member(msgspec.Struct, frozen=True):
    """One pod. claims: its own; shared: positions of the gang's shared claims; nodes: where it may run, None: anywhere."""

    name: str
    claims: tuple[Claim, ...] = ()
    shared: tuple[int, ...] = ()
    nodes: frozenset[str] | None = None


class Placed(msgspec.Struct, frozen=True):
    """One member's node, and an allocation for each of its own claims."""

    node: str
    allocations: tuple[Allocation, ...]


class Gang(msgspec.Struct, frozen=True):
    """Where each member runs, in the order in which they were given, and the allocation of each shared claim.

    A shared claim that no member uses is not allocated: None.
    """

    members: tuple[Placed, ...]
    shared: tuple[Allocation | None, ...]


class Place(msgspec.Struct):
    """A node and what it can use of devices."""

    node: Node
    inventory: Inventory


class _Bundle(msgspec.Struct):
    """Members that are placed as one, with the shared claims that are allocated with them. key: equal for equal bundles."""

    members: list[int]
    shared: list[int]
    claims: list[Claim]
    nodes: frozenset[str] | None
    key: object


def allocate_gang(
    places: Sequence[Place],
    held: Held,
    members: Sequence[Member],
    shared: Sequence[Claim],
    classes: Mapping[str, DeviceClass],
    options: Options = DEFAULT,
) -> Gang | Refusal:
    """Nodes and devices for all members, or why there are none. `held` is as before when it returns."""
    for member in members:
        for at in member.shared:
            if not 0 <= at < len(shared):
                message = f"member {member.name} uses shared claim {at}, and there are {len(shared)}"
                return Refusal(Kind.INVALID, message)
    search = _Gangs(places, held, members, shared, classes, options)
    try:
        bundles = search.bundles(frozenset())
        found = search.place(bundles, {})
        if isinstance(found, Refusal) and search.any_is_wide():
            found = search.place_apart(found)
            if isinstance(found, Refusal) and any(len(each.members) > 1 for each in bundles) and search.may_go_apart():
                found = unknown("not all ways to share devices of several nodes were tried", found)
    except GaveUp:
        message = f"search gave up after {search.asked} questions whether members fit on a node"
        return Refusal(Kind.GAVE_UP, message, work=search.work.done)
    if isinstance(found, Refusal) and search.undecided:
        found = unknown(f"search gave up on {search.undecided} of {search.asked} questions whether members fit on a node", found)
    return found


class _Gangs:
    """One gang's search. asked: how often a set of members was tried on a node; undecided: how often without a result."""

    def __init__(
        self,
        places: Sequence[Place],
        held: Held,
        members: Sequence[Member],
        shared: Sequence[Claim],
        classes: Mapping[str, DeviceClass],
        options: Options,
    ) -> None:
        self.asked = self.undecided = 0
        self.work = Work(_MOST_WORK)
        self._states: dict[str, NodeState] = {}
        self.places, self._held, self._members, self._shared = places, held, members, shared
        self.classes, self._options = classes, options

    def bundles(self, apart: frozenset[int]) -> list[_Bundle]:
        """Members that share claims, directly or through others, as one; apart: shared claims that are allocated before."""
        group = list(range(len(self._members)))
        owner: dict[int, int] = {}
        for at, member in enumerate(self._members):
            for claim in (each for each in member.shared if each not in apart):
                first = owner.setdefault(claim, at)
                old, new = group[at], group[first]
                group = [new if each == old else each for each in group]
        found = []
        for number in dict.fromkeys(group):
            inside = [at for at, each in enumerate(group) if each == number]
            shared = sorted({claim for at in inside for claim in self._members[at].shared if claim not in apart})
            claims = [self._shared[each] for each in shared] + [one for at in inside for one in self._members[at].claims]
            limited = [self._members[at].nodes for at in inside if self._members[at].nodes is not None]
            nodes = frozenset.intersection(*limited) if limited else None  # type: ignore[arg-type]
            key = tuple((each.requests, each.constraints) for each in claims), nodes
            found.append(_Bundle(inside, shared, claims, nodes, key))
        return found

    def place(self, bundles: list[_Bundle], fixed: dict[int, Allocation]) -> Gang | Refusal:
        """Nodes for bundles. fixed: allocations of shared claims that were made before: members follow them."""
        kinds: list[list[_Bundle]] = []
        numbers: dict[object, int] = {}
        for bundle in bundles:
            bundle.nodes = self._reachable(bundle, fixed)
            number = numbers.setdefault(msgspec.json.encode((repr(bundle.key), sorted(bundle.nodes))), len(kinds))
            if number == len(kinds):
                kinds.append([])
            kinds[number].append(bundle)
        if fixed:
            self.spend(1 + len(self.places) // 16)
        else:  # a spread that does not go back is not limited
            self.work.budget += 2 * len(self.places) * len(kinds)
        spread = _Spread(self, kinds)
        for at, kind in enumerate(kinds):
            if not spread.nodes_for(at):
                what = f"{len(kind)} of {len(self._members)} members have devices on no node"
                return Refusal(
                    Kind.TOGETHER, f"{what}; on the last: {spread.reasons[at] or 'they may not run there'}", work=self.work.done
                )
        chosen = spread.run()
        if chosen is None:
            message = f"the nodes have devices for some, but not for all {len(self._members)} members at once"
            return Refusal(Kind.TOGETHER, message, work=self.work.done)
        found = self._assign(chosen, kinds, fixed)
        if isinstance(found, Refusal):
            taken: list[tuple[_Bundle, Place, list[Allocation]]] = []
            ordered = sorted(bundles, key=lambda each: len(each.nodes or ()))
            if len(ordered) <= _MOST_ONE_BY_ONE and self._one_by_one(ordered, taken):
                return self._gang(taken, fixed)
        return found

    def place_apart(self, refusal: Refusal) -> Gang | Refusal:
        """Allocate shared claims first whose devices several nodes can use, from each node in turn; members follow them there."""
        tried = set()
        used = sorted({at for member in self._members for at in member.shared})
        for place in self.places:
            wide = [at for at in used if self._is_wide(place, self._shared[at])]
            answer = self.ask(place, [self._shared[at] for at in wide])
            if not wide or isinstance(answer, Refusal) or str(answer) in tried:
                continue
            tried.add(str(answer))
            self._take(answer)
            try:
                found = self.place(self.bundles(frozenset(wide)), dict(zip(wide, answer, strict=True)))
            finally:
                self._release(answer)
            if isinstance(found, Gang):
                return found
        return refusal

    def may_go_apart(self) -> bool:
        """Whether members could be placed if none needed a shared claim; if not, that is proven."""
        found = self.place(self.bundles(frozenset(range(len(self._shared)))), {})
        return isinstance(found, Gang) or found.kind is Kind.GAVE_UP

    def any_is_wide(self) -> bool:
        """Whether some shared claim could have a device that several nodes can use."""
        for at in {at for member in self._members for at in member.shared}:
            for place in self.places:
                problem = prepare(self.state(place), [self._shared[at]], self.classes)
                if not isinstance(problem, Problem):
                    continue
                slots = [slot for position in problem.positions for slot in position.slots]
                if not all(slot.count for slot in slots) or not slots:  # it may need no device
                    return True
                inventory = problem.state.inventory
                if not all(inventory.is_local(index) for slot in slots for index in bits(slot.candidates)):
                    return True
        return False

    def _is_wide(self, place: Place, claim: Claim) -> bool:
        """Whether a claim's devices on a node can be used from others, too."""
        answer = self.ask(place, [claim])
        if isinstance(answer, Refusal):
            return False
        terms = answer[0].terms
        return terms is None or not any(each.key == NAME_FIELD for term in terms for each in term.fields)

    def _reachable(self, bundle: _Bundle, fixed: dict[int, Allocation]) -> frozenset[str]:
        """Nodes where a bundle may run, and can use the shared claims that are allocated already."""
        names = set()
        terms = [fixed[each].terms for at in bundle.members for each in self._members[at].shared if each in fixed]
        for place in self.places:
            node = place.node
            if (bundle.nodes is None or node.name in bundle.nodes) and all(
                each is None or any_term_holds(each, node.labels, node.name) for each in terms
            ):
                names.add(node.name)
        return frozenset(names)

    def _assign(
        self, chosen: list[tuple[Place, Vector]], kinds: list[list[_Bundle]], fixed: dict[int, Allocation]
    ) -> Gang | Refusal:
        """Allocate node by node; devices that several nodes can use are taken by the first that asks."""
        queues = [list(each) for each in kinds]
        placed: list[tuple[_Bundle, Place, list[Allocation]]] = []
        taken: list[Allocation] = []
        try:
            for place, vector in chosen:
                bundles = [queue.pop(0) for queue, count in zip(queues, vector, strict=True) for _ in range(count)]
                answer = self.ask(place, [claim for each in bundles for claim in each.claims])
                if isinstance(answer, Refusal):
                    message = f"members of several nodes need the same devices: {answer.message}"
                    refusal = Refusal(Kind.TOGETHER, message, answer.claim, answer.request, work=self.work.done)
                    return unknown("not all choices of devices were tried", refusal)
                self._take(answer)
                taken += answer
                rest = iter(answer)
                placed += [(each, place, [next(rest) for _ in each.claims]) for each in bundles]
        finally:
            self._release(taken)
        return self._gang(placed, fixed)

    def _one_by_one(self, bundles: list[_Bundle], taken: list[tuple[_Bundle, Place, list[Allocation]]]) -> bool:
        """Place bundles one after the other, going back over nodes: for devices that several nodes can use."""
        if len(taken) == len(bundles):
            return True
        bundle = bundles[len(taken)]
        for place in self.places:
            if place.node.name not in (bundle.nodes or ()):
                continue
            answer = self.ask(place, bundle.claims)
            if isinstance(answer, Refusal):
                continue
            self._take(answer)
            taken.append((bundle, place, answer))
            try:
                if self._one_by_one(bundles, taken):
                    return True
                taken.pop()
            finally:
                self._release(answer)
        return False

    def _gang(self, taken: list[tuple[_Bundle, Place, list[Allocation]]], fixed: dict[int, Allocation]) -> Gang:
        members: dict[int, Placed] = {}
        shared = dict(fixed)
        for bundle, place, answer in taken:
            rest = iter(answer)
            shared.update((claim, next(rest)) for claim in bundle.shared)
            for at in bundle.members:
                members[at] = Placed(place.node.name, tuple(next(rest) for _ in self._members[at].claims))
        return Gang(
            tuple(members[at] for at in range(len(self._members))), tuple(shared.get(at) for at in range(len(self._shared)))
        )

    def ask(self, place: Place, claims: Sequence[Claim]) -> list[Allocation] | Refusal:
        """Whether claims fit on a node together with what is held."""
        self._question(claims)
        answer = allocate(self.state(place), place.node.name, claims, self.classes, self._options, self.work)
        self.undecided += isinstance(answer, Refusal) and answer.kind is Kind.GAVE_UP
        return answer

    def fits(self, place: Place, claims: Sequence[Claim]) -> bool:
        """Whether there is an allocation of claims on a node; where that is not decided within the budget, none is assumed."""
        self._question(claims)
        try:
            return fits(self.state(place), claims, self.classes, self._options, self.work)
        except GaveUp:
            self.undecided += 1
            return False

    def spend(self, units: int) -> None:
        """Count work that is not a question's own."""
        self.work.done += units
        if self.work.done > self.work.budget:
            raise GaveUp

    def _question(self, claims: Sequence[Claim]) -> None:
        self.asked += 1
        if self.asked > _MOST_ASKED:
            raise GaveUp
        self.spend(1 + len(claims))

    def state(self, place: Place) -> NodeState:
        """What of a node's devices is free; kept until something is taken or released."""
        name = place.node.name
        if name not in self._states:
            self._states[name] = self._held.on(place.inventory)
        return self._states[name]

    def _take(self, allocations: Sequence[Allocation]) -> None:
        self._held.take(allocations)
        self._states.clear()

    def _release(self, allocations: Sequence[Allocation]) -> None:
        self._held.release(allocations)
        self._states.clear()


class _Spread:
    """How many of each kind every node takes. reasons: of kinds that a node refuses, by kind."""

    def __init__(self, gangs: _Gangs, kinds: list[list[_Bundle]]) -> None:
        self.reasons = [""] * len(kinds)
        self._gangs, self._kinds, self._places = gangs, kinds, gangs.places
        states = [gangs.state(place) for place in self._places]
        self._needs: list[list[Needs | None]] = [
            [self._need(at, kind[0], state) for state in states] for at, kind in enumerate(kinds)
        ]
        self._order = sorted(range(len(kinds)), key=self._largest)
        self._free = [sums(state) for state in states]
        self._alike = self._fingerprints(states)
        self._vectors = [[0] * len(kinds) for _ in self._places]
        self._known: dict[tuple[int, Vector], bool] = {}
        self._failed: set[object] = set()

    def nodes_for(self, kind: int) -> bool:
        """Whether one of a kind fits somewhere."""
        return any(each is not None for each in self._needs[kind])

    def run(self) -> list[tuple[Place, Vector]] | None:
        """The nodes that take members, each with how many of each kind."""
        if not walk(self._kind(0)):
            return None
        return [(place, tuple(vector)) for place, vector in zip(self._places, self._vectors, strict=True) if any(vector)]

    def _need(self, at: int, bundle: _Bundle, state: NodeState) -> Needs | None:
        """What one of a kind consumes of each kind of counter on a node at least; None: it does not fit there."""
        if state.inventory not in [place.inventory for place in self._places if place.node.name in (bundle.nodes or ())]:
            return None
        problem = prepare(state, bundle.claims, self._gangs.classes)
        if not isinstance(problem, Problem):
            self.reasons[at] = problem.text()
            return None
        return least(problem)

    def _largest(self, kind: int) -> tuple[object, ...]:
        """Kinds that can go to few nodes first, then those that consume most."""
        needs = [each for each in self._needs[kind] if each is not None]
        size = max(map(counted, needs), default=0)
        return len(needs), -size, -len(self._kinds[kind][0].claims), kind

    def _fingerprints(self, states: list[NodeState]) -> list[int]:
        """Nodes with one number are alike for this gang: their devices match alike, position by position, and as much is free."""
        numbers: dict[object, int] = {}
        result = []
        claims = [claim for kind in self._kinds for claim in kind[0].claims]
        asks = [ask for claim in claims for request in claim.requests for ask in request.alternatives]
        attributes = sorted({each.attribute for claim in claims for each in claim.constraints})
        for at, state in enumerate(states):
            inventory = state.inventory
            masks = []
            for ask in asks:
                device_class = self._gangs.classes.get(ask.device_class)
                selectors = (*(device_class.selectors if device_class else ()), *ask.selectors)
                masks.append((inventory.matching(selectors, ask.capacity), inventory.tolerated(ask.tolerations)))
            values = [tuple(inventory.values(each)[0]) for each in attributes]
            capacity = repr([inventory.devices[index].capacity for index in bits(inventory.multiple)])
            local = all(each.reach.node for each in inventory.slices if not each.per_device)
            form = (
                masks,
                values,
                inventory.uses,
                state.free,
                state.alone,
                state.sharing,
                state.shares,
                inventory.multiple,
                capacity,
            )
            allowed = tuple(needs[at] is not None for needs in self._needs)
            key = (repr(form), allowed, len(inventory.faults)) if local else at
            result.append(numbers.setdefault(key, len(numbers)))
        return result

    def _kind(self, depth: int) -> Steps:
        """Spread the kinds from one on."""
        if depth == len(self._order):
            return True
        if not self._enough(depth):
            return False
        key = self._state(depth, [], 0)
        if key in self._failed:
            return False
        kind = self._order[depth]
        nodes = [at for at, need in enumerate(self._needs[kind]) if need is not None]
        nodes.sort(key=lambda at: (counted(self._free[at]), at))
        if (yield self._node(depth, nodes, len(self._kinds[kind]))):
            return True
        self._failed.add(key)
        return False

    def _node(self, depth: int, nodes: list[int], left: int) -> Steps:
        """Put members of a kind on these nodes, as many as fit on the first, then fewer."""
        if not left:
            return (yield self._kind(depth + 1))
        kind = self._order[depth]
        if not nodes:
            return False
        remembered = len(self._places) <= _MOST_REMEMBERED
        key = self._state(depth, nodes, left) if remembered and self._failed else None
        if key in self._failed:
            return False
        at = nodes[0]
        need = self._needs[kind][at] or {}
        count = min([left, *(self._free[at].get(name, 0) // amount for name, amount in need.items() if amount)])
        while count >= 0:
            self._gangs.spend(1)
            if count and not self._fits(at, kind, count):
                count -= 1
                continue
            self._put(at, kind, count, need)
            if (yield self._node(depth, nodes[1:], left - count)):
                return True
            self._put(at, kind, -count, need)
            count -= 1
        if remembered:
            self._failed.add(key if key is not None else self._state(depth, nodes, left))
        return False

    def _state(self, depth: int, nodes: list[int], left: int) -> object:
        """Equal for states from which the same can be reached: the nodes still open for a kind, and all others."""
        self._gangs.spend(1 + len(self._places) // 16)
        open_ = set(nodes)
        states = [
            (at in open_, alike, *vector) for at, (alike, vector) in enumerate(zip(self._alike, self._vectors, strict=True))
        ]
        return depth, left, tuple(sorted(states))

    def _put(self, at: int, kind: int, count: int, need: Needs) -> None:
        self._vectors[at][kind] += count
        for name, amount in need.items():
            self._free[at][name] = self._free[at].get(name, 0) - amount * count

    def _fits(self, at: int, kind: int, count: int) -> bool:
        """Whether a node takes so many of a kind beside what it has."""
        vector = tuple(each + count if number == kind else each for number, each in enumerate(self._vectors[at]))
        key = (self._alike[at], vector)
        if key not in self._known:
            claims = [
                claim for one, many in zip(self._kinds, vector, strict=True) for each in one[:many] for claim in each.claims
            ]
            self._known[key] = self._gangs.fits(self._places[at], claims)
        return self._known[key]

    def _enough(self, depth: int) -> bool:
        """Whether the sums of counters and devices of all nodes suffice for what is still to be spread."""
        needed: Needs = {}
        for kind in self._order[depth:]:
            needs = [each for each in self._needs[kind] if each is not None]
            for name in needs[0]:
                needed[name] = needed.get(name, 0) + min(each.get(name, 0) for each in needs) * len(self._kinds[kind])
        return all(sum(free.get(name, 0) for free in self._free) >= amount for name, amount in needed.items())

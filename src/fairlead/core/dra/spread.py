"""How many members of each kind every node takes: the kinds of a gang are spread over nodes, the largest first.

Each kind goes to the nodes that have least left for it. Where a spread leads nowhere, fewer are put on a node; states that failed
are remembered up to nodes that are alike, and sums of counters and devices bound what can still fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from fairlead.core.dra.covering import Vector
from fairlead.core.dra.held import NodeState
from fairlead.core.dra.inventory import bits
from fairlead.core.dra.model import Claim
from fairlead.core.dra.needs import Needs, counted, least, of_node, sums
from fairlead.core.dra.problem import Problem, prepare
from fairlead.core.dra.questions import Place, Questions
from fairlead.core.dra.steps import Steps, walk

_MOST_REMEMBERED = 256
"""Nodes up to which states are remembered for each node, not only for each kind: one takes as long as there are nodes."""


class Form(msgspec.Struct, frozen=True):
    """What a member asks for on some nodes: claims of its own, and amounts of their other resources, by name."""

    claims: tuple[Claim, ...] = ()
    amounts: tuple[tuple[str, int], ...] = ()


class Formed(Protocol):
    """A member."""

    @property
    def elsewhere(self) -> tuple[tuple[frozenset[str], Form], ...]:
        """Nodes with another form."""

    def form_on(self, node: str) -> Form:
        """What it asks for on a node."""


class Bundle(msgspec.Struct):
    """Members that are placed as one, with the shared claims that are allocated with them. key: equal for equal bundles.

    together: the shared claims; forms: the members.
    """

    members: list[int]
    shared: list[int]
    together: list[Claim]
    forms: Sequence[Formed]
    nodes: frozenset[str] | None
    key: object

    def claims_on(self, node: str) -> list[Claim]:
        """All that it asks for on a node, shared claims first."""
        return [*self.together, *(claim for each in self.forms for claim in each.form_on(node).claims)]

    def amounts_on(self, node: str) -> dict[str, int]:
        """What it needs of a node's other resources."""
        found: dict[str, int] = {}
        for each in self.forms:
            for name, amount in each.form_on(node).amounts:
                found[name] = found.get(name, 0) + amount
        return found

    def way_on(self, node: str) -> tuple[int, ...]:
        """Equal for nodes on which all members have the same forms."""
        return tuple(next((at for at, (names, _) in enumerate(each.elsewhere) if node in names), -1) for each in self.forms)


class Spread:
    """How many of each kind every node takes. reasons: of kinds that a node refuses, by kind."""

    def __init__(self, questions: Questions, kinds: list[list[Bundle]]) -> None:
        self.reasons = [""] * len(kinds)
        self._questions, self._kinds, self._places = questions, kinds, questions.places
        states = [questions.state(place) for place in self._places]
        self._needs: list[list[Needs | None]] = [
            [self._need(at, kind[0], place, state) for place, state in zip(self._places, states, strict=True)]
            for at, kind in enumerate(kinds)
        ]
        self._order = sorted(range(len(kinds)), key=self._largest)
        self._free = [sums(state) | of_node(place.amounts) for place, state in zip(self._places, states, strict=True)]
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

    def _need(self, at: int, bundle: Bundle, place: Place, state: NodeState) -> Needs | None:
        """What one of a kind consumes of each kind of counter on a node at least; None: it does not fit there."""
        name = place.node.name
        if name not in (bundle.nodes or ()):
            return None
        amounts = bundle.amounts_on(name)
        short = sorted(each for each, amount in amounts.items() if amount > place.amounts.get(each, 0))
        if short:
            self.reasons[at] = f"too little of {', '.join(short)} is free"
            return None
        problem = prepare(state, bundle.claims_on(name), self._questions.classes)
        if not isinstance(problem, Problem):
            self.reasons[at] = problem.text()
            return None
        return least(problem) | of_node(amounts)

    def _largest(self, kind: int) -> tuple[object, ...]:
        """Kinds that can go to few nodes first, then those that consume most."""
        needs = [each for each in self._needs[kind] if each is not None]
        size = max(map(counted, needs), default=0)
        bundle = self._kinds[kind][0]
        most = max(
            (len(bundle.claims_on(place.node.name)) for place in self._places if place.node.name in (bundle.nodes or ())),
            default=0,
        )
        return len(needs), -size, -most, kind

    def _fingerprints(self, states: list[NodeState]) -> list[int]:
        """Nodes with one number are alike for this gang: their devices match alike, position by position, and as much is free."""
        numbers: dict[object, int] = {}
        result = []
        most: dict[str, int] = {}  # of each amount: nodes that have enough for the whole gang are alike in it
        for kind in self._kinds:
            for name in _each_way(kind[0], self._places):
                for each, amount in kind[0].amounts_on(name).items():
                    most[each] = most.get(each, 0) + amount * len(kind)
        claims = [claim for kind in self._kinds for name in _each_way(kind[0], self._places) for claim in kind[0].claims_on(name)]
        asks = [ask for claim in claims for request in claim.requests for ask in request.alternatives]
        attributes = sorted({each.attribute for claim in claims for each in claim.constraints})
        for at, state in enumerate(states):
            inventory = state.inventory
            masks = []
            for ask in asks:
                device_class = self._questions.classes.get(ask.device_class)
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
            name, amounts = self._places[at].node.name, [min(self._places[at].amounts.get(each, 0), most[each]) for each in most]
            ways = [kind[0].way_on(name) for kind in self._kinds]
            key = (repr((form, amounts, ways)), allowed, len(inventory.faults)) if local else at
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
            self._questions.spend(1)
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
        self._questions.spend(1 + len(self._places) // 16)
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
                claim
                for one, many in zip(self._kinds, vector, strict=True)
                for each in one[:many]
                for claim in each.claims_on(self._places[at].node.name)
            ]
            self._known[key] = self._questions.fits(self._places[at], claims)
        return self._known[key]

    def _enough(self, depth: int) -> bool:
        """Whether the sums of counters and devices of all nodes suffice for what is still to be spread."""
        needed: Needs = {}
        for kind in self._order[depth:]:
            needs = [each for each in self._needs[kind] if each is not None]
            for name in needs[0]:
                needed[name] = needed.get(name, 0) + min(each.get(name, 0) for each in needs) * len(self._kinds[kind])
        return all(sum(free.get(name, 0) for free in self._free) >= amount for name, amount in needed.items())


def _each_way(bundle: Bundle, places: Iterable[Place]) -> list[str]:
    """A node for each set of forms that the members of a bundle have anywhere."""
    return list({bundle.way_on(place.node.name): place.node.name for place in places}.values())

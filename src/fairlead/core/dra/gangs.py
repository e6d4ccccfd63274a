"""Devices for a gang: every member on a node, with devices for its own claims and for claims that members share.

Equal members are one kind. Kinds are spread over nodes (`spread.py`); how many of a kind a node takes beside what it has is asked
of `allocate` (`questions.py`), over the claims of all of them at once. So the alternatives of all members on a node are decided
together: one member takes half a device where two must share it. Members that share a claim are placed as one where they fit on a
node; else the claim is allocated first, if its devices can be used from several nodes, and its members follow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.core.dra.allocator import DEFAULT, Options
from fairlead.core.dra.covering import GaveUp, Vector
from fairlead.core.dra.held import Held
from fairlead.core.dra.inventory import bits
from fairlead.core.dra.model import Allocation, Claim, DeviceClass
from fairlead.core.dra.problem import Problem, prepare
from fairlead.core.dra.questions import Place, Questions
from fairlead.core.dra.refusals import Kind, Refusal, unknown
from fairlead.core.dra.spread import Bundle, Form, Spread
from fairlead.core.model.selectors import NAME_FIELD, any_term_holds

__all__ = ["Form", "Gang", "Member", "Place", "Placed", "allocate_gang"]

_MOST_ONE_BY_ONE = 200
"""Bundles up to which members are placed one by one."""


class Member(msgspec.Struct, frozen=True):
    """One pod. claims: its own; shared: positions of the gang's shared claims; nodes: where it may run, None: anywhere.

    amounts: what it needs of its node's other resources, by name. elsewhere: the nodes on which its own claims and amounts are
    others, since their device plugins serve what devices serve on the rest.
    """

    name: str
    claims: tuple[Claim, ...] = ()
    shared: tuple[int, ...] = ()
    nodes: frozenset[str] | None = None
    amounts: tuple[tuple[str, int], ...] = ()
    elsewhere: tuple[tuple[frozenset[str], Form], ...] = ()

    @property
    def forms(self) -> tuple[Form, ...]:
        """All that it may ask for."""
        return (Form(self.claims, self.amounts), *(form for _, form in self.elsewhere))

    def form_on(self, node: str) -> Form:
        """What it asks for on a node."""
        return next((form for names, form in self.elsewhere if node in names), None) or Form(self.claims, self.amounts)


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
    questions = Questions(places, held, classes, options)
    search = _Gangs(questions, members, shared)
    try:
        bundles = search.bundles(frozenset())
        found = search.place(bundles, {})
        if isinstance(found, Refusal) and search.any_is_wide():
            found = search.place_apart(found)
            if isinstance(found, Refusal) and any(len(each.members) > 1 for each in bundles) and search.may_go_apart():
                found = unknown("not all ways to share devices of several nodes were tried", found)
    except GaveUp:
        message = f"search gave up after {questions.asked} questions whether members fit on a node"
        return Refusal(Kind.GAVE_UP, message, work=questions.work.done)
    if isinstance(found, Refusal) and questions.undecided:
        found = unknown(
            f"search gave up on {questions.undecided} of {questions.asked} questions whether members fit on a node", found
        )
    return found


class _Gangs:
    """One gang's search."""

    def __init__(self, questions: Questions, members: Sequence[Member], shared: Sequence[Claim]) -> None:
        self.questions, self.places = questions, questions.places
        self._members, self._shared = members, shared

    def bundles(self, apart: frozenset[int]) -> list[Bundle]:
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
            members = [self._members[at] for at in inside]
            limited = [each.nodes for each in members if each.nodes is not None]
            nodes = frozenset.intersection(*limited) if limited else None
            forms = [each.forms for each in members]
            together = [self._shared[each] for each in shared]
            key = (
                [(each.requests, each.constraints) for each in together],
                [[([(one.requests, one.constraints) for one in form.claims], form.amounts) for form in one] for one in forms],
                [[sorted(names) for names, _ in each.elsewhere] for each in members],
                sorted(nodes) if nodes is not None else None,
            )
            found.append(Bundle(inside, shared, together, members, nodes, key))
        return found

    def place(self, bundles: list[Bundle], fixed: dict[int, Allocation]) -> Gang | Refusal:
        """Nodes for bundles. fixed: allocations of shared claims that were made before: members follow them."""
        kinds: list[list[Bundle]] = []
        numbers: dict[object, int] = {}
        for bundle in bundles:
            bundle.nodes = self._reachable(bundle, fixed)
            number = numbers.setdefault(msgspec.json.encode((repr(bundle.key), sorted(bundle.nodes))), len(kinds))
            if number == len(kinds):
                kinds.append([])
            kinds[number].append(bundle)
        if fixed:
            self.questions.spend(1 + len(self.places) // 16)
        else:  # a spread that does not go back is not limited
            self.questions.work.budget += 2 * len(self.places) * len(kinds)
        spread = Spread(self.questions, kinds)
        for at, kind in enumerate(kinds):
            if not spread.nodes_for(at):
                what = f"{len(kind)} of {len(self._members)} members have devices on no node"
                return Refusal(
                    Kind.TOGETHER,
                    f"{what}; on the last: {spread.reasons[at] or 'they may not run there'}",
                    work=self.questions.work.done,
                )
        chosen = spread.run()
        if chosen is None:
            message = f"the nodes have devices for some, but not for all {len(self._members)} members at once"
            return Refusal(Kind.TOGETHER, message, work=self.questions.work.done)
        found = self._assign(chosen, kinds, fixed)
        if isinstance(found, Refusal):
            taken: list[tuple[Bundle, Place, list[Allocation]]] = []
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
            answer = self.questions.ask(place, [self._shared[at] for at in wide])
            if not wide or isinstance(answer, Refusal) or str(answer) in tried:
                continue
            tried.add(str(answer))
            self.questions.take(answer)
            try:
                found = self.place(self.bundles(frozenset(wide)), dict(zip(wide, answer, strict=True)))
            finally:
                self.questions.release(answer)
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
                problem = prepare(self.questions.state(place), [self._shared[at]], self.questions.classes)
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
        answer = self.questions.ask(place, [claim])
        if isinstance(answer, Refusal):
            return False
        terms = answer[0].terms
        return terms is None or not any(each.key == NAME_FIELD for term in terms for each in term.fields)

    def _reachable(self, bundle: Bundle, fixed: dict[int, Allocation]) -> frozenset[str]:
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
        self, chosen: list[tuple[Place, Vector]], kinds: list[list[Bundle]], fixed: dict[int, Allocation]
    ) -> Gang | Refusal:
        """Allocate node by node; devices that several nodes can use are taken by the first that asks."""
        queues = [list(each) for each in kinds]
        placed: list[tuple[Bundle, Place, list[Allocation]]] = []
        taken: list[Allocation] = []
        try:
            for place, vector in chosen:
                bundles = [queue.pop(0) for queue, count in zip(queues, vector, strict=True) for _ in range(count)]
                answer = self.questions.ask(place, [claim for each in bundles for claim in each.claims_on(place.node.name)])
                if isinstance(answer, Refusal):
                    message = f"members of several nodes need the same devices: {answer.message}"
                    refusal = Refusal(Kind.TOGETHER, message, answer.claim, answer.request, work=self.questions.work.done)
                    return unknown("not all choices of devices were tried", refusal)
                self.questions.take(answer)
                taken += answer
                rest = iter(answer)
                placed += [(each, place, [next(rest) for _ in each.claims_on(place.node.name)]) for each in bundles]
        finally:
            self.questions.release(taken)
        return self._gang(placed, fixed)

    def _one_by_one(self, bundles: list[Bundle], taken: list[tuple[Bundle, Place, list[Allocation]]]) -> bool:
        """Place bundles one after the other, going back over nodes: for devices that several nodes can use."""
        if len(taken) == len(bundles):
            return True
        bundle = bundles[len(taken)]
        for place in self.places:
            if place.node.name not in (bundle.nodes or ()):
                continue
            name = place.node.name
            others = [each.amounts_on(name) for each, where, _ in taken if where is place] + [bundle.amounts_on(name)]
            if any(sum(each.get(key, 0) for each in others) > place.amounts.get(key, 0) for key in others[-1]):
                continue
            answer = self.questions.ask(place, bundle.claims_on(name))
            if isinstance(answer, Refusal):
                continue
            self.questions.take(answer)
            taken.append((bundle, place, answer))
            try:
                if self._one_by_one(bundles, taken):
                    return True
                taken.pop()
            finally:
                self.questions.release(answer)
        return False

    def _gang(self, taken: list[tuple[Bundle, Place, list[Allocation]]], fixed: dict[int, Allocation]) -> Gang:
        members: dict[int, Placed] = {}
        shared = dict(fixed)
        for bundle, place, answer in taken:
            rest = iter(answer)
            shared.update((claim, next(rest)) for claim in bundle.shared)
            for at in bundle.members:
                own = self._members[at].form_on(place.node.name).claims
                members[at] = Placed(place.node.name, tuple(next(rest) for _ in own))
        return Gang(
            tuple(members[at] for at in range(len(self._members))), tuple(shared.get(at) for at in range(len(self._shared)))
        )

"""Which devices the claims of a pod get on a node: all of them at once, or a reason with numbers.

`allocate` prepares the claims (`problem.py`), searches (`search.py`) and writes down the result as `status.allocation` has it.
Nothing is changed: the caller takes the allocations in `Held` when it decides for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec

from fairlead.core.dra.branching import Tree
from fairlead.core.dra.covering import GaveUp
from fairlead.core.dra.held import NodeState
from fairlead.core.dra.model import MOST_DEVICES, Allocation, Ask, Chosen, Claim, DeviceClass
from fairlead.core.dra.packing import Packing, Pick, fits_smallest, greedy, largest_first
from fairlead.core.dra.problem import Problem, faults_of, prepare
from fairlead.core.dra.refusals import Kind, Refusal
from fairlead.core.dra.scoring import Packed
from fairlead.core.dra.search import Order, Search
from fairlead.core.dra.values import narrow
from fairlead.core.model.selectors import NAME_FIELD, Requirement, SelectorTerm

BUDGET = 50_000
"""Units of work for one pod on one node, of all phases together: at most about a second."""


_SPARE = 64
"""How many devices beyond those needed a scored search may try before the order gives way."""


_SHORT, _SHORT_IN_CELLS = 400, 100
"""How many devices a search may try before constraints are solved by value: fewer where devices share counters."""


class Preference(Enum):
    """Which of several allocations is taken."""

    FIRST = "first"  # upstream's order
    PACKED = "packed"  # what keeps most of what others could still get (`scoring.py`)


class Work(msgspec.Struct):
    """Units of work: how many may be done, and how many were. Phases of a search share one, and so can several questions."""

    budget: int
    done: int = 0

    def left(self) -> int:
        """How many may still be done."""
        return max(0, self.budget - self.done)


class Options(msgspec.Struct, frozen=True):
    """budget: units of work for all phases of one allocation.

    groups: attributes whose values devices of a claim should share, most important first (fully qualified); they only order
    what is tried.
    """

    preference: Preference = Preference.FIRST
    budget: int = BUDGET
    groups: tuple[str, ...] = ()


DEFAULT = Options()
PACKED = Options(Preference.PACKED)
"""How the scheduler chooses devices: those that leave most to others."""


def allocate(
    state: NodeState,
    node: str,
    claims: Sequence[Claim],
    classes: Mapping[str, DeviceClass],
    options: Options = DEFAULT,
    within: Work | None = None,
) -> list[Allocation] | Refusal:
    """An allocation for each claim, on this node, or why there is none. within: work that other questions share."""
    problem = prepare(state, claims, classes)
    if isinstance(problem, Refusal):
        return problem
    work = _part(options, within)
    try:
        picks = _solve(problem, options, work)
    except GaveUp:
        message = f"search gave up after {work.budget} units of work; whether there is an allocation is not known"
        return Refusal(Kind.GAVE_UP, message, faults=faults_of(state.inventory), work=work.done)
    finally:
        if within is not None:
            within.done += work.done
    if picks is None:
        return _together(problem, work.done)
    return _allocations(problem, picks, node, classes)


def fits(
    state: NodeState,
    claims: Sequence[Claim],
    classes: Mapping[str, DeviceClass],
    options: Options = DEFAULT,
    within: Work | None = None,
) -> bool:
    """Whether there is an allocation; cheaper than which. Raises `GaveUp`."""
    problem = prepare(state, claims, classes)
    if isinstance(problem, Refusal):
        return False
    if Packing.applies(problem) and fits_smallest(problem):
        return True
    work = _part(options, within)
    try:
        return _solve(problem, msgspec.structs.replace(options, preference=Preference.FIRST), work) is not None
    finally:
        if within is not None:
            within.done += work.done


def refusal(
    state: NodeState, node: str, claims: Sequence[Claim], classes: Mapping[str, DeviceClass], options: Options = DEFAULT
) -> Refusal | None:
    """Why there is no allocation, as `allocate` finds it; None: there is one. Cheaper where any choice of devices would do."""
    problem = prepare(state, claims, classes)
    if isinstance(problem, Refusal):
        return problem
    if _any_choice_fits(problem):
        return None
    found = allocate(state, node, claims, classes, options)
    return found if isinstance(found, Refusal) else None


def _any_choice_fits(problem: Problem) -> bool:
    """Whether requests can be served one after the other with whichever devices the others leave.

    So it is if each of them has as many candidates as all requests need devices, none is bound by a constraint or asks for all
    devices, and counters do not matter: no candidate consumes any, or one device is needed.
    """
    needed = sum(max(slot.count for slot in position.slots) for position in problem.positions)
    if needed > MOST_DEVICES or any(problem.limits):
        return False
    counted = problem.state.inventory.counted if needed > 1 else 0
    return all(
        any(
            slot.refusal is None and not slot.every and (slot.candidates & ~counted).bit_count() >= needed
            for slot in position.slots
        )
        for position in problem.positions
    )


def _part(options: Options, within: Work | None) -> Work:
    return Work(options.budget if within is None else min(options.budget, within.left()))


def _solve(problem: Problem, options: Options, work: Work) -> list[Pick] | None:
    """Devices for all requests, or None. Raises `GaveUp`.

    Claims without constraints get a first try, then the covering problem: it decides what a search would have to try out. A
    scored order is one in which devices are tried: where it leads nowhere soon, any allocation is taken.
    """
    if any(problem.limits) and not narrow(problem):
        return None
    scored = options.preference is Preference.PACKED
    order = Packed(problem.state.inventory, options.groups, problem.state.avoided.doubted) if scored else None
    if not Packing.applies(problem):
        return _search(problem, order, work)
    if scored:
        first = _SPARE + sum(max(slot.count for slot in position.slots) for position in problem.positions)
        search = Search(problem, min(first, work.left()), order, matched=False)
        try:
            return search.picks if _run(search, work) else None
        except GaveUp:
            pass
    else:
        picks = greedy(problem) or largest_first(problem)
        if picks:
            work.done += len(picks)
            return picks
    try:
        return _packed(problem, work.left() // 2, work)
    except GaveUp:
        return _search(problem, order, work)


def _run(search: Search, work: Work) -> bool:
    try:
        return search.run()
    finally:
        work.done += search.work


def _packed(problem: Problem, budget: int, work: Work) -> list[Pick] | None:
    packing = Packing(problem, budget)
    try:
        return packing.solve()
    finally:
        work.done += packing.work


def _search(problem: Problem, order: Order | None, work: Work) -> list[Pick] | None:
    """A short search, which mostly suffices; then constraints by value (`branching.py`), parts of the problem, a long search."""
    short = _SHORT_IN_CELLS if problem.state.inventory.cells else _SHORT
    more = work.left() > short
    search = Search(problem, min(short, work.left()), order)
    try:
        return search.picks if _run(search, work) else None
    except GaveUp:
        if not more:
            raise
    try:
        return _branch(problem, work)
    except GaveUp:
        pass
    if _is_hopeless(problem, work):
        return None
    search = Search(problem, work.left(), order)
    return search.picks if _run(search, work) else None


def _branch(problem: Problem, work: Work) -> list[Pick] | None:
    """At most half of the work that is left is spent on that."""
    most = work.done + work.left() // 2

    def spend(units: int) -> None:
        work.done += units
        if work.done > most:
            raise GaveUp

    def decide(part: Problem) -> list[Pick] | None:
        search = Search(part, max(0, most - work.done) // 4)
        return search.picks if _run(search, work) else None

    return Tree(problem, decide, spend, lambda: max(0, most - work.done)).solve()


def _is_hopeless(problem: Problem, work: Work) -> bool:
    """Whether one of several claims by itself has no solution. At most half of the work that is left is spent on that."""
    budget = work.left() // 2
    most = work.done + budget
    try:
        for claim in range(len(problem.claims) if len(problem.claims) > 1 else 0):
            positions = [each for each in problem.positions if each.claim == claim]
            part = msgspec.structs.replace(problem, positions=positions)
            if not _run(Search(part, min(budget // 4, max(0, most - work.done))), work):
                return True
    except GaveUp:
        pass
    return False


def _together(problem: Problem, work: int) -> Refusal:
    """Each request has enough devices by itself, and there is no combination."""
    parts = [
        f"{slot.ask.name} needs {slot.count} of {slot.candidates.bit_count()}"
        for position in problem.positions
        for slot in position.slots
        if slot.refusal is None
    ]
    message = f"no combination of devices satisfies all requests, counters and constraints at once ({', '.join(parts)})"
    claim = str(problem.claims[0]) if len(problem.claims) == 1 else ""
    return Refusal(Kind.TOGETHER, message, claim, faults=faults_of(problem.state.inventory), work=work)


def _allocations(problem: Problem, picks: list[Pick], node: str, classes: Mapping[str, DeviceClass]) -> list[Allocation]:
    devices: list[list[int]] = [[] for _ in problem.claims]
    chosen: list[list[Chosen]] = [[] for _ in problem.claims]
    picked: dict[int, int] = {}
    inventory = problem.state.inventory
    for at, number, index in picks:
        position = problem.positions[at]
        picked[at] = number
        ask = position.slots[number].ask
        device = inventory.devices[index]
        consumed = tuple(sorted(inventory.share(ask.capacity, index).items())) if device.multiple else ()
        devices[position.claim].append(index)
        chosen[position.claim].append(
            Chosen(
                ask.name,
                inventory.ids[index],
                ask.admin,
                device.multiple,
                consumed,
                ask.tolerations,
                device.conditions,
                device.failures,
            )
        )
    asks: list[list[Ask]] = [[] for _ in problem.claims]
    for at, position in enumerate(problem.positions):
        asks[position.claim].append(position.slots[picked.get(at, 0)].ask)
    return [
        Allocation(tuple(chosen[at]), _configs(claim, asks[at], classes), _terms(problem, devices[at], node))
        for at, claim in enumerate(problem.claims)
    ]


def _configs(claim: Claim, asks: list[Ask], classes: Mapping[str, DeviceClass]) -> tuple[tuple[str, tuple[str, ...], str], ...]:
    """Parameters of the classes, once per class with the requests that it serves, then those of the claim."""
    by_class: dict[str, list[str]] = {}
    for ask in asks:
        by_class.setdefault(ask.device_class, []).append(ask.name)
    found = [("FromClass", tuple(names), each) for name, names in by_class.items() for each in classes[name].configs]
    served = {ask.name for ask in asks} | {ask.name.partition("/")[0] for ask in asks}
    found += [
        ("FromClaim", each.requests, each.parameters)
        for each in claim.configs
        if not each.requests or not served.isdisjoint(each.requests)
    ]
    return tuple(found)


def _terms(problem: Problem, devices: list[int], node: str) -> tuple[SelectorTerm, ...] | None:
    """From where the devices of a claim can be used: the node, if one of them is local to it, else what they require together."""
    expressions: list[Requirement] = []
    fields: list[Requirement] = []
    for index in devices:
        device, each = problem.state.inventory.devices[index], problem.state.inventory.slices[index]
        reach = device.reach if each.per_device else each.reach
        if reach.node or device.binds_to_node:
            return (SelectorTerm(fields=(Requirement(NAME_FIELD, "In", (node,)),)),)
        for term in (reach.terms or ())[:1]:
            expressions += [one for one in term.expressions if one not in expressions]
            fields += [one for one in term.fields if one not in fields]
    return (SelectorTerm(tuple(expressions), tuple(fields)),) if expressions or fields else None

"""Partners: which pods share GPUs two by two, and beside which of them another one may run.

A pod of a class with `sharing: Pairs` has half a GPU (`core/state/neighbours` writes that into its spec). It gets a GPU that is
free, or the other half of one on which one such pod runs, if what is learned of both kinds allows it (`core/pairs/speeds`).
Parts of GPUs by the annotation `fairlead.dev/gpu-fraction` and pairs do not meet on one node: which device a fraction has is
predicted, and the device of a pair must be known. Everything is read from the pods of a row, so there is nothing to undo.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fairlead.core.model.arrays import Ints, Mask, Rows
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.devices import DeviceStates
from fairlead.core.pairs.speeds import Speeds

HALF = WHOLE // 2
_MANY = 1 << 40  # more pods than any row holds
ALONE_FIRST = WHOLE
"""What to share costs beside what both lose: a GPU that is free makes one job faster and none slower, and is preferred."""


class Shape(Protocol):
    """What is asked of a shape."""

    spec: PodSpec
    gpus: int
    gpu_milli: int
    asks_devices: bool


class Paired(Protocol):
    """What is asked of a task."""

    pod: Pod
    shape: Any
    state: Any
    devices: tuple[int, ...]


P = TypeVar("P", bound=Paired)


class Nodes(Protocol):
    """What is asked of the table of nodes. device: the state of each row's devices."""

    rows: dict[str, int]
    pods: list[dict[str, Any]]
    devices: DeviceStates
    device: npt.NDArray[np.int32]


class Partners:
    """active: some pod may share a GPU; nothing is asked before. rows: where such pods are, or were.

    due: UIDs of pods to be parted from their partners, since both are too slow, or do not run. parted: UID -> when its
    partner left it. bound_at: UID -> when it was bound, by the scheduler's own clock. urgent: the names of the kind whose pod has
    waited so long that it need not gain much by its partner.
    reporting: some pod ever reported its speed. learning: UID -> names, time: pods that none may join before that time, unless
    their kind was measured alone.
    kept: the row and the device that no pod of another kind may come to, so that one of that kind has it once it is free.
    leaving_on: the victims that still run on a row though its place there is given away: what has that place is not there yet.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.active = False
        self.rows: set[int] = set()
        self.speeds = Speeds()
        self.due: set[str] = set()
        self.parted: dict[str, float] = {}
        self.bound_at: dict[str, float] = {}
        self.urgent: tuple[str, ...] = ()
        self.kept: tuple[int, int] | None = None
        self.reporting = False
        self.learning: dict[str, tuple[tuple[str, ...], float]] = {}
        self.leaving_on: Callable[[int], Iterable[Paired]] = lambda _: ()

    # -- who is where --------------------------------------------------------------------------

    def on(self, row: int) -> dict[int, list[Paired]]:
        """The pods of a row that share GPUs, or may, by device."""
        found: dict[int, list[Paired]] = {}
        for task in self._nodes.pods[row].values() if row in self.rows else ():
            if task.shape.spec.paired:
                for device in task.devices:
                    found.setdefault(device, []).append(task)
        return found

    def mate(self, task: Paired, row: int) -> Paired | None:
        """The pod beside which one runs on its GPU."""
        there = self.on(row).get(task.devices[0], ()) if task.devices and row >= 0 else ()
        return next((each for each in there if each is not task and _is_there(each) and not _strangers(task, each)), None)

    def has_strangers(self, row: int) -> bool:
        """Whether pods of a row are counted on one GPU, or on none, that have one each: it had too few when they were seen."""
        if row not in self.rows:
            return False
        unseated = any(task.shape.spec.paired and not task.devices for task in self._nodes.pods[row].values())
        return unseated or any(_strangers(one, other) for there in self.on(row).values() for one, other in combinations(there, 2))

    def is_contested(self, task: Paired, row: int) -> bool:
        """Whether a pod that was just seated on a row has another GPU than one that names it, or that it names."""
        there = self._nodes.pods[row].values() if row in self.rows else ()
        return any(_are_linked(task, each) and each.devices != task.devices for each in there if each is not task)

    def are_seats_doubtful(self, row: int, had: int) -> bool:
        """Whether pods may be counted on other devices than they are, of a row that had so many devices until now."""
        state = self._nodes.devices.states[self._nodes.device.item(row)]
        return len(state) != had and (self.has_strangers(row) or (len(state) > had and min(state) < 0))

    def clear(self, row: int) -> None:
        """A row is vacant."""
        self.rows.discard(row)
        if self.kept is not None and self.kept[0] == row:
            self.kept = None

    def recount(self) -> None:
        """Find the rows anew."""
        self.rows = {
            row for row in self._nodes.rows.values() if any(each.shape.spec.paired for each in self._nodes.pods[row].values())
        }

    # -- places --------------------------------------------------------------------------------

    def choose(self, shape: Shape, row: int) -> tuple[int, int] | None:
        """Which device of a row a pod gets, and what that costs in thousandths of a job's speed; None: there is none.

        Where strangers are counted on one GPU, pods use more GPUs than the node reports: it takes no more.
        """
        if self._is_divided(row) or self.has_strangers(row):
            return None
        options = []
        there = self.on(row)
        for device, free in enumerate(self._nodes.devices.states[self._nodes.device.item(row)]):
            cost: int | None = None
            if self.kept == (row, device) and shape.spec.paired != self.urgent:
                continue
            if free == WHOLE:
                cost = 0
            elif free == HALF and len(mates := there.get(device, [])) == 1 and self._may_join(mates[0]):
                urgent = shape.spec.paired == self.urgent
                cost = self.speeds.loss(shape.spec.paired, mates[0].shape.spec.paired, urgent=urgent)
                cost = cost + ALONE_FIRST if cost is not None else None
            if cost is not None:
                options.append((cost, device))
        cost, device = min(options, default=(None, -1))
        return (device, cost) if cost is not None else None

    def alone(self, task: Paired, until: float) -> None:
        """A pod is alone on its GPU: if its kind was never measured so, it is now. One pod of a kind at a time."""
        names = task.shape.spec.paired
        if self.reporting and not self.speeds.ran_alone(names) and not any(names == each for each, _ in self.learning.values()):
            self.learning[task.pod.uid] = names, until

    def _may_join(self, mate: Paired) -> bool:
        """Whether a pod has its GPU, or is being bound, and need not be alone there.

        None joins where victims must go first, or where no pod is yet.
        """
        return _is_there(mate) and mate.pod.uid not in self.learning

    def _has_pairs(self, row: int) -> bool:
        """Whether pods that share GPUs are on a row, or run there until they have left."""
        there = (*self._nodes.pods[row].values(), *self.leaving_on(row)) if row in self.rows else ()
        return any(each.shape.spec.paired for each in there)

    def _is_divided(self, row: int) -> bool:
        """Whether parts of GPUs are given out on a row by their amounts."""
        return any(
            each.shape.gpus and each.shape.gpu_milli < WHOLE and not each.shape.spec.paired and not _is_leaving(each)
            for each in (*self._nodes.pods[row].values(), *self.leaving_on(row))
        )

    def pick(self, shape: Shape, row: int) -> tuple[int, ...]:
        """The devices that a pod gets on a row that takes it."""
        found = self.choose(shape, row)
        return (found[0],) if found is not None else self._first(row)

    def seat(self, task: Paired, row: int) -> tuple[int, ...]:
        """The device of a pod that is on a row already: that of the partner which its object names, else of one that names it.

        Where neither is there, its partner has ended, and it is alone on some GPU. A node that reports too few GPUs has strangers
        counted on one.
        """
        beside = [
            (mate.pod.uid != task.pod.partner, not _is_certain(task, mate), device)
            for device, there in self.on(row).items()
            for mate in there
            if _are_linked(task, mate) and all(_strangers(mate, other) for other in there if other is not mate)
        ]
        return (min(beside)[2],) if beside else self._first(row)

    def _first(self, row: int) -> tuple[int, ...]:
        """A device that is free, else the freest one, into debt."""
        state = self._nodes.devices.states[self._nodes.device.item(row)]
        return (min(range(len(state)), key=lambda device: (-state[device], device)),) if state else ()

    @staticmethod
    def in_order(tasks: Iterable[P]) -> list[P]:
        """Pods of a row in the order in which they are seated: what takes most first; then those that were certainly bound beside
        one that is here, and these; then as they began.
        """
        there = list(tasks)
        certain = {each.pod.uid for one, two in combinations(there, 2) if _is_certain(one, two) for each in (one, two)}
        return sorted(
            there, key=lambda each: (-each.shape.gpus * each.shape.gpu_milli, each.pod.uid not in certain, _began(each))
        )

    def soonest(self, admits: Callable[[int], bool], begun: Callable[[Pod], float]) -> tuple[int, int] | None:
        """The device whose pods began first, on the rows that are admitted: it is thought to be free first."""
        found = [
            (max(begun(each.pod) for each in there), row, device)
            for row in self.rows
            if admits(row)
            for device, there in self.on(row).items()
        ]
        return min(found)[1:] if found else None

    # -- filter and score ----------------------------------------------------------------------

    def concerns(self, shape: Shape) -> bool:
        """Whether pairs decide where pods of a shape may be."""
        return self.active and shape.gpus > 0 and (shape.gpu_milli < WHOLE or not shape.asks_devices)

    def refuses(self, shape: Shape, row: int) -> bool:
        """Whether a row has no GPU for a pod of a shape because of who is there."""
        if shape.spec.paired:
            return self.choose(shape, row) is None
        if not self._has_pairs(row):
            return False
        # Profile `kubernetes` counts whole GPUs as amounts, of which halves take nothing.
        return shape.gpu_milli < WHOLE or self._free(row) < shape.gpus

    def _free(self, row: int) -> int:
        return self._nodes.devices.states[self._nodes.device.item(row)].count(WHOLE)

    def refused(self, shape: Shape, rows: Rows) -> Mask:
        """The same of some rows, shape (rows,)."""
        numbers = np.arange(len(self._nodes.device))[rows]
        asked: Iterable[int] = self.rows
        found = np.zeros(len(numbers), np.bool_)
        if shape.spec.paired:
            states = self._nodes.device[rows]
            known = self._nodes.devices.states
            found = np.isin(states, [number for number in set(states.tolist()) if WHOLE not in known[number]])
            # Where something runs, parts of GPUs may be given out, or one is kept.
            used = [number for number in set(states.tolist()) if any(free < WHOLE for free in known[number])]
            asked = {*numbers[np.isin(states, used)].tolist(), *self.rows}
        places: Mapping[int, int] = {row: place for place, row in enumerate(numbers.tolist())} if asked else {}
        for row in asked:
            if row in places:
                found[places[row]] = self.refuses(shape, row)
        return found

    def most_besides(self, shape: Shape, rows: Rows) -> Ints:
        """How many pods that ask for whole GPUs the pairs of each row leave GPUs to, where there are pairs, shape (rows,)."""
        numbers = np.arange(len(self._nodes.device))[rows].tolist()
        paired = {row for row in self.rows if self._has_pairs(row)}
        return np.array([self._free(row) // shape.gpus if row in paired else _MANY for row in numbers], np.int64)

    def cost(self, shape: Shape, row: int) -> int:
        """What a pod costs on a row that takes it, thousandths of a job's speed."""
        found = self.choose(shape, row)
        return found[1] if found is not None else 0

    def costs(self, shape: Shape, rows: Rows) -> Ints:
        """The same of some rows, shape (rows,)."""
        numbers = np.arange(len(self._nodes.device))[rows].tolist()
        return np.array([self.cost(shape, row) if row in self.rows else 0 for row in numbers], np.int64)


def _is_there(task: Paired) -> bool:
    """Whether a pod has its GPU, or is being bound."""
    found: bool = task.state.value in ("assumed", "bound")
    return found and not task.pod.placeholder


def _strangers(task: Paired, other: Paired) -> bool:
    """Whether two pods on one device cannot be partners: each was bound beside another, or alone."""
    return bool(task.pod.partner and other.pod.partner) and not _are_linked(task, other)


def _are_linked(task: Paired, other: Paired) -> bool:
    """Whether one of two pods names the other as its partner."""
    return task.pod.uid == other.pod.partner or other.pod.uid == task.pod.partner


def _is_certain(task: Paired, other: Paired) -> bool:
    """Whether a pod was bound beside another that had begun by then.

    One that began later was being bound. That may have failed: then it is elsewhere, beside a third it may be.
    """
    return (task.pod.partner == other.pod.uid and _began(other) <= _began(task)) or (
        other.pod.partner == task.pod.uid and _began(task) <= _began(other)
    )


def _began(task: Paired) -> float:
    return task.pod.started if task.pod.started is not None else math.inf


def _is_leaving(task: Paired) -> bool:
    """Whether it keeps closed what a victim still fills."""
    return task.pod.placeholder and not task.pod.ours

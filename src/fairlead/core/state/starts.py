"""Starts: gangs that have their nodes and do not start. Their GPUs are given back when their start timeout is over.

The clock of a gang begins when as many members as it needs have nodes, that of a member beyond these when it has its own. What
this scheduler placed it judges by its own clock, which may be hours off. For what it found it reads the times of the pods, so a
restart forgets nothing. Earlier failures are in the PodGroup's status. AIJobs are the operator's: their pods carry nothing of
their starts here (see `cluster.convert`).
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.agenda import Agenda
from fairlead.core.model.backoff import backoff
from fairlead.core.model.starts import START_RETRIES, START_TIMEOUT, FailedStarts, StartTrouble
from fairlead.core.model.transactions import Binding, Evict
from fairlead.core.pods.members import leads
from fairlead.core.pods.tasks import Gang, Task, TaskState
from fairlead.core.state.departures import Departures
from fairlead.core.state.isolation import Isolation
from fairlead.core.state.tables import Tables

_FIRST, _LONGEST = 10.0, 600.0  # seconds until a gang that did not start is placed again: at first, at most


class Starts:
    """Which gangs are starting, and since when."""

    def __init__(self, tables: Tables, departures: Departures, isolation: Isolation) -> None:
        self._tables = tables
        self._departures = departures
        self._isolation = isolation
        self._touched: set[str] = set()  # gangs to be judged in the next pass
        self._due: Agenda[str] = tables.timers.agenda("starts")  # gangs: when they are judged next
        self._retries: Agenda[str] = tables.timers.agenda("restarts")  # gangs: when they may be placed again
        self._since: dict[str, tuple[str, float]] = {}  # UID -> the reason that its status gives, and since when
        self._asked: dict[str, set[str]] = {}  # gang -> UIDs of members that were to go, each once
        self.stay: dict[str, Reason] = {}  # gangs with late members without a controller: those stay

    # -- events --------------------------------------------------------------------------------

    def touch(self, gang: Gang) -> None:
        """Members of a gang came, went, or changed in how they start: it is judged in the next pass."""
        self._touched.add(gang.key)

    def touch_all(self) -> None:
        """After something that concerns all."""
        for gang in self._tables.gangs.values():
            self.touch(gang)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._since.pop(uid, None)

    def read(self, gang: Gang, failed: FailedStarts | None) -> None:
        """What a scheduler before this one wrote."""
        gang.failed_starts = failed
        if failed is not None:
            self._retries.put(gang.key, failed.until)

    def left(self, key: str) -> None:
        """A gang is gone."""
        self._touched.discard(key)
        self._due.drop(key)
        self._retries.drop(key)
        self._asked.pop(key, None)
        self.stay.pop(key, None)

    # -- decisions -----------------------------------------------------------------------------

    @property
    def failing(self) -> int:
        """How many gangs failed to start and have not started since, or are late and stay."""
        return sum(gang.failed_starts is not None or key in self.stay for key, gang in self._tables.gangs.items())

    def end_backoffs(self, now: float) -> None:
        """Gangs whose backoff is over become units again."""
        for key in list(self._retries.due(now)):
            if (gang := self._tables.gangs.get(key)) is not None:
                self._tables.unsettle(gang)

    def judge(self, now: float, suspended: Container[str]) -> Iterator[Evict]:
        """Gangs that are late are taken down; members that their gang can do without go alone.

        suspended: keys of gangs whose jobs are being suspended; they are let be.
        """
        touched, self._touched = self._touched, set()
        for key in sorted({*touched, *self._due.due(now)}):
            gang = self._tables.gangs.get(key)
            if gang is None:
                self.left(key)
            elif gang.group is not None:
                with self._isolation.guard("starts", gang) as guard:
                    yield from self._judge(gang, now, suspended)
                if guard.failed:
                    self._due.put(key, now + self._tables.policy.gang_grace)

    def _judge(self, gang: Gang, now: float, suspended: Container[str]) -> Iterator[Evict]:
        bound = sorted(gang.bound(), key=lambda task: task.rank)
        starting = [task for task in bound if task.pod.starting is not None]
        whole = len(bound) >= gang.needed
        if gang.key in self._asked:
            self._asked[gang.key].intersection_update(gang.tasks)
        if not starting:
            self.stay.pop(gang.key, None)
            if bound and whole:
                self._has_started(gang, now)
            return
        if gang.key in suspended:
            return
        enough = len(bound) - len(starting) >= gang.needed
        late, due = self._hopeless(starting, now)
        alone = enough or (len(bound) - len(late) >= gang.needed and not any(leads(task.pod) for task in late))
        if whole and not late:
            late, ends = self._late(gang, bound, starting, now)
            alone, due = enough, min(due, ends)
        if late:
            yield from self._take_down(gang, late if alone else bound, late, now, alone=alone)
            due = now + self._tables.policy.gang_grace  # an eviction may fail
        if due < math.inf:
            self._due.put(gang.key, due)

    def _has_started(self, gang: Gang, now: float) -> None:
        """A later failure is a first one, unless members that were taken down alone are still to be started again."""
        failed = gang.failed_starts
        if failed is None:
            return
        running = all(task.state is TaskState.BOUND and task.pod.node for task in gang.tasks.values())
        over = failed.until if running else failed.until + _LONGEST  # they may find no capacity
        if now >= over:
            gang.failed_starts = None
        else:
            self._due.put(gang.key, over)

    def _hopeless(self, starting: list[Task], now: float) -> tuple[list[Task], float]:
        """Those that cannot start, however long they are waited for, and when the next may turn out to be such."""
        hopeless, due = [], math.inf
        for task in starting:
            trouble = task.pod.starting or StartTrouble()
            known = self._since.get(task.pod.uid)
            since = known[1] if known is not None and known[0] == trouble.reason else now
            self._since[task.pod.uid] = (trouble.reason, since)
            if trouble.hopeless or (trouble.retried and now - since >= START_RETRIES):
                hopeless.append(task)
            elif trouble.retried:
                due = min(due, since + START_RETRIES)
        return hopeless, due

    def _late(self, gang: Gang, bound: list[Task], starting: list[Task], now: float) -> tuple[list[Task], float]:
        """Those of a whole gang that should have started by now, and when the next is to be judged."""
        late, due = [], math.inf
        limit = self.limit(gang, bound[0])
        got = sorted(placed_at(task) for task in bound)[max(0, gang.needed - 1)]
        for task in starting:
            ends = max(got, placed_at(task)) + limit
            if now >= ends:
                late.append(task)
            else:
                due = min(due, ends)
        return late, due

    def limit(self, gang: Gang, member: Task) -> float:
        """Seconds that a gang's members may take to start."""
        given = gang.group.start_timeout if gang.group is not None else 0.0
        return given or self._tables.services.of(member).start_timeout or START_TIMEOUT

    def _take_down(self, gang: Gang, members: list[Task], late: list[Task], now: float, *, alone: bool) -> Iterator[Evict]:
        """Give the places of members back, and put the gang in backoff; a member without a controller stays."""
        victims = [task for task in members if task.pod.controlled]
        reason = self._reason(gang, late, kept=len(members) - len(victims))
        asked, failed = self._asked.setdefault(gang.key, set()), gang.failed_starts
        again = all(task.pod.uid in asked for task in victims)
        asked.update(task.pod.uid for task in victims)
        # Of members that go alone those that were placed with one that failed a moment ago are of the same start.
        if victims and not again and not (alone and failed is not None and now < failed.until):
            count = failed.count + 1 if failed is not None else 1
            until = math.ceil(now + backoff(_FIRST, count, _LONGEST))
            gang.failed_starts = FailedStarts(count, float(until), reason.message)
            self._retries.put(gang.key, float(until))
        reports = bool(victims) or gang.key not in self.stay
        if len(victims) < len(members):
            self.stay[gang.key] = reason
        if reports:
            taken = tuple(Binding(task.ref, task.pod.node) for task in victims)
            yield Evict(taken, gang.key, reason, self._departures.graces(victims))

    def _reason(self, gang: Gang, late: list[Task], *, kept: int) -> Reason:
        culprit = min(late, key=lambda task: (not (task.pod.starting and task.pod.starting.reason), task.rank))
        trouble = culprit.pod.starting or StartTrouble()
        limit = self.limit(gang, culprit)
        how = "cannot start" if trouble.hopeless or trouble.retried else f"did not start within {limit:g} s"
        text = f"has its nodes, but {culprit.pod.name} {how}: {trouble.message}"
        if kept:
            text += f"; {kept} of its pods have no controller and stay: delete them, or fix the cause"
        numbers = {"late": len(late), "members": len(gang.bound()), "limit": int(limit), "kept": kept}
        return Reason(ReasonCode.START_TIMEOUT, text, numbers, gang.key)

    def waits(self, gang: Gang, now: float) -> Reason | None:
        """Why a gang that did not start is not placed again yet."""
        failed = gang.failed_starts
        if failed is None or failed.until <= now:
            return None
        times = f"{failed.count} times in a row" if failed.count > 1 else "once"
        message = f"it failed to start {times} and is in backoff: {failed.message}"
        return Reason(ReasonCode.BACKOFF, message, {"failed_starts": failed.count, "until": int(failed.until)})


def placed_at(task: Task) -> float:
    """When a task got its node."""
    return task.started or task.pod.bound

"""Shadow mode: decide beside another scheduler, write nothing, and compare with what really happens.

The port below answers "done" to every write and remembers it. What the other scheduler does arrives
by the watch and overrules what was assumed here, so every decision is taken on the real cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from fairlead.api.reasons import Reason
from fairlead.cluster.port import Allocated, Cluster, ClusterEvent, Gone, GroupReport, Outcome, QueueReport, Sink, Upsert
from fairlead.core.model.pods import Pod
from fairlead.core.model.transactions import Binding, PodRef, Resume, Suspension, ref_of
from fairlead.core.pairs.learned import LearnedSpeeds


class Decided(msgspec.Struct, frozen=True, tag="decided", tag_field="kind"):
    """Fairlead would have started this pod here and now. at: seconds since the epoch."""

    at: float
    pod: str
    node: str


class WouldEvict(msgspec.Struct, frozen=True, tag="would_evict", tag_field="kind"):
    """Fairlead would have evicted this pod."""

    at: float
    pod: str


class Waiting(msgspec.Struct, frozen=True, tag="waiting", tag_field="kind"):
    """Fairlead would have let this pod wait, and why."""

    at: float
    pod: str
    reason: str
    message: str


class Happened(msgspec.Struct, frozen=True, tag="happened", tag_field="kind"):
    """The pod really started.

    shadow_node, lead_seconds: where Fairlead would have put it, and how much sooner (negative:
    later); null if it had not decided yet.
    """

    at: float
    pod: str
    node: str
    shadow_node: str | None
    lead_seconds: float | None


class ReallyEvicted(msgspec.Struct, frozen=True, tag="really_evicted", tag_field="kind"):
    """A running pod that had not finished was deleted."""

    at: float
    pod: str
    would_have: bool


class Summary(msgspec.Struct, tag="summary", tag_field="kind"):
    """The whole comparison. lead: mean seconds by which Fairlead's decisions came before the real starts."""

    decided: int = 0
    happened: int = 0
    same_node: int = 0
    undecided: int = 0
    waiting: int = 0
    would_evict: int = 0
    really_evicted: int = 0
    mean_lead_seconds: float = 0.0


Line = Decided | WouldEvict | Waiting | Happened | ReallyEvicted
Report = Callable[[Line], None]


class Tally:
    """Counts lines for the summary."""

    def __init__(self) -> None:
        self._counts: Counter[type[msgspec.Struct]] = Counter()
        self._leads: list[float] = []
        self._same = 0

    def count(self, line: Line) -> None:
        """One more line."""
        self._counts[type(line)] += 1
        if isinstance(line, Happened) and line.lead_seconds is not None:
            self._leads.append(line.lead_seconds)
            self._same += line.node == line.shadow_node

    def summary(self) -> Summary:
        """The comparison so far."""
        counts = self._counts
        return Summary(
            decided=counts[Decided],
            happened=counts[Happened],
            same_node=self._same,
            undecided=counts[Happened] - len(self._leads),
            waiting=counts[Waiting],
            would_evict=counts[WouldEvict],
            really_evicted=counts[ReallyEvicted],
            mean_lead_seconds=sum(self._leads) / len(self._leads) if self._leads else 0.0,
        )


class ShadowCluster:
    """The port around a real one."""

    def __init__(self, inner: Cluster, report: Report, clock: Callable[[], float]) -> None:
        self._inner = inner
        self._report = report
        self._clock = clock
        self._decided: dict[str, Decided] = {}
        self._evicted: set[str] = set()
        self._running: dict[str, Pod] = {}

    async def run(self, sink: Sink) -> None:
        """Everything that really happens."""

        def watched(events: list[ClusterEvent]) -> None:
            for event in events:
                if isinstance(event, Upsert) and isinstance(event.object, Pod):
                    self._see(event.object)
                elif isinstance(event, Gone) and event.kind == "pod":
                    self._miss(event.key)
            sink(events)

        await self._inner.run(watched)

    def _see(self, pod: Pod) -> None:
        if not pod.ours:
            return
        if pod.finished:
            self._running.pop(pod.uid, None)
            self._decided.pop(pod.uid, None)
        elif pod.node and pod.uid not in self._running:
            self._running[pod.uid] = pod
            self._happened(pod)
        elif pod.node and pod.terminating and not self._running[pod.uid].terminating:
            self._running[pod.uid] = pod
            self._report(ReallyEvicted(self._clock(), pod.key, pod.uid in self._evicted))

    def _happened(self, pod: Pod) -> None:
        now = self._clock()
        decided = self._decided.pop(pod.uid, None)
        if decided is None:
            self._report(Happened(now, pod.key, pod.node, None, None))
            return
        self._report(Happened(now, pod.key, pod.node, decided.node, now - decided.at))

    def _miss(self, uid: str) -> None:
        self._running.pop(uid, None)
        self._decided.pop(uid, None)
        self._evicted.discard(uid)

    # -- writes that are not ---------------------------------------------------------------------

    async def bind(self, binding: Binding, epoch: int | None) -> tuple[Outcome, str]:
        """Remember the decision."""
        if binding.pod.uid not in self._running:
            decided = Decided(self._clock(), binding.pod.key, binding.node)
            self._decided[binding.pod.uid] = decided
            self._report(decided)
        return Outcome.DONE, ""

    async def bind_volumes(self, binding: Binding) -> tuple[Outcome, str]:
        """Nothing."""
        return Outcome.DONE, ""

    async def allocate_claims(self, binding: Binding, settled: Callable[[], None] = lambda: None) -> Allocated:
        """Nothing."""
        return Allocated(Outcome.DONE)

    async def release_claims(self, binding: Binding) -> None:
        """Nothing."""

    async def evict(self, pod: PodRef, *, dry_run: bool, grace: int | None = None) -> tuple[Outcome, str]:
        """Remember the victim."""
        if not dry_run and pod.uid not in self._evicted:
            self._evicted.add(pod.uid)
            self._report(WouldEvict(self._clock(), pod.key))
        return Outcome.DONE, ""

    async def suspend(self, job: Suspension) -> tuple[Outcome, str]:
        """Remember its pods as victims."""
        for pod in (self._running[uid] for uid in job.pods if uid in self._running):
            await self.evict(ref_of(pod), dry_run=False)
        return Outcome.DONE, ""

    async def resume(self, job: Resume) -> tuple[Outcome, str]:
        """Nothing."""
        return Outcome.DONE, ""

    async def preempt(self, pod: PodRef, *, grace: int | None = None) -> tuple[Outcome, str]:
        """Remember the victim."""
        return await self.evict(pod, dry_run=False)

    async def nominate(self, pod: PodRef, node: str, reason: Reason | None = None) -> None:
        """Nothing."""

    async def refuse(self, pod: PodRef, reason: Reason, *, withdraw: bool = False) -> None:
        """Report why the pod would wait."""
        self._report(Waiting(self._clock(), pod.key, str(reason.code), reason.message))

    async def group_status(self, group: str, status: GroupReport) -> None:
        """Nothing."""

    async def condition(self, regarding: PodRef | str, kind: str, reason: str, message: str) -> None:
        """Nothing."""

    async def queue_status(self, queue: str, status: QueueReport) -> None:
        """Nothing."""

    async def verdict(self, kind: str, name: str, *, accepted: bool, reason: str, message: str) -> None:
        """Nothing."""

    async def reservation_status(self, name: str, phase: str, nodes: Sequence[str]) -> None:
        """Nothing."""

    async def keep_speeds(self, speeds: LearnedSpeeds) -> None:
        """Nothing."""

    async def event(self, regarding: PodRef | str, reason: str, note: str, *, warning: bool = False, action: str = "") -> None:
        """Nothing."""

"""A large cluster in its everyday: full, with work waiting, and jobs that come and end all the time.

Events come in ticks, as a watch delivers them, and a pass follows each; bindings are confirmed a tick later, evicted pods are
gone after a second and wait again. Time is virtual: what is measured is the CPU time of applying events and of the pass.
"""

from __future__ import annotations

import gc
import random
import resource
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator

import msgspec

from fairlead.cluster.port import Bound, ClusterEvent, Gone, Upsert
from fairlead.core.model.pods import Pod
from fairlead.core.model.policy import Policy
from fairlead.core.model.transactions import Evict, Place, Preempt
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.outputs import Output
from fairlead.simulation.growth.cluster import pod
from fairlead.simulation.growth.placing import tree
from fairlead.simulation.machines import GPUS_PER_NODE, node, queue

TICK = 0.1  # seconds between two passes
_GRACE = 1.0  # seconds until a pod that is evicted is gone
_DEPTH = 3


class Sizes(msgspec.Struct, frozen=True):
    """What a cluster holds. rate: of arrivals and of ends, a second each; settling: seconds before what is measured."""

    nodes: int = 5000
    pods: int = 50_000
    classes: int = 2000
    queues: int = 500
    users: int = 1000
    rate: float = 200.0
    settling: float = 60.0
    seconds: float = 60.0
    seed: int = 1


class SteadyBench(Sizes, frozen=True, kw_only=True):
    """One run. pass_ms: of applying a tick's events and of its pass, CPU time; core_cpu: percent of one core.

    first_seconds: the first pass, with everything that waits; placed, ended, evicted: pods in the measured time.
    """

    pass_ms_p50: float
    pass_ms_p99: float
    pass_ms_max: float
    core_cpu: float
    first_seconds: float
    placed: int
    ended: int
    evicted: int
    rss_mb: float


def run(sizes: Sizes, progress: Callable[[int, int], None] | None = None) -> SteadyBench:
    """Fill a cluster, then let jobs come and end."""
    course = _Course(sizes)
    first = course.fill()
    gc.collect()
    gc.freeze()  # as the scheduler does once everything has been observed
    settling, ticks = round(sizes.settling / TICK), round(sizes.seconds / TICK)
    taken: list[float] = []
    placed = ended = evicted = 0
    for tick in range(settling + ticks):
        if tick == settling:
            placed, ended, evicted = course.placed, course.ended, course.evicted
        seconds = course.tick()
        if tick >= settling:
            taken.append(seconds)
        if progress is not None:
            progress(tick + 1, settling + ticks)
    gc.unfreeze()
    ordered = sorted(taken)
    return SteadyBench(
        **msgspec.structs.asdict(sizes),
        pass_ms_p50=round(1000 * ordered[len(ordered) // 2], 2),
        pass_ms_p99=round(1000 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 2),
        pass_ms_max=round(1000 * ordered[-1], 2),
        core_cpu=round(100 * sum(taken) / sizes.seconds, 1),
        first_seconds=round(first, 2),
        placed=course.placed - placed,
        ended=course.ended - ended,
        evicted=course.evicted - evicted,
        rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    )


def _above(name: str, parents: dict[str, str]) -> Iterator[str]:
    while name := parents[name]:
        yield name


class _Course:
    """The loop, and what runs on its cluster."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._draw = random.Random(sizes.seed)
        self._loop = CoreLoop(Policy(), self._delivered)
        self._now = 1e6
        self._leaves: list[str] = []
        self._running: list[str] = []  # UIDs of pods whose bindings are confirmed
        self._new: deque[str] = deque()  # of those that were bound in the last pass
        self._pods: dict[str, Pod] = {}  # all that wait, run, or are on their way out
        self._leaving: deque[tuple[float, str]] = deque()  # evicted: when they are gone, UID
        self._made = 0
        self._due = 0.0  # arrivals and ends that are due, in parts
        self.placed = 0
        self.ended = 0
        self.evicted = 0

    def _delivered(self, outputs: list[Output]) -> None:
        for each in outputs:
            if isinstance(each, Place):
                self._new.extend(binding.pod.uid for binding in each.bindings)
                self.placed += len(each.bindings)
            elif isinstance(each, Preempt | Evict):
                self._leaving.extend((self._now + _GRACE, victim.pod.uid) for victim in each.victims)
                self.evicted += len(each.victims)

    def fill(self) -> float:
        """Nodes, queues, and all pods, of which as many run as there are GPUs; returns seconds of the first pass."""
        sizes = self._sizes
        self._apply([Upsert(node(number)) for number in range(sizes.nodes)])
        self._apply(self._queues())
        gpus = sizes.nodes * GPUS_PER_NODE
        running = [
            msgspec.structs.replace(self._pod(), node=f"node-{number // GPUS_PER_NODE:06d}", started=self._now - 1)
            for number in range(min(gpus, sizes.pods))
        ]
        self._running = [each.uid for each in running]
        self._apply([Upsert(each) for each in running])
        self._apply([Upsert(self._pod()) for _ in range(sizes.pods - len(running))])
        start = time.process_time()
        self._loop.synced = True
        self._decide()
        return time.process_time() - start

    def _queues(self) -> list[ClusterEvent]:
        """Queues in a tree, with the same quota in each leaf, where jobs are, and above them what is below together."""
        sizes = self._sizes
        fan = max(2, round(sizes.queues ** (1 / _DEPTH)))
        count = max(1, sizes.queues - fan - fan * fan)
        quota = sizes.nodes * GPUS_PER_NODE // count
        made, self._leaves = tree(count, _DEPTH, quota=quota, inner=None, fan=fan)
        parents = {each.name: each.parent for each in made}
        below = Counter(above for leaf in self._leaves for above in _above(leaf, parents))
        return [Upsert(queue(each.name, quota * below.get(each.name, 1), parent=each.parent)) for each in made]

    def _pod(self) -> Pod:
        self._made += 1
        draw = self._draw
        made = pod(
            f"job-{self._made}",
            shape=draw.randrange(self._sizes.classes),
            queue=draw.choice(self._leaves),
            user=f"user-{draw.randrange(self._sizes.users)}",
            created=self._now,
        )
        self._pods[made.uid] = made
        return made

    def tick(self) -> float:
        """A tick; returns seconds of CPU time."""
        self._now += TICK
        self._due += self._sizes.rate * TICK
        due = int(self._due)
        self._due -= due
        events: list[ClusterEvent] = []
        while self._new:
            uid = self._new.popleft()
            events.append(Bound(uid))
            self._running.append(uid)
        for _ in range(min(due, len(self._running))):
            place = self._draw.randrange(len(self._running))
            self._running[place], self._running[-1] = self._running[-1], self._running[place]
            uid = self._running.pop()
            if self._pods.pop(uid, None) is not None:  # else it was evicted
                events.append(Gone("pod", uid))
                self.ended += 1
        while self._leaving and self._leaving[0][0] <= self._now:
            uid = self._leaving.popleft()[1]
            evicted = self._pods.pop(uid, None)
            if evicted is not None:
                self._made += 1
                again = f"job-{self._made}"
                self._pods[again] = msgspec.structs.replace(evicted, uid=again, name=again)
                events += [Gone("pod", uid), Upsert(self._pods[again])]
        events += [Upsert(self._pod()) for _ in range(due)]
        start = time.process_time()
        self._apply(events)
        self._decide()
        return time.process_time() - start

    def _apply(self, events: list[ClusterEvent]) -> None:
        self._loop.apply(events, self._now)

    def _decide(self) -> None:
        self._loop.decide(self._now)
        while self._loop.has_work:
            self._loop.decide(self._now)

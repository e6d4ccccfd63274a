"""A head of a queue is passed by others for at most `share_wait`, and then waits no longer than the work that holds its capacity runs.

Its capacity is nodes, and what its queue may hold: one run time each, at the same time or one after the other.
"""

import random
from heapq import heappop, heappush
from itertools import pairwise

import pytest

from fairlead.core import invariants
from fairlead.core import schedule as decisions
from fairlead.core.model.queues import Queue, QueueResource, RunTimeRecord
from fairlead.core.model.service_classes import ServiceClass
from tests.builders import GPU, cluster, confirm, group, held, node, placed, pod, preempted, run

WAIT = 600.0
STEP = 10.0


def part(name, quota=None, limit=None, parent="", weight=None, priority=0):
    resource = QueueResource(GPU, quota and quota * 1000, None if limit is None else limit * 1000, weight=weight)
    return Queue(name, parent, priority, (resource,))


class Stream:
    """A cluster in which time passes: jobs come, run for as long as they do, and end. lengths: name -> seconds."""

    def __init__(self, nodes, queues, groups=(), classes=(), **policy):
        settings = {"reservations": 0, "patience": 0.0, "moves_per_minute": 0.0, "share_wait": WAIT, **policy}
        self.state = cluster(nodes, queues, groups=groups, **settings)
        for each in classes:
            self.state.upsert_class(each)
        self.now, self.ends, self.lengths, self.started, self.evicted = 0.0, [], {}, {}, []

    def submit(self, name, length, members=1, **more):
        self.lengths[name] = length
        for number in range(members):
            gang = {"group": name} if members > 1 else {}
            self.state.upsert_pod(pod(f"{name}.{number}", created=self.now, **gang, **more))

    def waiting(self, prefix):
        return sum(task.row < 0 and task.pod.name.startswith(prefix) for task in self.state.tasks.values())

    def older(self, queue, than):
        """Whether a job waits in a queue that came before a time."""
        return any(task.row < 0 and task.queue == queue and task.pod.created < than for task in self.state.tasks.values())

    def step(self):
        """What ended is gone; passes until nothing more starts."""
        while self.ends and self.ends[0][0] <= self.now:
            self.state.remove_pod(heappop(self.ends)[1])
        for _ in range(50):
            decided = confirm(self.state, run(self.state, self.now))
            self.evicted += preempted(decided)
            for victim in [uid for each in decided for uid in getattr(each, "victims", ())]:
                self.state.remove_pod(victim.pod.uid)
            names = placed(decided)
            for each in names:
                name = each.partition(".")[0]
                self.started.setdefault(name, self.now)
                heappush(self.ends, (self.now + self.lengths[name], f"uid-{each}"))
            if not names and not preempted(decided):
                break
        invariants.check(self.state)

    def free(self):
        states = self.state.nodes.devices.states
        rows = self.state.nodes.rows.values()
        return sum(each == 1000 for row in rows for each in states[self.state.nodes.device.item(row)])


def play(stream, feed, longest, head="head", at=300.0, until=9000.0, **job):
    """Until the head has started. feed: called at each step. It is judged that nothing passed it for too long."""
    first = None
    while stream.now <= until:
        if first is None and stream.now >= at:
            first = stream.now
            stream.submit(head, 100.0, **job)
        feed(stream)
        stream.step()
        if head in stream.started:
            began = stream.started[head]
            assert began <= first + WAIT + longest + 2 * STEP, (first, began)
            return began
        if first is not None and stream.older(job["queue"], at):
            first = stream.now
        stream.now += STEP
    raise AssertionError(f"it starves, first since {first}")


def backlog(prefix, rnd, longest, depth=3, **more):
    """So many small jobs always wait."""
    count = [0]

    def feed(stream):
        while stream.waiting(prefix) < depth:
            stream.submit(f"{prefix}{count[0]}", rnd.randint(1, longest // 10) * 10.0, **more)
            count[0] += 1

    return feed


def backlogs(rnd, **queues):
    """The same in several queues, by the prefix of their jobs' names."""
    feeds = [backlog(prefix, rnd, 1200, queue=queue) for prefix, queue in queues.items()]

    def feed(stream):
        for each in feeds:
            each(stream)

    return feed


SHAPES = {
    "large": {"gpus": 4},
    "gang": {"gpus": 3, "members": 2},
    "wide gang": {"gpus": 1, "members": 6},
    "part of a device": {"milli": 700},
}


@pytest.mark.parametrize("reservations", [0, 1])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_stream_starves_a_head(shape, own, reservations):
    """Smaller jobs of its own queue, or of another beyond its quota whose work is not reclaimed."""
    rnd = random.Random(f"{shape} {own} {reservations}")
    more = dict(SHAPES[shape])
    small = {"milli": 300} if "milli" in more else {"gpus": 1}
    stream = Stream(
        [node("a", gpus=4), node("b", gpus=4)],
        [part("q0", 6), part("q1", 2)],
        groups=[group("head", more.get("members", 1), "q0")] if "members" in more else [],
        classes=[ServiceClass("firm", mode="Never")],
        reservations=reservations,
    )
    feed = backlog("s", rnd, 1200, queue="q0" if own else "q1", service_class="firm", **small)
    play(stream, feed, 1200.0, queue="q0", **more)
    assert stream.evicted == []


def test_nothing_idles_before_the_wait_is_over():
    rnd = random.Random(1)
    stream = Stream([node("a", gpus=4), node("b", gpus=4)], [part("q0", 8)])
    feed = backlog("s", rnd, 1200, queue="q0")
    seen = []

    def watch(each):
        feed(each)
        each.step()
        if 310.0 < each.now < 300.0 + WAIT:
            seen.append(each.free())

    play(stream, watch, 1200.0, queue="q0", gpus=4)
    assert len(seen) > 50
    assert not any(seen)


@pytest.mark.parametrize("above", [False, True])
def test_a_limit_is_reserved_for_a_head_that_needs_all_of_it(above):
    """Its own queue's, or one above it, which others below that use up."""
    rnd = random.Random(2)
    queues = [part("top", 4, limit=4), part("q0", 2, parent="top"), part("q1", 2, parent="top"), part("other", 4)]
    if not above:
        queues = [part("q0", 4, limit=4), part("other", 4)]
    stream = Stream([node("a", gpus=8)], queues, reclaim=False)
    feed = backlogs(rnd, s="q1" if above else "q0", o="other")
    play(stream, feed, 1200.0, queue="q0", gpus=4)
    assert held(stream.state, "other") >= 3, "nothing of this concerns another queue"


@pytest.mark.parametrize("members", [1, 2])
def test_what_a_queue_may_hold_beside_a_head_starts_once_it_holds_less(members):
    """No row that gains anything takes it: it is enough that its queue may hold both by then."""
    nodes = [node("a", gpus=4), node("b", gpus=1), node("c", gpus=2)]
    groups = [group("small", members, "q0")] if members > 1 else []
    classes = [ServiceClass("firm", mode="Never")]
    stream = Stream(nodes, [part("q0", 6, limit=6), part("other", 4)], groups=groups, classes=classes, reclaim=False)
    stream.submit("blocker", 50000.0, queue="other", gpus=4, service_class="firm")
    stream.submit("run", 900.0, queue="q0")
    stream.step()
    stream.submit("head", 100.0, queue="q0", gpus=4)
    while stream.now < 1000.0:
        if stream.now == 700.0:
            stream.submit("small", 9000.0, members, queue="q0", gpus=2 // members)
        stream.step()
        stream.now += STEP
    assert "head" not in stream.started
    assert stream.started["small"] == 900.0


def test_smaller_jobs_of_its_queue_do_not_use_up_the_share_of_a_head_for_ever():
    """What it would be beyond its share is reclaimed at once, so it does not start; those behind it pass it, but not for ever."""
    rnd = random.Random(3)
    stream = Stream([node("a", gpus=8)], [part("q0", 4), part("q1", 4)])
    feed = backlogs(rnd, s="q0", o="q1")
    play(stream, feed, 1200.0, queue="q0", gpus=3)
    assert stream.evicted == []


def test_what_its_share_cannot_hold_takes_no_turn():
    """Whatever is refused beyond its queue's share keeps nothing, and so it takes no turn of a head within its own."""
    rnd = random.Random(5)
    stream = Stream([node("a", gpus=2)], [part("q0", 2), part("q1", 0)])
    feed = backlogs(rnd, s="q0", o="q1")
    play(stream, feed, 1200.0, queue="q0", gpus=2)


def test_what_never_fits_keeps_nothing():
    """More than any node has, and more than its queue may ever hold: others go on as if it were not there."""
    rnd = random.Random(6)
    stream = Stream([node("a", gpus=4), node("b", gpus=4)], [part("q0", 4), part("q1", 2, limit=2)], reclaim=False)
    feed = backlog("s", rnd, 1200, queue="q0")
    stream.submit("huge", 100.0, queue="q0", gpus=6)
    stream.submit("beyond", 100.0, queue="q1", gpus=3)
    while stream.now < 5 * WAIT:
        feed(stream)
        stream.step()
        assert stream.now < 100.0 or not stream.free()
        stream.now += STEP
    assert not stream.started.keys() & {"huge", "beyond"}


class Tree:
    """Two to four queues, flat or in two levels, with quotas or weights; a head within its queue's share; small jobs everywhere."""

    def __init__(self, seed, **policy):
        rnd = self.rnd = random.Random(f"trees {seed}")
        self.gpus = [rnd.choice([2, 4, 8]) for _ in range(rnd.randint(1, 4))]
        total, count, quotas = sum(self.gpus), rnd.randint(2, 4), rnd.random() < 0.6
        inner = rnd.randint(2, count) if count > 2 and rnd.random() < 0.5 else 0
        cuts = [0, *sorted(rnd.randint(0, total) for _ in range(count - 1)), total]
        parts = sorted((high - low for low, high in pairwise(cuts)), reverse=True)
        weights = [None if quotas else max(1, each) for each in parts]
        queues = [part("top", sum(parts[:inner]) if quotas else None, weight=sum(weights[:inner]) if not quotas else None)]
        for number, quota in enumerate(parts):
            above = "top" if number < inner else ""
            queues.append(part(f"q{number}", quota if quotas else None, parent=above, weight=weights[number]))
        due = max(1, parts[0] if quotas else total * weights[0] // sum(weights))
        members, size = rnd.choice([1, 1, 2, 3]), rnd.randint(1, max(self.gpus))
        while not self.fits(size, members) or size * members > due:
            members, size = max(1, members - 1), max(1, size - 1)
        self.head = {"milli": 700} if rnd.random() < 0.15 else {"gpus": size, "members": members}
        groups = [group("head", members, "q0")] if members > 1 and "gpus" in self.head else []
        self.longest = rnd.choice([300, 1200, 3000])
        self.firm = {"service_class": "firm"} if rnd.random() < 0.6 else {}
        self.told = rnd.choice(["nothing", "wrongly", "limits"])
        settings = {"reservations": rnd.randint(0, 1), "reclaim": rnd.random() < 0.8, **policy}
        nodes = [node(f"n{number}", gpus=each) for number, each in enumerate(self.gpus)]
        self.stream = Stream(nodes, queues, groups, [ServiceClass("firm", mode="Never")] if self.firm else [], **settings)
        self.stream.state.runtimes.restore(
            "q0", [RunTimeRecord("", "", 1000, (self.longest,))]
        )  # else what runs so long is endless
        self.names = [f"q{number}" for number in range(count)]
        self.sizes = [{"gpus": 1}, {"gpus": 1}, {"gpus": 2}, {"milli": 500}, {"milli": 300}][: rnd.randint(1, 5)]
        self.count = 0

    def fits(self, size, members):
        return sum(each // size for each in self.gpus) >= members

    def feed(self, stream):
        rnd = self.rnd
        for name in self.names:
            while stream.waiting(f"{name}-") < 3:
                length = rnd.randint(1, self.longest // 10) * 10.0
                more = dict(rnd.choice(self.sizes)) | self.firm
                if self.told == "wrongly" and rnd.random() < 0.5:
                    more["expected"] = float(rnd.randint(10, self.longest))
                if self.told == "limits" and rnd.random() < 0.7:
                    more["time_limit"] = length
                stream.submit(f"{name}-{self.count}", length, queue=name, **more)
                self.count += 1


@pytest.mark.parametrize("seed", range(60))
def test_random_streams_starve_no_head(seed):
    """Heads of all kinds, run times that are not known, wrongly declared, or limited, preemptible and non-preemptible work."""
    tree = Tree(seed)
    # Its queue must first come down to its share; what others were due meanwhile runs to its end, too.
    play(tree.stream, tree.feed, 2 * tree.longest, at=tree.rnd.randint(0, 60) * 10.0, until=40000.0, queue="q0", **tree.head)


@pytest.mark.parametrize("seed", range(10))
def test_without_the_setting_nothing_is_kept(seed, monkeypatch):
    """0: never. Whatever is decided is decided as if there were no such step."""

    def told(step):
        with monkeypatch.context() as patched:
            if not step:
                patched.setattr(decisions, "bound_waits", lambda *_: None)
            tree = Tree(seed, share_wait=0.0)
            tree.stream.submit("head", 100.0, queue="q0", **tree.head)
            while tree.stream.now < 2000.0:
                tree.feed(tree.stream)
                tree.stream.step()
                assert all(hold.head is None for hold in tree.stream.state.reserved.of_units())
                tree.stream.now += 50.0
            return tree.stream.started, tree.stream.evicted

    assert told(step=True) == told(step=False)


def test_without_the_setting_a_stream_starves_a_head():
    stream = Stream([node("a", gpus=4), node("b", gpus=4)], [part("q0", 8)], share_wait=0.0)
    feed = backlog("s", random.Random(1), 1200, queue="q0")
    with pytest.raises(AssertionError, match="it starves"):
        play(stream, feed, 1200.0, queue="q0", gpus=4)


def test_what_never_ends_does_not_idle_the_rest_of_its_node_for_ever():
    """A service beside which a head would need the whole node: others run there most of the time."""
    stream = Stream([node("a", gpus=4)], [part("q0", 4)])
    stream.submit("service", 1e9, queue="q0")
    stream.step()
    stream.submit("head", 100.0, queue="q0", gpus=4)
    idle = 0
    for number in range(24 * 12):
        stream.now += 300.0
        stream.submit(f"s{number}", 200.0, queue="q0", gpus=3)
        stream.step()
        idle += stream.free() > 0
    assert 0 < idle < 24 * 12 / 4


def test_a_class_priority_of_another_queue_does_not_pass_it_for_ever():
    rnd = random.Random(4)
    stream = Stream([node("a", gpus=4)], [part("q0"), part("q1")], preempt=False)
    feed = backlog("s", rnd, 1200, queue="q1", priority=5)
    play(stream, feed, 1200.0, queue="q0", gpus=2)


def test_parts_of_devices_do_not_use_up_what_is_kept():
    """Of ordinary reservations, too: a part of a device spoils it."""
    state = cluster([node("a", gpus=4)], [part("q")], patience=0.0)
    state.upsert_pod(pod("long", queue="q", gpus=1, at="a", time_limit=3600.0, started=0.0))
    state.upsert_pod(pod("big", queue="q", gpus=4, created=1.0))
    state.upsert_pod(pod("shared", queue="q", milli=500, created=2.0))
    assert placed(confirm(state, run(state, 10.0))) == {}
    state.remove_pod("uid-long")
    assert placed(confirm(state, run(state, 20.0))) == {"big": "a"}

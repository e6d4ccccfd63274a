"""A head of a queue is passed by others for at most `share_wait`, and then waits no longer than what holds its room runs."""

import random
from heapq import heappop, heappush

import pytest

from fairlead.core import invariants
from fairlead.core.model import Queue, QueueResource, RunTimeRecord, ServiceClass
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
def test_a_limit_is_kept_for_a_head_that_needs_all_of_it(above):
    """Its own queue's, or one above it, which others below that use up."""
    rnd = random.Random(2)
    queues = [part("top", 4, limit=4), part("q0", 2, parent="top"), part("q1", 2, parent="top"), part("other", 4)]
    if not above:
        queues = [part("q0", 4, limit=4), part("other", 4)]
    stream = Stream([node("a", gpus=8)], queues, reclaim=False)
    mine, theirs = backlog("s", rnd, 1200, queue="q1" if above else "q0"), backlog("o", rnd, 1200, queue="other")

    def feed(each):
        mine(each)
        theirs(each)

    play(stream, feed, 1200.0, queue="q0", gpus=4)
    assert held(stream.state, "other") >= 3, "nothing of this concerns another queue"


def test_smaller_jobs_of_its_queue_do_not_use_up_the_share_of_a_head_for_ever():
    """What it would be beyond its share is reclaimed at once, so it does not start; those behind it pass it, but not for ever."""
    rnd = random.Random(3)
    stream = Stream([node("a", gpus=8)], [part("q0", 4), part("q1", 4)])
    mine, theirs = backlog("s", rnd, 1200, queue="q0"), backlog("o", rnd, 1200, queue="q1")

    def feed(each):
        mine(each)
        theirs(each)

    play(stream, feed, 1200.0, queue="q0", gpus=3)
    assert stream.evicted == []


@pytest.mark.parametrize("seed", range(60))
def test_random_streams_starve_no_head(seed):
    """Queues with quotas or none, heads of all kinds, run times that are not known, wrongly declared, or limited."""
    rnd = random.Random(seed)
    gpus = [rnd.choice([2, 4, 8]) for _ in range(rnd.randint(1, 4))]
    nodes = [node(f"n{number}", gpus=count) for number, count in enumerate(gpus)]
    quotas = rnd.random() < 0.7
    mine = rnd.randint(sum(gpus) // 2, sum(gpus))
    queues = [part("q0", mine if quotas else None)]
    if rnd.random() < 0.7:
        queues.append(part("q1", sum(gpus) - mine if quotas else None))
    members = rnd.choice([1, 1, 2, 3])
    size = rnd.randint(1, max(gpus))
    due = mine if quotas else sum(gpus) // len(queues)  # beyond that it would be reclaimed from at once
    while not _room(gpus, size, members) or size * members > due:
        members, size = max(1, members - 1), max(1, size - 1)
    groups = [group("head", members, "q0")] if members > 1 else []
    firm = [ServiceClass("firm", mode="Never")] if rnd.random() < 0.7 else []
    longest = rnd.choice([300, 1200, 3000])
    stream = Stream(nodes, queues, groups, firm, reservations=rnd.randint(0, 1))
    stream.state.runtimes.restore("q0", [RunTimeRecord("", "", 1000, (longest,))])  # else what runs for so long is endless
    names = [each.name for each in queues]
    sizes = [{"gpus": 1}, {"gpus": 1}, {"gpus": 2}, {"milli": 500}, {"milli": 300}][: rnd.randint(1, 5)]
    told = rnd.choice(["nothing", "wrongly", "limits"])
    count = [0]

    def feed(each):
        for name in names:
            while each.waiting(f"{name}-") < 3:
                length = rnd.randint(1, longest // 10) * 10.0
                more = dict(rnd.choice(sizes))
                if told == "wrongly" and rnd.random() < 0.5:
                    more["expected"] = float(rnd.randint(10, longest))
                if told == "limits" and rnd.random() < 0.7:
                    more["time_limit"] = length
                if firm:
                    more["service_class"] = "firm"
                each.submit(f"{name}-{count[0]}", length, queue=name, **more)
                count[0] += 1

    # Another queue is served within its due at once, on what is kept, too, until the head's own queue is within its own.
    runs = longest * len(queues)
    play(stream, feed, runs, at=rnd.randint(0, 60) * 10.0, until=30000.0, queue="q0", gpus=size, members=members)


def _room(gpus, size, members):
    return sum(count // size for count in gpus) >= members


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

"""Several releases of Fairlead in one cluster: whatever the trees of queues, each object is served by one of them, and no other
release writes a status of it. The judge knows the rule in other words: it walks from the roots down.
"""

import random

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.reasons import ReasonCode
from fairlead.cluster import views
from fairlead.cluster.kinds import NAMESPACE, NODE, NODE_POOL, POD, POD_GROUP, QUEUE, RESERVATION, SERVICE_CLASS
from fairlead.cluster.ownership import Ownership
from fairlead.cluster.port import Synced, Upsert
from fairlead.cluster.translate import Change, Translator
from fairlead.core import invariants
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue
from fairlead.core.model.transactions import Place, Refuse
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.outputs import GroupStatus, QueueStatus, ReservationStatus, Verdict
from fairlead.scheduler.standby import Standby

SCHEDULERS = {"fairlead": ("fairlead", "fairlead-kubernetes"), "blue": ("blue", "blue-too"), "green": ("green",)}
"""Release -> its scheduler names."""
NAMED = [None, None, *(each for some in SCHEDULERS.values() for each in some), "nobody"]
QUEUES = ["default", *"abcdef"]
NAMESPACES = ["n0", "n1", "n2"]


def owners(queues):
    """Queue -> the release that serves it, None: no release has its scheduler. From the roots down."""
    found = dict.fromkeys(queues, "fairlead")
    below = {}
    for name, spec in queues.items():
        below.setdefault(spec.get("parent") or "", []).append(name)
    for root in below.get("", ()):
        scheduler = queues[root].get("schedulerName")
        release = next((each for each, some in SCHEDULERS.items() if scheduler in some), None) if scheduler else "fairlead"
        waiting = [root]
        while waiting:
            name = waiting.pop()
            found[name] = release
            waiting += below.get(name, ())
    return found


class Release:
    """One release: what it observes and writes."""

    def __init__(self, name, *, standby=False):
        self.name = name
        schedulers = dict.fromkeys(SCHEDULERS[name], names.AI_PROFILE)
        self.translator = Translator(schedulers, Ownership(schedulers, first=name == names.FIRST_RELEASE))
        self.outputs = []
        self.core = CoreLoop(Policy(), self.outputs.extend)
        self.standby = Standby() if standby else None

    def observe(self, kind, changes, now):
        events = self.translator.translate(kind, changes)
        if self.standby is not None:
            self.standby.take(events)
        else:
            self.core.apply(events, now)

    def lead(self, now):
        if self.standby is not None:
            self.core.apply(self.standby.events(), now)
            self.standby = None

    def decide(self, now):
        self.core.stale = True
        self.core.decide(now)
        written, self.outputs[:] = list(self.outputs), []
        return written


class World:
    """Queues, PodGroups, reservations, classes and pods that change at random; three releases observe all of it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.now = 1000.0
        self.releases = {name: Release(name, standby=self.random.random() < 0.3) for name in SCHEDULERS}
        self.queues, self.groups, self.reservations, self.defaults = {}, {}, {}, dict.fromkeys(NAMESPACES, "")
        self.pods = {}  # name -> (namespace, queue label, group, scheduler)
        self.number = 0

    def observed(self, kind, view, key):
        change = Change(key, view)
        for each in self.releases.values():
            each.observe(kind, [change], self.now)

    def converted(self, kind, document):
        return msgspec.convert(document, kind.view)

    def start(self):
        for name in NAMESPACES:
            self.put_namespace(name)
        self.observed(NODE, self.converted(NODE, {"metadata": {"name": "n", "uid": "n"}, "status": _ROOM}), "n")
        for kind in (SERVICE_CLASS, NODE_POOL):
            self.observed(kind, self.converted(kind, {"metadata": {"name": "x", "uid": "x"}, "spec": {}}), "x")
        for _ in range(self.random.randrange(12)):
            self.step()
        for each in self.releases.values():
            each.observe(NODE, [], self.now)
            (each.standby.take if each.standby else lambda events, each=each: each.core.apply(events, self.now))([Synced()])

    def put_namespace(self, name):
        labels = {names.DEFAULT_QUEUE_LABEL: self.defaults[name]} if self.defaults[name] else {}
        self.observed(NAMESPACE, self.converted(NAMESPACE, {"metadata": {"name": name, "uid": name, "labels": labels}}), name)

    def step(self):
        pick = self.random
        what = pick.choice(["queue"] * 4 + ["group", "group", "reservation", "namespace", "pod", "pod", "gone", "broken"])
        if what == "queue":
            name, spec = pick.choice(QUEUES), {}
            parent, scheduler = pick.choice(["", "", "missing", *QUEUES]), pick.choice(NAMED)
            if parent:
                spec["parent"] = parent
            if scheduler:
                spec["schedulerName"] = scheduler  # of a queue with a parent, too: an API server refuses that, and nothing breaks
            self.queues[name] = spec
            self.observed(QUEUE, self.converted(QUEUE, {"metadata": {"name": name, "uid": name}, "spec": spec}), name)
        elif what == "group":
            key = f"{pick.choice(NAMESPACES)}/g{pick.randrange(3)}"
            queue = pick.choice(["", "nowhere", *QUEUES])
            self.groups[key] = queue
            self.put_group(key)
        elif what == "reservation":
            name, queue = f"r{pick.randrange(3)}", pick.choice(["", *QUEUES])
            spec = {"purpose": "Capacity" if queue else "Maintenance", **({"queue": queue} if queue else {}), **_WINDOW}
            self.reservations[name] = queue
            self.observed(RESERVATION, self.converted(RESERVATION, {"metadata": {"name": name, "uid": name}, "spec": spec}), name)
        elif what == "namespace":
            name = pick.choice(NAMESPACES)
            self.defaults[name] = pick.choice(["", *QUEUES])
            self.put_namespace(name)
        elif what == "pod":
            self.put_pod()
        elif what == "gone":
            kind, known = pick.choice([(QUEUE, self.queues), (POD_GROUP, self.groups), (RESERVATION, self.reservations)])
            if known:
                key = pick.choice(sorted(known))
                del known[key]
                self.observed(kind, None, key)
        elif self.queues:  # a version that cannot be read: whose it is stays as it was
            key = pick.choice(sorted(self.queues))
            bare = views.OnlyMetadata(metadata=msgspec.convert({"name": key, "uid": key}, views.Metadata))
            for each in self.releases.values():
                each.observe(QUEUE, [Change(key, bare, error="Expected `int`, got `str`")], self.now)

    def put_group(self, key):
        namespace, _, name = key.partition("/")
        spec = {"minMember": 1, **({"queue": self.groups[key]} if self.groups[key] else {})}
        document = {"metadata": {"name": name, "namespace": namespace, "uid": key}, "spec": spec}
        self.observed(POD_GROUP, self.converted(POD_GROUP, document), key)

    def put_pod(self):
        pick, self.number = self.random, self.number + 1
        name, namespace = f"p{self.number}", pick.choice(NAMESPACES)
        queue, group = pick.choice(["", *QUEUES]), pick.choice(["", "", "g0", "g1", "g2"])
        scheduler = pick.choice([each for each in NAMED if each] + ["default-scheduler"])
        self.pods[name] = namespace, queue, group, scheduler
        labels = {names.QUEUE_LABEL: queue} if queue else {}
        if group:
            labels[names.POD_GROUP_LABEL] = group
        document = {
            "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels},
            "spec": {"schedulerName": scheduler, "containers": [{"resources": {"requests": {"cpu": "10m"}}}]},
        }
        self.observed(POD, self.converted(POD, document), name)

    # -- what must hold ------------------------------------------------------------------------

    def owner_of(self, queue):
        return owners(self.queues).get(queue, "fairlead")

    def group_owner(self, key):
        return self.owner_of(self.groups[key] or self.defaults[key.partition("/")[0]] or "default")

    def expected(self):
        """What each release reports on: (kind, name)."""
        found = {name: set() for name in [*SCHEDULERS, None]}
        for name, owner in owners(self.queues).items():
            found[owner].add(("queues", name))
        for key in self.groups:
            found[self.group_owner(key)].add(("podgroups", key))
        for name, queue in self.reservations.items():
            found[self.owner_of(queue) if queue else "fairlead"].add(("reservations", name))
        found["fairlead"] |= {("serviceclasses", "x"), ("nodepools", "x")}
        return found

    def decide(self):
        self.now += self.random.choice([0.5, 20.0])
        expected, placed = self.expected(), set()
        for name, release in self.releases.items():
            if release.standby is not None and self.random.random() < 0.5:
                release.lead(self.now)
            if release.standby is None:
                written = release.decide(self.now)
                invariants.check(release.core.state)
                assert {(kind, key) for kind, key, _ in subjects(written)} <= expected[name], name
                placed = self.check_pods(name, written, placed)

    def check_pods(self, release, written, placed):
        """Only pods of a release's own schedulers in queues of its own get nodes; the others of its own are told why."""
        for each in written:
            for binding in each.bindings if isinstance(each, Place) else ():
                namespace, queue, group, scheduler = self.pods[binding.pod.name]
                assert scheduler in SCHEDULERS[release]
                if group and f"{namespace}/{group}" in self.groups:
                    assert self.group_owner(f"{namespace}/{group}") == release
                    queue = self.groups[f"{namespace}/{group}"] or queue
                elsewhere = self.owner_of(queue or self.defaults[namespace] or "default") != release
                assert not elsewhere, (release, binding)
                assert binding.pod.name not in placed
                placed.add(binding.pod.name)
        return placed


_ROOM = {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}
_WINDOW = {"start": "2030-01-01T00:00:00Z", "end": "2030-01-02T00:00:00Z"}


def subjects(outputs):
    """What statuses are written of, and which part."""
    found = set()
    for each in outputs:
        if isinstance(each, GroupStatus):
            found.add(("podgroups", each.group, "status"))
        elif isinstance(each, QueueStatus):
            found.add(("queues", each.queue, "status"))
        elif isinstance(each, ReservationStatus):
            found.add(("reservations", each.reservation, "status"))
        elif isinstance(each, Verdict):
            found.add((each.kind, each.name, "verdict"))
    return found


@pytest.mark.parametrize("seed", range(120))
def test_each_object_has_one_owner_and_no_other_release_writes_of_it(seed):
    world = World(seed)
    world.start()
    for _ in range(40):
        for _ in range(world.random.randrange(4)):
            world.step()
        world.decide()
    for release in world.releases.values():
        release.lead(world.now)
    for queue in list(world.queues):
        known = {name: each.translator.ownership.elsewhere(queue) for name, each in world.releases.items()}
        assert [name for name, elsewhere in known.items() if not elsewhere] == [
            name for name in SCHEDULERS if name == world.owner_of(queue)
        ]
    expected = world.expected()
    for name, release in world.releases.items():
        ours = {key for key, gang in release.core.state.gangs.items() if gang.group is not None and gang.group.ours}
        assert ours == {key for kind, key in expected[name] if kind == "podgroups"}
        tree = release.core.state.queues.tree
        held = {queue for queue in QUEUES if queue in tree.queues and tree.queues[queue].seen}
        assert held == {key for kind, key in expected[name] if kind == "queues"}
        given = release.core.state.reserved.given
        assert {key for key, each in given.items() if each.ours} == {k for kind, k in expected[name] if kind == "reservations"}
        assert set(given) == set(world.reservations)  # the nodes are held, whoever reports it


@pytest.mark.parametrize("seed", range(30))
def test_what_changes_hands_is_reported_by_its_new_owner(seed):
    pick = random.Random(seed)
    world = World(seed)
    for release in world.releases.values():
        release.standby = None
    world.random = random.Random(0)
    world.releases["fairlead"].observe(NODE, [], 0.0)
    for release in world.releases.values():
        release.core.apply([Synced()], 0.0)
    world.queues = {"a": {}, "b": {"parent": "a"}, "c": {"parent": "b"}}
    world.groups = {"n0/g0": "c"}
    world.reservations = {"r0": "b"}

    def put(name):
        document = {"metadata": {"name": name, "uid": name}, "spec": world.queues[name]}
        world.observed(QUEUE, world.converted(QUEUE, document), name)

    def deliver():
        for name in pick.sample(sorted(world.queues), 3):
            put(name)

    deliver()
    world.put_group("n0/g0")
    spec = {"purpose": "Capacity", "queue": "b", **_WINDOW}
    world.observed(RESERVATION, world.converted(RESERVATION, {"metadata": {"name": "r0", "uid": "r0"}, "spec": spec}), "r0")
    everything = {("queues", each, what) for each in "abc" for what in ("status", "verdict")}
    everything |= {("podgroups", "n0/g0", "status"), *(("reservations", "r0", what) for what in ("status", "verdict"))}
    for scheduler in [None, *pick.choices(["blue", "green", "fairlead", "nobody", None], k=8)]:
        before = world.owner_of("a")
        world.queues["a"] = {"schedulerName": scheduler} if scheduler else {}
        put("a")
        world.now += 100.0
        written = {name: subjects(each.decide(world.now)) for name, each in world.releases.items()}
        owner = world.owner_of("a")
        for name, found in written.items():
            if name != owner:
                assert not found
            elif owner != before:
                assert found == everything, name


def told(release, now=2000.0):
    found = {}
    for each in release.decide(now):
        if isinstance(each, Refuse):
            found |= {pod.name: each.reason for pod in each.pods}
    return found


def test_a_pod_in_a_queue_of_another_release_is_told_by_whom_it_is_served():
    world = World(1)
    for release in world.releases.values():
        release.standby = None
    world.start()
    for known, kind in ((world.queues, QUEUE), (world.groups, POD_GROUP), (world.reservations, RESERVATION)):
        for key in list(known):
            del known[key]
            world.observed(kind, None, key)
    for name in list(world.pods):
        world.observed(POD, None, name)
    world.observed(QUEUE, world.converted(QUEUE, {"metadata": {"name": "a", "uid": "a"}, "spec": {"schedulerName": "blue"}}), "a")

    def put(name, scheduler, queue):
        document = {
            "metadata": {"name": name, "namespace": "n9", "uid": name, "labels": {names.QUEUE_LABEL: queue} if queue else {}},
            "spec": {"schedulerName": scheduler, "containers": [{}]},
        }
        world.observed(POD, world.converted(POD, document), name)

    put("first", "fairlead", "a")
    put("blue", "blue", "")
    put("ours", "blue-too", "a")
    reason = told(world.releases["fairlead"])["first"]
    assert reason.code is ReasonCode.OTHER_SCHEDULER
    assert reason.message.startswith("queue 'a' is served by scheduler 'blue', and this pod is not:")
    found = told(world.releases["blue"])
    assert found.keys() == {"blue"}
    assert found["blue"].code is ReasonCode.OTHER_SCHEDULER
    assert found["blue"].message.startswith("queue 'default' is served by the release 'fairlead', and this pod is not:")
    put("early", "fairlead", "z")
    assert told(world.releases["fairlead"])["early"].code is ReasonCode.UNKNOWN_QUEUE
    world.observed(QUEUE, world.converted(QUEUE, {"metadata": {"name": "z", "uid": "z"}, "spec": {"schedulerName": "blue"}}), "z")
    assert told(world.releases["fairlead"])["early"].code is ReasonCode.OTHER_SCHEDULER
    # The root names no scheduler any more: what waited in vain is served.
    world.observed(QUEUE, world.converted(QUEUE, {"metadata": {"name": "a", "uid": "a"}, "spec": {}}), "a")
    placed = [each for each in world.releases["fairlead"].decide(3000.0) if isinstance(each, Place)]
    assert [binding.pod.name for each in placed for binding in each.bindings] == ["first"]


def test_a_single_release_receives_what_it_always_did():
    """No event more, none less, and none changed."""
    translator = Translator()
    assert translator.ownership.sole
    document = {"metadata": {"name": "a", "uid": "a"}, "spec": {"parent": "b"}}
    events = translator.translate(QUEUE, [Change("a", msgspec.convert(document, QUEUE.view))])
    assert [type(each).__name__ for each in events] == ["Upsert", "Judged"]
    assert events[0] == Upsert(Queue("a", "b"))

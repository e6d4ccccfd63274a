"""Two releases of Fairlead: each AIJob is run by the operator of one of them. The same cluster is given to each in turn."""

import asyncio
import random

import msgspec
import pytest

from fairlead.api import names
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.translate import Change
from fairlead.operator.releases import Releases, _Queue
from tests.operator.worlds import in_a_world

RELEASES = {"fairlead": "fairlead", "blue": "blue"}
"""Release -> its scheduler name."""
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}
NAMESPACES = ("n0", "n1", "n2")


@pytest.fixture(autouse=True)
def _names():
    yield
    names.answer_to(names.DEFAULT_SCHEDULERS)


def story_of(seed):
    """Queues in order of creation, default queues, jobs before and after one root changes hands."""
    pick = random.Random(seed)
    queues = {"default": {}}
    for name in "abcdef":
        parent = pick.choice(["", "", *queues, "missing"])
        scheduler = pick.choice([None, "blue", "blue", "fairlead", "nobody"])
        queues[name] = {"parent": parent} if parent else {"schedulerName": scheduler} if scheduler else {}
    defaults = {each: pick.choice(["", *queues]) for each in NAMESPACES}
    jobs = {f"j{i}": (pick.choice(NAMESPACES), pick.choice(["", "nowhere", *queues])) for i in range(8)}
    roots = [name for name, spec in queues.items() if "parent" not in spec]
    return queues, defaults, jobs, (pick.choice(roots), pick.choice(["blue", "fairlead"]))


def owner(queues, queue):
    at, steps = queue, 0
    while at in queues and queues[at].get("parent") and steps < 20:
        at, steps = queues[at]["parent"], steps + 1
    scheduler = queues.get(at, {}).get("schedulerName", "fairlead")
    return scheduler if scheduler in RELEASES.values() else None


@pytest.mark.parametrize("seed", range(12))
def test_each_job_is_run_by_one_release(seed):
    case = Case(seed)
    found = {name: set() for name in case.expected}
    for release, scheduler in RELEASES.items():
        names.answer_to({scheduler: names.AI_PROFILE}, release)
        in_a_world(case.story(release, found))
    assert found == case.expected


class Case:
    """Queues, default queues and jobs, before and after one root changes hands. expected: who runs each job."""

    def __init__(self, seed):
        self.queues, self.defaults, jobs, (self.root, self.scheduler) = story_of(seed)
        self.jobs, self.later = jobs, {f"{name}-later": where for name, where in jobs.items()}
        self.moved = {**self.queues, self.root: {"schedulerName": self.scheduler}}
        both = {name: {self.owner(*where), self.owner(*where, self.moved)} for name, where in self.jobs.items()}
        found = {**both, **{name: {self.owner(*where, self.moved)} for name, where in self.later.items()}}
        self.expected = {name: owners - {None} for name, owners in found.items()}

    def owner(self, namespace, queue, queues=None):
        return owner(queues or self.queues, queue or self.defaults[namespace] or "default")

    def story(self, release, found):
        async def story(world, operator):
            for name, spec in self.queues.items():
                world.create({"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": spec})
            for name, queue in self.defaults.items():
                labels = {names.DEFAULT_QUEUE_LABEL: queue} if queue else {}
                world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
            await asyncio.sleep(2.0)
            for name, where in self.jobs.items():
                submit(world, name, *where)
            await asyncio.sleep(10.0)
            patch = msgspec.json.encode({"spec": {"schedulerName": self.scheduler}})
            path = f"/apis/{names.API_VERSION}/queues/{self.root}"
            await operator.jobs.client.patch(path, patch, "application/merge-patch+json")
            await asyncio.sleep(2.0)
            for name, where in self.later.items():
                submit(world, name, *where)
            await asyncio.sleep(10.0)
            aijobs, pods = made(world, names.API_VERSION, "AIJob"), made(world, "v1", "Pod").values()
            for name in found:
                ours = [each for each in pods if each["metadata"]["labels"].get(names.JOB_LABEL) == name]
                assert bool(ours) == bool(aijobs[name].get("status")), name
                assert {each["spec"]["schedulerName"] for each in ours} <= {RELEASES[release]}
                if ours:
                    found[name].add(release)
            counted = sum(dict(operator._values())["fairlead_operator_jobs"].values())
            assert counted == sum(self.owner(*where, self.moved) == release for where in {**self.jobs, **self.later}.values())

        return story


def submit(world, name, namespace, queue):
    spec = {"roles": [{"name": "worker", "template": TEMPLATE}], **({"queue": queue} if queue else {})}
    world.create({"apiVersion": names.API_VERSION, "kind": "AIJob", "metadata": {"name": name}, "spec": spec}, namespace)


def made(world, version, kind):
    resource = world.api.catalog.of_kind(version, kind)
    return {key[1]: record.object for key, record in world.api.store.records(resource.table)}


def queue_change(name, error="", **spec):
    view = msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec}, _Queue)
    return Change(name, view, error=error)


def releases():
    found = Releases(Client(Config("http://nowhere")))
    told = []
    found.changed.append(lambda: told.append(1))
    return found, told


def test_nothing_is_served_before_all_is_listed():
    found, told = releases()
    assert not found.serves("n", "a")
    found._listed("queues")
    assert not found.serves("n", "a")
    assert not told
    found._listed("namespaces")
    assert found.serves("n", "a")
    assert len(told) == 1


def test_a_single_release_is_told_of_no_queue():
    found, told = releases()
    found._listed("queues")
    found._listed("namespaces")
    told.clear()
    found._queue_changed(queue_change("a"))
    found._queue_changed(queue_change("b", parent="a"))
    assert found.sole
    assert not told
    found._queue_changed(queue_change("c", schedulerName="blue"))
    assert (found.sole, len(told), found.serves("n", "c")) == (False, 1, False)
    found._queue_changed(queue_change("c", error="broken"))  # the release that served it goes on
    assert (len(told), found.serves("n", "c")) == (1, False)
    found._queue_changed(Change("c", None))
    assert (found.sole, len(told), found.serves("n", "c")) == (True, 2, True)

"""Two replicas of the operator with one PostgreSQL: one writes, whoever leads next misses nothing and counts nothing twice."""

import signal
import time

import pytest

from fairlead.cluster.times import seconds, timestamp
from fairlead.observability.history import SchemaError, Wanted
from fairlead.observability.ledger import ledger
from fairlead.observability.store import History
from testbed.objects import ai_job, node, pod
from tests.e2e.planes import AI_JOBS
from tests.observability.histories import execute

pytestmark = pytest.mark.e2e

PLANE = AI_JOBS
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fairlead-operator"
PRICED = {
    "apiVersion": "fairlead.dev/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "priced"},
    "spec": {"nodeSelector": {"matchLabels": {"pool": "priced"}}, "price": {"perNodeHour": 7200.0, "currency": "USD"}},
}


class Story:
    """Pods of one GPU each, whose kubelets the test plays; when each ended, by its container's status."""

    def __init__(self, cluster, url):
        self.cluster = cluster
        self.url = url
        self.ended = {}

    def play(self, name, phase):
        status = {"phase": phase}
        if phase != "Running":
            self.ended[name] = timestamp(time.time())
            terminated = {"exitCode": 0, "reason": "Completed", "finishedAt": self.ended[name]}
            container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
            status["containerStatuses"] = [{**container, "state": {"terminated": terminated}}]
        path = f"/api/v1/namespaces/default/pods/{name}/status"
        self.cluster.plane.request("PATCH", path, {"status": status}, "application/merge-patch+json")

    def run(self, *names):
        """They get their places, and run."""
        self.cluster.create(*(pod(name, gpus=1) for name in names))
        self.cluster.until(lambda: set(names) <= set(self.cluster.placed()))
        for name in names:
            self.play(name, "Running")

    def written(self):
        """State and number of runs of each job."""
        try:
            store = History(self.url, create=False)
        except SchemaError:
            return {}  # it is made when the first one leads
        found = {each.job.name: (str(each.job.state), each.runs) for each in store.jobs(Wanted(), time.time())}
        store.close()
        return found

    def until(self, **jobs):
        self.cluster.until(lambda: self.written() == jobs)

    def holder(self):
        return self.cluster.get(LEASE)["spec"]["holderIdentity"]

    def writer(self):
        """The note of the operator that writes."""
        return execute(self.url, "SELECT value FROM notes WHERE name = 'writer'")

    def leads(self, operator):
        self.cluster.until(lambda: operator.logged("leading"))

    def expire(self):
        """The lease is over at once."""
        self.cluster.delete(LEASE)


def test_leaders_that_pause_or_are_killed_lose_nothing_and_count_nothing_twice(cluster, postgresql):
    url = postgresql.emptied("replicas")
    cluster.create(PRICED, node("n", gpus=8, labels={"pool": "priced"}))
    cluster.scheduler("--no-leader-elect").synced()
    story = Story(cluster, url)
    first = cluster.operator("--history", url)
    story.leads(first)
    second = cluster.operator("--history", url)
    story.run("ends", "goes", "stays")
    cluster.create(ai_job("bert", workers=2))
    cluster.until(lambda: len(cluster.placed()) == 5)
    running = ("Running", 1)
    story.until(ends=running, goes=running, stays=running, bert=("Pending", 2))
    assert not second.logged("leading")
    assert second.process.poll() is None
    writer = story.writer()

    first.signal(signal.SIGSTOP)  # it does not know that it leads no more
    story.expire()
    story.play("ends", "Succeeded")
    story.run("new")
    story.leads(second)
    for name in ("bert-worker-0-0", "bert-worker-1-0"):
        story.play(name, "Running")
    done = ("Succeeded", 1)
    story.until(ends=done, goes=running, stays=running, new=running, bert=("Running", 2))
    assert story.writer() != writer
    first.signal(signal.SIGCONT)  # what it knows is old, and the database refuses it
    assert first.process.wait(30) == 1

    second.kill()
    story.expire()
    story.play("goes", "Succeeded")
    cluster.delete("/api/v1/namespaces/default/pods/stays")  # nobody is there who could know when
    third = cluster.operator("--history", url)
    story.leads(third)
    story.run("last")
    story.until(ends=done, goes=done, stays=("Lost", 1), new=running, last=running, bert=("Running", 2))
    assert third.stop() == 0
    exactly(cluster, story)


def exactly(cluster, story):
    """Each pod that had a place has one run, with its times; jobs and idle time make the price of the node."""
    store = History(story.url, create=False)
    now = time.time()
    stays, held = store.held(0.0, now)
    store.close()
    runs = {run.name: run for run, _ in held}
    pods = cluster.pods()
    assert len(held) == len(runs) == 7
    assert set(pods) == set(runs) - {"stays"}
    for name, each in pods.items():
        [bound] = [one["lastTransitionTime"] for one in each["status"]["conditions"] if one["type"] == "PodScheduled"]
        ended = story.ended.get(name)
        assert 0 <= runs[name].started_at - seconds(bound) < 10  # a leader that observes a binding has the time more precisely
        assert runs[name].ended_at == (seconds(ended) if ended else None)
    [stay] = stays
    found = ledger(stays, [run for run, _ in held], stay.started_at, now, lambda run: run.name, now)
    assert not any(found.balance.values())
    for line in found.lines:
        lasted = (runs[line.name].ended_at or now) - max(stay.started_at, runs[line.name].started_at)
        assert line.cost.get("USD", 0.0) == pytest.approx(lasted * 7200 / 3600 / 8, abs=0.01)

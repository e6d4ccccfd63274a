"""`queue` and `top` list AIJobs without pods, with what `explain` tells of them: from a snapshot, and beside the leader's rows."""

import json

import msgspec
import pytest

from fairlead.api.kinds.ai_job import AIJob
from fairlead.cli.leader import Leader
from fairlead.cli.without_pods import WithoutPods
from fairlead.cluster.kubernetes.client import ApiError
from fairlead.operator.jobs import members as made
from fairlead.scheduler.overview.rows import Job, State
from testbed import objects
from tests.cli.test_cluster_commands import Box, until

ACCEPTED = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}
MISSING = {"type": "Accepted", "status": "False", "reason": "DependencyMissing", "message": "job 'none' does not exist"}
STATUSES = {
    "held": {"phase": "Suspended", "conditions": [ACCEPTED]},
    "after": {"phase": "Pending", "message": "job 'first' is Running", "conditions": [ACCEPTED]},
    "lost": {"phase": "Pending", "conditions": [MISSING]},
    "again": {
        "phase": "Restarting",
        "message": "restart 1 of 3",
        "resumeAt": "2099-01-01T00:00:00Z",
        "conditions": [ACCEPTED],
    },
    "over": {"phase": "Succeeded"},
    "runs": {"phase": "Running", "conditions": [ACCEPTED]},
}
SPECS = {
    "held": {"suspend": True},
    "after": {"dependsOn": [{"job": "first", "when": "afterok"}]},
    "lost": {"dependsOn": [{"job": "none", "when": "afterok"}]},
}
SHOWN = {
    "held": ("Suspended", "Suspended"),
    "after": ("Pending", "Dependency"),
    "lost": ("Pending", "DependencyMissing"),
    "again": ("Restarting", "Backoff"),
    "new": ("Pending", ""),
}


@pytest.fixture
def box(tmp_path):
    with Box(tmp_path) as running:
        for name in (*STATUSES, "new"):
            running.create(objects.ai_job(name, workers=2, gpus=4, **SPECS.get(name, {})))
        for name, status in STATUSES.items():
            patch = json.dumps({"status": status})
            running.kubectl("patch", "aijob", name, "-n", "vision", "--subresource=status", "--type=merge", "-p", patch)
        yield running


def rows(box, *more):
    return {each["name"]: each for each in box.json("queue", *more)["jobs"]}


def test_they_are_listed_as_they_are_explained(box):
    found = rows(box)
    assert {name: (each["state"], each["reason"]["code"]) for name, each in found.items()} == SHOWN
    for name, each in found.items():
        told = box.json("explain", f"aijob/{name}", "-n", "vision")
        assert (each["state"], each["reason"]["code"] or None, each["pods"], each["gpus"], each["user"]) == (
            told["state"],
            told["code"],
            told["pods"],
            told["gpus"],
            told["user"],
        )
        assert (each["kind"], each["queue"]) == ("AIJob", told["queue"])
        assert name == "new" or each["reason"]["message"] == told["message"], "that of the new one counts the seconds"
    table = box.fairlead("queue").stdout
    assert "(Dependency) job 'first' is Running" in table
    assert "()" not in table
    assert found["again"]["expected_start"] is not None


def test_they_can_be_narrowed_and_are_counted(box):
    assert set(rows(box, "--state", "restarting")) == {"again"}
    assert set(rows(box, "--start")) == set(SHOWN)
    assert rows(box, "-n", "language") == {}
    assert set(rows(box, "--queue", "vision")) == {name for name, each in rows(box).items() if each["queue"] == "vision"}
    top = box.json("top", "--once")
    assert (top["pending"], top["gpus_wanted"]) == (len(SHOWN), 8.0 * len(SHOWN))


def test_a_job_whose_pods_are_there_is_listed_once(box):
    raw = box.kubectl("get", "aijob", "new", "-n", "vision", "-o", "json")
    job = msgspec.json.decode(raw, type=AIJob)
    box.create(made.group(job), *(made.pod(job, job.spec.roles[0], each, 0) for each in made.members(job)))
    until(lambda: rows(box)["new"]["state"] == "Running")
    assert rows(box)["new"]["kind"] == "PodGroup"


class Api:
    """An API server with AIJobs. forbidden: of which places, empty: the whole cluster; selects: whether by phase."""

    def __init__(self, *jobs, forbidden=(), selects=True):
        self.jobs, self.forbidden, self.selects = jobs, forbidden, selects
        self.asked = []

    async def get(self, path, **query):
        self.asked.append((path, query))
        if path.startswith("/api/v1/namespaces/"):
            return msgspec.json.encode({"metadata": {"name": "ns", "labels": {"fairlead.dev/default-queue": "ours"}}})
        if ("ns" if "/namespaces/ns/" in path else "") in self.forbidden:
            raise ApiError(403, "Forbidden", "no")
        if "fieldSelector" in query and not self.selects:
            raise ApiError(400, "BadRequest", "field label not supported: status.phase")
        return msgspec.json.encode({"metadata": {}, "items": self.jobs})


def ai_job(name, phase="Pending", **spec):
    manifest = objects.ai_job(name, **spec)
    manifest["metadata"] |= {"namespace": "ns", "uid": name, "creationTimestamp": "1970-01-01T00:00:10Z"}
    return manifest | {"status": {"phase": phase, "message": "waits", "conditions": [ACCEPTED]}}


def row(name, kind="PodGroup", namespace="ns"):
    return Job(namespace, name, kind, "q", State.RUNNING, 1, 1, 1.0, 0, 0.0)


async def listed(api, *known, namespace=""):
    podless = WithoutPods()
    await podless.read(Leader(api, namespace))
    return podless.beside(known, 100.0)


async def test_beside_the_rows_of_the_leader():
    api = Api(ai_job("a"), ai_job("a-b"), ai_job("sweep", array={"indexes": "0-3"}), ai_job("one"))
    found = await listed(api, row("a-b"), row("sweep-2-worker-0-0", "Pod"), row("one", namespace="other"))
    assert [(each.name, each.state, each.queue) for each in found] == [
        ("a", State.PENDING, "ours"),
        ("one", State.PENDING, "ours"),
    ]
    assert not await listed(api, row("a"), row("a-b-worker-0-1", "Pod"), row("sweep-0"), row("one"))


async def test_of_other_namespaces_than_the_leader_answers_of_nothing_is_known():
    podless = WithoutPods()
    await podless.read(Leader(Api(ai_job("a"))))
    assert [each.name for each in podless.beside([], 100.0, "ns")] == ["a"]
    assert not podless.beside([], 100.0, "other")


async def test_a_server_that_cannot_select_by_phase_sends_all():
    api = Api(ai_job("waits"), ai_job("runs", "Running"), ai_job("over", "Failed"), selects=False)
    assert [each.name for each in await listed(api)] == ["waits"]


async def test_users_of_one_namespace_see_theirs_and_are_told_of_missing_rights(capsys):
    assert [each.name for each in await listed(Api(ai_job("mine"), forbidden=("",)), namespace="ns")] == ["mine"]
    assert not capsys.readouterr().err
    assert not await listed(Api(ai_job("mine"), forbidden=("", "ns")), namespace="ns")
    assert capsys.readouterr().err == "AIJobs without pods are not shown: you may not list aijobs.fairlead.dev\n"


async def test_a_refreshed_view_spends_little_on_them(monkeypatch):
    now = 0.0

    def clock():
        nonlocal now
        now += 1.0
        return now

    monkeypatch.setattr("fairlead.cli.without_pods.time.monotonic", clock)
    api = Api(ai_job("a", queue="q"))
    podless, leader = WithoutPods(), Leader(api)
    for _ in range(100):
        await podless.read(leader)
    assert len(api.asked) == 5, "a list takes one second of about twenty"

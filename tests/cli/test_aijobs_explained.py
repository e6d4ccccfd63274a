"""`explain aijob/NAME`: from the pods and the PodGroup that the operator created for it, else from its own status."""

import io
import json

import msgspec
import pytest

from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.rules import strict
from fairlead.cli import aijobs
from fairlead.cli.submit import ended
from fairlead.cluster.times import seconds
from fairlead.operator.jobs import members as made
from testbed import objects
from tests.cli.test_cluster_commands import Box, until


@pytest.fixture
def box(tmp_path):
    with Box(tmp_path) as running:
        yield running


def submitted(box, manifest):
    """The AIJob, as the API server has it."""
    box.create(manifest)
    raw = box.kubectl("get", "aijob", manifest["metadata"]["name"], "-n", "vision", "-o", "json")
    return msgspec.json.decode(raw, type=AIJob)


def operate(box, job, elements=(-1,)):
    """What the operator makes."""
    if elements == (-1,) or made.is_gang(job):
        box.create(*(made.group(job, element) for element in elements))
    roles = {role.name: role for role in job.spec.roles}
    box.create(*(made.pod(job, roles[each.role], each, 0) for element in elements for each in made.members(job, element)))


def explain(box, name):
    return box.json("explain", f"aijob/{name}", "-n", "vision")


def test_it_is_explained_as_its_gang_is(box):
    job = submitted(box, objects.ai_job("huge", workers=200, gpus=8))
    assert explain(box, "huge")["message"].startswith(("the operator has not reconciled it", "no operator has reconciled it"))
    operate(box, job)
    until(lambda: box.json("explain", "podgroup/huge", "-n", "vision")["pods"] == 200)
    told, gang = explain(box, "huge"), box.json("explain", "podgroup/huge", "-n", "vision")
    assert told["object"] == "aijob/huge"
    same = ("state", "pods", "gpus", "code", "message", "position", "queued", "advice")
    assert {key: told[key] for key in same} == {key: gang[key] for key in same}
    assert (told["state"], told["code"], told["position"]) == ("Waiting", "TooLarge", 1)
    small = submitted(box, objects.ai_job("small", workers=2))
    operate(box, small)
    until(lambda: explain(box, "small")["state"] == "Running")
    assert (explain(box, "small")["placed"], len(explain(box, "small")["nodes"])) == (2, 1)


def test_the_elements_of_an_array_are_told_together(box):
    job = submitted(box, objects.ai_job("sweep", workers=1, gpus=8, array={"indexes": "0-39"}))
    operate(box, job, range(40))
    told = until(lambda: found if (found := explain(box, "sweep"))["code"] == "Resources" else None)
    assert (told["state"], told["pods"], told["gpus"]) == ("Waiting", 40, 320.0)
    assert told["placed"] == len(told["nodes"]) == 40 - told["queued"], "one element fills a node"
    assert told["position"] == 1, "of its next element"


def test_a_job_that_its_user_holds_was_not_preempted(box):
    held = submitted(box, objects.ai_job("held", suspend=True))
    about = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "AIJob", "name": "held", "namespace": "vision"}
    for note in ("suspended by its user", "suspended by the scheduler"):
        event = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": f"e{len(note)}"}, "reason": "Suspended"}
        event |= {"eventTime": "2026-01-01T00:00:00.000000Z", "regarding": {**about, "uid": held.metadata.uid}, "note": note}
        event |= {"action": "Suspended", "type": "Normal", "reportingController": "a/b", "reportingInstance": "c"}
        box.kubectl("create", "-n", "vision", "-f", "-", text=json.dumps(event))
        assert explain(box, "held")["preempted"] == (None if note.endswith("user") else note)


def test_names_that_do_not_exist_and_pods_that_only_say_so_are_not_its_own(box):
    impostor = objects.pod("p", labels={"fairlead.dev/job": "real"})
    submitted(box, objects.ai_job("real"))
    box.create(impostor)
    assert explain(box, "real")["pods"] == 2
    done = box.fairlead("explain", "aijob/nobody", "-n", "vision")
    assert (done.exit_code, "aijob vision/nobody does not exist" in done.output) == (4, True)


def _drawn(explanation):
    from rich.console import Console

    from fairlead.cli.explain import _drawing

    screen = Console(width=200, record=True, file=io.StringIO())
    screen.print(_drawing(explanation, "ns"))
    return screen.export_text()


def condition(kind, status, reason, message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message}


IN_FORCE = condition("Accepted", "True", "Accepted")


@pytest.mark.parametrize(
    ("spec", "status", "told"),
    [
        ({}, None, ("Pending", None, "no operator has reconciled it for 60 s")),
        (
            {"dependsOn": [{"job": "prepare", "when": "afterok"}]},
            {"message": "job 'prepare' is Running", "conditions": [IN_FORCE]},
            ("Pending", "Dependency", "job 'prepare' is Running"),
        ),
        (
            {"dependsOn": [{"job": "none", "when": "afterok"}]},
            {"conditions": [condition("Accepted", "False", "DependencyMissing", "job 'none' does not exist")]},
            ("Pending", "DependencyMissing", "job 'none' does not exist"),
        ),
        (
            {"suspend": True},
            {"phase": "Suspended", "conditions": [IN_FORCE]},
            ("Suspended", "Suspended", "suspended by its user"),
        ),
        ({}, {"phase": "Suspended", "conditions": [IN_FORCE]}, ("Suspended", "Suspended", "suspended by the scheduler")),
        (
            {},
            {"phase": "Restarting", "message": "restart 1", "resumeAt": "1970-01-01T00:02:00Z", "conditions": [IN_FORCE]},
            ("Restarting", "Backoff", "restart 1"),
        ),
        (
            {},
            {"phase": "Failed", "message": "worker-0 failed with exit code 127", "startedAt": "1970-01-01T00:00:30Z"},
            ("Failed", None, "worker-0 failed with exit code 127"),
        ),
    ],
    ids=["unseen", "depends", "missing", "by its user", "by policy", "restarts", "failed"],
)
def test_without_pods_its_status_says_why(spec, status, told):
    manifest = objects.ai_job("j", workers=2, gpus=4, **spec)
    manifest["metadata"] |= {"namespace": "ns", "creationTimestamp": "1970-01-01T00:00:10Z"}
    if status is not None:
        manifest["status"] = status
    found = aijobs.by_status(msgspec.convert(manifest, AIJob), 70.0)
    assert (found.state, found.code) == told[:2]
    assert found.message.startswith(told[2])
    assert (found.pods, found.gpus) == (2, 8.0)
    waits = found.state != "Failed"
    assert found.waiting_seconds == (60.0 if waits else None)
    assert found.expected_wait_seconds == (50.0 if found.code == "Backoff" else None)
    assert "aijob/j" in _drawn(found)
    assert (found.advice is not None) == (found.code in ("Dependency", "DependencyMissing", "Suspended", "Backoff"))


@pytest.mark.parametrize(
    ("age", "message"),
    [
        (0.0, "the operator has not reconciled it yet"),
        (14.0, "the operator has not reconciled it yet"),
        (40.0, "no operator has reconciled it for 40 s: `fairlead install` or `fairlead operator` starts one"),
    ],
)
def test_a_job_that_no_operator_reconciles_is_reported(age, message):
    manifest = objects.ai_job("new")
    manifest["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z"}
    job = msgspec.convert(manifest, strict(AIJob))
    assert aijobs.by_status(job, seconds("2026-01-01T00:00:00Z") + age).message == message


async def test_a_command_that_waits_reports_once_that_no_operator_runs(monkeypatch, capsys):
    answers = [{}, {}, {}, {"status": {"phase": "Running"}}, {"status": {"phase": "Succeeded"}}]

    class Client:
        async def get(self, path):
            return msgspec.json.encode(answers.pop(0))

    monkeypatch.setattr("fairlead.cli.submit._POLL_INTERVAL", 0.0)
    monkeypatch.setattr("fairlead.cli.aijobs.SOON", 0.0)
    assert await ended(Client(), "ns/job") == "Succeeded"
    assert capsys.readouterr().err.splitlines() == [
        "ns/job: no operator has reconciled it for 0 s: `fairlead install` or `fairlead operator` starts one"
    ]


async def test_a_command_that_waits_reports_once_why_a_job_is_not_accepted(monkeypatch, capsys):
    no = {"status": {"conditions": [condition("Accepted", "False", "DependencyMissing", "job 'a' does not exist")]}}
    answers = [no, no, {"status": {"phase": "Failed"}}]

    class Client:
        async def get(self, path):
            return msgspec.json.encode(answers.pop(0))

    monkeypatch.setattr("fairlead.cli.submit._POLL_INTERVAL", 0.0)
    assert await ended(Client(), "ns/job") == "Failed"
    assert capsys.readouterr().err.splitlines() == ["ns/job waits: job 'a' does not exist"]


def test_a_job_without_pods_asks_for_what_its_limits_say():
    manifest = objects.ai_job("j", workers=2, gpus=4)
    manifest["metadata"] |= {"namespace": "ns", "creationTimestamp": "1970-01-01T00:00:10Z"}
    del manifest["spec"]["roles"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
    found = aijobs.by_status(msgspec.convert(manifest, AIJob), 70.0)
    assert (found.gpus, "8 GPUs at priority 0" in _drawn(found)) == (8.0, True)
    assert "1 GPU at priority 0" in _drawn(msgspec.structs.replace(found, gpus=1.0))

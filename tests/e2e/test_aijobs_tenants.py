"""AIJobs of an ordinary tenant on the real API server, with the policies in force and the operator under its own role."""

import json
import time
from urllib.error import HTTPError

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.observability.history import Wanted
from fairlead.observability.store import History
from testbed import tenants
from testbed.objects import ai_job, node, pod, pod_group, queue
from tests.api.test_members import MOST, ROLES, job
from tests.e2e.planes import AI_JOBS, OPERATOR, USER

pytestmark = pytest.mark.e2e

STAMP = "fairlead.dev/user"
WRITTEN = 120.0  # seconds
"""So long a machine under load may take to write the history: a process starts, lists everything, and creates a database."""


PLANE = AI_JOBS


@pytest.fixture
def ann(plane, cluster):
    """A tenant of namespace `default`, which tests clean; and a queue that only she may use."""
    anns = queue("anns", quota=8)
    anns["spec"]["users"] = ["ann"]
    cluster.create(node("n1"), anns)
    return tenants.tenant(plane, "ann", "default")


def condition(cluster, name, kind):
    found = cluster.get(f"/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs/{name}")
    return next((each for each in found.get("status", {}).get("conditions", []) if each["type"] == kind), None)


def stamps(cluster, name):
    pods = [each for pod, each in cluster.pods().items() if pod.startswith(f"{name}-")]
    groups = cluster.get("/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups")["items"]
    found = [*pods, *(each for each in groups if each["metadata"]["name"] == name)]
    return [each["metadata"].get("annotations", {}).get(STAMP) for each in found]


def test_a_job_starts_in_its_users_queue_where_the_operator_is_trusted(cluster, plane, ann):
    with tenants.in_force(plane, (OPERATOR, USER)):
        assert ann.create(ai_job("bert", workers=2, queue="anns")) == ""
        cluster.scheduler("--no-leader-elect").synced()
        cluster.operator("--no-leader-elect")
        assert set(cluster.all_placed(2)) == {"bert-worker-0-0", "bert-worker-1-0"}
        assert stamps(cluster, "bert") == ["ann"] * 3
        assert condition(cluster, "bert", "Trusted") is None
        assert condition(cluster, "bert", "Accepted")["status"] == "True"


def test_an_operator_that_is_not_trusted_says_what_to_do(cluster, plane, ann):
    with tenants.in_force(plane):
        assert ann.create(ai_job("bert", workers=1)) == ""
        assert ann.create(ai_job("hers", workers=1, queue="anns")) == ""
        operator = cluster.operator("--no-leader-elect")
        for name in ("bert", "hers"):
            told = cluster.until(lambda name=name: condition(cluster, name, "Trusted"))
            assert (told["status"], told["reason"]) == ("False", "OperatorNotTrusted")
            assert f"print the policies again with --trust {OPERATOR}" in told["message"]
            assert "fairlead crds --policies --trust ... | kubectl apply -f -" in told["message"]
        refused = cluster.until(lambda: (found := condition(cluster, "hers", "Accepted"))["status"] == "False" and found)
        assert refused["reason"] == "PodsRefused"
        assert f"user {OPERATOR} may not use queue anns" in refused["message"]
        cluster.until(lambda: "PodsRefused" in [reason for reason, _ in cluster.events("hers")])
        assert operator.logged("the policies do not trust this operator")


def test_neither_relabelled_pods_nor_a_podgroup_that_goes_first_end_the_operator(cluster, ann, tmp_path):
    cluster.create(queue("default", quota=8))  # where any queue exists, this one exists only if it is created
    database = f"sqlite:///{tmp_path}/history.db"
    History(database).close()
    history = History(database, create=False)
    operator = cluster.operator("--no-leader-elect", "--history", database)
    cluster.scheduler("--no-leader-elect").synced()
    for name in ("g1", "g2", "g3"):
        assert ann.create(pod_group(name, 1)) == ""
        assert ann.create(pod(f"of-{name}", group=name)) == ""
    cluster.all_placed(3)

    def runs():
        return {each.job.name: each.runs for each in history.jobs(Wanted(), time.time())}

    # What the operator has not seen while it was there it can write nothing of.
    cluster.until(lambda: runs() == dict.fromkeys(("g1", "g2", "g3"), 1), WRITTEN)
    relabel = {"metadata": {"labels": {"fairlead.dev/pod-group": "g2"}}}
    assert ann.patch("pod", "of-g1", relabel) == ""
    for kind, name in (("pod", "of-g1"), ("podgroup", "g3"), ("podgroup", "g2")):
        assert ann.kubectl("delete", kind, name, "--wait=false").returncode == 0
    for name in ("of-g2", "of-g3"):
        assert ann.patch("pod", name, {"metadata": {"labels": {"x": "y"}}}) == ""
        assert ann.kubectl("delete", "pod", name, "--wait=false").returncode == 0
    wanted = dict.fromkeys(("g1", "g2", "g3"), ("Cancelled", 1))

    def written():
        return {each.job.name: (str(each.job.state), each.runs) for each in history.jobs(Wanted(), time.time())}

    cluster.until(lambda: written() == wanted, WRITTEN)
    history.close()
    assert operator.process.poll() is None
    assert not operator.logged("fault")


def test_what_a_tenant_may_not_do_with_a_job_is_told_on_it(cluster, plane, ann):
    cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}, "spec": {"clusterIP": "None"}})
    broken = ai_job("broken")
    broken["spec"]["roles"][0]["template"] = {"spec": {"containers": "x"}}
    foreign = ai_job("foreign")
    foreign["spec"]["roles"][0]["template"]["spec"]["containers"][0]["image"] = ""
    many = ai_job("many")
    many["spec"]["roles"][0] |= {"maxReplicas": 1000}
    with tenants.in_force(plane, (OPERATOR, USER)):
        for each in (broken, foreign, many, ai_job("taken"), ai_job("waits", dependsOn=[{"job": "nobody"}]), ai_job("good")):
            assert ann.create(each) == ""
        operator = cluster.operator("--no-leader-elect", "--max-members", "999")
        wanted = {
            "broken": "InvalidTemplate",
            "foreign": "PodsRefused",
            "many": "TooManyMembers",
            "taken": "NameTaken",
            "waits": "DependencyMissing",
        }

        def reasons():
            found = {name: condition(cluster, name, "Accepted") for name in wanted}
            return {name: each["reason"] for name, each in found.items() if each is not None and each["status"] == "False"}

        cluster.until(lambda: reasons() == wanted)
        cluster.until(lambda: len([name for name in cluster.pods() if name.startswith("good-")]) == 2)
        assert not operator.logged("fault")
        for name, reason in wanted.items():
            told = "Dependency" if name == "waits" else reason
            cluster.until(lambda name=name, told=told: told in [each for each, _ in cluster.events(name)])
    cluster.delete("/api/v1/namespaces/default/services/taken")


@pytest.mark.parametrize("what", ROLES)
def test_a_job_has_ten_thousand_members_and_no_more(ann, what):
    assert ann.create(job(what, MOST), "--dry-run=server") == ""
    assert "10000" in ann.create(job(what, MOST + 1), "--dry-run=server")


def test_submit_and_its_dry_run_are_refused_alike(cluster, plane, ann, tmp_path):
    file = tmp_path / "job.json"
    given = ["submit", str(file), "--kubeconfig", str(plane.user("ann", "ann")), "-n", "default"]
    with tenants.in_force(plane, (OPERATOR, USER)):
        for manifest, told in (
            (ai_job("typed", timelimit="12h"), 'unknown field "spec.timelimit"'),
            (ai_job("late", timeLimit="1h30"), "spec.timeLimit"),
        ):
            file.write_text(json.dumps(manifest))
            answers = [CliRunner().invoke(app, [*given, *more]) for more in (["--dry-run"], [])]
            assert [(each.exit_code, told in each.stderr) for each in answers] == [(3, True)] * 2, answers[0].output
            assert answers[0].stderr == answers[1].stderr
        file.write_text(json.dumps(ai_job("good", workers=1)))
        done = CliRunner().invoke(app, [*given, "--dry-run", "-o", "json"])
        assert done.exit_code == 0, done.output
        (expected,) = json.loads(done.stdout)["expected"]
        assert (expected["job"], expected["starts"]) == ("default/good", "unknown"), "ann may not list the cluster"
        assert cluster.get("/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs")["items"] == []


def test_a_job_in_a_system_namespace_gets_no_pods(cluster, plane):
    """Older than the policies, which would refuse it."""
    path = "/apis/fairlead.dev/v1alpha1/namespaces/kube-system/aijobs"
    made = ai_job("deep")
    made["metadata"]["namespace"] = "kube-system"

    def created():
        try:
            plane.request("POST", path, made)
        except HTTPError as error:
            if error.code != 403:
                raise
            return False  # by policies of the test before, which the API server has not seen go yet
        return True

    cluster.until(created)
    try:
        cluster.operator("--no-leader-elect")

        def accepted():
            found = cluster.get(f"{path}/deep").get("status", {}).get("conditions", [])
            return next(((each["status"], each["reason"]) for each in found if each["type"] == "Accepted"), None)

        cluster.until(lambda: accepted() == ("False", "NamespaceNotAllowed"))
        assert cluster.get("/api/v1/namespaces/kube-system/pods")["items"] == []
    finally:
        plane.request("DELETE", f"{path}/deep")

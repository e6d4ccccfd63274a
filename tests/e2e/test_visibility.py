"""The aggregated API on the real API server: researchers who may not list the cluster ask the leader about their own jobs."""

import json
import urllib.error
import urllib.request

import pytest
from typer.testing import CliRunner

from fairlead.cli import nodes, queue
from fairlead.cli.connection import run
from fairlead.cli.leader import Leader
from fairlead.cli.main import app
from fairlead.cli.snapshot import read
from fairlead.scheduler.overview import queues
from testbed import objects
from testbed.objects import node, pod, pod_group
from tests.e2e import aggregated
from tests.e2e.planes import OPERATOR

pytestmark = pytest.mark.e2e

BASE = "/apis/visibility.fairlead.dev/v1alpha1"


@pytest.fixture(scope="module")
def port(plane):
    chosen = aggregated.installed(plane, "visibility", "fairlead", "ann")
    plane.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    return chosen


@pytest.fixture
def served(cluster, port):
    cluster.create(node("n", gpus=4), pod("runs", gpus=3))
    cluster.scheduler("--no-leader-elect", "--visibility-address", f"127.0.0.1:{port}")
    cluster.until(lambda: "runs" in cluster.placed())
    cluster.create(pod_group("big", 2), *(pod(f"big-{i}", group="big", gpus=2) for i in range(2)))
    cluster.create(pod("other-first", gpus=2), namespace="other")
    cluster.until(lambda: "needs 2 pods at once" in (cluster.condition("big-0") or ("", ""))[1])
    cluster.until(lambda: "conditions" in cluster.get("/api/v1/namespaces/other/pods/other-first")["status"])
    aggregated.available(cluster, "visibility")
    yield cluster
    cluster.delete("/api/v1/namespaces/other/pods")


def as_ann(cluster, *arguments):
    return aggregated.fairlead_as(cluster, "ann", *arguments)


def kubectl_as_ann(cluster, *arguments):
    return aggregated.kubectl_as(cluster, "ann", *arguments)


def test_the_leader_explains_to_users_who_may_not_list_the_cluster(served):
    done = as_ann(served, "explain", "podgroup/big", "-n", "default", "-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["state"], told["pods"], told["code"]) == ("Waiting", 2, "Resources")
    assert told["position"] in (1, 2)
    assert told["queued"] == 2
    assert [term["name"] for term in told["rank"]][:2] == ["queue priority", "express"]
    assert "what helps" in as_ann(served, "explain", "podgroup/big", "-n", "default").stdout
    raw = kubectl_as_ann(served, "get", "--raw", f"{BASE}/namespaces/default/pods/runs/explanation")
    assert json.loads(raw.stdout)["status"]["state"] == "Running"


def test_an_aijob_is_explained_to_its_user_with_and_without_pods(served):
    cluster = served
    cluster.plane.grant(OPERATOR)
    cluster.operator("--no-leader-elect")
    cluster.create(
        objects.ai_job("train", workers=2, gpus=4),
        objects.ai_job("after", workers=1, dependsOn=[{"job": "train", "when": "afterok"}]),
    )

    def told(name):
        done = as_ann(cluster, "explain", f"aijob/{name}", "-n", "default", "-o", "json")
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    # Without the right to read AIJobs the leader shows one that has pods.
    found = cluster.until(lambda: each if isinstance(each := told("train"), dict) and each["code"] else None)
    assert (found["object"], found["state"], found["pods"], found["gpus"]) == ("aijob/train", "Waiting", 2, 8.0)
    assert (found["code"], found["message"].split(" needs ")[0]) == ("TooLarge", "gang default/train")
    assert found["position"] is not None
    assert "other-first" not in json.dumps(found)
    assert "refuses" in told("after"), "nor PodGroups"
    missing = as_ann(cluster, "queue", "-n", "default", "-o", "json")
    assert "train" in {each["name"] for each in json.loads(missing.stdout)["jobs"]}
    assert "you may not list aijobs.fairlead.dev" in missing.stderr
    # A user who may read them sees one that has none, too.
    role = {
        "apiVersion": aggregated.RBAC,
        "kind": "Role",
        "metadata": {"name": "reads-jobs", "namespace": "default"},
        "rules": [{"apiGroups": ["fairlead.dev"], "resources": ["aijobs"], "verbs": ["get", "list"]}],
    }
    bound = {**aggregated.binding("RoleBinding", "reads-jobs", "reads-jobs", "ann", "default")}
    bound["roleRef"]["kind"] = "Role"
    for each in (role, bound):
        cluster.plane.request("POST", objects.path(each), each)
    found = cluster.until(lambda: each if isinstance(each := told("after"), dict) and each["code"] else None)
    assert (found["state"], found["code"]) == ("Pending", "Dependency")
    assert "'train'" in found["message"]
    listed = as_ann(cluster, "queue", "-n", "default", "-o", "json")
    shown = {each["name"]: each for each in json.loads(listed.stdout)["jobs"]}
    assert (shown["train"]["kind"], shown["after"]["kind"], listed.stderr) == ("PodGroup", "AIJob", "")
    assert (shown["after"]["state"], shown["after"]["reason"]["code"]) == ("Pending", "Dependency")
    assert as_ann(cluster, "explain", "aijob/nobody", "-n", "default").returncode == 4
    assert as_ann(cluster, "explain", "aijob/train", "-n", "other").returncode == 3


def test_kubectl_lists_the_jobs_of_a_namespace_and_names_no_others(served):
    listed = kubectl_as_ann(served, "get", "pendingjobs", "-n", "default")
    assert listed.returncode == 0, listed.stderr
    head, *rows = listed.stdout.splitlines()
    assert head.split()[:4] == ["NAME", "KIND", "QUEUE", "POSITION"]
    assert [row.split()[0] for row in rows] == ["big"]
    raw = json.loads(kubectl_as_ann(served, "get", "--raw", f"{BASE}/namespaces/default/podgroups/big/explanation").stdout)
    assert "other-first" not in json.dumps(raw)


def test_the_commands_ask_the_leader_and_not_for_lists_of_pods(served):
    cluster = served
    bound = aggregated.binding("ClusterRoleBinding", "bea-sees-the-cluster", "fairlead-visibility", "bea")
    cluster.plane.ensure(bound)

    def as_bea(*arguments):
        done = aggregated.fairlead_as(cluster, "bea", *arguments, "-o", "json")
        assert done.returncode == 0, done.stderr  # bea may list neither pods nor nodes
        return json.loads(done.stdout)

    jobs = {each["name"]: each for each in as_bea("queue")["jobs"]}
    assert sorted(jobs) == ["big", "other-first", "runs"]
    assert (jobs["big"]["kind"], jobs["big"]["state"], jobs["big"]["gpus"]) == ("PodGroup", "Pending", 4.0)
    assert jobs["big"]["reason"]["code"] == "Resources"
    assert (jobs["runs"]["nodes"], jobs["runs"]["queue"]) == (["n"], "default")
    assert [each["name"] for each in as_bea("queue", "-n", "other")["jobs"]] == ["other-first"]
    [node_line] = as_bea("nodes")["nodes"]
    assert (node_line["state"], node_line["gpu_free_milli"]) == ("mixed", [0, 0, 0, 1000])
    shares = as_bea("share")
    [default] = [each for each in shares["queues"] if each["name"] == "default"]
    assert (default["running"], default["pending"], shares["resource"]) == (1, 3, "nvidia.com/gpu")
    top = as_bea("top", "--once")
    assert (top["gpus"], top["gpus_used"], top["gpus_wanted"], top["pending"]) == (4, 3.0, 6.0, 2)


def test_the_commands_answer_users_of_one_namespace_with_others_as_counts(served):
    def as_user(*arguments):
        done = as_ann(served, *arguments)
        assert done.returncode == 0, done.stderr
        assert "other-first" not in done.stdout + done.stderr
        return done.stdout

    found = json.loads(as_user("queue", "-o", "json"))
    assert sorted(each["name"] for each in found["jobs"]) == ["big", "runs"]
    assert found["others"] == [{"queue": "default", "running": 0, "pending": 1, "gpus": 0.0, "gpus_wanted": 2.0}]
    assert "Other namespaces: 0 running with 0 GPUs, 1 pending for 2 GPUs" in as_user("queue")
    [line] = json.loads(as_user("nodes", "-o", "json"))["nodes"]
    assert (line["name"], line["gpus_used"]) == ("n", 3.0)
    [default] = [each for each in json.loads(as_user("share", "-o", "json"))["queues"] if each["name"] == "default"]
    assert (default["running"], default["pending"]) == (1, 3)
    top = json.loads(as_user("top", "--once", "-o", "json"))
    assert (top["gpus"], top["gpus_used"], top["gpus_wanted"], top["pending"]) == (4, 3.0, 6.0, 2)
    assert [each["name"] for each in top["jobs"]] == ["runs"]
    [quota] = json.loads(as_user("quota", "-o", "json"))["queues"]
    assert (quota["queue"], quota["submitted"], quota["running"], quota["users"], quota["other_users"]) == (
        "default",
        3,
        1,
        [],
        2,
    )
    refused = as_ann(served, "nodes", "-n", "other")
    assert refused.returncode == 3
    assert "the leader answers as of a namespace in which you may `view`" in refused.stderr


def written(folder, *manifests):
    path = folder / f"{len([*folder.iterdir()])}.yaml"
    path.write_text("---\n".join(json.dumps(each) + "\n" for each in manifests))
    return path


def test_the_leader_plays_what_if_for_users_of_one_namespace(served, tmp_path):
    def as_user(*arguments):
        done = as_ann(served, "whatif", *map(str, arguments), "-o", "json")
        assert done.returncode == 0, done.stderr
        assert "other-first" not in done.stdout + done.stderr
        return json.loads(done.stdout)

    def as_an_administrator(*arguments):
        done = CliRunner().invoke(
            app, ["whatif", "--kubeconfig", str(served.plane.kubeconfig), *map(str, arguments), "-o", "json"]
        )
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    def own(found):
        """Waits are left out: the two are asked some seconds apart."""
        jobs = [
            [each | {"wait_seconds": None} for each in found[when]["jobs"] if each["job"].startswith("default/")]
            for when in ("before", "after")
        ]
        return jobs, *([each for each in found[what] if each.startswith("default/")] for what in ("starts", "delayed", "evicted"))

    # As the policies stamp them for ann; the leader does so itself.
    of_ann = {"annotations": {"fairlead.dev/user": "ann"}}
    train_of_ann = objects.ai_job("train", workers=2, gpus=2)
    train_of_ann["metadata"] |= of_ann
    small = written(tmp_path, pod("small", **of_ann))
    train = written(tmp_path, train_of_ann, pod_group("pair", 2), pod("pair-0", group="pair", **of_ann))
    for question in ([], ["-f", small], ["-f", train, "--add-nodes", "3"], ["--drain", "n"]):
        assert own(as_user(*question)) == own(as_an_administrator(*question))
    found = as_user("-f", small)
    assert found["starts"] == ["default/small"]
    assert found["others"] == []
    more = as_user("--add-nodes", "2")
    assert more["starts"] == ["default/big"]
    assert more["others"] == [{"queue": "default", "starts": 1, "delayed": 0, "evicted": 0}]
    assert {each["name"]: each["waiting"] for each in more["before"]["queues"]} == {"default": 2}
    table = as_ann(served, "whatif", "--add-nodes", "2")
    assert "Other namespaces' jobs of queue default: 1 would start now" in table.stdout
    body = written(tmp_path, {"spec": {"manifests": [pod("small")]}})
    raw = kubectl_as_ann(served, "create", "--raw", f"{BASE}/namespaces/default/whatifs", "-f", str(body))
    assert json.loads(raw.stdout)["status"]["starts"] == ["default/small"], raw.stderr
    assert set(served.placed()) == {"runs"}, "nothing was touched"


def test_what_if_is_refused_beyond_the_namespace(served, tmp_path):
    def refused(*arguments):
        done = as_ann(served, "whatif", *map(str, arguments))
        assert done.returncode == 3, done.stdout + done.stderr
        return " ".join(done.stderr.split())

    assert "as of a namespace in which you may `view`" in refused("-n", "other")
    theirs = pod("p")
    theirs["metadata"]["namespace"] = "other"
    assert "as of a namespace in which you may `view`" in refused("-f", written(tmp_path, theirs))
    assert "is of namespace 'other'" in refused("-f", written(tmp_path, theirs), "-n", "default")
    assert "with --quota, --limit and --add-nodes" in refused("-f", written(tmp_path, objects.queue("default", quota=100)))
    assert "--save needs the right to list the cluster" in refused("--save", tmp_path / "cluster.json")
    large = pod("large", annotations={"a": "x" * (2 << 20)})
    done = as_ann(served, "whatif", "-f", str(written(tmp_path, large)))
    assert (done.returncode, "larger than 1 MiB" in done.stderr) == (2, True), done.stderr
    wrong = as_ann(served, "whatif", "--drain", "nowhere")
    assert (wrong.returncode, "node 'nowhere' does not exist" in wrong.stderr) == (2, True)


def test_what_the_leader_lists_is_what_the_lists_show(served):
    cluster = served

    async def both(client):
        leader = Leader(client)
        rows = await leader.jobs()
        again = await leader.jobs()
        return (rows, again, await leader.nodes(), await leader.queues()), await read(client)

    def unchanged():
        """What waits is tried again now and then, and its reason may change between two questions."""
        answers = run(str(cluster.plane.kubeconfig), both)
        return answers if answers[0][0] == answers[0][1] else None

    (rows, _, node_lines, shares), snapshot = cluster.until(unchanged)
    listed = {(each.namespace, each.name): each for each in queue.jobs(snapshot)}
    answered = {(each.namespace, each.name): each for each in queue.in_order(rows)}
    assert answered.keys() == listed.keys()
    for key, job in listed.items():
        same = ("kind", "queue", "pods", "gpus", "priority", "submitted_at", "nodes", "user")
        assert [getattr(answered[key], each) for each in same] == [getattr(job, each) for each in same]
        assert (answered[key].reason is None) == (job.reason is None)
    assert [each.name for each in node_lines] == [each.name for each in nodes.lines(snapshot)]
    assert {each.name: each.running for each in shares.queues} == {
        each.name: each.running for each in queues.shares(snapshot.state).queues
    }


def test_a_second_question_gets_what_changed(served):
    def asked(since=""):
        path = f"{BASE}/namespaces/default/jobs?since={since}"
        return json.loads(kubectl_as_ann(served, "get", "--raw", path).stdout)

    first = asked()
    assert sorted(each["metadata"]["name"] for each in first["items"]) == ["big", "runs"]
    served.delete("/api/v1/namespaces/default/pods/runs")

    def then():
        found = asked(first["metadata"]["resourceVersion"])
        return found if found["gone"] else None

    found = served.until(then)
    assert found["since"] == first["metadata"]["resourceVersion"]
    assert found["gone"] == [["default", "runs", "Pod"]]
    assert {each["metadata"]["name"] for each in found["items"]} <= {"big"}
    assert asked("unknown")["since"] == ""


def test_it_answers_only_who_may_ask(served, port):
    forbidden = ("namespaces/other/pendingjobs", "namespaces/other/pods/other-first/explanation", "namespaces/other/jobs")
    for path in (*forbidden, "jobs", "nodes", "queues"):
        refused = kubectl_as_ann(served, "get", "--raw", f"{BASE}/{path}")
        assert "forbidden" in refused.stderr.lower()
    unknown = kubectl_as_ann(served, "get", "--raw", f"{BASE}/namespaces/default/pods/nobody/explanation")
    assert "not known to the scheduler" in unknown.stderr
    # Past the API server no request is served: it has no certificate of its front proxy.
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"https://localhost:{port}{BASE}", timeout=10)


def test_where_it_is_not_served_the_statuses_answer(cluster, port):
    role = {
        "apiVersion": aggregated.RBAC,
        "kind": "Role",
        "metadata": {"name": "reads", "namespace": "default"},
        "rules": [{"apiGroups": ["", "fairlead.dev"], "resources": ["pods", "podgroups"], "verbs": ["get"]}],
    }
    bound = {**aggregated.binding("RoleBinding", "reads", "reads", "ann", "default")}
    bound["roleRef"]["kind"] = "Role"
    for each in (role, bound):
        cluster.plane.request("POST", objects.path(each), each)
    cluster.create(
        node("n", gpus=4), pod_group("big", 2), *(pod(f"big-{i}", group="big", gpus=8) for i in range(2)), pod("huge", gpus=8)
    )
    cluster.scheduler("--no-leader-elect")
    cluster.until(lambda: cluster.condition("huge") and cluster.condition("big-0"))
    cluster.until(
        lambda: (cluster.get("/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/big").get("status") or {}).get("reason")
    )
    told = json.loads(as_ann(cluster, "explain", "podgroup/big", "-n", "default", "-o", "json").stdout)
    assert (told["state"], told["code"], told["position"]) == ("Pending", "TooLarge", None)
    told = json.loads(as_ann(cluster, "explain", "pod/huge", "-n", "default", "-o", "json").stdout)
    assert (told["state"], told["code"]) == ("Waiting", "Unschedulable")
    assert as_ann(cluster, "explain", "pod/nobody", "-n", "default").returncode == 4
    unserved = as_ann(cluster, "whatif", "--add-nodes", "1")
    assert (unserved.returncode, "the leader does not answer" in unserved.stderr) == (5, True), unserved.stderr

"""AIJobs on the real API server: scheduler and operator as processes, the kubelets' part played by the test."""

import time
import urllib.error

import pytest

from fairlead.observability.history import HistoryError, Wanted
from fairlead.observability.store import History
from testbed.objects import ai_job, node, pod, service_class
from tests.e2e.planes import AI_JOBS, with_urgent

pytestmark = pytest.mark.e2e


PLANE = AI_JOBS._replace(prepare=with_urgent)


def start(cluster):
    cluster.scheduler("--no-leader-elect")
    return cluster.operator("--no-leader-elect", "--address", "")


def status(cluster, name):
    return (cluster.get(f"/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs/{name}") or {}).get("status") or {}


def reaches(cluster, name, phase):
    return cluster.until(lambda: (found := status(cluster, name)).get("phase") == phase and found)


def play(cluster, names, phase, code=None):
    """What their kubelets would report."""
    for name in names:
        said = {"phase": phase}
        if code is not None:
            ended = {"exitCode": code, "reason": "Error"}
            said["containerStatuses"] = [
                {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}
            ]
        path = f"/api/v1/namespaces/default/pods/{name}/status"
        cluster.plane.request("PATCH", path, {"status": said}, "application/merge-patch+json")


def members(cluster, prefix):
    return sorted(name for name in cluster.placed() if name.startswith(prefix))


def test_a_job_runs_restarts_as_a_whole_and_ends(cluster):
    cluster.create(node("n", gpus=4), ai_job("bert", workers=3, restart={"limit": 1, "backoff": "1s"}, ttlAfterFinished="2s"))
    start(cluster)
    first = [f"bert-worker-{index}-0" for index in range(3)]
    cluster.until(lambda: members(cluster, "bert") == first)
    assert status(cluster, "bert")["phase"] == "Pending"
    play(cluster, first, "Running")
    assert reaches(cluster, "bert", "Running")["running"] == 3
    made = cluster.get("/api/v1/namespaces/default/services/bert")
    assert made["spec"]["clusterIP"] == "None"
    play(cluster, first[:1], "Failed", code=1)
    second = [f"bert-worker-{index}-1" for index in range(3)]
    cluster.until(lambda: members(cluster, "bert") == second)
    told = status(cluster, "bert")
    assert (told["restarts"], told["attempt"]) == (1, 1)
    cluster.until(lambda: "Restarting" in {reason for reason, _ in cluster.events("bert")}, 5)
    play(cluster, second, "Running")
    reaches(cluster, "bert", "Running")
    play(cluster, second, "Succeeded")
    reaches(cluster, "bert", "Succeeded")
    cluster.until(lambda: not status(cluster, "bert"))
    cluster.until(lambda: not [name for name in cluster.pods() if name.startswith("bert")])
    cluster.until(lambda: cluster.get("/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/bert") is None)


def test_the_next_attempt_is_where_the_one_before_was_but_for_what_failed(cluster):
    cluster.create(*(node(f"n{i}", gpus=1) for i in range(4)), pod("one"), pod("two"))
    start(cluster)
    taken = set(cluster.all_placed(2).values())
    cluster.create(ai_job("bert", workers=2, restart={"limit": 1, "backoff": "1s"}))
    first = [f"bert-worker-{index}-0" for index in range(2)]
    cluster.until(lambda: members(cluster, "bert") == first)
    there = cluster.placed()
    for name in ("one", "two"):  # the nodes that come first for other pods are free again
        cluster.delete(f"/api/v1/namespaces/default/pods/{name}")
    play(cluster, first, "Running")
    reaches(cluster, "bert", "Running")
    play(cluster, first[:1], "Failed", code=1)
    second = [f"bert-worker-{index}-1" for index in range(2)]
    cluster.until(lambda: members(cluster, "bert") == second)
    assert status(cluster, "bert")["preferredNodes"] == [there[first[1]]]
    assert there[first[1]] not in taken
    assert there[first[1]] in {cluster.placed()[name] for name in second}


def test_a_job_gives_way_and_comes_back_and_a_killed_operator_changes_nothing(cluster):
    cluster.create(node("n", gpus=4), service_class("batch", preemption={"mode": "Suspend"}))
    cluster.create(ai_job("train", workers=4, serviceClass="batch", restart={"limit": 0}))
    operator = start(cluster)
    cluster.until(lambda: len(members(cluster, "train")) == 4)
    play(cluster, members(cluster, "train"), "Running")
    reaches(cluster, "train", "Running")
    operator.kill()
    cluster.create(pod("urgent", gpus=2, priorityClassName="urgent"))
    target = "/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/train"
    cluster.until(lambda: (cluster.get(target)["status"].get("target") or {}).get("state") == "Suspended")
    assert len(members(cluster, "train")) == 4, "nobody acts on it"
    cluster.operator("--no-leader-elect", "--address", "")
    reaches(cluster, "train", "Suspended")
    cluster.until(lambda: "urgent" in cluster.placed() and not members(cluster, "train"))
    cluster.until(lambda: cluster.get(target)["status"]["phase"] == "Suspended")
    cluster.delete("/api/v1/namespaces/default/pods/urgent")
    cluster.until(lambda: len(members(cluster, "train")) == 4)
    play(cluster, members(cluster, "train"), "Running")
    told = reaches(cluster, "train", "Running")
    assert (told.get("restarts", 0), told["interruptions"]) == (0, 1)


def test_a_member_that_is_evicted_costs_nothing_and_its_user_may_suspend(cluster):
    cluster.create(node("n", gpus=4), ai_job("solo", workers=2, restart={"limit": 0}))
    start(cluster)
    cluster.until(lambda: len(members(cluster, "solo")) == 2)
    play(cluster, members(cluster, "solo"), "Running")
    reaches(cluster, "solo", "Running")
    cluster.delete("/api/v1/namespaces/default/pods/solo-worker-1-0")
    cluster.until(lambda: members(cluster, "solo") == ["solo-worker-0-1", "solo-worker-1-1"])
    cluster.kubectl("patch", "aijob", "solo", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    reaches(cluster, "solo", "Suspended")
    cluster.until(lambda: not [name for name in cluster.pods() if name.startswith("solo")])
    cluster.kubectl("patch", "aijob", "solo", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    cluster.until(lambda: members(cluster, "solo") == ["solo-worker-0-2", "solo-worker-1-2"])
    assert "solo" in cluster.kubectl("get", "aijobs")


def test_jobs_wait_for_each_other_and_failures_are_handled(cluster):
    def after(name, *first):
        return ai_job(name, workers=1, restart={"limit": 0}, dependsOn=[{"job": job, "when": when} for job, when in first])

    cluster.create(
        node("n", gpus=4),
        after("evaluate", ("train", "afterok")),
        after("rescue", ("train", "afternotok")),
        after("train", ("prepare", "afterok")),
        after("prepare"),
        after("loop", ("loop", "afterok")),
    )
    start(cluster)
    cluster.until(lambda: members(cluster, "prepare"))
    cluster.until(lambda: "prepare" in status(cluster, "train").get("message", ""))
    assert set(cluster.placed()) == {"prepare-worker-0-0"}
    play(cluster, ["prepare-worker-0-0"], "Succeeded")
    cluster.until(lambda: members(cluster, "train"))
    play(cluster, ["train-worker-0-0"], "Failed", code=1)
    reaches(cluster, "train", "Failed")
    for name, phase in (("train", "Failed"), ("prepare", "Succeeded")):
        group = f"/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/{name}"
        cluster.until(lambda group=group, phase=phase: cluster.get(group)["status"]["phase"] == phase)
    cluster.until(lambda: members(cluster, "rescue"))
    assert "depends on job 'train'" in reaches(cluster, "evaluate", "Failed")["message"]
    assert not members(cluster, "evaluate")
    told = {each["type"]: each["reason"] for each in status(cluster, "loop")["conditions"]}
    assert told["Accepted"] == "DependencyCycle"


@pytest.mark.parametrize(
    "change",
    [
        {"roles": []},
        {"workloadType": "Dream"},
        {"successPolicy": {"roles": ["nobody"]}},
        {"roles": [{"name": "worker", "replicas": 2, "minReplicas": 3, "template": {}}]},
        {"roles": [{"name": "w", "template": {}}, {"name": "w", "template": {}}]},
        {"restart": {"backoff": "soon"}},
    ],
)
def test_the_crd_refuses_what_cannot_be_meant(cluster, change):
    wrong = ai_job("wrong")
    wrong["spec"] |= change
    with pytest.raises(urllib.error.HTTPError) as refused:
        cluster.create(wrong)
    refused.value.close()
    assert refused.value.code == 422


def test_an_elastic_job_grows_gives_way_and_loses_nothing(cluster):
    cluster.create(node("n", gpus=4), ai_job("grows", workers=2, restart={"limit": 0}))
    elastic = '[{"op":"add","path":"/spec/roles/0/maxReplicas","value":4}]'
    start(cluster)
    cluster.kubectl("patch", "aijob", "grows", "--type=json", "-p", elastic)
    everybody = [f"grows-worker-{index}-0" for index in range(4)]
    cluster.until(lambda: members(cluster, "grows") == everybody)
    play(cluster, everybody, "Running")
    reaches(cluster, "grows", "Running")
    cluster.until(lambda: status(cluster, "grows").get("size") == 4)
    cluster.create(pod("equal", gpus=2))
    cluster.until(lambda: "equal" in cluster.placed())
    assert members(cluster, "grows") == everybody[:2]
    cluster.until(lambda: status(cluster, "grows").get("size") == 2)
    cluster.delete("/api/v1/namespaces/default/pods/equal")
    cluster.until(lambda: members(cluster, "grows") == everybody)
    told = status(cluster, "grows")
    assert {"attempt", "interruptions", "restarts"}.isdisjoint(told), "nothing began anew"
    play(cluster, everybody, "Succeeded")
    reaches(cluster, "grows", "Succeeded")


def test_an_array_goes_its_way_element_by_element_and_another_follows_it(cluster):
    cluster.create(
        node("n", gpus=8), ai_job("sweep", workers=1, array={"indexes": "0-5", "parallelism": 2}, restart={"limit": 0})
    )
    cluster.create(
        ai_job("after", workers=1, array={"indexes": "0-5"}, dependsOn=[{"job": "sweep", "when": "aftercorr"}]),
    )
    start(cluster)
    cluster.until(lambda: members(cluster, "sweep") == ["sweep-0-worker-0-0", "sweep-1-worker-0-0"])
    assert not [name for name in cluster.pods() if name.startswith("after")]
    play(cluster, ["sweep-0-worker-0-0"], "Failed", code=1)
    play(cluster, ["sweep-1-worker-0-0"], "Succeeded")
    cluster.until(lambda: members(cluster, "after") == ["after-1-worker-0-0"])
    for index in range(2, 6):
        cluster.until(lambda index=index: f"sweep-{index}-worker-0-0" in cluster.placed())
        play(cluster, [f"sweep-{index}-worker-0-0"], "Succeeded")
    told = reaches(cluster, "sweep", "Failed")
    assert (told["completedIndexes"], told["failedIndexes"]) == ("1-5", "0")
    cluster.until(lambda: len(members(cluster, "after")) == 5)
    play(cluster, members(cluster, "after"), "Succeeded")
    assert reaches(cluster, "after", "Failed")["failedIndexes"] == "0"


@pytest.mark.parametrize(
    ("role", "complaint"),
    [
        ({"replicas": 2, "minReplicas": 3}, "minReplicas must not be above replicas"),
        ({"replicas": 2, "maxReplicas": 1}, "maxReplicas must not be below replicas"),
    ],
)
def test_impossible_sizes_are_refused_at_submit(cluster, role, complaint):
    made = ai_job("no")
    made["spec"]["roles"][0] |= role
    with pytest.raises(urllib.error.HTTPError) as refused:
        cluster.plane.request("POST", "/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs", made)
    assert complaint in refused.value.read().decode()


def test_the_history_outlives_objects_and_a_killed_operator(cluster, tmp_path):
    history = f"sqlite:///{tmp_path}/history.db"
    cluster.create(node("n", gpus=4), ai_job("bert", workers=2, ttlAfterFinished="1s"), pod("lone"))
    cluster.scheduler("--no-leader-elect")
    operator = cluster.operator("--no-leader-elect", "--address", "", "--history", history)

    def told():
        try:
            store = History(history, create=False)
        except HistoryError:
            return {}  # it is made when the operator leads
        found = {entry.job.name: entry for entry in store.jobs(Wanted(), time.time())}
        store.close()
        return found

    cluster.until(lambda: len(members(cluster, "bert")) == 2)
    play(cluster, [*members(cluster, "bert"), "lone"], "Running")
    cluster.until(lambda: {name: str(each.job.state) for name, each in told().items()} == {"bert": "Running", "lone": "Running"})
    operator.kill()
    play(cluster, members(cluster, "bert"), "Succeeded", 0)
    cluster.delete("/api/v1/namespaces/default/pods/lone")
    cluster.operator("--no-leader-elect", "--address", "", "--history", history)
    cluster.until(lambda: not cluster.get("/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs/bert"))
    cluster.until(lambda: {name: str(each.job.state) for name, each in told().items()} == {"bert": "Succeeded", "lone": "Lost"})
    bert = told()["bert"]
    assert (bert.runs, bert.job.exit_code, bert.job.user) == (2, 0, "default")
    assert 0 < bert.gpu_seconds < 2 * 60


def test_an_elastic_jobs_bounds_may_change_while_it_runs(cluster):
    role = {
        "name": "worker",
        "replicas": 2,
        "minReplicas": 2,
        "maxReplicas": 4,
        "template": ai_job("x")["spec"]["roles"][0]["template"],
    }
    made = ai_job("bounds")
    made["spec"]["roles"] = [role]
    cluster.create(node("n", gpus=3), made)
    start(cluster)
    cluster.until(lambda: len(members(cluster, "bounds")) == 3)
    play(cluster, members(cluster, "bounds"), "Running")
    path = "/apis/fairlead.dev/v1alpha1/namespaces/default"
    changed = {"spec": {"roles": [{**role, "minReplicas": 1, "maxReplicas": 3}]}}
    cluster.plane.request("PATCH", f"{path}/aijobs/bounds", changed, "application/merge-patch+json")

    def bounds():
        spec = cluster.get(f"{path}/podgroups/bounds")["spec"]
        return spec["minMember"], spec["maxMember"]

    cluster.until(lambda: bounds() == (1, 3))

    def settled():
        play(cluster, members(cluster, "bounds"), "Running")  # one that came late may have taken the place of an elastic replica
        return (found := status(cluster, "bounds"))["phase"] == "Running" and found

    assert cluster.until(settled).get("restarts", 0) == 0


def test_a_job_that_waits_runs_in_another_pool_that_it_names(cluster):
    pool = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "slow"}}
    pool["spec"] = {"nodeSelector": {"matchLabels": {"model": "slow"}}}
    alternatives = [{"pool": "nowhere", "gpusPerMember": 1}, {"pool": "slow", "gpusPerMember": 1, "replicas": 3}]
    cluster.create(pool, node("f", gpus=4), node("s", gpus=4, labels={"model": "slow"}))
    cluster.create(ai_job("wide", workers=2, gpus=8, alternatives=alternatives))
    start(cluster)
    cluster.until(lambda: members(cluster, "wide") == [f"wide-worker-{index}-1" for index in range(3)], 90)
    assert {node for name, node in cluster.placed().items() if name.startswith("wide")} == {"s"}
    told = cluster.until(lambda: (found := status(cluster, "wide")).get("members") == 3 and found)
    assert told["alternative"] == {"index": 2, "pool": "slow"}
    assert (told["attempt"], told.get("restarts", 0)) == (1, 0)
    offered = next(each for each in told["conditions"] if each["type"] == "AlternativesOffered")
    assert (offered["status"], "pool nowhere" in offered["message"]) == ("False", True)
    with pytest.raises(urllib.error.HTTPError) as refused:
        cluster.create(ai_job("two", alternatives=[{"pool": "slow"}], array={"indexes": "0-3"}))
    assert refused.value.code == 422
    refused.value.close()

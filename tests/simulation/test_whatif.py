"""What if: what starts, what is evicted and what waits, on a copy."""

import msgspec
import pytest

from fairlead.cluster import views
from fairlead.cluster.translate import Objects
from fairlead.core.model.causes import Cause
from fairlead.core.model.groups import Member
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.transactions import Binding, Place, PodRef, Preempt
from fairlead.simulation import whatif
from testbed import objects as made


def view(kind, manifest, namespace=""):
    metadata = {"uid": f"uid-{manifest['metadata']['name']}", "creationTimestamp": "2026-01-01T00:00:00Z", **manifest["metadata"]}
    if namespace:
        metadata["namespace"] = namespace
    return msgspec.convert({**manifest, "metadata": metadata}, kind)


def running(name, node, queue, gpus=1):
    manifest = made.pod(name, queue=queue, gpus=gpus, nodeName=node)
    manifest["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "controller": True}]
    manifest["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    return view(views.Pod, manifest, "ns")


def a_cluster(*pods):
    return Objects(
        now=1_767_225_600.0 + 3600,
        nodes=[view(views.Node, made.node(name, gpus=4)) for name in ("a", "b")],
        queues=[view(views.Queue, made.queue("owner", quota=4)), view(views.Queue, made.queue("guest", quota=2))],
        pods=list(pods),
    )


FULL = [running(f"guest-{node}-{i}", node, "guest") for node in "ab" for i in range(4)]


def changed(before):
    return msgspec.structs.replace(before, nodes=list(before.nodes))


def by_job(outcome):
    return {each.job: each for each in outcome.jobs}


def test_submitting_shows_what_starts_and_what_is_evicted():
    before = a_cluster(*FULL)
    after = changed(before)
    whatif.apply(after, made.job("mine", pods=2) | {"metadata": {"name": "mine"}}, "ns")
    for pod in after.pods[-2:]:
        pod.metadata.labels["fairlead.dev/queue"] = "owner"
    result = whatif.what_if(before, after)
    assert result.before.jobs == []
    assert result.starts == ["ns/mine-0", "ns/mine-1"]
    assert len(result.evicted) == 2
    assert {each.by for each in result.after.evicted} == {"ns/mine-0", "ns/mine-1"}
    waiting = [each for each in result.after.jobs if each.starts != "now"]
    assert {each.queue for each in waiting} == {"guest"}
    assert all(each.wait_seconds for each in waiting), "they come back and wait, and it is said how long"
    owner = next(each for each in result.after.queues if each.name == "owner")
    assert (owner.gpus, owner.waiting) == (2.0, 0)
    assert before.pods == FULL, "nothing is touched"


def test_quotas_nodes_and_drains():
    waiting = [view(views.Pod, made.pod(f"owner-{i}", queue="owner"), "ns") for i in range(8)]
    before = a_cluster(*FULL, *waiting)
    assert sum(each.starts == "now" for each in whatif.play(before).jobs) == 5, "its quota, and its part of the rest"
    more = changed(before)
    whatif.set_amount(more, "guest", "quota", "nvidia.com/gpu", "4")
    assert sum(each.starts == "now" for each in whatif.play(more).jobs) == 4
    capped = changed(before)
    whatif.set_amount(capped, "owner", "limit", "nvidia.com/gpu", "1")
    assert sum(each.starts == "now" for each in whatif.play(capped).jobs) == 1
    bigger = changed(before)
    whatif.add_nodes(bigger, 2, "a")
    result = whatif.what_if(before, bigger)
    assert {each.job for each in result.after.jobs if each.starts == "now"} >= {
        each.metadata.namespace + "/" + each.metadata.name for each in waiting
    }
    smaller = changed(before)
    whatif.drain(smaller, "b")
    result = whatif.what_if(before, smaller)
    assert result.after.utilization == 1.0
    assert sum(each.gpus for each in result.after.queues) == 4
    assert result.delayed, "some that would have started wait now"


@pytest.mark.parametrize("state", ["cordoned", "quarantined", "down"])
def test_further_nodes_are_sound_though_the_one_that_they_are_like_is_not(state):
    labels = {"fairlead.dev/quarantined": "true"} if state == "quarantined" else {}
    like = made.node("c", gpus=8, labels=labels)
    if state == "cordoned":
        like["spec"] = {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}
    if state == "down":
        like["spec"] = {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]}
    gang = made.pod("big", queue="owner", gpus=8)
    terms = [{"matchExpressions": [{"key": "fairlead.dev/quarantined", "operator": "DoesNotExist"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    gang["spec"]["affinity"] = {"nodeAffinity": required}
    before = a_cluster(view(views.Pod, gang, "ns"))
    before.nodes.append(view(views.Node, like))
    after = changed(before)
    whatif.add_nodes(after, 1, "")
    whatif.add_nodes(after, 1, "")
    result = whatif.what_if(before, after)
    assert by_job(result.before)["ns/big"].starts == "never"
    assert by_job(result.after)["ns/big"].starts == "now"
    assert len({each.metadata.name for each in after.nodes}) == 5


def test_gangs_reservations_and_classes_count():
    before = a_cluster()
    after = changed(before)
    whatif.apply(after, made.pod_group("g", 3, "owner"), "ns")
    for i in range(3):
        whatif.apply(after, made.pod(f"g-{i}", group="g", gpus=4), "ns")
    gang = by_job(whatif.play(after))["ns/g"]
    assert (gang.starts, gang.wait_seconds) == ("never", None)
    assert "TooLarge" in gang.reason
    whatif.apply(after, made.reservation("upgrade", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"), "ns")
    whatif.apply(after, made.pod("endless", queue="owner"), "ns")
    found = by_job(whatif.play(after))
    assert found["ns/endless"].starts != "now"
    assert "Reservation" in found["ns/endless"].reason


def test_a_drain_revives_neither_what_ended_nor_what_is_ending_nor_what_is_there_for_the_node():
    def state(pod, phase="Running", kind="Job", **metadata):
        pod = msgspec.structs.replace(pod, status=views.PodStatus(phase=phase))
        owners = [views.OwnerReference(kind=kind, name="j", controller=True)]
        return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=owners, **metadata))

    pods = [
        running("runs", "b", "guest"),
        state(running("succeeded", "b", "guest"), "Succeeded"),
        state(running("failed", "b", "guest"), "Failed"),
        state(running("ending", "b", "guest"), deletion_timestamp="2026-01-01T00:59:00Z"),
        state(running("exporter", "b", "guest"), kind="DaemonSet"),
        state(running("static", "b", "guest"), kind="Node"),
        state(running("elsewhere", "a", "guest"), "Succeeded"),
    ]
    after = changed(a_cluster(*pods))
    whatif.drain(after, "b")
    assert [each.metadata.name for each in after.pods if not each.spec.node_name] == ["runs"]
    result = whatif.what_if(a_cluster(*pods), after)
    assert [(each.job, each.nodes) for each in result.after.jobs] == [("ns/runs", ["a"])]
    assert result.after.utilization == 0.25


def ai_job(name="bert", workers=3, gpus=1, **spec):
    return made.ai_job(name, workers=workers, gpus=gpus, **{"queue": "owner", **spec})


def test_an_aijob_is_played_as_the_gang_that_the_operator_makes_of_it():
    before = a_cluster(*FULL[:2])
    after = changed(before)
    whatif.apply(after, ai_job(workers=3, gpus=2), "ns")
    (job,) = whatif.play(after).jobs
    assert (job.job, job.queue, job.pods, job.gpus, job.starts) == ("ns/bert", "owner", 3, 6.0, "now")
    whatif.apply(after, ai_job(workers=5, gpus=2), "ns")
    (job,) = whatif.play(after).jobs
    assert (job.pods, job.starts) == (5, "never"), "in place of the one of its name"
    assert "gang ns/bert needs 5 identical pods" in job.reason


def limits_alone(manifest):
    """The manifest with limits and no requests, as users write them."""
    for role in manifest["spec"].get("roles", [{"template": manifest}]):
        for container in role["template"]["spec"]["containers"]:
            del container["resources"]["requests"]
    return manifest


def test_what_has_limits_alone_requests_them():
    after = a_cluster()
    whatif.apply(after, limits_alone(ai_job("gang", workers=1, gpus=5)), "ns")
    whatif.apply(after, limits_alone(made.pod("small", queue="guest", gpus=3)), "ns")
    jobs = by_job(whatif.play(after))
    assert {job: (each.gpus, each.starts) for job, each in jobs.items()} == {"ns/gang": (5.0, "never"), "ns/small": (3.0, "now")}


def test_the_limits_of_a_pod_as_a_whole_count_for_what_no_container_requests():
    whole = {"limits": {"memory": "64Ti"}}
    after = a_cluster()
    whatif.apply(after, made.pod("whole", queue="owner", gpus=1, memory="1Gi", resources=whole), "ns")
    assert by_job(whatif.play(after))["ns/whole"].starts == "now", "its container's 1Gi count, not 64Ti"
    lone = made.pod("lone", queue="owner", gpus=0, resources=whole)
    del lone["spec"]["containers"][0]["resources"]["requests"]
    whatif.apply(after, lone, "ns")
    assert by_job(whatif.play(after))["ns/lone"].starts == "never"


def test_the_class_of_an_aijobs_type_and_the_elements_of_an_array_count():
    spec = {"priorityClassName": "high", "defaultFor": ["Interactive"], "timeLimit": {"default": "1h"}}
    objects = a_cluster()
    objects.classes = [view(views.ServiceClass, {"metadata": {"name": "sessions"}, "spec": spec})]
    objects.priorities = [view(views.PriorityClass, {"metadata": {"name": "high"}, "value": 1000})]
    whatif.apply(objects, ai_job("session", workers=1, workloadType="Interactive"), "ns")
    (group,) = objects.groups
    assert (group.spec.service_class, group.spec.time_limit) == ("sessions", "1h")
    array = a_cluster()
    whatif.apply(array, ai_job("sweep", workers=1, array={"indexes": "0-9", "parallelism": 4}), "ns")
    assert array.groups == []
    assert [each.starts for each in whatif.play(array).jobs] == ["now"] * 4
    gangs = a_cluster()
    whatif.apply(gangs, ai_job("sweep", workers=2, array={"indexes": "0-2"}), "ns")
    assert [(each.job, each.pods) for each in whatif.play(gangs).jobs] == [(f"ns/sweep-{index}", 2) for index in range(3)]


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        ({}, "needs `kind`"),
        ({"kind": "Pod", "metadata": {}}, "needs `kind`"),
        ({"kind": "Wombat", "metadata": {"name": "w"}}, "Wombat is not known here"),
        ({"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": -1}}, "not possible"),
        ({"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 10**9}}, "not possible"),
        ({"kind": "Queue", "metadata": {"name": "q"}, "spec": {"priority": "high"}}, "cannot be read"),
        ({"kind": "AIJob", "metadata": {"name": "j"}}, "cannot be read"),
        ({"kind": "AIJob", "metadata": {"name": "j"}, "spec": {"roles": [{"name": "w", "template": {}}]}}, "role 'w': template"),
        (ai_job(suspend=True), "suspended"),
        (ai_job(array={"indexes": "9-1"}), "ends before it begins"),
        ({"kind": "Cake", "metadata": {"name": "c"}}, "known are AIJob, "),
        (
            ai_job(timeLimit="365000000d"),
            "AIJob 'bert': spec: Invalid value: timeLimit must be longer than 0s, and at most 36500d",
        ),
        ({"kind": "Queue", "metadata": {"name": "q"}, "spec": {"budget": {"amount": 0}}}, "budget.amount must be above 0"),
        ({**ai_job(), "apiVersion": "batch/v1"}, "apiVersion 'batch/v1' has no such kind, write fairlead.dev/v1alpha1"),
        ({"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "p"}}, "Pod 'p': apiVersion 'v2' has no such kind, write v1"),
        (ai_job(queu="vision"), "unknown field 'spec.queu'; it is 'queue' there"),
        (ai_job(restart={"limits": 3}), "unknown field 'spec.restart.limits'; it is 'limit' there"),
        ({**made.pod("p"), "status": {"phases": "Running"}}, "unknown field 'status.phases'; it is 'phase' there"),
        (
            ai_job(roles=[{"name": "w", "template": {"spec": {"containers": [{"name": "m", "resorces": {}}]}}}]),
            r"'spec.roles\[0\].template.spec.containers\[0\].resorces'; it is 'resources' there",
        ),
        (made.pod("p", nodeSelectors={"a": "b"}), "unknown field 'spec.nodeSelectors'; it is 'nodeSelector' there"),
        (made.pod("p", nothing_like_it=1), "unknown field 'spec.nothing_like_it'; known there: activeDeadlineSeconds, "),
        (made.queue("q") | {"spec": {"resources": [{"name": "cpu", "quotas": 1}]}}, r"'spec.resources\[0\].quotas'"),
    ],
)
def test_what_cannot_be_applied_is_said(manifest, told):
    with pytest.raises(whatif.WhatIfError, match=told):
        whatif.apply(a_cluster(), manifest, "ns")


def test_names_that_do_not_exist_are_said():
    for work in (
        lambda each: whatif.drain(each, "nowhere"),
        lambda each: whatif.add_nodes(each, 1, "nowhere"),
        lambda each: whatif.set_amount(each, "nobody", "quota", "cpu", "1"),
        lambda each: whatif.add_nodes(Objects(0.0), 1, ""),
    ):
        with pytest.raises(whatif.WhatIfError):
            work(a_cluster())


@pytest.mark.parametrize(
    ("resource", "told"),
    [
        ("foo", "--limit owner:foo: no node has 'foo', no pod requests it and no queue names it; there are cpu, "),
        ("nvidia.com/gpu@nopool", "--limit owner:nvidia.com/gpu@nopool: pool 'nopool' does not exist; "),
    ],
)
def test_amounts_of_what_nothing_has_are_refused(resource, told):
    with pytest.raises(whatif.WhatIfError, match=told):
        whatif.set_amount(a_cluster(), "owner", "limit", resource, "3")


def test_amounts_of_what_is_there_are_set():
    cluster = a_cluster()
    for resource in ("cpu", "pods", "amd.com/gpu", "nvidia.com/gpu"):
        whatif.set_amount(cluster, "owner", "limit", resource, "3")
    whatif.apply(cluster, {"kind": "NodePool", "metadata": {"name": "h100"}, "spec": {}}, "ns")
    whatif.set_amount(cluster, "owner", "limit", "nvidia.com/gpu@h100", "3")


def test_the_queue_that_there_is_without_queues_has_no_quota():
    without = msgspec.structs.replace(a_cluster(), queues=[])
    with pytest.raises(whatif.WhatIfError, match="'default' does not exist: there is no Queue, and without one all jobs share"):
        whatif.set_amount(without, "default", "quota", "nvidia.com/gpu", "1")


def test_a_snapshot_is_read_back_as_it_was():
    before = a_cluster(*FULL)
    again = msgspec.json.decode(msgspec.json.encode(before), type=Objects)
    assert again == before


def test_another_configuration_and_parts_of_a_pool():
    before = a_cluster(*FULL)
    before.queues = [view(views.Queue, made.queue("owner", quota=6)), view(views.Queue, made.queue("guest", quota=2))]
    before.pods.append(view(views.Pod, made.pod("mine", queue="owner"), "ns"))
    result = whatif.what_if(before, changed(before), Policy(), Policy(reclaim=False))
    assert result.before.evicted
    assert not result.after.evicted
    assert result.delayed == ["ns/mine"]
    after = changed(before)
    before.nodes[0].metadata.labels = {"nvidia.com/gpu.product": "h100"}
    whatif.set_amount(after, "owner", "limit", "nvidia.com/gpu@h100", "0")
    entry = next(each for queue in after.queues for each in queue.spec.resources if each.pool)
    assert (entry.name, entry.pool, entry.limit) == ("nvidia.com/gpu", "h100", "0")
    assert {each.node for each in whatif.play(after).evicted} == {"b"}


def test_a_suspended_job_resumes_on_paper():
    member = Member(2, Pod("", "ns", "", PodSpec((("nvidia.com/gpu", 2), ("pods", 1)), gpus=2), queue="owner"))
    target = {
        "state": "Suspended",
        "epoch": 1,
        "owners": [],
        "members": [{"count": 2, "pod": msgspec.json.encode(member.pod).decode()}],
    }
    before = a_cluster()
    before.groups = [view(views.PodGroup, {**made.pod_group("train", 2, "owner"), "status": {"target": target}}, "ns")]
    (job,) = whatif.play(before).jobs
    assert (job.job, job.starts, job.pods) == ("ns/train", "now", 2)


def test_no_pod_is_evicted_that_a_disruption_budget_protects():
    before = a_cluster(*FULL)
    for pod in before.pods:
        pod.metadata.labels = {**(pod.metadata.labels or {}), "app": "web"}
    after = changed(before)
    whatif.apply(after, made.job("mine", pods=2) | {"metadata": {"name": "mine"}}, "ns")
    for pod in after.pods[-2:]:
        pod.metadata.labels["fairlead.dev/queue"] = "owner"
    assert len(whatif.play(after).evicted) == 2
    budget = {
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
    after.budgets = [view(views.Budget, budget, "ns")]
    assert whatif.play(after).evicted == []


def test_what_starts_and_is_evicted_on_a_copy_is_no_job_without_a_name():
    """A pod of its own that starts and is evicted before all is quiet: it is reported as evicted, and not as started."""
    before = a_cluster(view(views.Pod, made.pod("first", queue="guest", gpus=4), "ns"))
    trial = whatif._Trial(before, Policy())
    (task,) = [each for each in trial.core.state.tasks.values() if each.pod.name == "first"]
    trial.core.decide(before.now)
    for each in [each for each in trial.decided if isinstance(each, Place)]:
        trial._carry_out(each)
    assert list(trial.started) == [task.job]
    victims = (Binding(PodRef(task.pod.uid, "ns", "first"), "b"),)
    trial._carry_out(Preempt(beneficiaries=(), victims=victims, why=Cause(emptied="b")))
    assert [each.pod for each in trial.evicted] == ["ns/first"]
    assert trial.started == {}

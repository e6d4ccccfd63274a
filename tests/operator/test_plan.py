"""What is done for a job, case by case, and random stories that must end well."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.api.kinds.ai_job import AIJobStatus
from fairlead.api.kinds.service_class import ServiceClass
from fairlead.cluster.times import timestamp
from fairlead.operator.jobs.defaults import filled
from fairlead.operator.jobs.members import group, members, pod, service
from fairlead.operator.jobs.phases import FINISHED, TRANSITIONS, Phase, WrongTransition, step
from tests.operator.builders import CONTAINER, Story, job


def conditions(story):
    return {each.type: each.status for each in story.job.status.conditions}


def test_it_starts_runs_and_succeeds_as_a_whole():
    story = Story(job())
    story.look()
    assert (story.phase, sorted(story.pods)) == ("Pending", ["bert-worker-0-0", "bert-worker-1-0"])
    story.set("0", phase="Running")
    story.look()
    assert story.phase == "Starting"
    story.set(phase="Running")
    decided = story.look()
    assert (story.phase, decided.status.running, decided.status.started_at) == ("Running", 2, "2026-01-01T00:00:00Z")
    story.set("worker-0", phase="Succeeded")
    story.look()
    assert (story.phase, story.job.status.succeeded) == ("Running", 1)
    story.set(phase="Succeeded")
    story.look(5.0)
    assert (story.phase, story.job.status.finished_at) == ("Succeeded", "2026-01-01T00:00:05Z")
    assert conditions(story)["Complete"] == "True"
    assert story.look(1e6).status == story.job.status, "nothing happens any more"


def test_a_member_that_fails_takes_the_attempt_with_it_and_costs_one_restart():
    story = Story(job(restart={"limit": 2, "backoff": "10s"})).run()
    story.set("worker-1", phase="Failed", exit_code=1)
    decided = story.look()
    assert (story.phase, decided.delete, decided.recheck_after) == ("Restarting", ("bert-worker-0-0", "bert-worker-1-0"), 10.0)
    assert "exit code 1: restart 1 of 2 in 10 s" in story.job.status.message
    assert story.look(9.0).recheck_after == 1.0
    assert not story.pods
    story.look(1.0)
    assert sorted(story.pods) == ["bert-worker-0-1", "bert-worker-1-1"]
    story.set(phase="Failed", exit_code=1)
    assert story.look().recheck_after == 20.0, "it doubles"
    story.look(20.0)
    story.set(phase="Failed", exit_code=1)
    story.look()
    assert story.phase == "Failed"
    assert "all 2 restarts are used up" in story.job.status.message
    assert conditions(story)["Failed"] == "True"


def test_pods_of_an_attempt_that_is_over_are_deleted_until_they_are_gone():
    story = Story(job(restart={"limit": 2, "backoff": "1s"})).run()
    story.set("worker-1", phase="Failed", exit_code=1)
    before = dict(story.pods)
    story.look()
    story.pods |= before  # the deletion was lost
    old = ("bert-worker-0-0", "bert-worker-1-0")
    assert story.look(0.5).delete == old
    story.pods |= before
    assert story.look(1.0).delete == old
    story.pods |= before
    story.set("-1", phase="Running", node="n")
    assert story.look().delete == old
    assert sorted(story.pods) == ["bert-worker-0-1", "bert-worker-1-1"]


def test_a_restart_waits_whatever_the_job_says():
    story = Story(job(restart={"limit": 9, "backoff": "0s"})).run()
    waits = []
    for _ in range(9):
        story.set(phase="Failed", exit_code=1)
        waits.append(story.look().recheck_after)
        story.look(waits[-1])
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256]


def test_a_restart_waits_no_less_for_times_being_written_to_the_second():
    story = Story(job(restart={"limit": 9, "backoff": "0s"})).run()
    story.now += 0.9
    story.set(phase="Failed", exit_code=1)
    assert 1.0 <= story.look().recheck_after < 2.0


def test_a_service_that_ran_for_long_does_not_wait_for_its_failures_of_long_ago():
    story = Story(job(1, workloadType="Inference", restart={"backoff": "1s"}))
    waits = []
    for ran in (0, 0, 0, 599, 600, 86_400):
        story.look(700.0)
        story.set(phase="Running", node="n", started=timestamp(story.now))
        story.look()
        story.now += ran
        story.set(phase="Failed", exit_code=1)
        waits.append(story.look().recheck_after)
    assert waits == [1, 2, 4, 8, 1, 1]


def test_a_job_that_asks_to_be_restarted_again_and_again_waits_ever_longer():
    """Such restarts do not count, so that nothing else would end them."""
    story = Story(job(1, checkpoint={"path": "/c"}, restart={"limit": 0, "backoff": "1s"}))
    waits = []
    for ran in (0, 0, 59, 60, 3600, 0):
        story.look(700.0)
        story.set(phase="Running", node="n", started=timestamp(story.now))
        story.look()
        story.now += ran
        story.set(phase="Failed", exit_code=85)
        waits.append(story.look().recheck_after)
    assert (waits, story.job.status.restarts, story.job.status.interruptions) == ([1, 2, 4, 0, 0, 32], 0, 6)
    story.look(700.0)
    story.set(phase="Running", node="n", started=timestamp(story.now))
    story.look()
    story.set(phase="Failed", disrupted=True, exit_code=143)
    assert story.look().recheck_after == 0, "an eviction is not its doing"


def test_what_is_made_for_a_job_is_its_users():
    mine = job()
    mine.metadata.annotations = {"fairlead.dev/user": "ann"}
    role = mine.spec.roles[0]
    for manifest in (group(mine), group(mine, 3), service(mine), pod(mine, role, members(mine)[0], 0)):
        assert manifest["metadata"]["annotations"]["fairlead.dev/user"] == "ann"
    assert "fairlead.dev/user" not in group(job())["metadata"]["annotations"]


def test_a_classes_longest_time_limit_binds():
    rule = {"default": "1h", "max": "24h"}
    classes = {"batch": msgspec.convert({"metadata": {"name": "batch"}, "spec": {"timeLimit": rule}}, ServiceClass)}
    given = {None: "1h", "10m": "10m", "24h": "24h", "1000h": "24h", "1d1m": "24h"}
    for limit, wanted in given.items():
        assert filled(job(serviceClass="batch", timeLimit=limit), classes).spec.time_limit == wanted
    assert filled(job(timeLimit="1000h"), classes).spec.time_limit == "1000h"


@pytest.mark.parametrize(
    "fault",
    [
        {"phase": "Failed", "disrupted": True, "exit_code": 143},
        {"phase": "Failed", "reason": "NodeLost"},
        {"phase": "Failed", "reason": "OutOfnvidia.com/gpu"},
        {"terminating": True},
        None,
    ],
)
def test_what_is_not_its_fault_costs_nothing(fault):
    story = Story(job(restart={"limit": 0})).run()
    if fault is None:
        del story.pods["bert-worker-1-0"]
    else:
        story.set("worker-1", **fault)
    story.look()
    assert story.phase == "Restarting"
    story.look()
    status = story.job.status
    assert (status.attempt, status.restarts, status.interruptions, story.phase) == (1, 0, 1, "Pending")
    assert {"bert-worker-0-1", "bert-worker-1-1"} <= set(story.pods)


def test_exit_codes_have_rules():
    rules = [{"codes": [42], "action": "Fail"}, {"codes": [3], "action": "Restart"}, {"codes": [7], "action": "Ignore"}]
    for code, phase, restarts in ((42, "Failed", 0), (3, "Restarting", 0), (5, "Restarting", 1)):
        story = Story(job(restart={"limit": 3, "exitCodes": rules})).run()
        story.set("worker-0", phase="Failed", exit_code=code)
        story.look()
        assert (story.phase, story.job.status.restarts) == (phase, restarts), code
    story = Story(job(restart={"exitCodes": rules})).run()
    story.set("worker-0", phase="Failed", exit_code=7)
    story.set("worker-1", phase="Succeeded")
    story.look()
    assert story.phase == "Succeeded"


def test_work_that_was_saved_is_remembered_and_who_says_so_starts_again_for_nothing():
    story = Story(job(checkpoint={"path": "/c"}, restart={"limit": 0})).run()
    story.set("worker-0", phase="Failed", exit_code=85)
    story.look()
    assert (story.phase, story.job.status.restarts, story.job.status.interruptions) == ("Restarting", 0, 1)
    story = Story(job(restart={"limit": 0})).run()
    story.set("worker-0", phase="Failed", exit_code=85)
    story.look()
    assert story.phase == "Failed", "it has no checkpoints"
    story = Story(job(checkpoint={"path": "/c"})).run()
    story.job.spec.suspend = True
    left = {name: msgspec.structs.replace(seen, terminating=True) for name, seen in story.pods.items()}
    story.look()
    story.pods = left
    story.set("worker-0", phase="Succeeded", saved="2026-01-01T00:00:07Z")
    story.look()
    assert story.job.status.last_checkpoint == "2026-01-01T00:00:07Z"
    story.pods = {}
    story.look()
    assert story.job.status.last_checkpoint == "2026-01-01T00:00:07Z"


def test_a_success_policy_ends_the_others():
    template = {"spec": {"containers": [CONTAINER]}}
    roles = [{"name": "worker", "replicas": 2, "template": template}, {"name": "ps", "template": template}]
    story = Story(job(roles=roles, successPolicy={"roles": ["worker"]})).run()
    story.set("worker", phase="Succeeded")
    decided = story.look()
    assert (story.phase, decided.delete) == ("Succeeded", ("bert-ps-0-0",))


@pytest.mark.parametrize("node", ["", "n"])
def test_to_hold_a_job_that_has_no_node_yet_interrupts_nothing(node):
    story = Story(job())
    story.look()
    story.set(node=node)
    story.job.spec.suspend = True
    story.look()
    assert (story.phase, story.job.status.attempt, story.job.status.interruptions) == ("Suspended", 1, bool(node))


def test_its_user_and_the_scheduler_suspend_it_and_neither_costs_a_restart():
    story = Story(job()).run()
    story.job.spec.suspend = True
    decided = story.look()
    assert (story.phase, len(decided.delete)) == ("Suspended", 2)
    assert conditions(story)["Suspended"] == "True"
    story.policy = True
    story.job.spec.suspend = False
    story.look()
    assert story.phase == "Suspended", "now the scheduler has it so"
    story.policy = False
    story.look()
    assert (story.phase, story.job.status.attempt, story.job.status.restarts) == ("Pending", 1, 0)
    assert conditions(story)["Suspended"] == "False"
    fresh = Story(job(suspend=True))
    fresh.look()
    assert (fresh.phase, fresh.pods, fresh.job.status.attempt) == ("Suspended", {}, 0)


def test_it_is_cleaned_up_after_a_while():
    story = Story(job(ttlAfterFinished="1h")).run()
    story.set(phase="Succeeded")
    assert story.look().recheck_after == 3600.0
    assert story.look(3599.0).recheck_after == 1.0
    assert not story.deleted_job
    story.look(1.0)
    assert story.deleted_job


def elastic(least=2, most=4, **spec):
    template = {"spec": {"containers": [{"name": "main", "image": "train"}]}}
    role = {"name": "worker", "replicas": least, "minReplicas": least, "maxReplicas": most, "template": template}
    return job(roles=[role], **spec)


def test_an_elastic_job_starts_with_what_it_needs_and_grows_and_shrinks():
    story = Story(elastic())
    story.look()
    assert len(story.pods) == 4
    assert group(story.job)["spec"] == {"minMember": 2, "maxMember": 4}
    surplus = [
        pod(story.job, story.job.spec.roles[0], each, 0)["metadata"]["labels"].get("fairlead.dev/elastic-replica")
        for each in members(story.job)
    ]
    assert surplus == [None, None, "true", "true"]
    told = {
        each["name"]: each["value"]
        for each in pod(story.job, story.job.spec.roles[0], members(story.job)[1], 0)["spec"]["containers"][0]["env"]
    }
    assert told["PET_NNODES"] == "2:4"
    assert not {"RANK", "WORLD_SIZE", "PET_NODE_RANK"} & set(told)
    story.set("worker-0", phase="Running", node="n")
    story.look()
    assert story.phase == "Starting"
    story.set("worker-1", phase="Running", node="n")
    story.look()
    assert (story.phase, story.job.status.size, story.job.status.resizes) == ("Running", 2, 0)
    story.set("worker-2", node="n")
    story.look()
    assert story.phase == "Resizing", "one more is on its way"
    story.set("worker-2", phase="Running")
    assert story.look(0.5).recheck_after == 1.5
    assert (story.phase, story.job.status.size) == ("Resizing", 2), "others may follow at once"
    decided = story.look(1.5)
    assert (story.phase, story.job.status.size, story.job.status.resizes) == ("Running", 3, 1)
    assert ("Resized", "from 2 to 3 members", False) in decided.events
    story.set("worker-2", terminating=True, disrupted=True)
    story.look()
    assert (story.phase, story.job.status.attempt) == ("Resizing", 0)
    del story.pods["bert-worker-2-0"]
    decided = story.look()
    assert [each.index for each in decided.create] == [2], "it waits to come again"
    story.look(2.0)
    assert (story.phase, story.job.status.size, story.job.status.interruptions) == ("Running", 2, 0)


def test_of_an_elastic_job_only_the_first_and_the_least_are_irreplaceable():
    story = Story(elastic())
    story.run()
    story.set("worker-1", phase="Failed", disrupted=True)
    decided = story.look()
    assert (story.job.status.attempt, decided.delete) == (0, ("bert-worker-1-0",)), "two surplus members stand in for it"
    story.look()
    story.set("worker-1", phase="Running", node="n")
    story.look()
    assert story.phase == "Running", "as many as before"
    story.set("worker-0", phase="Failed", disrupted=True)
    story.look()
    assert (story.phase, story.job.status.interruptions) == ("Restarting", 1), "all meet at the first"
    story = Story(elastic(most=3)).run()
    story.set("worker-2", terminating=True)
    story.set("worker-1", phase="Failed", reason="NodeLost")
    story.look()
    assert story.phase == "Restarting", "one is not enough"
    story = Story(elastic(restart={"limit": 0})).run()
    story.set("worker-3", phase="Failed", exit_code=1)
    story.look()
    assert story.phase == "Failed", "whoever fails by itself takes the job with it, surplus or not"


def test_an_elastic_job_has_succeeded_when_all_that_ran_have():
    story = Story(elastic())
    story.look()
    for name in ("worker-0", "worker-1", "worker-2"):
        story.set(name, phase="Running", node="n")
    story.look()
    story.set("worker-0", phase="Succeeded")
    decided = story.look()
    assert (story.phase, decided.delete) == ("Running", ("bert-worker-3-0",)), "nobody joins at the end"
    assert not story.look().create
    story.set("worker-1", phase="Succeeded")
    story.set("worker-2", phase="Succeeded")
    story.look()
    assert (story.phase, story.job.status.succeeded) == ("Succeeded", 3)


@pytest.mark.parametrize(
    "gone", [{"phase": "Failed", "disrupted": True}, {"terminating": True, "node": ""}], ids=["lost", "evicted"]
)
def test_an_elastic_job_has_not_succeeded_while_fewer_than_its_minimum_have(gone):
    story = Story(elastic()).run()
    story.set("worker-0", phase="Succeeded", done=True)
    story.look()
    for name in ("worker-1", "worker-2", "worker-3"):
        story.set(name, **gone)
    story.look()
    assert (story.phase, story.job.status.interruptions) == ("Restarting", 1), "one of them is not the job's work"


def test_the_bounds_of_an_elastic_job_may_be_changed_while_it_runs():
    story = Story(elastic()).run()
    story.job.spec.roles[0].max_replicas = 3
    assert story.look().delete == ("bert-worker-3-0",)
    story.job.spec.roles[0].max_replicas = 5
    assert [each.index for each in story.look().create] == [3, 4]


def test_a_member_that_is_ended_has_not_succeeded_though_it_says_so():
    story = Story(job()).run()
    story.set("worker-1", phase="Succeeded", disrupted=True, terminating=True)
    story.look()
    assert (story.phase, story.job.status.interruptions) == ("Restarting", 1)


def test_a_job_whose_member_reached_its_deadline_is_not_tried_again():
    """The kubelet enforces it: another attempt would not end in time, either."""
    story = Story(job(restart={"limit": 3, "exitCodes": [{"codes": [137], "action": "Restart"}]})).run()
    story.set("worker-1", phase="Failed", reason="DeadlineExceeded", exit_code=137)
    story.look()
    assert (story.phase, story.job.status.restarts) == ("Failed", 0)
    assert story.job.status.message == "bert-worker-1-0 reached the activeDeadlineSeconds of its template"


@pytest.mark.parametrize(("given", "seconds"), [("90s", 90), ("500ms", 1), ("1.5s", 2)])
def test_the_time_for_a_last_checkpoint_is_rounded_up(given, seconds):
    made = job(1, checkpoint={"path": "/c", "gracePeriod": given})
    assert pod(made, made.spec.roles[0], members(made)[0], 0)["spec"]["terminationGracePeriodSeconds"] == seconds


def test_members_find_each_other_and_know_who_they_are():
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER, {"name": "log", "image": "log"}]}}
    roles = [{"name": "worker", "replicas": 2, "template": template}, {"name": "eval", "template": template}]
    made = job(roles=roles, queue="vision", serviceClass="batch", timeLimit="2h", checkpoint={"path": "/c", "gracePeriod": "2m"})
    first, second, third = members(made)
    manifest = pod(made, made.spec.roles[0], second, 3)
    assert manifest["metadata"]["name"] == "bert-worker-1-3"
    labels = manifest["metadata"]["labels"]
    assert labels["a"] == "b"
    assert (labels["fairlead.dev/pod-group"], labels["fairlead.dev/queue"], labels["fairlead.dev/attempt"]) == (
        "bert",
        "vision",
        "3",
    )
    spec = manifest["spec"]
    assert (spec["hostname"], spec["subdomain"], spec["restartPolicy"]) == ("worker-1", "bert", "Never")
    assert (spec["schedulerName"], spec["terminationGracePeriodSeconds"]) == ("fairlead", 120)
    told, log = ({each["name"]: each["value"] for each in container["env"]} for container in spec["containers"])
    assert told["RANK"] == "mine", "what the template says stands"
    assert (log["RANK"], log["WORLD_SIZE"], log["PET_NNODES"]) == ("1", "2", "2")
    assert log["MASTER_ADDR"] == "worker-0.bert.vision.svc"
    assert log["FAIRLEAD_CHECKPOINT_PATH"] == "/c"
    assert "RANK" not in {each["name"] for each in pod(made, made.spec.roles[1], third, 0)["spec"]["containers"][1]["env"]}
    assert pod(made, made.spec.roles[0], first, 0)["spec"] is not made.spec.roles[0].template["spec"], (
        "the template is not touched"
    )
    assert group(made)["spec"] == {"minMember": 3, "queue": "vision", "serviceClass": "batch", "timeLimit": "2h"}
    assert service(made)["spec"]["clusterIP"] == "None"


def test_the_table_of_phases_is_closed():
    assert set(TRANSITIONS) == set(Phase)
    assert all(not TRANSITIONS[phase] for phase in FINISHED)
    with pytest.raises(WrongTransition):
        step(Phase.SUCCEEDED, Phase.RUNNING)


@settings(max_examples=200)
@given(st.data())
def test_whatever_happens_it_ends_and_its_budget_holds(data):
    limit = data.draw(st.integers(0, 3))
    restart = {"limit": limit, "backoff": "1s"}
    story = Story(data.draw(st.sampled_from([job(workers=3, restart=restart), elastic(1, 3, restart=restart)])))
    for _ in range(data.draw(st.integers(0, 40))):
        event = data.draw(st.sampled_from(["look", "run", "fail", "lose", "evict", "end", "suspend", "resume", "policy", "wait"]))
        which = f"worker-{data.draw(st.integers(0, 2))}"
        if event == "run":
            story.set(which, phase="Running", node="n")
        elif event == "fail":
            story.set(which, phase="Failed", exit_code=1)
        elif event == "lose":
            story.pods = {name: seen for name, seen in story.pods.items() if which not in name}
        elif event == "evict":
            story.set(which, terminating=True, disrupted=True)
        elif event == "end":
            story.set(which, phase="Succeeded")
        elif event in ("suspend", "resume"):
            story.job.spec.suspend = event == "suspend"
        elif event == "policy":
            story.policy = not story.policy
        story.look(data.draw(st.sampled_from([0.0, 1.0, 5.0])))
        status = story.job.status
        assert status.restarts <= limit
        assert len({seen.attempt for seen in story.pods.values() if not seen.terminating}) <= 1
    story.job.spec.suspend = story.policy = False
    for _ in range(30):
        story.pods = {name: seen for name, seen in story.pods.items() if not seen.terminating}
        story.set(phase="Succeeded")
        story.look(700.0)
        if Phase(story.phase) in FINISHED:
            break
    assert Phase(story.phase) in FINISHED
    assert isinstance(story.job.status, AIJobStatus)


def test_the_nodes_that_did_not_fail_are_remembered():
    story = Story(job(3))
    story.look()
    for index, name in enumerate(sorted(story.pods)):
        story.pods[name] = msgspec.structs.replace(story.pods[name], phase="Running", node=f"n{index}")
    story.look()
    assert story.job.status.nodes == ["n0", "n1", "n2"]
    story.set("worker-1", phase="Failed", exit_code=1)
    story.look()
    assert (story.phase, story.job.status.nodes) == ("Restarting", ["n0", "n2"])
    story.look(2.0)
    assert story.job.status.nodes == ["n0", "n2"], "until it runs again"


def test_members_of_a_service_ask_to_be_apart():
    def spread(**spec):
        made = job(2, **spec)
        return pod(made, made.spec.roles[0], members(made)[0], 0)["spec"].get("topologySpreadConstraints", [])

    assert [each["topologyKey"] for each in spread(workloadType="Inference")] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    assert {each["whenUnsatisfiable"] for each in spread(workloadType="Inference")} == {"ScheduleAnyway"}
    assert spread() == []
    own = [{"topologyKey": "rack"}]
    template = {"spec": {"containers": [CONTAINER], "topologySpreadConstraints": own}}
    assert spread(workloadType="Inference", roles=[{"name": "worker", "template": template}]) == own

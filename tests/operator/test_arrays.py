"""Arrays: each element goes its own way, at most so many at a time, and none is run twice or forgotten."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.cluster.times import timestamp
from fairlead.operator.jobs import indexes
from fairlead.operator.jobs.arrays import ArrayRun
from fairlead.operator.jobs.dependencies import READY, Gate, judge
from fairlead.operator.jobs.idleness import Measured
from fairlead.operator.jobs.idleness import judge as judge_idle
from fairlead.operator.jobs.members import name_of, pod
from fairlead.operator.jobs.neighbours import Neighbours
from fairlead.operator.jobs.phases import FINISHED, Phase
from fairlead.operator.jobs.pods import PodSeen
from tests.operator import builders
from tests.operator.builders import T0, worker

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "train"}]}}


def job(spec, name="sweep", replicas=1, **more):
    roles = [worker(replicas, TEMPLATE["spec"]["containers"][0])]
    return builders.job(name=name, uid=f"uid-{name}", array=spec, **{"roles": roles, **more})


class Story:
    """An array, its pods as a kubelet plays them, and a clock."""

    def __init__(self, made, others=None):
        self.job = made
        self.others = others
        self.idle = None
        self.run = ArrayRun(made)
        self.pods = {}
        self.now = T0
        self.begun = []
        self.stuck = set()  # elements whose pods do not end when deleted: their node is lost

    def look(self, seconds=0.0):
        self.now += seconds
        first, gate = READY, None
        if self.others is not None:
            self.others.put(self.job)
            first, gate = judge(self.job, self.others), Gate(self.job, self.others)
        decided = self.run.plan(self.job, self.now, first, gate, idle=self.idle, write_counts=seconds >= 1.0)
        self.job.status = decided.status
        for member in decided.create:
            attempt = decided.attempts.get(member.element, 0)
            name = name_of(self.job, member, attempt)
            assert name not in self.pods
            self.begun.append(member.element)
            self.hear(PodSeen(name, attempt, "Pending", element=member.element))
        for name in decided.delete:
            seen = self.pods.get(name)
            if seen is not None and seen.element in self.stuck:
                self.hear(msgspec.structs.replace(seen, terminating=True))
            elif seen is not None:
                self.run.gone(self.pods.pop(name))
        return decided

    def hear(self, seen):
        self.pods[seen.name] = seen
        self.run.observed(seen)

    def set(self, element, **fields):
        for seen in list(self.pods.values()):
            if seen.element == element and seen.phase in ("Pending", "Running") and not seen.terminating:
                self.hear(msgspec.structs.replace(seen, **fields))

    def let_go(self, element):
        self.stuck.discard(element)
        for name, seen in list(self.pods.items()):
            if seen.element == element and seen.terminating:
                self.run.gone(self.pods.pop(name))

    def restart_operator(self):
        self.run = ArrayRun(self.job)
        for seen in self.pods.values():
            self.run.observed(seen)

    @property
    def elements(self):
        return sorted(
            {seen.element for seen in self.pods.values() if seen.phase in ("Pending", "Running") and not seen.terminating}
        )


@pytest.mark.parametrize(
    ("text", "meant", "back"),
    [("0-3", [0, 1, 2, 3], "0-3"), ("7,1,2,3", [1, 2, 3, 7], "1-3,7"), ("5", [5], "5"), ("1,1-2", [1, 2], "1-2"), ("", [], "")],
)
def test_sets_of_indexes(text, meant, back):
    assert indexes.parse(text) == meant
    assert indexes.shown(meant) == back


@pytest.mark.parametrize("text", ["3-1", "0-99999999999", "0-60000,70000-170000", "a", "1-", "-1"])
def test_indexes_without_sense(text):
    with pytest.raises(indexes.WrongIndexes):
        indexes.parse(text)


@given(st.sets(st.integers(0, 300)))
def test_sets_of_indexes_go_there_and_back(found):
    assert set(indexes.parse(indexes.shown(found))) == found


def test_no_more_run_at_a_time_than_is_said_and_all_do_in_turn():
    story = Story(job({"indexes": "0-9", "parallelism": 3}))
    story.look()
    assert story.elements == [0, 1, 2]
    story.set(0, phase="Running", node="n")
    story.set(1, phase="Running", node="n")
    story.look()
    assert (story.job.status.phase, story.job.status.running, story.job.status.members) == ("Running", 2, 10)
    story.set(1, phase="Succeeded")
    story.look(2.0)
    assert story.elements == [0, 2, 3]
    assert story.job.status.completed_indexes == "1"
    for _ in range(10):
        for element in story.elements:
            story.set(element, phase="Succeeded", node="n")
        story.look(2.0)
    assert (story.job.status.phase, story.job.status.completed_indexes) == ("Succeeded", "0-9")
    assert sorted(story.begun) == list(range(10))


@pytest.mark.parametrize("then", ["goes on", "ends", "is suspended"])
@pytest.mark.parametrize("again", [True, False])
def test_a_pod_of_an_element_that_is_over_goes_though_its_deletion_failed(then, again):
    """The status was written, the deletions after it were not: the next reconciliation begins with what is there."""
    story = Story(job({"indexes": "0-1"}, replicas=2, restart={"limit": 0}))
    story.look()
    story.set(0, phase="Running", node="n")
    story.set(1, phase="Running", node="n")
    story.look(2.0)
    first = next(seen for seen in story.pods.values() if seen.element == 0)
    story.hear(msgspec.structs.replace(first, phase="Failed", exit_code=1))
    pods = dict(story.pods)
    decided = story.look(2.0)
    assert story.job.status.failed_indexes == "0"
    (left,) = decided.delete
    story.pods = pods
    if again:
        story.restart_operator()
    else:
        story.hear(pods[left])
    if then == "ends":
        story.set(1, phase="Succeeded", node="n")
    elif then == "is suspended":
        story.job.spec.suspend = True
    story.look(1.0)
    story.look(1.0)
    assert story.elements == ([1] if then == "goes on" else [])


def test_pods_are_made_as_they_find_places():
    story = Story(job({"indexes": "0-999"}))
    story.look()
    assert len(story.pods) == 32, "so many wait, no more"
    for element in story.elements:
        story.set(element, phase="Running", node="n")
    story.look()
    assert len(story.pods) == 64
    for _ in range(10):
        for element in story.elements:
            story.set(element, phase="Running", node="n")
        story.look()
    assert len(story.pods) == 1000
    story = Story(job({"indexes": "0-999"}))
    for _ in range(5):
        story.look(1.0)
    assert len(story.pods) == 32, "nobody found a place"


def test_an_element_that_fails_starts_again_by_itself_and_ends_no_other():
    story = Story(job({"indexes": "0-2"}, restart={"limit": 1, "backoff": "10s"}))
    story.look()
    story.set(1, phase="Failed", node="n", exit_code=1)
    decided = story.look()
    assert decided.recheck_after is not None
    assert story.elements == [0, 2]
    assert [(each.index, each.attempt, each.restarts) for each in story.job.status.elements] == [(1, 1, 1)]
    story.restart_operator()
    assert story.look(5.0).create == ()
    story.look(5.0)
    assert "sweep-1-worker-0-1" in story.pods
    story.set(1, phase="Failed", node="n", exit_code=1)
    decided = story.look()
    assert any(reason == "ElementFailed" for reason, _, _ in decided.events)
    story.set(0, phase="Succeeded")
    story.set(2, phase="Succeeded")
    story.look()
    assert story.job.status.phase == "Failed"
    assert story.job.status.message == "1 of 3 elements failed: 1"
    assert (story.job.status.completed_indexes, story.job.status.failed_indexes) == ("0,2", "1")


def test_an_element_that_does_nothing_is_shut_down_and_the_others_go_on():
    template = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    roles = [{"name": "worker", "template": template}]
    policy = {"minGpuUtilization": 10, "timeWindow": "30m"}
    story = Story(job({"indexes": "0-2", "parallelism": 2}, roles=roles, utilizationPolicy=policy, restart={"limit": 5}))
    used = {0: 80.0, 1: 2.0, 2: 50.0}
    looks = []

    def idle(element, pods):
        series = {("vision", pod.name): used[pod.element] for pod in pods}
        looks.append(story.now)
        return judge_idle(element, pods, Measured({1800.0: series}, story.now), story.now)

    story.idle = idle
    story.look()
    for index in (0, 1):
        story.set(index, phase="Running", node="n", started=timestamp(T0), role="worker")
    assert story.look(5.0).recheck_after == 30.0, "a measurement is due then"
    for _ in range(50):
        story.look(1.0)
    assert len(looks) <= 8, "looks for other reasons do not ask again"
    story.look(1739.0)
    assert (story.job.status.completed_indexes, story.job.status.failed_indexes) == ("", ""), "the window is not over"
    ended = story.look(30.0)
    assert story.job.status.failed_indexes == "1"
    assert [note for reason, note, _ in ended.events if reason == "ElementFailed"] == [
        "element 1: GPU utilization was at most 2 % within 30m, below 10 %: shut down"
    ]
    assert [member.element for member in ended.create] == [2], "its place is the next one's"
    assert "sweep-0-worker-0-0" in story.pods
    assert "sweep-1-worker-0-0" not in story.pods


def test_what_is_taken_from_it_costs_nothing():
    story = Story(job({"indexes": "0-1"}, restart={"limit": 0}))
    story.look()
    story.set(0, phase="Running", node="n")
    story.set(0, phase="Failed", disrupted=True)
    story.look()
    story.look(0.1)
    assert "sweep-0-worker-0-1" in story.pods
    seen = story.pods.pop("sweep-1-worker-0-0")
    story.run.gone(seen)
    story.look()
    assert "sweep-1-worker-0-0" in story.pods, "it is made again"
    assert story.job.status.restarts == 0


def test_its_user_suspends_it():
    story = Story(job({"indexes": "0-4", "parallelism": 2}))
    story.look()
    story.set(0, phase="Succeeded", node="n")
    story.look(2.0)
    story.job.spec.suspend = True
    story.look()
    assert (story.job.status.phase, story.elements) == ("Suspended", [])
    story.look()
    assert {each.attempt for each in story.job.status.elements} == {1}
    story.job.spec.suspend = False
    story.look()
    assert story.elements == [1, 2]
    assert {seen.attempt for seen in story.pods.values() if seen.phase == "Pending"} == {1}


def test_no_element_of_a_suspended_array_counts_as_running():
    story = Story(job({"indexes": "0-4", "parallelism": 2}))
    story.look()
    for element in (0, 1):
        story.set(element, phase="Running", node="n")
    story.stuck.add(1)
    story.look(2.0)
    story.job.spec.suspend = True
    story.look(2.0)
    story.look(2.0)
    assert (story.job.status.phase, story.job.status.running) == ("Suspended", 1), "the pod of one is still there"
    story.let_go(1)
    story.look(2.0)
    assert story.job.status.running == 0
    story.job.spec.suspend = False
    story.look(2.0)
    assert (story.elements, story.job.status.phase, story.job.status.running) == ([0, 1], "Pending", 0)
    story.set(0, phase="Running", node="n")
    story.look(2.0)
    assert (story.job.status.phase, story.job.status.running) == ("Running", 1)


def test_who_starts_again_counts_no_element_twice():
    story = Story(job({"indexes": "0-5", "parallelism": 3}))
    story.look()
    story.set(1, phase="Running", node="n")
    story.look(0.1)
    story.set(0, phase="Succeeded", node="n")
    story.look(0.1)
    assert story.job.status.completed_indexes == "", "counts are told once a second"
    story.restart_operator()
    story.look(0.1)
    assert story.elements == [1, 2, 3]
    assert story.begun == [0, 1, 2, 3]


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_pod_that_does_not_go_costs_its_element_one_interruption(replicas):
    story = Story(job({"indexes": "0"}, replicas=replicas))
    story.look()
    story.set(0, phase="Running", node="lost")
    story.look(2.0)
    story.stuck.add(0)
    story.set(0, terminating=True, disrupted=True)
    looks = [story.look(2.0) for _ in range(20)]
    (behind,) = story.job.status.elements
    assert (behind.attempt, behind.interruptions) == (1, 1)
    assert all(each.status == looks[-1].status for each in looks[2:]), "while nothing happens nothing is written"
    story.set(0, phase="Running", node="n")
    story.stuck.clear()
    story.look(2.0)
    story.set(0, phase="Succeeded")
    story.look(2.0)
    assert story.job.status.phase == "Succeeded"


def test_elements_of_several_members_are_gangs_of_their_own():
    made = job({"indexes": "3-4"}, replicas=2)
    story = Story(made)
    decided = story.look()
    first = next(each for each in decided.create if each.element == 4 and each.index == 1)
    manifest = pod(made, made.spec.roles[0], first, 0)
    assert manifest["metadata"]["name"] == "sweep-4-worker-1-0"
    assert manifest["metadata"]["labels"]["fairlead.dev/pod-group"] == "sweep-4"
    told = {each["name"]: each["value"] for each in manifest["spec"]["containers"][0]["env"]}
    assert (told["FAIRLEAD_ARRAY_INDEX"], told["SLURM_ARRAY_TASK_ID"], told["RANK"]) == ("4", "4", "1")
    assert told["MASTER_ADDR"] == "worker-0-4.sweep.vision.svc"
    assert manifest["spec"]["hostname"] == "worker-1-4"
    single = job({"indexes": "3-4"}, timeLimit="1h")
    manifest = pod(single, single.spec.roles[0], Story(single).look().create[0], 0)
    assert "fairlead.dev/pod-group" not in manifest["metadata"]["labels"]
    assert manifest["metadata"]["annotations"]["fairlead.dev/time-limit"] == "1h"
    story.set(3, phase="Running", node="n")
    story.look()
    story.hear(msgspec.structs.replace(story.pods["sweep-3-worker-1-0"], phase="Failed", exit_code=2))
    decided = story.look()
    assert decided.delete == ("sweep-3-worker-0-0", "sweep-3-worker-1-0"), "the whole element, and only it"


def test_elements_wait_for_those_of_another_array():
    first = job({"indexes": "0-2"}, "first")
    second = job({"indexes": "0-3"}, "second", dependsOn=[{"job": "first", "when": "aftercorr"}])
    others = Neighbours()
    others.put(first)
    others.put(second)
    assert judge(second, others) == READY
    assert others.dependents("first") == ["second"]
    front, back = Story(first), Story(second, others)
    front.look()
    back.look()
    assert back.elements == []
    front.set(1, phase="Succeeded", node="n")
    front.look(2.0)
    back.look(2.0)
    assert back.elements == [1]
    front.set(0, phase="Failed", node="n", exit_code=1)
    front.job.spec.restart.limit = 0
    front.set(2, phase="Succeeded", node="n")
    front.look(2.0)
    back.look(2.0)
    assert back.elements == [1, 2]
    assert back.job.status.failed_indexes == "0,3", "the one failed, and the other has no counterpart"


def corresponding(first_indexes="0-5", second_indexes="0-5", **more):
    """An array, and one of which each element waits for its counterpart."""
    others = Neighbours()
    front = Story(job({"indexes": first_indexes}, "first", restart={"limit": 0}), others)
    second = job({"indexes": second_indexes}, "second", dependsOn=[{"job": "first", "when": "aftercorr"}], **more)
    front.look()
    return front, Story(second, others), others


def condition(story, kind="Accepted"):
    found = next(each for each in story.job.status.conditions if each.type == kind)
    return found.status, found.reason, found.message


@pytest.mark.parametrize("restarted", [False, True])
def test_elements_whose_counterparts_are_deleted_before_their_end_do_not_start(restarted):
    front, back, others = corresponding()
    front.set(0, phase="Succeeded", node="n")
    front.look(2.0)
    back.look(2.0)
    back.set(0, phase="Running", node="n")
    back.look(2.0)
    others.remove("first")
    if restarted:
        back.restart_operator()
    decided = back.look(2.0)
    assert back.elements == [0], "the inputs of the others were never made"
    missing = "job 'first' does not exist in namespace vision"
    assert condition(back) == ("False", "DependencyMissing", missing)
    assert decided.events == (("Dependency", missing, True),)
    assert not back.look(2.0).events
    back.set(0, phase="Succeeded")
    back.look(2.0)
    assert (back.elements, back.job.status.phase) == ([], "Running")
    again = Story(job({"indexes": "0-5"}, "first", restart={"limit": 0}), others)
    again.look()
    for element in range(6):
        again.set(element, phase="Succeeded", node="n")
    again.look(2.0)
    back.look(2.0)
    assert (back.elements, condition(back)[:2]) == ([1, 2, 3, 4, 5], ("True", "Accepted"))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_elements_whose_counterparts_have_succeeded_start_though_these_are_deleted(restarted, held):
    """As after `ttlAfterFinished`: what is known at the end of the others is kept."""
    front, back, others = corresponding(second_indexes="0-6")
    back.job.spec.suspend = held
    back.job.spec.array.parallelism = 1
    back.look()
    for element in range(6):
        front.set(element, phase="Failed" if element == 4 else "Succeeded", node="n", exit_code=1 if element == 4 else None)
    front.look(2.0)
    back.look(2.0)
    assert (front.job.status.phase, back.job.status.met_dependencies) == ("Failed", ["aftercorr:first"])
    assert back.job.status.failed_indexes == "4,6"
    others.remove("first")
    if restarted:
        back.restart_operator()
    back.job.spec.suspend = False
    for _ in range(8):
        back.look(2.0)
        for element in back.elements:
            back.set(element, phase="Succeeded", node="n")
    assert (back.job.status.phase, back.job.status.completed_indexes) == ("Failed", "0-3,5")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_element_starts_before_its_counterpart_has_succeeded(data):
    """Whenever the first array is deleted, and the operator restarted."""
    front, back, others = corresponding("0-3", "0-4")
    back.job.spec.array.parallelism = data.draw(st.sampled_from([None, 1, 2]))
    done, alive = set(), True
    for _ in range(data.draw(st.integers(5, 30))):
        element = data.draw(st.integers(0, 3))
        event = data.draw(st.sampled_from(["end", "fail", "back", "delete", "restart", "suspend"]))
        if event == "end" and alive and element in front.elements:
            done.add(element)
            front.set(element, phase="Succeeded", node="n")
        elif event == "fail" and alive:
            front.set(element, phase="Failed", node="n", exit_code=1)
        elif event == "back":
            for each in back.elements:
                back.set(each, phase="Succeeded", node="n")
        elif event == "delete" and alive and data.draw(st.integers(0, 3)) == 0:
            alive = False
            finished = front.job.status.phase in FINISHED
            others.remove("first")
        elif event == "restart":
            back.restart_operator()
        elif event == "suspend":
            back.job.spec.suspend = not back.job.spec.suspend
        if alive:
            front.look(2.0)
        back.look(2.0)
        assert set(back.begun) <= done
    back.job.spec.suspend = False
    if alive:
        for element in front.elements:
            done.add(element)
            front.set(element, phase="Succeeded", node="n")
        front.look(2.0)
    for _ in range(10):
        back.look(5.0)
        for each in back.elements:
            back.set(each, phase="Succeeded", node="n")
    if alive or finished:
        assert back.job.status.phase == "Failed", "element 4 has no counterpart"
        assert set(indexes.parse(back.job.status.completed_indexes)) == done


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_happens_each_element_comes_to_one_end(data):
    count = data.draw(st.integers(1, 8))
    at_once = data.draw(st.integers(1, 4))
    story = Story(job({"indexes": f"0-{count - 1}", "parallelism": at_once}, restart={"limit": 1, "backoff": "1s"}))
    disruptions = 0
    for _ in range(data.draw(st.integers(0, 40))):
        story.look(data.draw(st.sampled_from([0.0, 1.0])))
        assert len(story.elements) <= at_once
        assert sum(each.interruptions for each in story.job.status.elements) <= disruptions
        event = data.draw(
            st.sampled_from(["run", "fail", "evict", "end", "lose", "restart", "suspend", "resume", "stick", "let go"])
        )
        element = data.draw(st.integers(0, count - 1))
        if event == "run":
            story.set(element, phase="Running", node="n")
        elif event == "fail":
            story.set(element, phase="Failed", node="n", exit_code=1)
        elif event == "evict":
            disruptions += 1
            story.set(element, phase="Failed", node="n", disrupted=True)
        elif event == "stick":
            disruptions += 1
            story.stuck.add(element)
            story.set(element, terminating=True, disrupted=True)
        elif event == "let go":
            story.let_go(element)
        elif event == "end":
            story.set(element, phase="Succeeded", node="n")
        elif event == "lose":
            disruptions += 1
            for name, seen in list(story.pods.items()):
                if seen.element == element and seen.phase in ("Pending", "Running"):
                    story.run.gone(story.pods.pop(name))
        elif event == "restart":
            story.restart_operator()
        else:
            disruptions += count
            story.job.spec.suspend = event == "suspend"
    story.job.spec.suspend = False
    for element in range(count):
        story.let_go(element)
    for _ in range(10 * count + 10):
        story.look(5.0)
        if Phase(story.job.status.phase) in FINISHED:
            break
        for element in story.elements:
            story.set(element, phase="Succeeded", node="n")
    status = story.job.status
    assert Phase(status.phase) in FINISHED
    done, failed = set(indexes.parse(status.completed_indexes)), set(indexes.parse(status.failed_indexes))
    assert done | failed == set(range(count))
    assert not done & failed

"""Suspended jobs: they free what they hold, keep their queue position, and resume on places that are reserved for them."""

import random
from collections import Counter

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.actions.nominated import kept_places
from fairlead.core.model.groups import Group, Member, Target
from fairlead.core.model.kept_places import KeptPlaces
from fairlead.core.model.pods import Pod
from fairlead.core.model.queues import Queue
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Overdue, Place, Preempt, Refuse, Resume
from fairlead.core.pods.tasks import Placeholder, TaskState
from fairlead.core.schedule import schedule
from fairlead.core.state.snapshot import snapshot
from tests.builders import cluster, confirm, node, placed, pod, preempted, queue, run, spec

PATIENT = ServiceClass("batch", mode="Suspend")


def worker(job, number, **more):
    """A pod of a Job."""
    more = {"service_class": "batch", "owner": f"uid-job-{job}", "root": f"batch/v1/Job/{job}", **more}
    return pod(f"{job}-{number}", **more)


class Story:
    """The cluster, the operator and the Job controller around a state."""

    def __init__(self, *nodes, queues=(), **policy):
        self.policy = policy
        self.state = cluster(nodes or [node("n", gpus=4)], queues, patience=9e9, **policy)
        self.state.upsert_class(PATIENT)
        self.groups = {}
        self.now = 0.0
        self.resumed = []
        self.asked = []

    def submit(self, job, count, group="", **more):
        for number in range(count):
            self.state.upsert_pod(worker(job, number, group=group, **more))

    def group(self, name, min_member):
        self.groups[f"ns/{name}"] = Group("ns", name, min_member)
        self.state.upsert_group(self.groups[f"ns/{name}"])

    def step(self, seconds=1.0):
        """One pass; target states are written, bindings are."""
        self.now += seconds
        decided = run(self.state, self.now)
        confirm(self.state, decided)
        for each in decided:
            if isinstance(each, Preempt):
                for job in each.suspends:
                    self.asked.append(job)
                    owners = tuple(uid for _, uid in job.owners)
                    self.intend(job.group, Target("Suspended", job.epoch, owners, job.members))
            elif isinstance(each, Resume):
                self.resumed.append(each)
                old = self.groups[each.group].target or Target("Running")
                members = old.members if each.places else ()
                target = Target("Running", each.epoch, old.owners, members, each.attained, each.since, each.places, each.until)
                self.intend(each.group, target)
        invariants.check(self.state)
        return decided

    def intend(self, key, target):
        group = self.groups.get(key) or Group(*key.split("/"), sum(member.count for member in target.members))
        self.groups[key] = msgspec.structs.replace(group, target=target)
        self.state.upsert_group(self.groups[key])

    def delete(self, job):
        for uid, task in list(self.state.tasks.items()):
            if task.pod.owner == f"uid-job-{job}":
                self.state.remove_pod(uid)

    def displace(self, job):
        """A pod of higher priority, `high`, takes four devices of a job, whose pods go."""
        self.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
        self.step()
        self.delete(job)
        self.step()

    def restart(self):
        """Another scheduler begins with what exists."""
        known = [task.pod for task in self.state.tasks.values() if not task.pod.placeholder]
        nodes = [self.state.nodes.objects[row] for row in self.state.nodes.rows.values()]
        self.state = cluster(nodes, (), known, self.groups.values(), patience=9e9, **self.policy)
        self.state.upsert_class(PATIENT)

    def placeholders(self):
        return sorted(task.pod.key for task in self.state.tasks.values() if task.pod.placeholder)

    def running(self):
        return sorted(task.pod.name for task in self.state.tasks.values() if task.state is TaskState.BOUND)


def test_a_job_is_suspended_as_a_whole_and_resumes_when_there_is_capacity():
    story = Story()
    story.submit("low", 3)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    decided = story.step()
    assert preempted(decided) == [["low-0", "low-1", "low-2"]]
    (job,) = story.asked
    assert (job.group, job.made, job.epoch) == ("ns/job-batch.low", True, 1)
    assert job.owners == (("batch/v1/Job/low", "uid-job-low"),)
    assert [member.count for member in job.members] == [3]
    assert story.placeholders() == [], "its pods are still there"
    story.delete("low")
    assert placed(story.step()) == {"high": "n"}
    assert story.placeholders() == ["ns/job-batch.low-0", "ns/job-batch.low-1", "ns/job-batch.low-2"]
    assert story.state.queues.queues["default"].pods_waiting == 3
    story.state.remove_pod("uid-high")
    story.step()
    (resumed,) = story.resumed
    assert (resumed.group, resumed.epoch, resumed.nodes) == ("ns/job-batch.low", 2, ("n", "n", "n"))
    story.submit("low", 3, created=100.0)
    story.step()
    story.step()
    assert story.running() == ["low-0", "low-1", "low-2"]
    assert story.placeholders() == []


@pytest.mark.parametrize("gpus", [4, 0])
def test_it_waits_since_it_was_suspended_also_after_restarts_of_the_scheduler(gpus):
    """Its wait for the share would else begin anew each time, and never end. One without GPUs waits anew, too."""
    story = Story(node("n", gpus=4, cpu=4000))
    story.submit("low", 1, gpus=gpus, cpu=4000, created=1.0)
    story.step(100.0)
    story.state.upsert_pod(pod("high", priority=5, gpus=gpus, cpu=4000, created=9.0))
    story.step()
    story.delete("low")
    story.step(30.0)
    known = [task.pod for task in story.state.tasks.values() if not task.pod.placeholder]
    for restarts in range(1, 3):
        again = cluster([node("n", gpus=4, cpu=4000)], (), known, story.groups.values(), patience=9e9)
        again.upsert_class(PATIENT)
        run(again, story.now + 1000.0 * restarts)
        (unit,) = {task.unit for task in again.tasks.values() if task.pod.placeholder}
        assert unit.since == 101.0


def test_it_keeps_its_place_in_line():
    story = Story()
    story.submit("low", 1, gpus=4, created=1.0)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()
    story.state.upsert_pod(pod("later", gpus=4, created=10.0))
    story.delete("low")
    story.step()
    story.state.remove_pod("uid-high")
    story.step()
    assert [each.group for each in story.resumed] == ["ns/job-batch.low"], "it is older than the other"
    assert "later" not in story.running()
    story.submit("low", 1, gpus=4, created=50.0)
    story.step()
    assert story.running() == ["low-0"], "its place was kept, though its new pod is younger"


def test_a_gang_comes_back_as_a_gang():
    story = Story(node("a", gpus=4), node("b", gpus=4))
    story.group("train", 4)
    story.submit("train", 4, group="train", gpus=2)
    story.step()
    for name in ("x", "y"):
        story.state.upsert_pod(pod(name, priority=5, gpus=4, created=9.0))
    story.step()
    assert [job.group for job in story.asked] == ["ns/train"]
    assert not story.asked[0].made
    story.delete("train")
    story.step()
    assert story.running() == ["x", "y"]
    assert len(story.placeholders()) == 4
    story.state.remove_pod("uid-x")
    story.step()
    assert not story.resumed, "half a gang is none"
    story.state.remove_pod("uid-y")
    story.step()
    assert len(story.resumed) == 1
    story.submit("train", 2, group="train", gpus=2, created=60.0)
    story.step()
    for number in (2, 3):
        story.state.upsert_pod(worker("train", number, group="train", gpus=2, created=61.0))
    story.step()
    story.step()
    assert story.running() == ["train-0", "train-1", "train-2", "train-3"]
    assert story.placeholders() == []


def test_a_member_that_changes_while_it_waits_for_the_others_has_one_place():
    story = Story(node("a", gpus=4))
    story.group("train", 2)
    story.submit("train", 2, group="train", gpus=2)
    story.step()
    story.displace("train")
    story.state.remove_pod("uid-high")
    story.step()
    story.state.upsert_pod(worker("train", 0, group="train", gpus=2, created=60.0))
    story.state.upsert_pod(worker("train", 0, group="train", gpus=2, created=60.0, user="ann"))
    story.step()
    story.state.upsert_pod(worker("train", 1, group="train", gpus=2, created=60.0))
    story.step()
    story.step()
    assert story.running() == ["train-0", "train-1"]
    story.delete("train")
    story.step()
    story.step(300.0)
    assert story.state.nodes.pods[0] == {}, "a place that nobody comes to any more is kept by nobody"


def test_optional_members_of_a_gang_are_evicted_and_the_rest_continues():
    story = Story()
    story.group("train", 2)
    story.submit("train", 4, group="train")
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=2, created=9.0))
    decided = story.step()
    assert len(preempted(decided)[0]) == 2
    assert not story.asked, "it keeps what it needs"


def test_it_is_read_from_the_group_after_a_restart():
    story = Story()
    story.submit("low", 2, gpus=2)
    story.step()
    story.displace("low")
    known = story.placeholders()
    fresh = cluster([node("n", gpus=4)])
    fresh.upsert_class(PATIENT)
    fresh.upsert_group(story.groups["ns/job-batch.low"])
    fresh.upsert_pod(pod("high", priority=5, gpus=4, created=9.0, at="n"))
    assert not [each for each in run(fresh, 100.0) if not isinstance(each, Refuse)]
    assert sorted(task.pod.key for task in fresh.tasks.values() if task.pod.placeholder) == known
    fresh.remove_pod("uid-high")
    (resumed,) = [each for each in run(fresh, 101.0) if isinstance(each, Resume)]
    assert resumed.epoch == 2, "it goes on counting"
    invariants.check(fresh)


def test_without_an_operator_its_pods_are_evicted_after_a_while():
    story = Story()
    story.submit("low", 1, gpus=4)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()
    assert story.state.next_due <= story.now + 61.0
    decided = story.step(61.0)
    (evict,) = [each for each in decided if isinstance(each, Evict)]
    assert [victim.pod.name for victim in evict.victims] == ["low-0"]
    assert "no operator" in evict.reason.message
    assert [(each.group, each.pods) for each in story.resumed] == [("ns/job-batch.low", ())], "nobody is to act on it later"
    story.delete("low")
    story.submit("low", 1, gpus=4, created=90.0)
    assert placed(story.step()) == {"high": "n"}
    assert story.placeholders() == [], "it waits by itself"


def suspended_for_high_and_started_anew():
    """Two nodes, each with a job. `high` is there for which one is suspended, whose pods are not deleted before a restart."""
    story = Story(node("m", gpus=4), node("n", gpus=4))
    for job in ("a", "b"):
        story.submit(job, 2, gpus=2, created=1.0)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    ((first, _),) = preempted(story.step())
    task = story.state.tasks["uid-high"]
    assert task.state is TaskState.HELD
    story.state.upsert_pod(msgspec.structs.replace(task.pod, nominated=story.state.nodes.names[task.row]))
    story.restart()
    return story, first[0]


@pytest.mark.parametrize("comes", ["", "next"])
def test_after_a_restart_the_pods_of_a_job_that_is_to_be_suspended_are_on_their_way_out(comes):
    """comes: a pod for which the place would do, too. Neither is another job stopped, nor is the place given to it."""
    story, victim = suspended_for_high_and_started_anew()
    if comes:
        story.state.upsert_pod(pod(comes, priority=4, gpus=4, created=8.0))
    assert not any(victim in name for names in preempted(story.step()) for name in names)
    assert story.state.tasks["uid-high"].state is TaskState.HELD
    story.delete(victim)
    assert placed(story.step())["high"]


def test_after_a_restart_no_other_job_is_stopped_where_one_that_is_to_be_suspended_makes_place():
    """Nothing is nominated: the plan was given up, or that was not written."""
    story, victim = suspended_for_high_and_started_anew()
    high = story.state.tasks["uid-high"].pod
    story.state.remove_pod(high.uid)
    story.state.upsert_pod(msgspec.structs.replace(high, nominated=""))
    assert preempted(story.step()) == []
    assert preempted(story.step(30.0)) == []
    story.delete(victim)
    assert placed(story.step())["high"]


def test_after_a_restart_without_an_operator_the_pods_of_a_suspended_job_are_evicted_after_a_while():
    story, victim = suspended_for_high_and_started_anew()
    story.step()
    decided = story.step(61.0)
    (evict,) = [each for each in decided if isinstance(each, Evict)]
    assert [each.pod.name for each in evict.victims] == [f"{victim}-0", f"{victim}-1"]


def test_pods_of_a_job_that_is_resumed_before_they_were_deleted_stay_and_may_be_victims_again():
    story, victim = suspended_for_high_and_started_anew()
    key, high = f"ns/job-batch.{victim}", story.state.tasks["uid-high"].pod
    story.state.remove_pod(high.uid)
    story.step()
    story.intend(key, Target("Running", 2, story.groups[key].target.owners))
    story.state.upsert_pod(msgspec.structs.replace(high, nominated=""))
    other = {"a": "b", "b": "a"}[victim]
    story.delete(other)
    story.state.upsert_pod(pod("beside", priority=9, gpus=4, created=1.0))
    story.step()
    (suspended,) = story.asked[1:]
    assert suspended.group == key


def test_a_user_may_resume_it():
    story = Story()
    story.submit("low", 1, gpus=4)
    story.step()
    story.displace("low")
    assert len(story.placeholders()) == 1
    story.submit("low", 1, gpus=4, created=20.0)
    story.step()
    assert story.placeholders() == []
    assert [(each.group, each.pods) for each in story.resumed] == [("ns/job-batch.low", ())]
    assert story.state.queues.queues["default"].pods_waiting == 1


def test_places_that_no_pod_uses_are_released():
    story = Story()
    story.submit("low", 1, gpus=4)
    story.step()
    story.displace("low")
    story.state.remove_pod("uid-high")
    story.step()
    story.state.upsert_pod(pod("other", gpus=4, created=30.0))
    story.step()
    assert story.running() == []
    assert story.state.next_due <= story.now + 121.0
    story.step(121.0)
    assert story.running() == ["other"]


@pytest.mark.parametrize("came", range(4))
@pytest.mark.parametrize("group", ["", "low"])
def test_a_scheduler_that_starts_anew_reserves_the_places_of_a_job_that_resumes(came, group):
    """came: pods that have come before it started, of three; those of a gang wait for the others."""
    story = Story()
    if group:
        story.group(group, 3)
    story.submit("low", 3, group=group)
    story.step()
    story.displace("low")
    story.state.remove_pod("uid-high")
    story.step()
    story.submit("low", came, group=group, created=20.0)
    story.step()
    story.state.upsert_pod(pod("other", gpus=2, created=30.0))
    story.restart()
    story.step()
    assert "other" not in story.running(), "the places are reserved"
    assert len(story.placeholders()) == 3 - came
    story.submit("low", 3, group=group, created=20.0)
    for _ in range(3):
        story.step()
    assert story.running() == ["low-0", "low-1", "low-2"]
    assert story.placeholders() == []
    assert len(story.resumed) == 1


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("comes", [False, True])
def test_a_group_made_for_a_target_state_names_places_until_they_are_taken_or_given_up(restart, comes):
    """The operator deletes it then."""
    story = Story()
    story.submit("low", 2, gpus=2)
    story.step()
    story.displace("low")
    key = "ns/job-batch.low"
    story.groups[key] = msgspec.structs.replace(story.groups[key], made=True)
    story.state.upsert_group(story.groups[key])
    story.state.remove_pod("uid-high")
    story.step()
    assert story.groups[key].target.nodes == ("n", "n")
    if restart:
        story.restart()
    story.submit("low", 1 + comes, gpus=2, created=20.0)
    for _ in range(3):
        story.step()
    assert story.groups[key].target.nodes == (() if comes else ("n", "n"))
    story.step(121.0)
    assert (story.groups[key].target.state, story.groups[key].target.nodes) == ("Running", ())
    assert story.running()
    epoch = story.groups[key].target.epoch
    story.step(500.0)
    assert story.groups[key].target.epoch == epoch, "it is written once"


def test_places_of_pods_that_have_not_come_are_free_once_the_job_is_suspended_again():
    story = Story()
    story.submit("low", 2, gpus=2)
    story.step()
    story.displace("low")
    story.state.remove_pod("uid-high")
    story.step()
    story.submit("low", 1, gpus=2, created=20.0)
    story.step()
    story.step()
    assert (story.running(), len(story.placeholders())) == (["low-0"], 1)
    story.state.upsert_pod(pod("urgent", priority=5, gpus=2, created=30.0))
    story.step()
    assert story.groups["ns/job-batch.low"].target.state == "Suspended"
    assert placed(story.step()) == {"urgent": "n"}, "it waits for no pod of the job"
    story.delete("low")
    story.step()
    (waits,) = story.placeholders()
    assert waits == "ns/job-batch.low-0"


def one_reserved_while_another_waits(seconds=1.0):
    """A place is reserved for the only pod of `low`, which has not come, and `other` needs it. seconds: until `low` resumes."""
    story = Story()
    story.submit("low", 1, gpus=4)
    story.step()
    story.displace("low")
    story.state.remove_pod("uid-high")
    story.step(seconds)
    story.state.upsert_pod(pod("other", gpus=4, created=30.0))
    return story


def test_places_that_were_reserved_before_a_restart_are_given_up_when_they_would_have_been():
    story = one_reserved_while_another_waits()
    story.step(60.0)
    story.restart()
    story.step(59.0)
    assert (story.running(), len(story.placeholders())) == ([], 1)
    story.step(1.0)
    assert (story.running(), story.placeholders()) == (["other"], [])
    story.state.remove_pod("uid-other")
    story.restart()
    story.step()
    assert story.placeholders() == [], "the record is of a time that is over"


def test_a_clock_that_was_ahead_reserves_no_places_for_long_after_a_restart():
    story = one_reserved_while_another_waits(7200.0)
    story.now -= 7200.0
    story.restart()
    story.step()
    assert (story.running(), len(story.placeholders())) == ([], 1)
    story.step(120.0)
    assert (story.running(), story.placeholders()) == (["other"], [])
    story.state.remove_pod("uid-other")
    story.restart()
    story.step()
    assert story.placeholders() == [], "the record is gone"


def test_a_record_of_places_is_not_taken_out_of_a_group_whose_job_is_suspended_again():
    story = Story()
    story.submit("low", 2, gpus=2)
    story.step()
    story.displace("low")
    key = "ns/job-batch.low"
    story.groups[key] = msgspec.structs.replace(story.groups[key], made=True)
    story.state.upsert_group(story.groups[key])
    story.state.remove_pod("uid-high")
    story.step()
    story.submit("low", 1, gpus=2, created=20.0)
    story.step()
    story.state.upsert_pod(pod("urgent", priority=5, gpus=2, created=30.0))
    story.step()
    story.step()
    assert story.groups[key].target.state == "Suspended"
    story.delete("low")
    story.step()
    assert (story.running(), len(story.placeholders())) == (["urgent"], 1)


@pytest.mark.parametrize("ended", range(4))
@pytest.mark.parametrize("prefers", [None, ("m",)])
def test_a_scheduler_that_starts_anew_reserves_no_place_for_a_pod_that_had_one(prefers, ended):
    """The job has failed since it resumed: its next attempt prefers other nodes. ended: members of it that succeeded, of three."""
    story = Story(node("n", gpus=6), node("m", gpus=0))
    story.group("gang", 3)
    story.submit("train", 3, group="gang", root=AI_JOB)
    story.step()
    story.displace("train")
    story.state.remove_pod("uid-high")
    story.step()
    story.submit("train", 3, group="gang", root=AI_JOB, attempt=1, created=20.0)
    story.step()
    story.delete("train")
    preferred = prefers and ((1, SelectorTerm(fields=(Requirement("metadata.name", "In", prefers),))),)
    again = msgspec.structs.replace(spec(), preferred_nodes=preferred)
    story.submit("train", 3, group="gang", root=AI_JOB, attempt=2, created=21.0, spec_=again)
    story.step()
    assert story.running() == ["train-0", "train-1", "train-2"]
    for number in range(ended):
        story.state.remove_pod(f"uid-train-{number}")
    story.restart()
    for number in range(ended):
        member_done(story, number, root=AI_JOB, attempt=2)
    story.step()
    assert story.placeholders() == []


def test_a_place_that_is_not_free_any_more_is_not_reserved_after_a_restart():
    story = Story()
    story.submit("low", 2, gpus=2)
    story.step()
    story.displace("low")
    story.state.remove_pod("uid-high")
    story.step()
    story.state.upsert_pod(pod("foreign", gpus=1, at="n", ours=False, created=9.0))
    story.restart()
    story.step()
    assert story.placeholders() == ["ns/job-batch.low-0"]


def test_a_write_that_failed_lets_it_wait_again():
    story = Story()
    story.submit("low", 1, gpus=4)
    story.step()
    story.displace("low")
    story.state.remove_pod("uid-high")
    (resume,) = [each for each in run(story.state, 100.0) if isinstance(each, Resume)]
    story.state.bind_failed(resume.pods[0].uid, 100.0)
    invariants.check(story.state)
    (again,) = [each for each in run(story.state, 110.0) if isinstance(each, Resume)]
    assert again.epoch == resume.epoch + 1


def test_a_group_that_is_deleted_takes_its_placeholders_along():
    story = Story()
    story.submit("low", 1, gpus=4)
    story.step()
    story.displace("low")
    story.state.remove_group("ns/job-batch.low")
    story.step()
    assert story.placeholders() == []
    invariants.check(story.state)


@pytest.mark.parametrize("more", [{"root": ""}, {"service_class": ""}])
def test_what_cannot_be_suspended_is_evicted(more):
    story = Story()
    story.submit("low", 2, gpus=2, **more)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=2, created=9.0))
    assert len(preempted(story.step())[0]) == 1
    assert not story.asked


def test_a_suspended_job_is_taken_back_for_across_queues_and_nothing_flaps():
    story = Story(node("n", gpus=8), queues=[queue("owner", quota=6), queue("guest", quota=2)])
    for job in range(4):
        story.submit(f"guest{job}", 2, queue="guest", created=float(job))
    story.step()
    for number in range(6):
        story.state.upsert_pod(pod(f"owner-{number}", queue="owner", created=50.0))
    story.step()
    assert sorted(job.group for job in story.asked) == ["ns/job-batch.guest1", "ns/job-batch.guest2", "ns/job-batch.guest3"]
    for job in range(1, 4):
        story.delete(f"guest{job}")
    story.step()
    assert len([name for name in story.running() if name.startswith("owner")]) == 6
    for _ in range(5):
        assert not [each for each in story.step() if isinstance(each, Place | Preempt | Resume)]
    assert len(story.placeholders()) == 6


def test_its_longest_wait_is_not_counted_from_when_it_first_came():
    story = Story()
    story.state.upsert_class(ServiceClass("batch", mode="Suspend", max_wait=60.0))
    story.submit("low", 1, gpus=4)
    story.step()
    story.step(1000.0)
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=1000.0))
    story.step()
    story.delete("low")
    assert not [each for each in story.step() if isinstance(each, Overdue)]
    assert next(task.urgency for task in story.state.tasks.values() if task.pod.placeholder) == 0


def test_what_it_attained_and_when_it_came_are_carried_over():
    story = Story()
    story.state.upsert_class(ServiceClass("batch", mode="Suspend", levels=(100.0, 1000.0)))
    story.submit("low", 1, gpus=4, created=1.0)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=50.0))
    story.step(50.0)
    attained = story.asked[0].members[0].pod.attained
    assert attained == 200.0, "four devices for fifty seconds"
    story.delete("low")
    story.step()
    story.state.remove_pod("uid-high")
    story.step()
    story.submit("low", 1, gpus=4, created=100.0)
    story.step()
    task = story.state.tasks["uid-low-0"]
    assert task.state is TaskState.BOUND
    assert story.state.services.level(task) == 1
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=200.0))
    story.step(50.0)
    (member,) = story.asked[1].members
    assert (member.pod.created, member.pod.attained > attained) == (1.0, True)


@pytest.mark.parametrize("groups_first", [True, False])
def test_what_it_attained_outlives_the_scheduler(groups_first):
    story = Story()
    service = ServiceClass("batch", mode="Suspend", levels=(100.0, 1000.0))
    story.state.upsert_class(service)
    story.submit("low", 1, gpus=4, created=1.0)
    story.step()
    story.step(49.0)
    story.displace("low")
    story.state.remove_pod("uid-high")
    story.step()
    story.submit("low", 1, gpus=4, created=100.0)
    story.step()
    story.step(50.0)
    known = story.state.tasks["uid-low-0"]
    begun = msgspec.structs.replace(known.pod, node="n", started=known.started)
    fresh = Story()
    fresh.state.upsert_class(service)
    for part in ("groups", "pods") if groups_first else ("pods", "groups"):
        if part == "pods":
            fresh.state.upsert_pod(begun)
        else:
            for each in story.groups.values():
                fresh.state.upsert_group(each)
    fresh.now = story.now - 1.0
    fresh.step()
    task = fresh.state.tasks["uid-low-0"]
    mine, theirs = story.state.services, fresh.state.services
    assert theirs.attained.of(task, theirs.now) == mine.attained.of(known, mine.now) > 200.0
    assert (theirs.level(task), theirs.attained.first_came(task)) == (1, 1.0)
    assert theirs.next_due == 54.0 + (1000.0 - 200.0) / 4, "it is looked at when it reaches the next level"
    for key in list(story.groups):
        fresh.state.remove_group(key)
    assert not theirs.attained.carried, "it goes with the group"


def test_who_waits_beside_its_siblings_stands_on_the_level_of_their_job():
    """A restarted scheduler may observe the pods before it observes what their job attained."""
    story = Story(node("n", gpus=4))
    story.state.upsert_class(ServiceClass("batch", mode="Suspend", levels=(100.0, 1000.0)))
    story.state.upsert_pod(worker("low", 0, gpus=4, at="n", started=0.0))
    story.state.upsert_pod(worker("low", 1, gpus=4))
    waiting = story.state.tasks["uid-low-1"]
    assert waiting.level == 0
    story.intend("ns/job-batch.low", Target("Running", 2, ("uid-job-low",), (), 200.0, 1.0))
    assert not [each for each in story.step() if isinstance(each, Preempt)], "it takes no turn from its own job"
    assert waiting.level == 1
    story.state.remove_group("ns/job-batch.low")
    story.step()
    assert waiting.level == 0, "as if it had never been known"


def test_what_it_attained_counts_though_it_is_resumed_otherwise():
    story = Story()
    story.state.upsert_class(ServiceClass("batch", mode="Suspend", levels=(100.0, 1000.0)))
    story.submit("low", 1, gpus=4, created=1.0)
    story.step()
    story.step(49.0)
    story.displace("low")
    story.submit("low", 1, gpus=4, created=60.0)
    story.step()
    (withdrawn,) = story.resumed
    assert (withdrawn.pods, withdrawn.attained, withdrawn.since) == ((), 200.0, 1.0)
    story.state.remove_pod("uid-high")
    story.step()
    assert story.state.services.level(story.state.tasks["uid-low-0"]) == 1


def test_a_clock_that_was_set_back_takes_nothing_from_what_it_attained():
    """Nor is less than nothing written, which no PodGroup can contain: its job would never resume."""
    story = Story()
    story.state.upsert_class(ServiceClass("batch", mode="Suspend", levels=(100.0, 1000.0)))
    story.submit("low", 1, gpus=4, created=1.0)
    story.step(100.0)
    story.now = 50.0
    story.displace("low")
    assert story.asked[0].members[0].pod.attained == 0.0
    story.state.remove_pod("uid-high")
    story.step()
    assert [each.attained for each in story.resumed] == [0.0]


def test_what_a_gang_attained_is_that_of_all_its_members():
    story = Story()
    story.state.upsert_class(ServiceClass("batch", mode="Suspend", levels=(100.0, 1000.0)))
    story.group("train", 2)
    story.submit("train", 2, group="train", gpus=2, created=1.0)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=50.0))
    story.step(50.0)
    assert [(member.count, member.pod.attained) for member in story.asked[0].members] == [(2, 200.0)]


def test_a_gang_of_which_one_is_on_its_way_out_is_evicted():
    """It is started again anyway; half of it, suspended, would wait for ever."""
    story = Story()
    story.group("train", 2)
    story.submit("train", 2, group="train", gpus=2)
    story.step()
    story.state.upsert_pod(msgspec.structs.replace(story.state.tasks["uid-train-0"].pod, terminating=True, leaves=-500.0))
    story.state.upsert_pod(pod("high", priority=5, gpus=2, created=50.0))
    (preempt,) = [each for each in story.step() if isinstance(each, Preempt)]
    assert [each.pod.name for each in preempt.victims] == ["train-1"]
    assert preempt.suspends == ()


def test_grace_is_that_of_the_class():
    story = Story(queues=[Queue("q")])
    story.state.upsert_class(ServiceClass("slow", grace=90.0))
    story.state.upsert_pod(pod("low", queue="q", gpus=4, service_class="slow"))
    story.step()
    story.state.upsert_pod(pod("high", queue="q", priority=5, gpus=4, created=9.0))
    (plan,) = [each for each in story.step() if isinstance(each, Preempt)]
    assert plan.graces == (("uid-low", 90),)


def test_what_is_remembered_of_a_pod_can_be_written_and_read():
    story = Story()
    story.submit("low", 1, gpus=4)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()
    (member,) = story.asked[0].members
    assert msgspec.json.decode(msgspec.json.encode(member.pod), type=Pod) == member.pod


def paused(story, key, *, by_its_user=True):
    story.groups[key] = msgspec.structs.replace(story.groups[key], paused=by_its_user)
    story.state.upsert_group(story.groups[key])


def suspended_gang(job="low", group="", count=2):
    """A gang of a job that held all devices; its pods are gone. group: its PodGroup; absent: called as the job."""
    story, group = Story(), group or job
    story.group(group, count)
    story.submit(job, count, group=group, gpus=4 // count)
    story.step()
    story.displace(job)
    assert story.placeholders() == [f"ns/{group}-{number}" for number in range(count)]
    return story


def test_a_job_that_its_user_pauses_as_well_waits_for_nothing_until_the_user_resumes_it():
    story = suspended_gang()
    paused(story, "ns/low")
    story.step()
    assert story.placeholders() == []
    story.state.remove_pod("uid-high")
    story.state.upsert_pod(pod("next", gpus=4, created=50.0))
    assert placed(story.step()) == {"next": "n"}, "at once: no place is kept for it"
    assert story.resumed == []
    story.state.remove_pod("uid-next")
    story.step()
    assert (story.resumed, story.placeholders()) == ([], [])
    paused(story, "ns/low", by_its_user=False)
    story.step()
    assert [each.group for each in story.resumed] == ["ns/low"], "the intent is still there, and so is its place in line"


def test_it_evicts_no_pod_while_it_is_paused():
    story = Story(queues=[queue("mine", quota=4), queue("guest", quota=0)])
    story.group("low", 1)
    story.submit("low", 1, group="low", gpus=4, queue="mine")
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0, queue="mine"))
    story.step()
    story.delete("low")
    story.step()
    paused(story, "ns/low")
    story.state.remove_pod("uid-high")
    story.state.upsert_pod(pod("guest", gpus=4, created=20.0, queue="guest"))
    story.step()
    assert story.running() == ["guest"]
    for _ in range(5):
        assert preempted(story.step(100.0)) == [], "its quota is not asked for"
    paused(story, "ns/low", by_its_user=False)
    assert [preempted(story.step()) for _ in range(2)][-1] or story.asked, "then it is"


def test_places_that_are_reserved_for_a_job_that_resumes_are_released_when_its_user_pauses_it():
    story = suspended_gang()
    story.state.remove_pod("uid-high")
    story.step()
    assert len(story.resumed) == 1
    story.state.upsert_pod(pod("next", gpus=4, created=50.0))
    assert placed(story.step()) == {}, "they are kept"
    paused(story, "ns/low")
    assert placed(story.step()) == {"next": "n"}
    assert len(story.state.suspended.kept) == 0
    paused(story, "ns/low", by_its_user=False)
    story.submit("low", 2, group="low", gpus=2, created=60.0)
    story.state.remove_pod("uid-next")
    story.step()
    story.step()
    assert story.running() == ["low-0", "low-1"], "its pods wait like any"


def test_it_is_read_from_the_group_that_it_is_paused():
    story = suspended_gang()
    paused(story, "ns/low")
    story.step()
    again = Story()
    again.groups = dict(story.groups)
    again.state.upsert_group(again.groups["ns/low"])
    again.step()
    assert (again.placeholders(), again.resumed) == ([], [])
    again.state.remove_group("ns/low")
    again.step()
    assert again.state.suspended.paused == set()


def moved_and(*more):
    """A job's pod is to be moved for a wider one: where preempted pods of its class are suspended."""
    story = Story(node("a", gpus=4), node("b", gpus=4), moves_per_minute=10)
    for number, where in enumerate("ab"):
        story.state.upsert_pod(worker(f"j{number}", 0, gpus=1, at=where, started=0.0))
        story.state.upsert_pod(pod(f"stays-{where}", gpus=1, at=where, started=0.0, priority=9))
    story.state.upsert_pod(pod("wide", gpus=3, created=0.0))
    for each in more:
        story.state.upsert_pod(each)
    return story


def test_a_pod_that_is_moved_is_evicted_and_has_one_place_though_its_class_suspends():
    story = moved_and()
    for _ in range(8):
        decided = story.step(30.0)
        moves = [each for each in decided if isinstance(each, Preempt)]
        if moves:
            break
    (plan,) = moves
    assert (plan.moves, plan.suspends, len(plan.victims)) == (True, (), 1)
    assert len(story.state.in_flight.kept) == 1
    free = {name: each["free"]["nvidia.com/gpu"] for name, each in snapshot(story.state)["nodes"].items()}
    assert sum(free.values()) == 1, "of 8: 3 for those that stay, 3 for the wide one, and one place for the one that moves"


def test_places_reserved_for_moved_pods_are_released_when_their_job_is_suspended():
    story = moved_and()
    for _ in range(8):
        if any(isinstance(each, Preempt) for each in story.step(30.0)):
            break
    (kept,) = story.state.in_flight.kept.values()
    owner = kept.key[1]
    job = owner.removeprefix("uid-job-")
    member = msgspec.structs.replace(story.state.tasks[kept.victim].pod, uid="", name="", node="", owner="", root="")
    story.intend(f"ns/job-{job}", Target("Suspended", 1, (owner,), (Member(1, member),)))
    assert story.state.in_flight.kept == {}
    story.delete(job)
    story.step()
    held = [task for row in story.state.nodes.rows.values() for task in story.state.nodes.pods[row].values()]
    assert sum(task.shape.gpus for task in held) <= 8
    assert not any(isinstance(task, Placeholder) for task in held)


def test_a_pod_of_another_owner_that_joins_the_gang_of_a_suspended_job_is_bound_and_the_job_resumes():
    """No binding is written for a placeholder."""
    story = suspended_gang(group="gang")
    story.state.upsert_pod(pod("guest", group="gang", gpus=0, cpu=100))
    story.step()
    story.state.remove_pod("uid-high")
    decided = [each for _ in range(3) for each in story.step()]
    assert placed(decided) == {"guest": "n"}
    assert [len(each.pods) for each in story.resumed] == [2]
    assert all(each.placeholder for each in story.resumed[0].pods)


AI_JOB = "fairlead.dev/v1alpha1/AIJob/train"


def member_done(story, number, **more):
    """A member of `train` succeeds."""
    story.state.upsert_pod(worker("train", number, group="gang", finished=True, succeeded=story.now, at="n", **more))


def suspended_after_one_succeeded(root, *, pod_stays=True):
    """Two of three members run on, of one device each, when their job is suspended."""
    story = Story()
    story.group("gang", 3)
    story.submit("train", 3, group="gang", root=root)
    story.step()
    member_done(story, 0, root=root)
    if not pod_stays:
        story.state.remove_pod("uid-train-0")
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()
    story.delete("train")
    story.state.remove_pod("uid-train-0")
    story.step()
    return story


def test_members_of_an_ai_job_that_have_succeeded_come_back_with_the_others_and_need_places():
    story = suspended_after_one_succeeded(AI_JOB)
    assert [(member.count, member.pod.attempt, member.pod.finished) for member in story.asked[0].members] == [(3, 1, False)]
    assert len(story.placeholders()) == 3
    story.state.upsert_pod(pod("other", priority=5, gpus=2, created=20.0))
    story.state.remove_pod("uid-high")
    story.step()
    assert not story.resumed, "two places are too few for three"
    story.state.remove_pod("uid-other")
    story.step()
    assert [len(each.pods) for each in story.resumed] == [3]
    story.submit("train", 3, group="gang", root=AI_JOB, attempt=1, created=60.0)
    story.step()
    assert story.running() == ["train-0", "train-1", "train-2"]


def test_a_member_that_succeeds_while_it_is_suspended_comes_back_too():
    story = Story()
    story.group("gang", 2)
    story.submit("train", 2, group="gang", root=AI_JOB)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()
    member_done(story, 0, root=AI_JOB)
    story.delete("train")
    story.state.remove_pod("uid-train-0")
    story.step()
    story.state.upsert_pod(pod("other", priority=5, gpus=3, created=20.0))
    story.state.remove_pod("uid-high")
    story.step()
    assert not story.resumed, "one place is too few for two"


def test_members_of_other_shapes_that_have_succeeded_are_remembered_as_such():
    story = Story()
    story.group("gang", 3)
    story.submit("train", 2, group="gang", root=AI_JOB)
    story.state.upsert_pod(worker("train", 2, group="gang", root=AI_JOB, gpus=2))
    story.step()
    member_done(story, 2, root=AI_JOB, gpus=2)
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()
    assert [(member.count, member.pod.spec.gpus) for member in story.asked[0].members] == [(2, 1), (1, 2)]


def test_members_of_a_job_that_goes_on_where_it_was_do_not_come_back():
    story = suspended_after_one_succeeded("batch/v1/Job/train")
    assert [(member.count, member.pod.attempt) for member in story.asked[0].members] == [(2, 0)]
    story.state.remove_pod("uid-high")
    story.step()
    for number in (1, 2):
        story.state.upsert_pod(worker("train", number, group="gang", created=60.0))
    story.step()
    assert story.running() == ["train-1", "train-2"], "the first has succeeded"


def test_a_placeholder_that_is_called_as_a_member_that_succeeded_is_not_that_member_made_again():
    """Else its gang would need one more than comes back, and wait for ever."""
    story = Story()
    story.group("train", 2)
    story.submit("train", 2, group="train")
    story.step()
    story.state.upsert_pod(worker("train", 0, group="train", finished=True, succeeded=1.0, at="n"))
    story.displace("train")
    assert story.placeholders() == ["ns/train-0"]
    story.state.remove_pod("uid-high")
    story.step()
    assert len(story.resumed) == 1


def resumed_without_a_place_for_one(**more):
    """The requests of the third were unknown: its pod was gone. All three come."""
    story = suspended_after_one_succeeded(AI_JOB, pod_stays=False)
    assert [member.count for member in story.asked[0].members] == [2]
    if more:
        story.state.upsert_pod(pod("other", priority=5, **more))
    story.state.remove_pod("uid-high")
    story.step()
    assert [len(each.pods) for each in story.resumed] == [2]
    return story


def test_a_gang_that_comes_back_larger_than_its_reservation_starts_at_once_where_there_is_capacity():
    story = resumed_without_a_place_for_one()
    story.submit("train", 2, group="gang", root=AI_JOB, attempt=1, created=60.0)
    story.step()
    assert story.running() == [], "one is still to come"
    story.state.upsert_pod(pod("next", gpus=2, created=70.0))
    story.state.upsert_pod(worker("train", 2, group="gang", root=AI_JOB, attempt=1, created=60.0))
    story.step()
    assert story.running() == ["train-0", "train-1", "train-2"]


def test_a_gang_that_comes_back_too_large_keeps_no_places_in_vain():
    story = resumed_without_a_place_for_one(gpus=2, created=20.0)
    story.submit("train", 3, group="gang", root=AI_JOB, attempt=1, created=60.0)
    story.state.upsert_pod(pod("next", gpus=2, created=70.0))
    story.step()
    assert story.running() == ["next", "other"]
    assert story.state.in_flight.returning == {}
    story.state.remove_pod("uid-other")
    story.state.remove_pod("uid-next")
    story.step()
    assert story.running() == ["train-0", "train-1", "train-2"]


@pytest.mark.parametrize("least", [1, 3, 5])
def test_a_job_whose_minimum_is_changed_while_it_is_suspended_resumes_as_what_it_was_and_starts_as_what_it_is(least):
    story = suspended_gang()
    story.groups["ns/low"] = msgspec.structs.replace(story.groups["ns/low"], min_member=least)
    story.state.upsert_group(story.groups["ns/low"])
    story.step()
    story.state.remove_pod("uid-high")
    story.state.upsert_node(node("m", gpus=8))
    story.step()
    assert [len(each.pods) for each in story.resumed] == [2]
    story.submit("low", least, group="low", gpus=2, created=60.0)
    story.step()
    assert story.running() == [f"low-{number}" for number in range(least)]


def test_a_job_that_is_suspended_again_with_fewer_pods_resumes_though_its_group_was_made_for_more():
    """The PodGroup of the first time is still there: it goes only when the job has resumed."""
    story = Story()
    story.submit("low", 2)
    story.step()
    story.displace("low")
    story.state.remove_pod("uid-high")
    story.step()
    story.state.upsert_pod(worker("low", 1, created=60.0))  # the other had succeeded
    story.step()
    story.step(300.0)
    assert story.running() == ["low-1"]
    story.displace("low")
    assert [[member.count for member in each.members] for each in story.asked] == [[2], [1]]
    assert (story.groups["ns/job-batch.low"].min_member, len(story.placeholders())) == (2, 1)
    story.state.remove_pod("uid-high")
    story.step()
    assert [len(each.pods) for each in story.resumed] == [2, 1]


def test_places_go_to_the_required_members_in_whatever_order_they_come():
    """Of a job that may do with one, one came back to two: its first member must not wait while the place is another's."""
    story = Story()
    story.group("train", 2)
    story.submit("train", 4, group="train")
    story.step()
    story.displace("train")
    assert len(story.placeholders()) == 4
    story.state.upsert_pod(pod("other", priority=5, gpus=2, created=20.0))
    story.state.remove_pod("uid-high")
    story.step()
    assert [len(each.pods) for each in story.resumed] == [2]
    for number in (3, 2, 1, 0):
        story.state.upsert_pod(worker("train", number, group="train", created=60.0))
    story.step()
    assert story.running() == ["other", "train-0", "train-1"]


def test_a_place_that_is_reserved_for_a_pod_that_has_another_is_released():
    """As when another scheduler binds it."""
    story = resumed_without_a_place_for_one()
    story.submit("train", 2, group="gang", root=AI_JOB, attempt=1, created=60.0)
    story.step()
    assert sorted(story.state.in_flight.returning) == ["uid-train-0", "uid-train-1"]
    story.state.upsert_pod(worker("train", 0, group="gang", root=AI_JOB, attempt=1, created=60.0, at="n"))
    story.step()
    assert sorted(story.state.in_flight.returning) == ["uid-train-1"]
    assert snapshot(story.state)["nodes"]["n"]["free"]["nvidia.com/gpu"] == 2


def test_a_pod_that_goes_while_others_are_brought_back_disturbs_no_other():
    story = Story()
    for job in ("a", "b"):
        story.submit(job, 1, gpus=2)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()
    for job in ("a", "b"):
        story.delete(job)
    story.step()
    story.state.remove_pod("uid-high")
    story.step()
    for job in ("a", "b"):
        story.submit(job, 1, gpus=2, created=60.0)
    decisions = schedule(story.state, story.now + 1.0)
    assert next(decisions).bindings[0].pod.name == "a-0"
    story.state.remove_pod("uid-b-0")
    list(decisions)
    invariants.check(story.state)


def test_a_job_of_which_nothing_is_recorded_resumes():
    story = Story()
    story.intend("ns/bare", Target("Suspended", 7, ("uid-job-bare",)))
    story.step()
    assert [(each.group, each.epoch, each.pods) for each in story.resumed] == [("ns/bare", 8, ())]
    story.step()
    assert len(story.resumed) == 1


def test_placeholders_are_not_taken_for_members_that_succeeded_before():
    """They are named after the group, as members may be: what has succeeded counts on."""
    story = Story()
    story.group("train", 4)
    story.submit("train", 4, group="train")
    story.step()
    story.state.upsert_pod(worker("train", 1, group="train", at="n", finished=True, succeeded=5.0))
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()
    story.delete("train")
    story.step()
    assert len(story.placeholders()) == 3
    story.state.remove_pod("uid-high")
    story.step()
    assert [len(each.pods) for each in story.resumed] == [3]


def test_a_target_state_that_could_not_be_withdrawn_is_withdrawn_again():
    """Else an operator that comes back suspends a job that is no longer to be suspended."""
    story = Story()
    story.submit("low", 1, gpus=4)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()
    (lost,) = [each for each in run(story.state, story.now + 61.0) if isinstance(each, Resume)]
    assert story.state.next_due <= story.now + 122.0
    (again,) = [each for each in run(story.state, story.now + 122.0) if isinstance(each, Resume)]
    assert (again.group, again.epoch) == (lost.group, lost.epoch + 1)
    owners = story.groups[again.group].target.owners
    story.intend(again.group, Target("Running", again.epoch, owners))
    assert not [each for each in run(story.state, story.now + 400.0) if isinstance(each, Resume)]


def test_a_target_state_that_is_removed_from_its_group_ends():
    story = suspended_gang("train")
    story.state.upsert_group(msgspec.structs.replace(story.groups["ns/train"], target=None))
    story.state.remove_pod("uid-high")
    assert not [each for each in run(story.state, 60.0) if isinstance(each, Resume)]
    assert (story.placeholders(), story.state.suspended.targets) == ([], {})
    invariants.check(story.state)


def test_a_gang_that_grew_while_places_are_reserved_for_it_starts_whole():
    """Reserved places are admitted for no pod yet: the size that its PodGroup has now counts."""
    story = Story(node("n", gpus=4))
    story.group("g", 2)
    story.submit("low", 2, group="g")
    story.step()
    story.displace("low")
    story.state.remove_pod("uid-high")
    story.step()
    assert len(story.resumed) == 1
    story.groups["ns/g"] = msgspec.structs.replace(story.groups["ns/g"], min_member=3)
    story.state.upsert_group(story.groups["ns/g"])
    story.submit("low", 2, group="g", created=50.0)
    for _ in range(200):
        story.step()
        assert story.running() == []
    story.state.upsert_pod(worker("low", 2, group="g", created=50.0))
    story.step()
    story.step()
    assert story.running() == ["low-0", "low-1", "low-2"]


ROLES = "fairlead.dev/roles-digest"


@pytest.mark.parametrize("moment", ["while pods leave", "while it waits", "while places are kept"])
def test_what_stands_in_for_roles_that_a_job_has_no_more_gives_way_to_its_pods(moment):
    story = Story(node("n", gpus=4))
    story.group("g", 2)
    story.groups["ns/g"] = msgspec.structs.replace(story.groups["ns/g"], roles="old")
    story.state.upsert_group(story.groups["ns/g"])
    story.submit("low", 2, group="g", gpus=2, labels=((ROLES, "old"),), created=3.0)
    story.step()
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()

    def edited():
        story.groups["ns/g"] = msgspec.structs.replace(story.groups["ns/g"], roles="new")
        story.state.upsert_group(story.groups["ns/g"])

    if moment == "while pods leave":
        edited()
    story.delete("low")
    story.step()
    if moment == "while it waits":
        assert len(story.placeholders()) == 2
        edited()
    if moment == "while places are kept":
        story.state.remove_pod("uid-high")
        story.step()
        assert len(story.resumed) == 1
        edited()
    story.step()
    story.step()
    assert story.placeholders() == []
    assert [each.epoch for each in story.resumed] == [2]
    assert story.state.suspended.targets == {}
    story.submit("low", 4, group="g", labels=((ROLES, "new"),), created=50.0)
    story.state.upsert_pod(pod("later", gpus=4, created=60.0))
    story.state.remove_pod("uid-high")
    story.step()
    story.step()
    assert story.running() == ["low-0", "low-1", "low-2", "low-3"]


def test_pods_are_found_by_their_owners_as_a_scan_finds_them():
    rnd = random.Random(5)
    state = cluster([node("n", gpus=64)])
    for number in range(400):
        name = f"p{rnd.randint(0, 30)}"
        if rnd.random() < 0.3:
            state.remove_pod(f"uid-{name}")
        else:
            state.upsert_pod(pod(name, at=rnd.choice(["", "n"]), created=float(number), owner=rnd.choice(["", "a", "b", "c"])))
        for owner in "abc":
            scanned = {uid for uid, task in state.tasks.items() if task.pod.owner == owner}
            assert {task.pod.uid for task in state.tables.owned.of([owner])} == scanned


@pytest.mark.parametrize("of", ["queue", "group"])
def test_a_job_in_a_queue_of_another_release_is_evicted_and_its_target_is_left_alone(of):
    """The tree of its queue, or its PodGroup, was given to another release of Fairlead while it ran."""
    story = Story(queues=[Queue("default"), Queue("moved")])
    if of == "group":
        story.group("low", 2)
    story.submit("low", 2, group="low" if of == "group" else "", queue="moved" if of == "queue" else "default", gpus=2)
    assert len(placed(story.step())) == 2
    if of == "queue":
        story.state.upsert_queue(Queue("moved", elsewhere="scheduler 'blue'"))
    else:
        story.state.upsert_group(msgspec.structs.replace(story.groups["ns/low"], ours=False))
    tasks = list(story.state.tasks.values())
    assert not any(story.state.suspended.suspendable(task) for task in tasks)
    assert story.state.suspended.ask(tasks, story.now) == ()
    story.state.upsert_queue(Queue("moved"))
    if of == "group":
        story.state.upsert_group(story.groups["ns/low"])
    assert all(story.state.suspended.suspendable(task) for task in tasks)


class World(Story):
    """Jobs of a class that is suspended, gangs among them, and urgent pods that come and go. The operator acts late; the job
    controller makes pods late. At rest the scheduler is started anew at times: it stops and resumes nothing then, and reserves the same places.
    """

    def __init__(self, seed):
        self.rnd = random.Random(f"suspended {seed}")
        super().__init__(
            *(node(f"n{each}", gpus=4) for each in range(self.rnd.randint(1, 3))), reservations=0, moves_per_minute=0.0
        )
        self.sizes, self.number, self.counts = {}, 0, Counter()

    def come(self):
        self.number += 1
        job, size = f"j{self.number}", self.rnd.randint(1, 3)
        self.sizes[job] = size, self.rnd.choice([1, 1, 2]), job if size > 1 and self.rnd.random() < 0.5 else ""
        if self.sizes[job][2]:
            self.group(job, size)
        self.make(job)

    def make(self, job, count=None):
        size, gpus, group = self.sizes[job]
        there = {task.pod.name for task in self.pods_of(job)}
        for number in [each for each in range(size) if f"{job}-{each}" not in there][:count]:
            self.number += 1
            made = worker(job, number, gpus=gpus, group=group, created=self.now)
            self.state.upsert_pod(msgspec.structs.replace(made, uid=f"uid-{self.number}"))

    def pods_of(self, job):
        return [task for task in self.state.tasks.values() if task.pod.owner == f"uid-job-{job}" and not task.pod.placeholder]

    def target(self, job):
        group = self.groups.get(f"ns/{self.sizes[job][2]}") or self.groups.get(f"ns/job-batch.{job}")
        return group.target if group is not None else None

    def urgent(self):
        self.number += 1
        gpus = self.rnd.choice([1, 2, 4])
        self.state.upsert_pod(pod(f"urgent{self.number}", priority=5, gpus=gpus, created=self.now))

    def ends(self):
        urgent = sorted(task.pod.uid for task in self.state.tasks.values() if task.pod.name.startswith("urgent"))
        if urgent:
            self.state.remove_pod(self.rnd.choice(urgent))

    def act(self):
        """The kubelets, for all that was deleted; the operator and the job controller, for some jobs, in part."""
        for uid in [uid for uid, task in self.state.tasks.items() if task.pod.terminating]:
            self.state.remove_pod(uid)
        for job in sorted(self.sizes):
            target = self.target(job)
            if self.rnd.random() < 0.5:
                continue
            if target is not None and target.state == "Suspended":
                self.delete(job)
            elif target is not None:
                self.make(job, self.rnd.choice([None, 1]))

    def pause(self):
        self.step(self.rnd.choice([1.0, 5.0, 30.0]))

    def step(self, seconds=1.0):
        decided = super().step(seconds)
        for each in decided:
            for binding in each.beneficiaries if isinstance(each, Preempt) else ():
                task = self.state.tasks[binding.pod.uid]
                if not task.pod.placeholder:
                    self.state.upsert_pod(msgspec.structs.replace(task.pod, nominated=binding.node))
            suspended = {uid for job in each.suspends for uid in job.pods} if isinstance(each, Preempt) else set()
            for victim in each.victims if isinstance(each, Preempt | Evict) else ():
                if victim.pod.uid not in suspended:
                    leaving = self.state.tasks[victim.pod.uid].pod
                    self.state.upsert_pod(msgspec.structs.replace(leaving, terminating=True, leaves=self.now + 30.0))
        return decided

    def reserved(self):
        """Where places are reserved for jobs that resume, and for pods of theirs that have come."""
        names = self.state.nodes.names
        returning = [(uid, kept) for uid, kept in self.state.in_flight.returning.items() if uid in self.state.tasks]
        there = [(self.state.tasks[uid].pod.owner, names[kept.placeholder.row]) for uid, kept in returning]
        return Counter([*there, *((task.pod.group, names[task.row]) for task in self.state.suspended.kept)])

    def acts(self, decided):
        return [each for each in decided if isinstance(each, Preempt | Evict | Place | Resume)]

    def restart_at_rest(self):
        for _ in range(4):
            if not self.acts(self.step(0.0)):
                break
        else:
            return
        if any(task.state is TaskState.WAITING and task.pod.priority for task in self.state.tasks.values()):
            return  # its search may rest, or wait for pods that are not all needed: both are not recorded
        before, held = self.reserved(), {task.pod.uid for task in self.state.tasks.values() if task.state is TaskState.HELD}
        self.counts["suspending"] += sum(bool(self.pods_of(job)) for job in self.sizes if self.suspends(job))
        self.counts["reserved"] += before.total()
        self.restart()
        found = [each for each in self.acts(self.step(0.0)) if not isinstance(each, Place)]
        assert not found, found
        assert self.reserved() == before
        assert all(self.state.tasks[uid].row >= 0 for uid in held), held

    def suspends(self, job):
        target = self.target(job)
        return target is not None and target.state == "Suspended"


def live(seed):
    world = World(seed)
    steps = (*["come"] * 2, *["urgent"] * 2, *["ends"] * 2, *["act"] * 4, *["pause"] * 4, *["restart_at_rest"] * 2)
    for _ in range(60):
        getattr(world, world.rnd.choice(steps))()
    return world.counts


@pytest.mark.parametrize("seed", range(20))
def test_a_scheduler_that_starts_anew_at_rest_stops_nothing_and_reserves_the_same(seed):
    live(seed)


def test_the_worlds_contain_what_is_judged():
    counts = sum((live(seed) for seed in range(100, 120)), Counter())
    assert min(counts["suspending"], counts["reserved"]) > 10, counts


def held_after_restart(*, epoch=1, later=0.0, lost=False):
    """A job that is suspended takes a node from `cheap`, which is leaving; another scheduler begins. Its placeholders' nodes.

    epoch: of the record of the scheduler before; later: seconds until the restart; lost: the node has another pod by then.
    """
    story = Story(node("n0", gpus=4), node("n1", gpus=4))
    like = msgspec.structs.replace(worker("mid", 0, gpus=2, priority=5), uid="", name="", suspended=1.0)
    for each in (pod("cheap", gpus=4, at="n1", started=0.0), pod("dear", gpus=4, at="n0", started=0.0, priority=9)):
        story.state.upsert_pod(each)
    story.intend("ns/job-batch.mid", Target("Suspended", 1, ("uid-job-mid",), (Member(2, like),)))
    assert preempted(story.step()) == [["cheap"]]
    recorded = kept_places(story.state)
    assert [(each.group, each.epoch, each.nodes) for each in recorded.held] == [("ns/job-batch.mid", 1, ("n1", "n1"))]
    story.state.upsert_pod(pod("cheap", gpus=4, at="n1", started=0.0, terminating=True, leaves=story.now + 600.0))
    if lost:
        story.state.upsert_pod(pod("other", gpus=1, at="n1", started=0.0, priority=9))
    story.restart()
    held = tuple(msgspec.structs.replace(each, epoch=epoch) for each in recorded.held)
    read = msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(recorded, held=held)), type=KeptPlaces)
    story.state.places_before.remember(read)
    story.step(1.0 + later)
    assert not story.state.pods.nominated, "no refusal withdraws that"
    assert story.placeholders() == ["ns/job-batch.mid-0", "ns/job-batch.mid-1"]
    tasks = [task for task in story.state.tasks.values() if task.pod.placeholder and task.state is TaskState.HELD]
    return story, [story.state.nodes.names[task.row] for task in tasks]


def test_places_that_are_held_for_a_suspended_job_are_held_again_by_the_next_scheduler():
    story, nodes = held_after_restart()
    assert nodes == ["n1", "n1"]
    story.state.remove_pod("uid-cheap")
    story.step()
    assert [(each.places, each.epoch) for each in story.resumed] == [(("n1", "n1"), 2)]


@pytest.mark.parametrize("how", [{"epoch": 2}, {"later": 400.0}, {"lost": True}])
def test_places_of_another_suspension_or_of_long_ago_or_that_others_have_are_not_held_again(how):
    _, nodes = held_after_restart(**how)
    assert nodes == []

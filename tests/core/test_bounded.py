"""What is remembered of jobs, queues and groups ends with them, and the purpose of the memory is still met."""

import pytest

from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.groups import Group, Target
from fairlead.core.model.transactions import Preempt, Resume
from tests.builders import cluster, held, node, pod, queue, refused, run, settle
from tests.core.test_belonging import evicted
from tests.core.test_suspended import Story

JOBS = 1000


class Plays(Story):
    """A world without checks after each pass, which is played for long. writes: whether target states can be written."""

    writes = True

    def submit_and_displace(self, job):
        self.submit(job, 2, gpus=2, created=self.now)
        self.step()
        self.state.upsert_pod(pod("high", priority=5, gpus=4, created=self.now))
        decided = self.step()
        (plan,) = [each for each in decided if isinstance(each, Preempt)]
        (asked,) = plan.suspends
        return asked

    def step(self, seconds=1.0):
        self.now += seconds
        decided = run(self.state, self.now)
        for each in decided:
            if isinstance(each, Preempt) and self.writes:
                for job in each.suspends:
                    self.intend(job.group, Target("Suspended", job.epoch, tuple(uid for _, uid in job.owners), job.members))
            elif isinstance(each, Resume) and each.group in self.groups:
                old = self.groups[each.group].target
                self.intend(each.group, Target("Running", each.epoch, old.owners if old else ()))
            for binding in getattr(each, "bindings", ()):
                self.state.pods.bound(binding.pod.uid)
        return decided

    def discard(self, key):
        self.groups.pop(key)
        self.state.remove_group(key)


def resumes(story, job, asked):
    """It resumes, its pods come, and its PodGroup is deleted before they end."""
    story.delete(job)
    story.step()
    story.state.remove_pod("uid-high")
    story.step()
    story.submit(job, 2, gpus=2, created=story.now)
    story.step()
    story.discard(asked.group)


def resumes_late(story, job, asked):
    """Its PodGroup is deleted while places are reserved for its pods, which come then."""
    story.delete(job)
    story.step()
    story.state.remove_pod("uid-high")
    story.step()
    story.discard(asked.group)
    story.submit(job, 2, gpus=2, created=story.now)
    story.step()


def is_deleted(story, job, asked):
    """It is deleted while it is suspended."""
    story.delete(job)
    story.step()
    story.discard(asked.group)


def was_not_written(story, job, asked):
    """The target state could not be written, and is withdrawn."""
    story.state.evictions.failed(f"uid-{job}-0", story.now)
    story.state.remove_pod("uid-high")
    story.step(61.0)
    story.step(61.0)


def is_resumed_by_its_user(story, job, asked):
    story.delete(job)
    story.step()
    story.submit(job, 2, gpus=2, created=story.now)
    story.step()
    story.discard(asked.group)


@pytest.mark.parametrize("ends", [resumes, resumes_late, is_deleted, was_not_written, is_resumed_by_its_user])
def test_nothing_is_kept_of_suspended_jobs_that_are_gone(ends):
    story = Plays()
    story.writes = ends is not was_not_written
    kept = story.state.suspended
    for number in range(JOBS // 5):
        job = f"j{number}"
        asked = story.submit_and_displace(job)
        ends(story, job, asked)
        story.state.remove_pod("uid-high")
        story.delete(job)
        story.step(200.0)
        maps = {name: len(each) for name, each in vars(kept).items() if isinstance(each, dict | set)}
        assert max(maps.values()) <= 2, (number, maps)
    story.step(200.0)
    assert not any(each for each in vars(kept).values() if isinstance(each, dict | set))


def test_a_job_whose_group_was_deleted_is_suspended_under_a_later_epoch():
    """Its object may carry the mark of the first suspension still, and heeds only what came after that."""
    story = Plays()
    asked = story.submit_and_displace("low")
    story.delete("low")
    story.step()
    story.discard(asked.group)
    story.state.remove_pod("uid-high")
    story.step(500.0)
    again = story.submit_and_displace("low")
    assert (again.group, again.epoch > asked.epoch) == (asked.group, True)


def test_nothing_is_kept_of_queues_that_waited_behind_budgets():
    state = cluster([node("n")], [queue("borrow", quota=0)], [pod("b", "borrow", at="n", gpus=8)])
    state.upsert_budget(DisruptionBudget("ns", "all", ()))
    settle(state)
    most = 0
    for number in range(JOBS):
        name, now = f"q{number}", 10.0 * number
        state.upsert_queue(queue(name, quota=8))
        state.upsert_pod(pod("v", name, gpus=8, created=now))
        assert refused(run(state, now))["v"].code.value == "DisruptionBudget"
        state.remove_pod("uid-v")
        state.remove_queue(name)
        most = max(most, len(state.overrides._since))
    assert most <= (2 * 600.0 + 60.0) / 10.0 + 2


def test_a_queue_that_waits_on_is_not_forgotten():
    """New pods in the place of those that wait begin nothing anew, though the queue's object is deleted and made again."""
    state = cluster([node("n")], [queue("vision", quota=8), queue("borrow", quota=0)], [pod("b", "borrow", at="n", gpus=8)])
    state.upsert_budget(DisruptionBudget("ns", "all", ()))
    settle(state)
    for number in range(2):
        now = 500.0 * number
        state.upsert_pod(pod(f"v{number}", "vision", gpus=8, created=now))
        run(state, now)
        state.remove_pod(f"uid-v{number}")
        state.remove_queue("vision")
        state.upsert_queue(queue("vision", quota=8))
    state.upsert_pod(pod("v", "vision", gpus=8, created=601.0))
    assert [each for each in run(state, 601.0) if isinstance(each, Preempt)]


def test_nothing_is_kept_of_groups_that_are_gone_with_their_pods():
    state = cluster([node("n")], [queue("a"), queue("b")])
    settle(state)
    for number in range(JOBS):
        state.upsert_group(Group("ns", f"g{number}", 1, "a"))
        state.upsert_pod(pod(f"p{number}", "a", group=f"g{number}", created=number))
        settle(state, float(number))
        state.remove_group(f"ns/g{number}")
        state.remove_pod(f"uid-p{number}")
        run(state, number + 0.5)
        assert not state.belonging._gone


def test_a_pod_that_is_taken_down_anew_keeps_what_its_deleted_group_gave_it():
    state = cluster([node("n"), node("m")], [queue("a"), queue("b")])
    state.upsert_group(Group("ns", "g", 1, "a", time_limit=50.0))
    state.upsert_pod(pod("p", "a", group="g"))
    settle(state)
    state.remove_group("ns/g")
    run(state, 1.0)
    state.upsert_group(Group("ns", "g", 1, "b"))
    assert (held(state, "a"), held(state, "b")) == (1, 0)
    assert evicted(run(state, 51.0)) == ["p"]

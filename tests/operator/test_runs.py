"""Which failures point to the node, not the job: those of work that ran elsewhere for longer."""

import pytest

from fairlead.operator.jobs.runs import Run, Runs

T0 = 1_767_225_600.0
GPUS = "gpus"


class Story:
    """Nodes that are alike, and members that run on them."""

    def __init__(self, *nodes, alike=True):
        self.runs = Runs()
        self.now = T0
        for name in nodes:
            self.runs.node(name, "alike" if alike else name)

    def run(self, job, node, seconds, outcome, *, attempt=0, index=0, element=-1, user="ann", kind=GPUS):
        """A member that began just now and ended so many seconds later. outcome: empty: it runs on."""
        begun = Run(job, user, kind, element, "worker", index, attempt, node, self.now)
        self.runs.observed(begun)
        self.now += seconds
        if outcome:
            self.end(begun, outcome)
        return begun

    def end(self, run, outcome, at=None):
        ended = self.now if at is None else at
        done = {field: getattr(run, field) for field in run.__struct_fields__} | {"ended": ended, "outcome": outcome}
        self.runs.observed(Run(**done))
        if outcome == "Failed":
            self.runs.failed(run.job, run.element, run.attempt)

    def news(self, seconds=0.0):
        self.now += seconds
        found = self.runs.settle(self.now)
        return [(node, each.job) for node, each in found.counted], found.void


def test_a_failure_counts_once_the_same_work_ran_elsewhere_for_much_longer():
    story = Story("a", "b")
    story.run("ns/j", "a", 100, "Failed")
    assert story.news() == ([], []), "an exit code says nothing of the node"
    story.run("ns/j", "b", 0, "", attempt=1)
    assert story.news(250) == ([], []), "it may come yet"
    assert story.news(20) == ([("a", "ns/j")], [])
    assert story.news(20) == ([], []), "once"


def test_a_job_that_succeeds_elsewhere_counts_at_once():
    story = Story("a", "b")
    story.run("ns/j", "a", 1000, "Failed")
    story.run("ns/j", "b", 10, "Succeeded", attempt=1)
    assert story.runs.over("ns/j", story.now).counted[0][0] == "a"
    assert not story.runs.waits


def test_a_job_that_fails_everywhere_says_nothing_of_either_node():
    story = Story("a", "b")
    story.run("ns/j", "a", 10, "Failed")
    late = story.run("ns/j", "b", 200, "", attempt=1)
    assert story.news() == ([("a", "ns/j")], [])
    story.end(late, "Failed")
    assert story.news() == ([], [("a", "ns/j")]), "it was taken back"
    story.run("ns/j", "c", 900, "", attempt=2)
    assert story.news(900) == ([], [])
    assert not story.runs.waits


def test_a_job_that_runs_on_the_node_as_well_says_nothing():
    story = Story("a", "b")
    story.run("ns/j", "a", 10, "Failed")
    story.run("ns/j", "a", 200, "", attempt=1)
    assert story.news() == ([], [])
    assert not story.runs.waits


def test_a_job_that_always_lands_on_the_same_node_says_nothing():
    story = Story("a", "b")
    for attempt in range(4):
        story.run("ns/j", "a", 10, "Failed", attempt=attempt)
    assert story.news(900) == ([], [])
    assert story.runs.over("ns/j", story.now) == ([], [])


def test_several_failures_on_one_node_count_once_when_it_then_runs_elsewhere():
    story = Story("a", "b")
    story.run("ns/j", "a", 10, "Failed")
    story.run("ns/j", "a", 50, "Failed", attempt=1)
    story.run("ns/j", "b", 150, "", attempt=2)
    assert story.news() == ([], []), "longer than it had run the second time"
    assert story.news(20) == ([("a", "ns/j")], [])


def test_an_earlier_attempt_elsewhere_vouches_as_well():
    story = Story("a", "b")
    story.run("ns/j", "b", 5000, "Stopped")
    story.run("ns/j", "a", 10, "Failed", attempt=1)
    assert story.news() == ([("a", "ns/j")], [])


def test_of_a_gang_only_who_failed_first_counts_and_others_of_its_node_do_not():
    story = Story("a", "b", "c")
    gang = [story.run("ns/g", node, 0, "", index=index) for index, node in enumerate("abc")]
    story.now += 100
    story.end(gang[1], "Failed", at=story.now)
    story.end(gang[0], "Failed", at=story.now + 5)
    story.end(gang[2], "Stopped", at=story.now + 9)
    for index, node in enumerate("aac"):
        story.run("ns/g", node, 0, "", index=index, attempt=1)
    assert story.news(400) == ([("b", "ns/g")], [])


def test_who_failed_first_is_not_known_where_several_nodes_members_ended_in_one_second():
    story = Story("a", "b", "c")
    gang = [story.run("ns/g", node, 0, "", index=index) for index, node in enumerate("ab")]
    story.now += 100
    for each in gang:
        story.end(each, "Failed")
    for index in range(2):
        story.run("ns/g", "c", 0, "", index=index, attempt=1)
    assert story.news(900) == ([], [])


def test_another_member_does_not_vouch():
    story = Story("a", "b")
    story.run("ns/g", "a", 10, "Failed", index=0)
    story.run("ns/g", "b", 900, "", index=1, attempt=1)
    assert story.news() == ([], [])


def test_nodes_of_other_kinds_are_not_compared():
    story = Story("t4", "h100", alike=False)
    story.run("ns/j", "t4", 10, "Failed")
    story.run("ns/j", "h100", 900, "Succeeded", attempt=1)
    assert story.news() == ([], []), "it may need more memory"


def test_elements_are_judged_by_themselves_and_an_array_counts_once_a_node():
    story = Story("a", "b")
    for element in range(3):
        story.run("ns/sweep", "a", 70, "Failed", element=element)
    story.run("ns/sweep", "b", 900, "Succeeded", element=0, attempt=1)
    story.run("ns/sweep", "b", 900, "Succeeded", element=1, attempt=1)
    story.run("ns/sweep", "b", 70, "Failed", element=2, attempt=1)
    assert story.news() == ([("a", "ns/sweep")], [])


def test_what_takes_several_jobs_with_it_at_once_is_one_failure():
    story = Story("a", "b")
    eight = [story.run(f"ns/j{number}", "a", 0, "", user=f"user-{number}") for number in range(8)]
    story.now += 100
    for each in eight:
        story.end(each, "Failed", at=story.now + eight.index(each))
    for number in range(8):
        story.run(f"ns/j{number}", "b", 0, "", attempt=1, user=f"user-{number}")
    counted, _ = story.news(600)
    assert counted == [("a", "ns/j0")]


def test_a_released_node_starts_anew():
    story = Story("a", "b")
    story.run("ns/j", "a", 100, "Failed")
    story.run("ns/j", "b", 0, "", attempt=1)
    story.runs.forget("a")
    assert story.news(900) == ([], [])


def share(story, **more):
    story.run("ns/last", "n0", 20, "Failed", **more)
    story.run("ns/last", "n1", 900, "", attempt=1, **more)
    ((_, failure),) = story.runs.settle(story.now).counted
    return failure.share


@pytest.mark.parametrize(("on", "least", "most"), [(range(10), 0.08, 0.2), ([0], 0.9, 1.0), ([0, 1], 0.4, 0.6)])
def test_the_share_is_the_part_of_comparable_runs_that_was_there(on, least, most):
    story = Story(*(f"n{number}" for number in range(10)))
    for number in range(40):
        story.run(f"ns/j{number}", f"n{on[number % len(on)]}", 60, "Succeeded", user=f"user-{number % 7}")
    assert least <= share(story) <= most


def test_runs_that_ask_for_nodes_in_another_way_are_not_comparable():
    story = Story(*(f"n{number}" for number in range(10)))
    for number in range(40):
        story.run(f"ns/j{number}", f"n{number % 10}", 60, "Succeeded")
    assert share(story, kind="gpus 1234") > 0.4, "of this kind only that one run is known"


def test_who_has_always_run_there_is_expected_to_fail_there():
    story = Story(*(f"n{number}" for number in range(10)))
    for number in range(40):
        user = "bob" if number % 10 == 0 else "ann"
        story.run(f"ns/j{number}", f"n{number % 10}", 60, "Succeeded", user=user)
    assert share(story, user="bob") > 2 * 0.1


def test_attempts_after_a_failure_are_not_compared_with_first_ones():
    story = Story(*(f"n{number}" for number in range(10)))
    for number in range(20):  # all are tried on n0 first, and run elsewhere if they fail there
        story.run(f"ns/j{number}", "n0", 20, "Failed")
        story.run(f"ns/j{number}", f"n{1 + number % 9}", 60, "Succeeded", attempt=1)
        story.runs.over(f"ns/j{number}", story.now)
    assert share(story) > 0.9, "by its place alone none of these tells the node from the jobs"


def test_jobs_that_run_well_on_a_node_are_counted_from_its_first_failure_on():
    story = Story("a", "b")
    story.run("ns/before", "a", 500, "Succeeded")
    story.run("ns/j", "a", 10, "Failed")
    story.run("ns/j", "b", 100, "Succeeded", attempt=1)
    story.news()
    assert story.runs.passed("a", story.now) == 0
    story.run("ns/good", "a", 30, "Succeeded")
    story.run("ns/runs", "a", 70, "")
    assert story.runs.passed("a", story.now) == 1
    assert story.runs.passed("a", story.now + 20) == 2, "longer than twice what failed, and a minute"


def test_an_array_of_many_elements_is_not_remembered():
    story = Story("a", "b")
    for element in range(1000):
        story.run("ns/sweep", "a", 1, "Succeeded", element=element)
    assert len(story.runs._jobs["ns/sweep"].over) == 0

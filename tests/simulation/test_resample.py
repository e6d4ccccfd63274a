from collections import Counter

import pytest

from fairlead.simulation import jobs
from fairlead.simulation.resample import DAY, resample
from fairlead.simulation.traces import TraceJob

QUEUES = ("a", "b", "c")


def trace(days=6, first=0.0):
    """Jobs whose run time names their day and whose queue has a time of day of its own; `c` has jobs on one day only."""
    return [
        TraceJob(f"{queue}-{day}-{number}", first + day * DAY + 3600 * place + number, 100.0 + day, 1 + number, queue)
        for day in range(days)
        for place, queue in enumerate(QUEUES)
        for number in range(3)
        if queue != "c" or day == 2
    ]


def days_of(table, queue):
    """By day of the month, the source days of a queue's jobs (identified by their run times)."""
    found = {}
    for job in table:
        if job.queue == queue:
            found.setdefault(int(job.submitted // DAY), []).append(int(job.duration) - 100)
    return found


def test_whole_days_of_each_queue_are_drawn_with_replacement():
    table = resample(trace(), seed=3, days=40)
    assert [job.submitted for job in table] == sorted(job.submitted for job in table)
    assert len({job.name for job in table}) == len(table)
    drawn = {queue: days_of(table, queue) for queue in QUEUES}
    for queue in ("a", "b"):
        assert set(drawn[queue]) == set(range(40)), "no day of it is empty, so none is here"
        assert all(len(sources) == 3 and len(set(sources)) == 1 for sources in drawn[queue].values()), "a day stays together"
        assert len({sources[0] for sources in drawn[queue].values()}) > 3
    assert drawn["a"] != drawn["b"], "each queue by itself"
    assert 0 < len(drawn["c"]) < 20, "days on which a queue has no jobs are drawn, too"
    assert {job.submitted % DAY // 3600 for job in table if job.queue == "b"} == {1.0}, "the time of day is kept"


def test_the_same_seed_gives_the_same_month_and_another_seed_another():
    assert resample(trace(), 1, 30) == resample(trace(), 1, 30)
    assert resample(trace(), 1, 30) != resample(trace(), 2, 30)
    without = [job for job in trace() if job.queue != "b"]
    kept = [(job.submitted, job.duration, job.queue) for job in resample(trace(), 1, 30) if job.queue != "b"]
    assert kept == [(job.submitted, job.duration, job.queue) for job in resample(without, 1, 30)], "queues have their own draws"
    assert resample([], 1, 30) == []


def test_a_trace_that_begins_late_is_moved_to_the_start():
    late = resample(trace(first=5 * DAY + 77), 1, 10)
    assert [(job.submitted, job.duration) for job in late] == [(job.submitted, job.duration) for job in resample(trace(), 1, 10)]


def test_every_policy_gets_the_same_month(traces):
    from fairlead.simulation.traces import read_jobs, read_queues

    queues = read_queues(traces / "philly" / "vc_nodes.csv")
    table = resample(read_jobs(traces / "philly" / "philly_oct_nov.csv.xz"), 1, 2)
    results = [jobs.simulate(table, nodes=60, gpus_per_node=8, policy=policy, queues=queues) for policy in ("fifo", "las")]
    assert len({(each.jobs, sum(queue.gpu_hours for queue in each.queues)) for each in results}) == 1
    assert Counter(job.queue for job in table).total() >= results[0].jobs > 500


def test_a_month_needs_days():
    with pytest.raises(ValueError, match="days"):
        resample(trace(), 1, 0)

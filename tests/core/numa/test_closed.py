"""The closed world of `bench numa`: what it counts, with a judge that is not the kubelet."""

from testbed.numa import closed


def test_a_seed_is_the_same_world_twice():
    assert closed.world(3, 6) == closed.world(3, 6)


def test_each_pod_is_tried_before_it_is_placed():
    made = closed.world(1, 12)
    for job, expected in zip(made.jobs, made.expected, strict=True):
        assert len(job["steps"]) == len(expected)
        tried = [step["try"] for step in job["steps"] if "try" in step]
        assert all(step["admit"] in tried for step in job["steps"] if "admit" in step)
    assert made.placed == sum(kind == "admit" for each in made.expected for kind, _ in each)


def test_refusals_and_missed_nodes_are_counted(monkeypatch):
    """A judge that refuses every placement, and one that admits every trial."""

    def refusing(jobs):
        return [{"version": "v0", "verdicts": [{"admitted": "try" in step} for step in job["steps"]]} for job in jobs]

    monkeypatch.setattr(closed.judge, "ask", refusing)
    result = closed.run(25, 0)
    assert result.refused_by_kubelet == result.placed > 0
    assert result.missed > 0
    assert result.judge == "v0"

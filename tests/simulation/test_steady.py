"""The everyday of a large cluster, small: what ends is replaced, and nothing is lost."""

from fairlead.simulation.steady import Sizes, run

SMALL = Sizes(nodes=5, pods=60, classes=4, queues=12, users=5, rate=10.0, settling=2.0, seconds=3.0, seed=3)


def test_what_ends_is_replaced_and_it_is_the_same_every_time():
    ticks = []
    first = run(SMALL, lambda done, total: ticks.append((done, total)))
    assert 20 <= first.ended <= 30  # less what was to end and was evicted
    assert abs(first.placed - first.ended - first.evicted) <= 10  # all GPUs are taken; of the last ticks not all are replaced yet
    assert first.pass_ms_p50 <= first.pass_ms_p99 <= first.pass_ms_max
    assert ticks[-1] == (50, 50)
    again = run(SMALL)
    assert (again.placed, again.ended) == (first.placed, first.ended)

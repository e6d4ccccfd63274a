"""How long a job may run: the smaller of its own limit and its group's, and no longer than its class allows."""

import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.groups import Group
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict
from tests.builders import cluster, node, pod, run


def ends_at(own=0.0, groups=0.0, default=0.0, longest=0.0):
    """When a pod that starts at 0 is ended, to ten seconds; None: not within 200 s."""
    state = cluster([node("n")])
    state.upsert_class(ServiceClass("c", time_limit=default, longest=longest))
    if groups:
        state.upsert_group(Group("ns", "g", 1, time_limit=groups))
    state.upsert_pod(pod("p", group="g" if groups else "", time_limit=own, service_class="c", at="n", started=0.0))
    for now in range(0, 201, 10):
        ended = [each for each in run(state, float(now)) if isinstance(each, Evict)]
        if ended:
            assert [each.reason.code for each in ended] == [ReasonCode.TIME_LIMIT]
            return now
    return None


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        ({}, None),
        ({"own": 100.0}, 100),
        ({"groups": 50.0}, 50),
        ({"own": 100.0, "groups": 50.0}, 50),
        ({"own": 50.0, "groups": 100.0}, 50),
        ({"default": 70.0}, 70),
        ({"own": 100.0, "default": 70.0}, 100),
        ({"longest": 80.0}, 80),
        ({"own": 100.0, "longest": 80.0}, 80),
        ({"own": 60.0, "longest": 80.0}, 60),
    ],
)
def test_the_smallest_limit_ends_a_job(given, ends):
    assert ends_at(**given) == ends

"""How many members an AIJob may have: the definition counts them over its roles, elastic ones at their most."""

import asyncio

import pytest

from fairlead.api import crds
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.errors import StatusError

MOST = 10_000
ELASTIC = {"minReplicas": 1, "replicas": 1}
ROLES = {
    "one role": lambda count: [{"replicas": count}],
    "two roles": lambda count: [{"replicas": count // 2}, {"replicas": count - count // 2}],
    "a role that says nothing": lambda count: [{"replicas": count - 1}, {}],
    "an elastic role": lambda count: [{**ELASTIC, "maxReplicas": count}],
    "an elastic role beside another": lambda count: [{**ELASTIC, "maxReplicas": count - 7}, {"replicas": 7}],
}
"""Roles that come to so many members."""


def job(what, count, **spec):
    """An AIJob of `count` members."""
    roles = [{"name": f"role-{number}", "template": {}, **role} for number, role in enumerate(ROLES[what](count))]
    metadata = {"name": "many", "namespace": "default"}
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "AIJob",
        "metadata": metadata,
        "spec": {"roles": roles, **spec},
    }


@pytest.fixture
async def api():
    made = ApiServer(Clock(start=1e9, loop=asyncio.get_running_loop()), seed=1)
    for definition in crds.definitions():
        made.create(made.served("apiextensions.k8s.io/v1", "customresourcedefinitions"), "", definition)
    return made


@pytest.mark.parametrize("spec", [{}, {"array": {"indexes": "0-3"}}])
@pytest.mark.parametrize("what", ROLES)
async def test_ten_thousand_members_are_taken_and_one_more_is_refused(api, what, spec):
    jobs = api.served("fairlead.dev/v1alpha1", "aijobs")
    with pytest.raises(StatusError) as refused:
        api.create(jobs, "default", job(what, MOST + 1, **spec))
    assert refused.value.code == 422
    api.create(jobs, "default", job(what, MOST, **spec))

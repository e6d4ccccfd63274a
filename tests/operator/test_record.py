"""What is written of a job: nothing where its status is as it was read."""

import asyncio

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob, AIJobStatus
from fairlead.api.kinds.common import Condition
from fairlead.api.kinds.rules import strict
from fairlead.operator.jobs.record import begins_again, counts_only, same
from tests.operator import builders
from tests.operator.worlds import in_a_world


def as_read(status):
    """A status as informers read it."""
    written = msgspec.structs.replace(builders.job(1), status=status)
    return msgspec.json.decode(msgspec.json.encode(written), type=strict(AIJob)).status


@pytest.mark.parametrize("changes", [{}, {"running": 3, "succeeded": 1}, {"phase": "Running"}, {"attempt": 2}, {"message": "m"}])
def test_a_status_that_was_read_is_compared_by_its_values(changes):
    condition = Condition(type="Accepted", status="True", reason="Accepted", last_transition_time="2026-01-01T00:00:05Z")
    status = AIJobStatus(phase="Pending", attempt=1, conditions=[condition])
    now = msgspec.structs.replace(status, **changes)
    for before in (status, as_read(status)):
        assert same(before, now) == (not changes)
        assert counts_only(before, now) == (not {"phase", "attempt", "message"} & changes.keys())
        assert begins_again(before, now) == ("attempt" in changes)


def test_a_job_of_which_nothing_has_changed_is_not_written():
    written = []

    async def story(world, operator):
        template = {"spec": {"containers": [{"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
        spec = {"roles": [{"name": "worker", "template": template}]}
        job = {"apiVersion": names.API_VERSION, "kind": "AIJob", "metadata": {"name": "j", "namespace": "vision"}, "spec": spec}
        world.create(job, "vision")
        await asyncio.sleep(60.0)
        version = operator.jobs.cache.jobs["vision/j"].metadata.resource_version
        for _ in range(3):
            operator.jobs._again("vision/j")
            await asyncio.sleep(60.0)
        written.append((version, operator.jobs.cache.jobs["vision/j"].metadata.resource_version))

    in_a_world(story)
    [(before, after)] = written
    assert before == after

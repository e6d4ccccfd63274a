"""What is learned of pairs, in a Lease of its own: the next leader reads it before all else, and what is wrong there is nothing."""

import asyncio
import json

import msgspec
import pytest
from structlog.testing import capture_logs

from fairlead.api import names
from fairlead.cluster.kubernetes.client import Unreachable
from fairlead.cluster.kubernetes.kept_speeds import KeptSpeeds
from fairlead.cluster.simulated.faults import Fault
from fairlead.core.pairs.learned import NOTHING_LEARNED, LearnedKind, LearnedSpeeds
from tests.cluster.test_lease import Story, virtual

NAME = names.lease_of_speeds(names.FIRST_RELEASE)
KEY = ("kube-system", NAME)
LEASES = "coordination.k8s.io/leases"
LEARNED = LearnedSpeeds((LearnedKind("a", 10.0, 9.0), LearnedKind("b", None, 8.0)), ((0, 1, 9.0), (1, 0, 8.0)), ((0, 0),))
NAMED = {names.PAIR_SPEEDS_IN_ANNOTATION: NAME}


def kept(story, annotations):
    found = KeptSpeeds(story.client, *KEY)
    if annotations is not None:
        found.take_over(annotations)
    return found


def lease(story, text, **more):
    body = {
        "metadata": {"name": NAME, "namespace": KEY[0], "annotations": {names.PAIR_SPEEDS_ANNOTATION: text, **more}},
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
    }
    story.api.create(story.api.served("coordination.k8s.io/v1", "leases"), KEY[0], body)


def annotations(story):
    return story.api.store.get(LEASES, KEY).object["metadata"]["annotations"]


def test_the_next_leader_reads_what_was_written_last():
    async def story():
        async with Story() as each:
            before, told = kept(each, {}), []
            before.named = lambda: told.append(before.annotations())
            assert before.annotations() == {names.PAIR_SPEEDS_IN_ANNOTATION: None}
            assert await before.read() == NOTHING_LEARNED
            await before.write(NOTHING_LEARNED)
            await before.write(LEARNED)
            assert told == [NAMED], "a renewal names it, once"
            after = kept(each, NAMED)
            assert after.annotations() == NAMED, "it may be killed before it has learned anything"
            assert await after.read() == LEARNED

    virtual(story)


def test_nothing_is_asked_where_the_lease_names_nothing_and_nothing_written_without_one():
    async def story():
        async with Story() as each:
            lease(each, msgspec.json.encode(LEARNED).decode())
            assert await kept(each, {}).read() == NOTHING_LEARNED
            each.api.store.remove(LEASES, KEY)
            await kept(each, None).write(LEARNED)
            assert each.api.store.get(LEASES, KEY) is None
            assert await kept(each, NAMED).read() == NOTHING_LEARNED, "it was deleted"

    virtual(story)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"kinds": [["a", "fast"]]}',
        '{"kinds": [["a", -1.0]]}',
        '{"kinds": [["a", 1e999]]}',
        '{"kinds": [["a", 1.0, 1.0]], "beside": [[0, 7, 1.0]]}',
        '{"kinds": [["a", 1.0]], "stopped": [[0, 99999999999999999999999]]}',
        json.dumps({"kinds": [["x" * 140_000, 1.0]]}),
    ],
)
def test_what_cannot_be_is_a_warning_and_the_next_write_mends_it(text):
    async def story():
        async with Story() as each:
            lease(each, text, other="stays")
            speeds = kept(each, NAMED)
            with capture_logs() as logs:
                assert await speeds.read() == NOTHING_LEARNED
            assert [(line["log_level"], line["lease"]) for line in logs] == [("warning", NAME)]
            await speeds.write(LEARNED)
            assert annotations(each)["other"] == "stays"
            assert await speeds.read() == LEARNED

    virtual(story)


def test_a_server_that_does_not_answer_is_a_warning_in_seconds_and_what_it_refuses_is_written_later():
    async def story():
        async with Story() as each:
            lease(each, msgspec.json.encode(LEARNED).decode())
            speeds = kept(each, NAMED)
            each.plan.starting = Fault.FORBIDDEN
            before = each.loop.time()
            with capture_logs() as logs:
                assert await speeds.read() == NOTHING_LEARNED
                with pytest.raises(Unreachable):
                    await speeds.write(LEARNED)
            assert each.loop.time() - before < 10
            assert [line["log_level"] for line in logs] == ["warning", "warning"]
            each.plan.starting = Fault.UNAVAILABLE
            reading = asyncio.ensure_future(speeds.read())
            await asyncio.sleep(0.2)
            each.plan.starting = None
            assert await reading == LEARNED, "it is asked again"

    virtual(story)

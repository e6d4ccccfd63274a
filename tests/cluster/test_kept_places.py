"""Places of pods that do not exist, in the Lease: written soon after they change, bounded, and read by the next leader."""

import asyncio
import json

import msgspec
import pytest

from fairlead.api.names import KEPT_PLACES_ANNOTATION
from fairlead.cluster.kubernetes.kept_places import NotedPlaces
from fairlead.cluster.kubernetes.lease import Elector
from fairlead.core.model.kept_places import NO_PLACES, HeldPlaces, KeptPlaces, MovedPlace
from fairlead.core.model.pods import Pod, PodSpec
from tests.cluster.test_lease import LEASE, Story, virtual

MOVED = MovedPlace("uid-v", Pod("", "ns", "v", PodSpec((("nvidia.com/gpu", 1),), gpus=1), owner="set"), "n1", 100.0, 220.0)
HELD = HeldPlaces("ns/job-batch.train", 3, ("n0", "", "n1"), 300.0)


def noted():
    return NotedPlaces(lambda: None)


def test_the_next_leader_reads_what_was_noted():
    before, after = noted(), noted()
    before.note(KeptPlaces((MOVED,), (HELD,)))
    annotations = before.annotations()
    assert after.take_over(annotations) == KeptPlaces((MOVED,), (HELD,))
    assert after.annotations() == annotations, "it may be killed before its core has answered"
    after.note(NO_PLACES)
    assert after.annotations() == {KEPT_PLACES_ANNOTATION: None}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"moved": [{"uid": 1}]}', '{"held": "x"}'])
def test_what_cannot_be_read_is_nothing(text):
    assert noted().take_over({KEPT_PLACES_ANNOTATION: text}) == NO_PLACES
    assert noted().take_over({}) == NO_PLACES


def test_of_very_many_places_those_that_are_given_up_last_are_kept():
    moved = tuple(msgspec.structs.replace(MOVED, uid=f"uid-{number}", until=200.0 + number) for number in range(2000))
    held = tuple(msgspec.structs.replace(HELD, nodes=("n" * 63,) * 900, until=9000.0 + number) for number in range(3))
    places = noted()
    places.note(KeptPlaces(moved, held))
    text = places.annotations()[KEPT_PLACES_ANNOTATION]
    assert 95 * 1024 < len(text) <= 96 * 1024
    assert [each["until"] for each in json.loads(text)["held"]] == [9002.0]
    assert json.loads(text)["moved"][-1]["uid"] == "uid-1999"


def test_one_that_is_too_large_by_itself_is_left_out():
    places = noted()
    places.note(KeptPlaces((), (msgspec.structs.replace(HELD, nodes=("n" * 63,) * 9000),)))
    assert places.annotations() == {KEPT_PLACES_ANNOTATION: None}


def test_changed_places_are_written_before_the_next_renewal_is_due_and_not_more_often_than_allowed():
    async def story():
        async with Story() as each:
            written = []
            places = NotedPlaces(lambda: elector.renew_soon())  # noqa: PLW0108 - made below
            elector = Elector(
                each.client, namespace=LEASE[0], name="other", healthy=lambda: True, annotations=places.annotations, retry=60.0,
                renew_deadline=100.0, duration=200.0,
            )  # fmt: skip

            def stored():
                found = each.api.store.get("coordination.k8s.io/leases", (LEASE[0], "other")).object
                return (found["metadata"].get("annotations") or {}).get(KEPT_PLACES_ANNOTATION), found["spec"]["renewTime"]

            async def work():
                await each.loop.create_future()

            leading = asyncio.ensure_future(elector.lead(work))
            await asyncio.sleep(10)
            assert stored()[0] is None
            places.note(KeptPlaces((MOVED,)))
            await asyncio.sleep(0.5)
            text, at = stored()
            assert json.loads(text)["moved"][0]["uid"] == "uid-v"
            places.note(KeptPlaces((MOVED,)))
            await asyncio.sleep(30)
            assert stored() == (text, at), "nothing has changed"
            for number in range(40):
                places.note(KeptPlaces((msgspec.structs.replace(MOVED, until=500.0 + number),)))
                await asyncio.sleep(0.05)
                written.append(stored()[1])
            assert len(set(written)) <= 10
            await asyncio.sleep(0.5)
            assert json.loads(stored()[0])["moved"][0]["until"] == 539.0
            places.note(NO_PLACES)
            await asyncio.sleep(0.5)
            assert stored()[0] is None
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)

    virtual(story)

"""The phase of a PodGroup whose pods have ended: `Succeeded`, `Failed`, and what an AIJob's end says of it."""

import msgspec
import pytest

from fairlead.api.kinds.ai_job import AIJob
from fairlead.cluster import convert, views
from fairlead.cluster.port import Gone, Synced, Upsert
from fairlead.core.model.groups import Group
from fairlead.core.model.policy import Policy
from fairlead.operator.jobs.counters import Counters
from fairlead.operator.jobs.writer import Writer
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.outputs import GroupStatus
from testbed import objects
from tests.builders import node, pod


class Story:
    """A core of which the phases of group `g` are remembered, each once."""

    def __init__(self, *events, **about):
        self.phases, self.now = [], 1000.0
        self.core = CoreLoop(Policy(), self.take)
        self.see(Upsert(node("n", gpus=8)), Upsert(Group("ns", "g", 2, **about)), *events, Synced())

    def take(self, outputs):
        for each in outputs:
            if isinstance(each, GroupStatus) and self.phases[-1:] != [each.phase]:
                self.phases.append(each.phase)

    def see(self, *events):
        self.now += 10.0
        self.core.apply(list(events), self.now)
        self.core.decide(self.now)

    def pods(self, *numbers, **about):
        self.see(*(Upsert(pod(f"g-{number}", group="g", **about)) for number in numbers))


RUNS = {"at": "n", "started": 900.0}
FAILED = {**RUNS, "finished": True}


def test_a_gang_whose_member_failed_has_failed_once_none_is_left():
    story = Story()
    story.pods(0, 1, **RUNS)
    story.pods(0, **FAILED)
    assert story.phases[-1] == "Pending", "a member is left"
    story.pods(1, **FAILED, succeeded=0.0)
    assert story.phases == ["Pending", "Scheduled", "Pending", "Failed"]
    story.see(Gone("pod", "uid-g-0"), Gone("pod", "uid-g-1"))
    assert story.phases[-1] == "Failed"
    story.pods(2, 3, **RUNS)
    assert story.phases[-1] == "Scheduled", "its controller made members again"


def test_enough_successes_are_one_whatever_failed_besides():
    story = Story()
    story.pods(0, 1, 2, **RUNS)
    story.pods(0, **FAILED)
    story.pods(1, 2, **FAILED, succeeded=1000.0)
    assert story.phases[-1] == "Succeeded"


@pytest.mark.parametrize("gone", [True, False])
def test_pods_that_are_deleted_have_not_failed(gone):
    story = Story()
    story.pods(0, 1, **RUNS)
    story.pods(0, 1, **RUNS, terminating=True)
    if not gone:
        story.pods(0, 1, **FAILED, terminating=True)
    story.see(Gone("pod", "uid-g-0"), Gone("pod", "uid-g-1"))
    assert story.phases[-1] == "Pending"


def test_the_next_scheduler_finds_it_failed():
    story = Story(Upsert(pod("g-0", group="g", **FAILED)), failed=True)
    assert story.phases == ["Failed"]
    story.pods(1, 2, **RUNS)
    assert story.phases[-1] == "Scheduled"
    assert Story(Upsert(pod("g-1", group="g")), failed=True).phases == ["Pending"], "it has a member again"


def test_the_end_of_its_aijob_counts_once_its_pods_are_gone():
    story = Story()
    story.pods(0, 1, **RUNS)
    story.see(Upsert(Group("ns", "g", 2, ended="Failed")))
    assert story.phases[-1] == "Scheduled"
    story.see(Gone("pod", "uid-g-0"), Gone("pod", "uid-g-1"))
    assert story.phases[-1] == "Failed"


def test_members_of_an_aijob_that_failed_may_be_made_again():
    story = Story(roles="digest")
    story.pods(0, 1, **RUNS)
    story.pods(0, 1, **FAILED)
    assert story.phases[-1] == "Pending", "it restarts, or is held"
    story.see(Upsert(Group("ns", "g", 2, roles="digest", ended="Failed")))
    assert story.phases[-1] == "Failed"


def test_what_is_written_is_read():
    def read(annotations, phase):
        manifest = {"metadata": {"name": "g", "namespace": "ns", "annotations": annotations}, "spec": {"minMember": 1}}
        return convert.group(msgspec.convert({**manifest, "status": {"phase": phase}}, views.PodGroup))

    found = [read({"fairlead.dev/ended": each}, "Failed") for each in ("Failed", "Succeeded", "nonsense")]
    assert [(each.ended, each.failed) for each in found] == [("Failed", True), ("Succeeded", True), ("", True)]
    assert read({}, "Pending") == read({"a": "b"}, "Scheduled")


class Api:
    def __init__(self):
        self.patches = []

    async def patch(self, path, body, kind):
        self.patches.append((path, msgspec.json.decode(body)))


def aijob_with(status, **spec):
    manifest = objects.ai_job("j", **spec)
    manifest["metadata"] |= {"namespace": "ns", "uid": "u"}
    return msgspec.convert(manifest | {"status": status}, AIJob)


def known_as(ended, owner="u"):
    """PodGroups of any name. ended: what is written on them."""
    owners = [{"kind": "AIJob", "name": "j", "uid": owner, "controller": True}]
    about = {"name": "j", "namespace": "ns", "ownerReferences": owners}
    annotations = {"fairlead.dev/ended": ended} if ended else {}
    view = msgspec.convert({"metadata": about | {"annotations": annotations}, "spec": {"minMember": 1}}, views.PodGroup)
    return lambda key: view if key.startswith("ns/j") else None


async def patched(job, known):
    api = Api()
    await Writer(api, Counters()).write_ends(job, known)
    assert all(body == {"metadata": {"annotations": body["metadata"]["annotations"]}} for _, body in api.patches)
    return {path.rpartition("/")[2]: body["metadata"]["annotations"]["fairlead.dev/ended"] for path, body in api.patches}


@pytest.mark.parametrize(
    ("phase", "policy", "written", "told"),
    [
        ("Failed", False, "", {"j": "Failed"}),
        ("Failed", False, "Failed", {}),
        ("Succeeded", True, "", {"j": "Succeeded"}),
        ("Succeeded", False, "", {}),
        ("Running", False, "", {}),
        ("Suspended", False, "", {}),
    ],
)
async def test_the_operator_reports_ends_that_pods_do_not_show(phase, policy, written, told):
    job = aijob_with({"phase": phase}, **({"successPolicy": {"roles": ["worker"]}} if policy else {}))
    assert await patched(job, known_as(written)) == told


async def test_the_operator_reports_elements_that_failed_and_touches_no_group_of_others():
    sweep = aijob_with({"phase": "Running", "failedIndexes": "0,2-3"}, array={"indexes": "0-9"})
    assert await patched(sweep, known_as("")) == {"j-0": "Failed", "j-2": "Failed", "j-3": "Failed"}
    assert await patched(sweep, known_as("Failed")) == await patched(sweep, known_as("", owner="another")) == {}
    assert await patched(sweep, lambda key: None) == {}

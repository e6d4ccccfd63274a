"""Bad hardware: what is noted on a node, and when that is enough."""

import asyncio

import msgspec
import pytest

from fairlead.operator.jobs.hardware import LOST, Failure, Hardware, Rules, _Node, noted, quarantines, shown
from fairlead.operator.jobs.members import members, pod
from tests.operator.test_plan import CONTAINER, T0, Story, job

RULES = Rules(failures=3, jobs=2, window=3600.0)


def test_what_is_noted_reads_back():
    failures = [Failure(T0, "vision/a"), Failure(T0 + 60, LOST)]
    assert shown(failures) == "2026-01-01T00:00:00Z vision/a,2026-01-01T00:01:00Z (lost)"
    assert noted(shown(failures)) == failures
    assert noted("rubbish, 2026-01-01T00:00:00Z,,x y") == []
    assert len(noted(shown([Failure(T0 + i, "vision/a") for i in range(50)]))) == 20, "the latest"


def test_several_failures_of_several_jobs_are_enough_and_one_jobs_alone_never():
    ours = [Failure(T0 + i, "vision/a") for i in range(9)]
    assert not quarantines(ours, T0 + 10, RULES)
    assert quarantines([*ours, Failure(T0 + 10, "speech/b")], T0 + 10, RULES)
    assert not quarantines([*ours, Failure(T0 + 10, "speech/b")], T0 + 3700, RULES), "only the last is within the window"
    assert not quarantines([Failure(T0, LOST), Failure(T0 + 90, "vision/b")], T0 + 90, RULES)
    assert quarantines([Failure(T0 + 100 * i, LOST) for i in range(3)], T0 + 300, RULES), "it comes and goes"


def test_failures_count_per_user_however_many_jobs_and_namespaces_he_has():
    mallory = [Failure(T0 + i, f"ns-{i % 3}/job-{i}", "mallory") for i in range(20)]
    assert not quarantines(mallory, T0 + 30, RULES)
    assert not quarantines([Failure(T0 + i, f"mal/job-{i}") for i in range(20)], T0 + 30, RULES), "the namespace is the user"
    assert quarantines([*mallory, Failure(T0 + 30, "vision/bert", "ann")], T0 + 30, RULES)
    strange = [Failure(T0, "vision/a", "o,ne %2C two"), Failure(T0 + 60, "vision/b", "system:serviceaccount:x:y")]
    assert noted(shown(strange)) == strange


class Nodes:
    """Hardware on nodes of its own, with a client that takes everything."""

    def __init__(self, nodes, gpus="8"):
        self.patched = []
        self.clock = lambda: T0 + 1000
        self.hardware = Hardware(self, lambda _: None, lambda: None, rules=RULES)
        for name, pool in nodes.items():
            metadata = {"name": name, "labels": {"fairlead.dev/pool": pool}}
            node = msgspec.convert({"metadata": metadata, "status": {"allocatable": {"nvidia.com/gpu": gpus}}}, _Node)
            self.hardware._nodes[name] = node

    async def patch(self, path, body, _):
        self.patched.append((path.rpartition("/")[2], msgspec.json.decode(body)["metadata"].get("labels")))

    async def post(self, *_):
        return b"{}"

    def fail(self, node, *users, gpus=True):
        async def story():
            return [
                await self.hardware.blame(node, f"{user}/j{place}", "exit code 1", lost=False, user=user, gpus=gpus)
                for place, user in enumerate(users)
            ]

        return asyncio.run(story())

    @property
    def quarantined(self):
        return sorted(name for name, each in self.hardware._nodes.items() if "fairlead.dev/quarantined" in each.metadata.labels)


@pytest.mark.parametrize(("size", "most"), [(1, 0), (2, 1), (4, 1), (10, 1), (29, 2), (40, 4)])
def test_at_most_a_tenth_of_a_pool_is_quarantined(size, most):
    nodes = Nodes({**{f"n{each}": "h100" for each in range(size)}, "other": "a100", "another": "a100"})
    for each in range(size):
        nodes.fail(f"n{each}", "ann", "mallory", "ann", "mallory")
    assert len(nodes.quarantined) == most
    nodes.fail("other", "ann", "mallory", "ann")
    assert nodes.quarantined[-1:] == ["other"], "one pool's do not count for another's"


def test_a_job_without_gpus_says_nothing_of_a_node_with_gpus():
    nodes = Nodes({"n1": "h100", "n2": "h100"})
    nodes.fail("n1", "ann", "mallory", "ann", "mallory", gpus=False)
    assert (nodes.quarantined, nodes.patched) == ([], [])
    without = Nodes({"n1": "cpu", "n2": "cpu"}, gpus="0")
    without.fail("n1", "ann", "mallory", "ann", gpus=False)
    assert without.quarantined == ["n1"]


def test_who_failed_by_itself_blames_its_node_and_who_was_taken_down_with_it_does_not():
    story = Story(job(workers=3)).run()
    story.set("worker-1", phase="Failed", exit_code=1, node="bad")
    story.set("worker-2", phase="Failed", disrupted=True, node="other")
    (blame,) = story.look().blamed
    assert (blame.node, blame.why, blame.lost) == ("bad", "bert-worker-1-0: exit code 1", False)
    story = Story(job(workers=2)).run()
    story.set("worker-0", phase="Failed", reason="NodeLost", disrupted=True, node="gone")
    (blame,) = story.look().blamed
    assert (blame.node, blame.lost) == ("gone", True)
    story = Story(job(workers=2)).run()
    story.set("worker-0", phase="Failed", disrupted=True, exit_code=143, node="n")
    assert story.look().blamed == (), "it was evicted"


def test_gangs_are_kept_off_quarantined_nodes_beside_what_their_template_says():
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
                    {"matchFields": []},
                ]
            }
        }
    }
    template = {"spec": {"affinity": affinity, "containers": [CONTAINER]}}
    gang = job(roles=[{"name": "worker", "replicas": 2, "template": template}])
    made = pod(gang, gang.spec.roles[0], members(gang)[0], 0)
    terms = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    off = {"key": "fairlead.dev/quarantined", "operator": "DoesNotExist"}
    assert [term["matchExpressions"][-1] for term in terms] == [off, off]
    assert terms[0]["matchExpressions"][0]["key"] == "zone"
    single = job(workers=1)
    assert "affinity" not in pod(single, single.spec.roles[0], members(single)[0], 0)["spec"]

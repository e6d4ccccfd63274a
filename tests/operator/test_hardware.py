"""Bad hardware: what is noted on a node, when gangs are kept off it, and when that is forgotten."""

import asyncio

import msgspec
import pytest

from fairlead.cluster.translate import Change
from fairlead.observability.prometheus import PrometheusError
from fairlead.operator.jobs.device_errors import DeviceErrors, question
from fairlead.operator.jobs.evidence import RAN_ELSEWHERE, Failure, Rules, noted, shown
from fairlead.operator.jobs.hardware import Hardware, _Node
from fairlead.operator.jobs.members import members, pod
from fairlead.operator.jobs.runs import News
from tests.operator.builders import CONTAINER, T0, Story, job

RULES = Rules(failures=3, jobs=2, window=3600.0)
LABEL, FAILURES = "fairlead.dev/quarantined", "fairlead.dev/failures"


class Nodes:
    """Hardware on nodes of its own, with a client that takes everything."""

    def __init__(self, nodes, gpus="8"):
        self.patched = []
        self.now = T0 + 1000
        self.clock = lambda: self.now
        self.hardware = Hardware(self, lambda _: None, lambda: None, rules=RULES)
        self.pools = dict(nodes)
        self.gpus = gpus
        self.version = 0
        for name in nodes:
            self.say(name)

    def say(self, name, labels=None, annotations=None):
        """What the API server reports of a node."""
        self.hardware._nodes[name] = node = self.node(name, labels, annotations)
        self.hardware.runs.node(name, node.group)

    def node(self, name, labels, annotations):
        self.version += 1
        metadata = {"name": name, "labels": {"fairlead.dev/pool": self.pools[name], **(labels or {})}}
        metadata |= {"annotations": annotations or {}, "resourceVersion": str(self.version)}
        return msgspec.convert({"metadata": metadata, "status": {"allocatable": {"nvidia.com/gpu": self.gpus}}}, _Node)

    def hear(self, name, labels, annotations):
        """The same, observed by the watch and acted upon."""

        async def story():
            self.hardware._changed(Change(name, self.node(name, labels, annotations)))
            await self.hardware._reconcile(name)

        asyncio.run(story())

    async def patch(self, path, body, _):
        name, change = path.rpartition("/")[2], msgspec.json.decode(body)["metadata"]
        self.patched.append((name, change.get("labels")))
        self.version += 1
        old = self.hardware._nodes[name].metadata
        made = {"name": name, "resourceVersion": str(self.version)}
        for field in ("labels", "annotations"):
            both = {**(getattr(old, field) or {}), **change.get(field, {})}
            made[field] = {key: value for key, value in both.items() if value is not None}
        return msgspec.json.encode({"metadata": made})

    async def post(self, *_):
        return b"{}"

    def refuse(self, node, *users, gpus=True):
        async def story():
            for place, user in enumerate(users):
                await self.hardware.blame(node, f"{user}/j{place}", lost=False, user=user, gpus=gpus)

        asyncio.run(story())

    def move(self, node, *users, share=0.02):
        """Jobs of users failed on a node and ran elsewhere."""

        async def story():
            for place, user in enumerate(users):
                await self.hardware.learn(News([(node, Failure(self.now, f"{user}/j{place}", user, RAN_ELSEWHERE, share))], []))

        asyncio.run(story())

    @property
    def quarantined(self):
        return sorted(name for name, each in self.hardware._nodes.items() if LABEL in each.metadata.labels)

    def failures(self, node):
        return noted((self.hardware._nodes[node].metadata.annotations or {}).get(FAILURES, ""))


@pytest.mark.parametrize(("size", "most"), [(1, 0), (2, 1), (4, 1), (10, 1), (29, 2), (40, 4)])
def test_at_most_a_tenth_of_a_pool_is_quarantined(size, most):
    nodes = Nodes({**{f"n{each}": "h100" for each in range(size)}, "other": "a100", "another": "a100"})
    for each in range(size):
        nodes.refuse(f"n{each}", "ann", "mallory", "ann", "mallory")
    assert len(nodes.quarantined) == most
    nodes.refuse("other", "ann", "mallory", "ann")
    assert nodes.quarantined[-1:] == ["other"], "one pool's do not count for another's"


def test_a_job_without_gpus_says_nothing_of_a_node_with_gpus():
    nodes = Nodes({"n1": "h100", "n2": "h100"})
    nodes.refuse("n1", "ann", "mallory", "ann", "mallory", gpus=False)
    assert (nodes.quarantined, nodes.patched) == ([], [])
    without = Nodes({"n1": "cpu", "n2": "cpu"}, gpus="0")
    without.refuse("n1", "ann", "mallory", "ann", gpus=False)
    assert without.quarantined == ["n1"]


def test_work_that_ran_elsewhere_quarantines_and_what_is_taken_back_does_not():
    nodes = Nodes({f"n{each}": "h100" for each in range(50)})
    nodes.move("n1", "ann", "bob", "eve")
    assert nodes.quarantined == []
    asyncio.run(nodes.hardware.learn(News([], [("n1", "ann/j0")])))
    assert [each.job for each in nodes.failures("n1")] == ["bob/j1", "eve/j2"]
    nodes.move("n1", "dan")
    assert nodes.quarantined == []
    nodes.move("n1", "kim", "joe")
    assert nodes.quarantined == ["n1"]
    assert "ran elsewhere" in nodes.hardware._nodes["n1"].metadata.annotations["fairlead.dev/quarantine-reason"]


def test_that_a_node_was_lost_counts_once_however_many_jobs_it_took():
    nodes = Nodes({"n1": "h100", "n2": "h100"})

    async def story():
        for loss in range(3):
            for number in range(5):
                await nodes.hardware.blame("n1", f"ns/{number}", lost=True)
            assert len(nodes.failures("n1")) == loss + 1
            nodes.now += 120

    asyncio.run(story())
    assert nodes.quarantined == ["n1"]


@pytest.mark.parametrize("seen", [True, False], ids=["while it ran", "while no operator ran"])
def test_taking_the_label_away_forgets_what_was_noted(seen):
    nodes = Nodes({f"n{each}": "h100" for each in range(50)})
    record = shown([Failure(T0 + 900 + each, f"u{each}/j", f"u{each}", RAN_ELSEWHERE, 0.01) for each in range(6)])
    annotations = {FAILURES: record, "fairlead.dev/quarantined-until": "2026-01-01T06:00:00Z"}
    if seen:
        nodes.say("n1", {LABEL: "true"}, annotations)
    else:
        del nodes.hardware._nodes["n1"]
    nodes.hear("n1", {}, annotations)
    left = nodes.hardware._nodes["n1"].metadata.annotations
    assert left == {"fairlead.dev/released": "2026-01-01T00:16:40Z"}
    nodes.now += 8
    nodes.move("n1", "ann", "bob")
    assert nodes.quarantined == [], "the next failures do not bring back the old ones"
    nodes.now += 60
    nodes.move("n1", "ann", "bob", "eve", "dan")
    assert nodes.quarantined == ["n1"]


def test_a_quarantine_ends_when_its_time_is_over_and_what_was_noted_is_forgotten():
    nodes = Nodes({"n1": "h100"})
    record = shown([Failure(T0 + 900, "ann/j", "ann", RAN_ELSEWHERE, 0.01)])
    labels, annotations = {LABEL: "true"}, {FAILURES: record, "fairlead.dev/quarantined-until": "2026-01-01T06:00:00Z"}
    nodes.now = T0 + 6 * 3600 - 60
    nodes.hear("n1", labels, annotations)
    assert nodes.quarantined == ["n1"]
    assert nodes.failures("n1")
    nodes.now += 60
    nodes.hear("n1", labels, annotations)
    assert nodes.quarantined == []
    assert nodes.hardware._nodes["n1"].metadata.annotations == {}


class Asked:
    """A Prometheus that answers what it is given."""

    def __init__(self):
        self.answer = {}
        self.questions = []

    async def query(self, question, labels):
        self.questions.append(question)
        if self.answer is None:
            raise PrometheusError("down")
        named = dict.fromkeys(labels, "")
        return {tuple({**named, **dict(key)}.values()): value for key, value in self.answer.items()}


def gpu(node, number="3"):
    return (("Hostname", node), ("gpu", number))


def test_errors_of_the_hardware_are_heard_once_and_those_of_programs_never():
    observed, asked = [], Asked()

    async def told(node, what):
        observed.append((node, what))
        return True

    devices = DeviceErrors(asked, {"n1", "n2"}.__contains__, told)
    asked.answer = {gpu("n1"): 79.0, gpu("n2"): 31.0, gpu("n2", "1"): float("nan"), gpu("stranger"): 48.0, gpu("n2", "4"): 0.0}
    for _ in range(3):
        asyncio.run(devices.ask(asked))
    assert observed == [("n1", "GPU 3 reported XID 79: the GPU has dropped off the bus")]
    assert "DCGM_FI_DEV_XID_ERRORS offset 600s" in asked.questions[0] == question()
    asked.answer = None
    asyncio.run(devices.ask(asked))
    assert (devices.failures, len(observed)) == (1, 1)


def test_a_device_error_quarantines_and_one_from_before_the_release_does_not():
    nodes = Nodes({"n1": "h100", "n2": "h100"})
    asyncio.run(nodes.hardware._device_failed("n1", "GPU 3 reported XID 79"))
    assert nodes.quarantined == ["n1"]
    nodes.say("n2", annotations={"fairlead.dev/released": "2026-01-01T00:10:00Z"})
    assert not asyncio.run(nodes.hardware._device_failed("n2", "GPU 3 reported XID 79"))
    assert nodes.failures("n2") == []
    nodes.now += 300
    assert asyncio.run(nodes.hardware._device_failed("n2", "GPU 3 reported XID 79")), "that is news"


def test_who_failed_by_itself_blames_no_node_and_a_lost_node_is_blamed():
    story = Story(job(workers=3)).run()
    story.set("worker-1", phase="Failed", exit_code=1, node="bad", ended=T0 + 9)
    story.set("worker-2", phase="Failed", exit_code=1, node="other", ended=T0 + 8)
    decided = story.look()
    assert (decided.blamed, decided.failed) == ((), ((-1, 0),))
    assert "worker-2" in decided.status.message, "which failed first"
    assert decided.status.avoided_nodes == ["other"]
    story = Story(job(workers=2)).run()
    story.set("worker-0", phase="Failed", reason="NodeLost", disrupted=True, node="gone")
    decided = story.look()
    (blame,) = decided.blamed
    assert (blame.node, blame.lost, decided.failed) == ("gone", True, ())
    story = Story(job(workers=2)).run()
    story.set("worker-0", phase="Failed", reason="UnexpectedAdmissionError", node="n")
    (blame,) = story.look().blamed
    assert (blame.node, blame.lost) == ("n", False)
    story = Story(job(workers=2)).run()
    story.set("worker-0", phase="Failed", disrupted=True, exit_code=143, node="n")
    decided = story.look()
    assert (decided.blamed, decided.failed) == ((), ()), "it was evicted"


def test_the_next_attempt_had_rather_not_be_where_the_last_one_failed():
    alone = job(workers=1)
    story = Story(alone).run()
    for attempt in range(3):
        story.set(phase="Failed", exit_code=1, node=f"n{attempt}")
        story.look()
        story.look(700)
        story.set(phase="Running", node="x")
    assert alone.status.avoided_nodes == ["n0", "n1", "n2"]
    made = pod(alone, alone.spec.roles[0], members(alone)[0], 3)
    terms = made["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    fields = [term["preference"]["matchFields"] for term in terms]
    assert fields[-3:] == [[{"key": "metadata.name", "operator": "NotIn", "values": [f"n{attempt}"]}] for attempt in range(3)]


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


def test_nodes_with_partitions_have_gpus_and_are_alike_by_them():
    def node(**offered):
        amounts = {f"nvidia.com/mig-{name.replace('_', '.')}": amount for name, amount in offered.items()}
        return msgspec.convert({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", **amounts}}}, _Node)

    one, two, none = node(**{"1g_5gb": "7"}), node(**{"3g_20gb": "2"}), node()
    assert [each.gpus for each in (one, two, none, node(**{"1g_5gb": "0"}))] == [True, True, False, False]
    assert len({each.group for each in (one, two, none)}) == 3
    assert node(**{"1g_5gb": "7"}).group == one.group

"""Nodes reconfigured through mig-manager: what the operator observes, decides and writes, on a simulated API server."""

import asyncio
import json

import msgspec
import pytest

from fairlead.api.kinds.node_pool import NodePool
from fairlead.cli import explain
from fairlead.cli.snapshot import read
from fairlead.cluster import views
from fairlead.core.mig.demand import Wish
from fairlead.operator.mig import observed, pools
from fairlead.simulation.mig.reconfigured import POOL, PRODUCT, Stream
from fairlead.simulation.mig.reconfigured import node as mig_node
from fairlead.simulation.mig.reconfigured import pool as mig_pool
from tests.operator.worlds import events_on, in_a_world

STREAM = Stream()
NODES, PODS = "nodes", "pods"
RECORD, PHASE = "fairlead.dev/mig-reconfiguration-record", "fairlead.dev/mig-reconfiguration"
CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"


def node(world, number=0):
    return world.api.store.get(NODES, ("", f"mig-{number:03d}")).object


def labels(world, number=0):
    return node(world, number)["metadata"]["labels"]


def tainted(world, number=0):
    return [
        each["value"] for each in node(world, number)["spec"].get("taints") or () if each["key"].startswith("fairlead.dev/mig")
    ]


def edit(world, number=0, *, config=None, state=None, offers=None, drop_taint=False):
    """A label, or what the node offers, as somebody else writes it."""
    old = node(world, number)
    changed = {key: value for key, value in ((CONFIG, config), (STATE, state)) if value is not None}
    metadata = {**old["metadata"], "labels": {**old["metadata"]["labels"], **changed}}
    status = (
        {**old["status"], "allocatable": {"cpu": "256", "memory": "2Ti", "pods": "110", **offers}} if offers else old["status"]
    )
    spec = {**old["spec"], **({"taints": []} if drop_taint else {})}
    world.api.store.put(NODES, ("", f"mig-{number:03d}"), {**old, "metadata": metadata, "status": status, "spec": spec})


def waiting(world, name="p", profile="7g.40gb", count="1", *, reason="Unschedulable", scheduler="fairlead", on="", more=None):
    """A pod that the scheduler has reported as unschedulable; on: it is bound instead."""
    resources = {"limits": {f"nvidia.com/mig-{profile}": count} if profile != "gpu" else {"nvidia.com/gpu": count}}
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "i", "resources": resources}], **(more or {})}
    spec |= {"nodeName": on} if on else {}
    metadata = {"name": name, "namespace": "vision"}
    world.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, "vision")
    if not on:
        old = world.api.store.get(PODS, ("vision", name)).object
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "m"}
        condition["lastTransitionTime"] = world.clock.text()
        status = {**old["status"], "conditions": [condition]}
        world.api.store.put(PODS, ("vision", name), {**old, "metadata": dict(old["metadata"]), "status": status})


def prepare(world, nodes=1, policy=None):
    manifest = mig_pool(STREAM)
    manifest["spec"]["mig"] |= policy or {}
    world.create(manifest)
    for number in range(nodes):
        world.create(mig_node(number))


WHOLE = {"nvidia.com/mig-7g.40gb": "8"}


def test_an_idle_node_is_closed_labelled_and_opened_again():
    async def story(world, operator):
        prepare(world)
        waiting(world)
        await asyncio.sleep(20.0)
        assert not tainted(world), "a pod must have waited"
        await asyncio.sleep(20.0)
        assert tainted(world) == ["all-7g.40gb"]
        assert (labels(world)[PHASE], labels(world)[CONFIG]) == ("Settling", "all-balanced")
        await asyncio.sleep(35.0)
        assert (labels(world)[PHASE], labels(world)[CONFIG], labels(world)[STATE]) == ("Applying", "all-7g.40gb", "pending")
        edit(world, state="success")
        await asyncio.sleep(60.0)
        assert tainted(world), "the device plugin still advertises what was there before"
        edit(world, offers=WHOLE)
        await asyncio.sleep(5.0)
        assert not tainted(world)
        assert PHASE not in labels(world)
        assert json.loads(node(world)["metadata"]["annotations"][RECORD])["phase"] == "Done"
        assert operator.mig.outcomes == {"Succeeded": 1}
        reasons = [each["reason"] for each in events_on(world, "mig-000")]
        assert reasons == ["MigReconfigurationApplying", "MigReconfigurationSucceeded"]
        assert [each["reason"] for each in events_on(world, "p")] == ["NodeReconfiguring"]
        text = operator.metrics.render().decode()
        assert 'fairlead_operator_mig_reconfigurations_total{outcome="Succeeded"} 1.0' in text
        conditions = world.api.store.get("fairlead.dev/nodepools", ("", POOL)).object["status"]["conditions"]
        assert [(each["type"], each["status"], each["reason"]) for each in conditions] == [
            ("MigReconfiguration", "True", "Allowed")
        ]

    in_a_world(story)


@pytest.mark.parametrize(
    "pod",
    [
        {"reason": "QuotaExceeded"},
        {"scheduler": "other"},
        {"profile": "2g.10gb"},  # free already
        {"profile": "4g.20gb"},  # no configuration has it
        {"count": "9"},  # nor so many on a node
        {"more": {"nodeSelector": {"zone": "a"}}},
        {
            "more": {
                "containers": [
                    {"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/mig-7g.40gb": "1", "cpu": "999"}}}
                ]
            }
        },
    ],
)
def test_no_node_is_reconfigured_for_what_it_does_not_help(pod):
    async def story(world, operator):
        prepare(world)
        waiting(world, **pod)
        await asyncio.sleep(600.0)
        assert not tainted(world)
        assert labels(world)[CONFIG] == "all-balanced"

    in_a_world(story)


@pytest.mark.parametrize("pod", [{"profile": "7g.40gb", "count": "8"}, {"profile": "gpu", "count": "8"}, {"profile": "gpu"}])
def test_a_pod_may_need_a_whole_gpu_or_several_partitions_of_one_node(pod):
    async def story(world, operator):
        prepare(world)
        waiting(world, **pod, more={"nodeSelector": {"nvidia.com/gpu.product": PRODUCT}})
        await asyncio.sleep(100.0)
        assert labels(world)[CONFIG] == ("all-disabled" if pod["profile"] == "gpu" else "all-7g.40gb")

    in_a_world(story)


def test_a_pod_that_is_bound_meanwhile_keeps_its_node_as_it_is():
    async def story(world, operator):
        prepare(world)
        waiting(world)
        await asyncio.sleep(40.0)
        assert labels(world)[PHASE] == "Settling"
        waiting(world, "late", "1g.5gb", on="mig-000")
        await asyncio.sleep(200.0)
        assert labels(world)[CONFIG] == "all-balanced"
        assert not tainted(world)
        assert operator.mig.outcomes["Abandoned"] == 1

    in_a_world(story)


def test_the_last_look_is_at_the_api_server_and_not_at_the_watch():
    async def story(world, operator):
        prepare(world)
        waiting(world)
        await asyncio.sleep(40.0)
        operator.mig.informers["pods"].report = lambda changes: None  # the watch delivers nothing any more
        waiting(world, "late", "1g.5gb", on="mig-000")
        await asyncio.sleep(60.0)
        assert labels(world)[CONFIG] == "all-balanced"
        assert operator.mig.outcomes["Abandoned"] >= 1

    in_a_world(story)


@pytest.mark.parametrize("ending", ["failed", "pending"])
def test_a_failure_quarantines_the_node_and_a_late_success_releases_it(ending):
    async def story(world, operator):
        prepare(world)
        waiting(world)
        await asyncio.sleep(100.0)
        edit(world, state=ending)
        await asyncio.sleep(1000.0)
        phase = "Failed" if ending == "failed" else "Hung"
        assert (labels(world)[PHASE], labels(world)["fairlead.dev/quarantined"]) == (phase, "true")
        assert "mig-manager" in node(world)["metadata"]["annotations"]["fairlead.dev/quarantine-reason"]
        assert tainted(world)
        assert operator.mig.phases()[phase] == 1
        edit(world, state="success", offers=WHOLE)
        await asyncio.sleep(60.0)
        assert not tainted(world)
        assert "fairlead.dev/quarantined" not in labels(world)
        assert operator.mig.phases()[phase] == 0

    in_a_world(story)


def test_the_end_of_the_quarantine_opens_a_node_that_failed():
    async def story(world, operator):
        prepare(world)
        waiting(world)
        await asyncio.sleep(100.0)
        edit(world, state="failed")
        await asyncio.sleep(5 * 3600.0)
        assert tainted(world)
        await asyncio.sleep(2 * 3600.0)
        assert not tainted(world)
        assert "fairlead.dev/quarantined" not in labels(world)
        assert labels(world)[CONFIG] == "all-7g.40gb", "it is left alone until its label changes"

    in_a_world(story)


def test_a_configuration_that_failed_on_two_nodes_is_not_tried_on_a_third():
    async def story(world, operator):
        prepare(world, 3)
        waiting(world)
        for _ in range(30):
            await asyncio.sleep(120.0)
            for number in range(3):
                if labels(world, number)[STATE] == "pending":
                    edit(world, number, state="failed")
        assert sorted(labels(world, number)[STATE] for number in range(3)) == ["failed", "failed", "success"]

    in_a_world(story)


def test_no_more_nodes_at_a_time_than_the_pool_allows():
    async def story(world, operator):
        prepare(world, 3, {"maxConcurrent": 1})
        for number in range(24):
            waiting(world, f"p{number}")
        await asyncio.sleep(300.0)
        assert sum(bool(tainted(world, number)) for number in range(3)) == 1

    in_a_world(story)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({"settle": "soon"}, "settle"),
        ({"configs": [{"name": "a", "devices": [{"devices": [8], "migDevices": {"1g.5gb": 7}}]}]}, "names GPU 8"),
        (
            {"configs": [{"name": "a", "devices": [{"devices": [0], "migDevices": {"1g.5gb": 7}}]}]},
            "does not name GPUs [1, 2, 3, 4, 5, 6, 7]",
        ),
        ({"configs": [{"name": "a", "devices": [{"devices": [0]}, {}]}]}, "GPU 0 twice"),
        ({"configs": [{"name": "a", "devices": [{"migEnabled": False, "migDevices": {"1g.5gb": 7}}]}]}, "migEnabled: false"),
        ({"configs": []}, "configs"),
        ({"gpusPerNode": 0}, "gpusPerNode"),
    ],
)
def test_a_policy_that_makes_no_sense_is_told_and_not_acted_on(policy, told):
    manifest = mig_pool(STREAM)
    manifest["spec"]["mig"] |= policy
    pool = pools.read(msgspec.convert(manifest, NodePool))
    assert told in pool.mistake
    assert not pool.configs


def test_the_condition_of_a_pool_names_configurations_that_its_nodes_cannot_have():
    async def story(world, operator):
        much = {"name": "much", "devices": [{"migDevices": {"3g.20gb": 3}}]}
        prepare(world, 1, {"configs": [*mig_pool(STREAM)["spec"]["mig"]["configs"], much]})
        await asyncio.sleep(10.0)

        def condition():
            return world.api.store.get("fairlead.dev/nodepools", ("", POOL)).object["status"]["conditions"][0]

        assert condition()["message"] == (
            "7 configurations; 'much' is not possible on NVIDIA-A100-SXM4-40GB: one A100-40GB does not hold 3 x 3g.20gb"
        )
        old = world.api.store.get("fairlead.dev/nodepools", ("", POOL)).object
        wrong = {**old["spec"], "mig": {**old["spec"]["mig"], "gpusPerNode": 4}}
        one = {"name": "one", "devices": [{"devices": [4], "migDevices": {"1g.5gb": 7}}]}
        wrong["mig"]["configs"] = [one]
        world.api.store.put("fairlead.dev/nodepools", ("", POOL), {**old, "metadata": dict(old["metadata"]), "spec": wrong})
        await asyncio.sleep(10.0)
        assert (condition()["status"], condition()["reason"]) == ("False", "Invalid")
        assert "names GPU 4, and nodes have 4" in condition()["message"]

    in_a_world(story)


@pytest.mark.parametrize(("pending_for", "changed"), [("30s", True), ("10m", False)])
def test_each_pool_has_its_own_time_for_which_a_pod_must_have_waited(pending_for, changed):
    async def story(world, operator):
        prepare(world, 1, {"pendingFor": pending_for})
        other = mig_pool(STREAM)
        other["metadata"]["name"], other["spec"]["nodeSelector"] = "zzz", {"matchLabels": {"none": "here"}}
        world.create(other)
        waiting(world)
        await asyncio.sleep(300.0)
        assert (labels(world)[CONFIG] == "all-7g.40gb") is changed
        await asyncio.sleep(400.0)
        assert labels(world)[CONFIG] == "all-7g.40gb"

    in_a_world(story)


def test_a_fault_in_a_plan_or_at_one_node_stops_no_other_node(monkeypatch):
    async def story(world, operator):
        prepare(world, 3)
        waiting(world)
        await asyncio.sleep(40.0)
        assert labels(world)[PHASE] == "Settling"
        monkeypatch.setattr("fairlead.core.mig.demand.propose", None)
        seen = operator.mig.seen

        def faulty(node, record):
            if node.metadata.name == "mig-001":
                raise ValueError("of this node")
            return seen(node, record)

        monkeypatch.setattr(operator.mig, "seen", faulty)
        edit(world, 1, state="failed")
        edit(world, 2, state="failed")
        await asyncio.sleep(200.0)
        assert (labels(world)[CONFIG], labels(world, 2)[PHASE]) == ("all-7g.40gb", "Failed")
        assert operator.faults.counts["mig.plan"] > 0
        assert operator.faults.counts["mig.node"] > 0

    in_a_world(story)


def test_configurations_become_partitions_of_a_node_and_impossible_ones_are_left_out():
    manifest = mig_pool(STREAM)
    manifest["spec"]["mig"]["configs"] = [
        {
            "name": "half",
            "devices": [
                {"devices": [0, 1], "migDevices": {"1g.5gb+me": 1}},
                {"devices": [2, 3, 4, 5, 6, 7], "migEnabled": False},
            ],
        },
        {"name": "much", "devices": [{"migDevices": {"3g.20gb": 3}}]},
        {"name": "other", "devices": [{"migDevices": {"1g.10gb": 7}}]},
    ]
    pool = pools.read(msgspec.convert(manifest, NodePool))
    assert pool.configs["half"] == (("1g.5gb.me", 2), ("gpu", 6))
    assert set(pools.usable(pool, "NVIDIA-A100-SXM4-40GB")) == {"half"}
    assert "does not hold 3 x 3g.20gb" in pools.impossible(pool.layouts["much"], "NVIDIA-A100-SXM4-40GB")
    assert set(pools.usable(pool, "NVIDIA-A100-SXM4-80GB")) == {"other"}
    assert "no profile '1g.5gb.me'" in pools.impossible(pool.layouts["half"], "NVIDIA-A100-SXM4-80GB")
    assert set(pools.usable(pool, "SOMETHING-ELSE")) == {"half", "much", "other"}, "not known: the administrator knows"


def test_what_a_record_or_a_pod_says_that_cannot_be_read_does_no_harm():
    record = {"metadata": {"name": "n", "annotations": {RECORD: '{"phase": "Nonsense"}'}}}
    assert observed.record_of(msgspec.convert(record, views.Node)) is None
    requests = {"nvidia.com/mig-1g.5gb": "many"}
    bad = {
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"nodeName": "n", "containers": [{"resources": {"requests": requests}}]},
    }
    facts = observed.facts(msgspec.convert(bad, views.Pod))
    assert facts.busy, "what it holds is not known"
    assert facts.waits_since == 0.0


@pytest.mark.parametrize(("bound", "nodes"), [("", {"n0"}), ("n1", {"n1"})])
def test_a_pod_with_a_node_keeps_no_place_where_it_was_nominated(bound, nodes):
    pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": bound}, "status": {"nominatedNodeName": "n0"}}
    pods = observed.Pods()
    pods.set("n/p", observed.facts(msgspec.convert(pod, views.Pod)))
    assert {node for node in ("n0", "n1") if pods.on(node)} == nodes


@pytest.mark.parametrize(
    ("member", "gang"), [({"fairlead.dev/pod-group": "g"}, "n/g"), ({"jobset.sigs.k8s.io/jobset-name": "js"}, "n/jobset.js")]
)
def test_members_of_a_gang_are_one_wish_each_and_elastic_replicas_none_of_it(member, gang):
    found = []
    for name, elastic in (("a", ""), ("b", ""), ("c", "true")):
        metadata = {"name": name, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}
        metadata["labels"] = {**member, "fairlead.dev/elastic-replica": elastic}
        spec = {"schedulerName": "fairlead", "containers": [{"resources": {"requests": {"nvidia.com/mig-1g.5gb": "1"}}}]}
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        pod = {"metadata": metadata, "spec": spec, "status": {"conditions": [condition]}}
        found.append(observed.facts(msgspec.convert(pod, views.Pod)))
    wishes, shapes = observed.wishes(found)
    assert wishes == [
        Wish("n/a", 0, (("1g.5gb", 1),), gang),
        Wish("n/b", 0, (("1g.5gb", 1),), gang),
        Wish("n/c", 0, (("1g.5gb", 1),), ""),
    ]
    assert len(shapes) == 1


def test_explain_names_the_node_that_is_reconfigured_for_a_job():
    async def story(world, operator):
        prepare(world, 2)
        waiting(world)
        waiting(world, "other", "6g.30gb")
        await asyncio.sleep(40.0)
        snapshot = await read(operator.mig.client)
        tasks, gang = explain._find(snapshot, "pod", "vision", "p")
        found = explain.full_explanation(snapshot, "pod/p", tasks, gang)
        assert found.reconfigured == [
            "mig-000 from all-balanced to all-7g.40gb: Settling since 2026-01-01T00:00:36Z, mig-manager: success"
        ]
        assert "untolerated taint {fairlead.dev/mig-reconfiguring: all-7g.40gb}" in found.message
        assert "An idle node is being reconfigured" in found.advice
        tasks, gang = explain._find(snapshot, "pod", "vision", "other")
        assert explain.full_explanation(snapshot, "pod/other", tasks, gang).reconfigured == []

    in_a_world(story)


def test_explain_finds_members_of_a_job_by_their_names():
    record = {"phase": "Applying", "to": "b", "since": 0.0, "pods": ["ns/bert-0", "ns/bertram-0"]}
    annotations, given = {RECORD: json.dumps(record)}, {"name": "n", "labels": {STATE: "pending"}}
    node = msgspec.convert({"metadata": {**given, "annotations": annotations}}, views.Node)
    shown = ["n to b: Applying since 1970-01-01T00:00:00Z, mig-manager: pending"]
    for name, lines in (("job/bert", shown), ("pod/bert-0", shown), ("pod/bert", []), ("job/ber", []), ("job/bertram", shown)):
        assert explain.reconfigured_for([node], explain._named_like(name, "ns")) == lines
    assert explain.reconfigured_for([node], explain._named_like("job/bert", "other")) == []

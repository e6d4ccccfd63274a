"""Shared resources from objects to the core, and from there to metrics."""

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.quantity import QuantityError
from fairlead.api.reasons import ReasonCode
from fairlead.cluster import convert, policies, views
from fairlead.operator.jobs import members
from fairlead.scheduler.explanations import advice_of
from fairlead.scheduler.gauges import of_snapshot
from fairlead.scheduler.metrics_snapshot import take
from tests.builders import cluster, node, refused, settle, start


def pod(text, **more):
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "annotations": {names.SHARED_RESOURCES_ANNOTATION: text}}
    spec = {"schedulerName": "fairlead", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], **more}
    return convert.pod(msgspec.convert({"metadata": metadata, "spec": spec}, views.Pod), "default")


def pool(name, **shared):
    spec = {"sharedResources": {each.replace("_", "-"): amount for each, amount in shared.items()}}
    return policies.node_pool(msgspec.convert({"metadata": {"name": name}, "spec": spec}, views.NodePool))


def test_what_a_pod_takes():
    found = pod("storage-bandwidth=2G,scratch=1")
    assert (found.spec.shared, found.error) == ((("scratch", 1), ("storage-bandwidth", 2 * 10**9)), None)
    theirs = pod("storage-bandwidth=2G", schedulerName="default-scheduler")
    assert (theirs.spec.shared, theirs.ours) == ((), False)
    odd = pod("storage-bandwidth")
    assert odd.error.code is ReasonCode.INVALID_SPEC
    assert "annotation fairlead.dev/shared-resources: 'storage-bandwidth' is not one name=amount" in odd.error.message


def test_what_a_pool_declares():
    """A name with 0 is declared, too: where pools overlap, no pod gets any of it in this one."""
    assert pool("a", storage_bandwidth="40G", none=0).shared == (("none", 0), ("storage-bandwidth", 40 * 10**9))
    with pytest.raises(QuantityError, match="sharedResources: storage: '4Q' is not a quantity"):
        pool("a", storage="4Q")


def test_members_carry_what_their_role_takes():
    role = {"name": "w", "template": {"spec": {"containers": [{"name": "c"}]}}, "sharedResources": {"b": "2G", "a": 1}}
    job = msgspec.convert({"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": {"roles": [role]}}, AIJob)
    made = members.pod(job, job.spec.roles[0], members.Member("w", 0), 0)
    text = made["metadata"]["annotations"][names.SHARED_RESOURCES_ANNOTATION]
    assert text == "a=1,b=2G"
    assert pod(text).spec.shared == (("a", 1), ("b", 2 * 10**9))


def test_a_pod_with_a_place_takes_what_it_was_admitted_with():
    state = cluster([node("n1")])
    state.upsert_pool(pool("a", storage="10G"))
    state.upsert_pod(pod("storage=8G"))
    assert start(state, 1.0) == {"p": "n1"}
    for text in ("storage=1", "nothing"):
        state.upsert_pod(pod(text, nodeName="n1"))
        start(state, 2.0)
        assert state.nodes.shared.used == {("a", "storage"): 8 * 10**9}
    assert state.tasks["u"].pod.spec.shared == (("storage", 8 * 10**9),)


def test_metrics_have_what_is_declared_and_taken():
    state = cluster([node("n1")])
    state.upsert_pool(pool("a", storage="10G", uplink=3))
    state.upsert_pod(pod("storage=8G"))
    start(state, 1.0)
    found = dict(of_snapshot(take(state, 1.0)))
    assert found["fairlead_pool_shared_resource"] == {("a", "storage"): 10e9, ("a", "uplink"): 3.0}
    assert found["fairlead_pool_shared_resource_used"] == {("a", "storage"): 8e9, ("a", "uplink"): 0.0}


def test_what_helps_is_known():
    state = cluster([node("n1")])
    state.upsert_pool(pool("a", storage="10G"))
    state.upsert_pod(pod("storage=12G"))
    reason = refused(settle(state, 1.0))["p"]
    assert reason.message == "0/1 nodes are available: 1 node(s): a pod needs 12G storage, the largest NodePool has 10G."
    assert "sharedResources" in advice_of(reason)

"""Nodes and GPUs that claims use in pieces are emptied on schedule, so that whole ones come free."""

import random

import msgspec
import pytest

from fairlead.core.model.policy import Defragment
from fairlead.core.model.service_classes import ServiceClass
from tests.core.claim_stream import ClaimStream
from tests.core.test_device_claims import asks, gpus, halves

HALF, WHOLE = asks(1, kind="half"), asks(1, kind="whole")


def stream_of(hosts, count, **more):
    settings = {"every": 600.0, "threshold": 0.0, **more}
    items = [each for host in hosts for each in halves(host, count)]
    classes = [ServiceClass("stays", movable=False)]
    return ClaimStream(hosts, items, remade=True, classes=classes, reservations=0, defragment=Defragment(**settings))


def used(stream):
    """Host -> GPU -> thousandths in use."""
    found = {}
    for claim in stream.claims.values():
        for each in claim.allocation.devices if claim.allocation is not None else ():
            _, gpu, part, *_ = each.device.device.split("-")
            of_host = found.setdefault(each.device.pool, {})
            of_host[gpu] = of_host.get(gpu, 0) + (1000 if part == "whole" else 500)
    return found


def whole(stream, hosts, count):
    """Nodes, and GPUs, of which nothing is in use."""
    found = used(stream)
    return len(hosts) - len(found), len(hosts) * count - sum(len(each) for each in found.values())


def test_a_node_that_holds_little_is_emptied():
    stream = stream_of(["a", "b"], 2)
    fill(stream, {"a": 1, "b": 2})
    stream.now = 600.0
    stream.step()
    assert (stream.moved, set(used(stream))) == (1, {"b"})


def fill(stream, counts):
    """So many pods with half a GPU each on hosts: the others are closed to them."""
    for host, count in counts.items():
        for number in range(count):
            name = f"{host}{number}"
            stream.submit(name, 1e6, [HALF], controlled=True, owner=name, cpu=1)
            for each in stream.nodes:
                stream.state.upsert_node(each if each.name == host else closed(each))
            stream.step()
            for each in stream.nodes:
                stream.state.upsert_node(each)


def closed(node):
    return msgspec.structs.replace(node, unschedulable=True)


def test_a_gpu_is_emptied_of_its_last_partition():
    stream = stream_of(["a"], 2)
    fill(stream, {"a": 4})
    by_gpu = {}
    for uid, each in stream.pods.items():
        (device,) = stream.claims[each.claims[0].key].allocation.devices
        by_gpu.setdefault(device.device.device.split("-")[1], []).append(uid)
    for uids in by_gpu.values():
        stream.delete(uids[0])
    assert whole(stream, ["a"], 2) == (0, 0)
    stream.now = 600.0
    stream.step()
    assert (stream.moved, whole(stream, ["a"], 2)) == (1, (0, 1))


@pytest.mark.parametrize("seed", range(40))
def test_what_is_whole_never_becomes_less_and_no_more_move_than_may(seed):
    rnd = random.Random(seed)
    hosts, count, most = [f"n{each}" for each in range(rnd.randint(1, 4))], rnd.randint(1, 3), rnd.randint(1, 6)
    stream = stream_of(hosts, count, moves=most, every=600.0)
    for number in range(rnd.randint(3, 14)):
        more = {"service_class": "stays"} if rnd.random() < 0.15 else {}
        wanted = rnd.choice((HALF, HALF, HALF, WHOLE))
        stream.submit(f"p{number}", 1e6, [wanted], controlled=rnd.random() < 0.95, owner=f"o{number}", cpu=1, **more)
    stream.step()
    for uid in sorted(stream.pods):
        if rnd.random() < 0.5:
            stream.delete(uid)
    stream.step()
    pods = len(stream.where)
    for run in range(1, 5):
        before, moved = whole(stream, hosts, count), stream.moved
        stream.now = 600.0 * run
        stream.step()
        after = whole(stream, hosts, count)
        assert len(stream.where) == pods, "every pod that moved runs again"
        assert stream.moved - moved <= most
        assert after > before if stream.moved > moved else after == before


def test_nothing_moves_where_no_piece_is_free():
    stream = ClaimStream(["a", "b"], [gpus("a", 1), gpus("b", 1)], remade=True, defragment=Defragment(every=600.0, threshold=0.0))
    for name in "pq":
        stream.submit(name, 1e6, [asks(1)], controlled=True, owner=name)
    stream.step()
    stream.now = 600.0
    stream.step()
    assert not stream.moved

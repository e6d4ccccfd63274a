"""Two jobs on one GPU, from objects to the core: classes, speeds, and what a pod is that was given half a GPU."""

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.quantity import QuantityError
from fairlead.cluster import convert, policies, views
from fairlead.cluster.gpu_parts import held_milli

GPU = "nvidia.com/gpu"
AT = "at=2027-01-15T08:00:00Z"


def seen(gpus="1", scheduler="fairlead", node="", resource=GPU, **annotations):
    named = {f"fairlead.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    containers = [{"name": "main", "resources": {"requests": {resource: gpus, "cpu": "1"}}}]
    spec = {"schedulerName": scheduler, "nodeName": node, "containers": containers}
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "annotations": named}
    return convert.pod(msgspec.convert({"metadata": metadata, "spec": spec}, views.Pod), "default")


def service(**spec):
    return policies.service_class(msgspec.convert({"metadata": {"name": "c"}, "spec": spec}, views.ServiceClass))


def test_classes():
    assert service().sharing == "None"
    assert service(sharing="Pairs").sharing == "Pairs"
    with pytest.raises(QuantityError, match="sharing is one of None, Pairs, not 'Threes'"):
        service(sharing="Threes")


@pytest.mark.parametrize("isolation", ["GPU", "Node"])
def test_a_class_cannot_share_and_isolate(isolation):
    with pytest.raises(QuantityError, match=f"sharing Pairs and isolation {isolation} exclude each other"):
        service(sharing="Pairs", isolation=isolation)


def test_a_pod_that_was_placed_beside_another_has_half_a_gpu():
    placed = seen(node="n", gpu_partner=names.ALONE)
    assert placed.partner == names.ALONE
    assert (placed.spec.gpus, placed.spec.gpu_milli) == (1, 500)
    assert GPU not in dict(placed.spec.requests)
    assert held_milli(placed.spec) == 500
    assert placed.error is None


@pytest.mark.parametrize(
    "other",
    [{"gpus": "2"}, {"scheduler": "default-scheduler"}, {"resource": "amd.com/gpu"}],
    ids=["several GPUs", "another scheduler bound it", "another vendor"],
)
def test_no_other_pod_on_a_node_has_half_of_what_it_requests(other):
    placed = seen(node="n", gpu_partner="uid", **other)
    assert placed.spec.gpu_milli == 1000
    assert held_milli(placed.spec) >= 1000


def test_a_pod_that_waits_cannot_name_its_partner():
    waits = seen(gpu_partner="uid")
    assert waits.partner == ""
    assert waits.spec.gpu_milli == 1000
    assert "annotation fairlead.dev/gpu-partner is written by the scheduler" in waits.error.message


def test_speeds_are_read_and_what_cannot_be_read_is_none():
    found = seen(measured_speed=f"{AT},speed=12.5")
    assert (found.speed_at, found.speed) == (1_800_000_000.0, 12.5)
    for text in ("12.5", f"{AT},speed=fast", "at=yesterday,speed=1", "at=,speed=1"):
        assert (seen(measured_speed=text).speed_at, seen(measured_speed=text).error) == (0.0, None)

"""Pressure, measurements and isolation from objects to the core."""

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.quantity import QuantityError
from fairlead.api.reasons import ReasonCode
from fairlead.cluster import convert, policies, views
from fairlead.operator.jobs import members

AT = 1_800_000_000.0


def pod(**annotations):
    metadata = {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "annotations": {f"fairlead.dev/{k.replace('_', '-')}": v for k, v in annotations.items()},
    }
    spec = {"schedulerName": "fairlead", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    return convert.pod(msgspec.convert({"metadata": metadata, "spec": spec}, views.Pod), "default")


def node(text):
    metadata = {"name": "n", "annotations": {names.LOAD_ANNOTATION: text} if text else {}}
    return convert.node(msgspec.convert({"metadata": metadata, "status": {"allocatable": {"cpu": "8"}}}, views.Node))


def test_declared():
    found = pod(pressure="memoryBandwidth=40%,disk=5%")
    assert found.spec.pressure == (400, 0, 0, 50)
    assert found.declares
    plain = pod()
    assert (plain.spec.pressure, plain.declares, plain.measured) == ((), False, ())
    odd = pod(pressure="memory=40%")
    assert odd.error.code == ReasonCode.INVALID_SPEC
    assert "annotation fairlead.dev/pressure: 'memory' is no kind of pressure" in odd.error.message


def test_measured():
    found = pod(measured_pressure="at=2027-01-15T08:00:00Z,network=20%")
    assert (found.measured, found.measured_at, found.spec.pressure) == ((0, 0, 200, 0), AT, ())
    for text in ("network=20%", "at=soon,network=20%", "at=2027-01-15T08:00:00Z,cpu=1%"):
        odd = pod(measured_pressure=text)
        assert (odd.measured, odd.error) == ((), None)


def test_load_of_a_node():
    found = node("at=2027-01-15T08:00:00Z,cpu=80%,pcie=10%")
    assert (found.load, found.loaded_at) == ((0, 100, 0, 0, 800), AT)
    assert node("").load == ()
    odd = node("cpu=80%")
    assert (odd.load, odd.error) == ((), None)
    assert "at= is missing" in odd.load_fault


def test_isolation_of_a_class():
    for isolation in ("None", "GPU", "Node"):
        view = msgspec.convert({"metadata": {"name": "c"}, "spec": {"isolation": isolation}}, views.ServiceClass)
        assert policies.service_class(view).isolation == isolation
    with pytest.raises(QuantityError, match="isolation is one of None, GPU, Node"):
        policies.service_class(msgspec.convert({"metadata": {"name": "c"}, "spec": {"isolation": "Rack"}}, views.ServiceClass))


def test_members_carry_what_their_role_declares():
    role = {"name": "w", "template": {"spec": {"containers": [{"name": "c"}]}}}
    job = {"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": {"roles": [role]}}
    plain = msgspec.convert(job, AIJob)
    made = members.pod(plain, plain.spec.roles[0], members.Member("w", 0), 0)
    assert names.PRESSURE_ANNOTATION not in made["metadata"]["annotations"]
    role["pressure"] = {"memoryBandwidth": "40%", "network": "2.5%"}
    pressing = msgspec.convert(job, AIJob)
    made = members.pod(pressing, pressing.spec.roles[0], members.Member("w", 0), 0)
    text = made["metadata"]["annotations"][names.PRESSURE_ANNOTATION]
    assert text == "memoryBandwidth=40%,network=2.5%"
    assert pod(pressure=text).spec.pressure == (400, 0, 25, 0)

"""Writing what claims are allocated: finalizer and status, races with other schedulers, binding conditions, and taking it back."""

import asyncio
import json
import random
from fractions import Fraction

import msgspec
import pytest

from fairlead.cluster import claim_status, device_views
from fairlead.cluster.kubernetes import device_claims
from fairlead.cluster.kubernetes.client import ApiError
from fairlead.cluster.port import Allocated, Outcome, Upsert
from fairlead.cluster.translate import Change
from fairlead.core.dra.model import Device, Slice
from fairlead.core.model.allocations import Allocation, Chosen, DeviceId, FailedDevice, Toleration
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.model.transactions import Binding, DeviceChoice, PodRef
from tests.cluster.test_finalizer_protobuf import claim as claim_in_protobuf
from tests.cluster.test_finalizer_protobuf import read, users_in

POD = PodRef("uid-p", "ns", "p")
ON_N1 = (SelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),)),)


def allocation(*devices, **more):
    return Allocation(tuple(Chosen("gpu", DeviceId("gpu.example.com", "n1", each), **more) for each in devices), (), ON_N1)


class Server:
    """Claims with versions; the watch delivers at once, or when told."""

    def __init__(self, *names):
        self.clock = lambda: 1000.0
        self.version = 0
        self.objects = {f"ns/{name}": {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {}} for name in names}
        self.writes = []
        self.claims = device_claims.DeviceClaims(self)
        self.before_status = lambda: None
        for key in self.objects:
            self.put_object(key, self.objects[key])

    def put_object(self, key, found):
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = found
        view = msgspec.convert(found, device_views.ResourceClaim)
        self.claims.note([Change(key, view)])

    def at(self, path):
        parts = path.split("/")
        return "/".join((parts[5], parts[7]))

    async def get(self, path):
        return json.dumps(self.objects[self.at(path)]).encode()

    async def patch(self, path, body, kind=""):
        await asyncio.sleep(0)
        sent, key = json.loads(body), self.at(path)
        self.writes.append((key, path.endswith("/status")))
        if path.endswith("/status"):
            self.before_status()
        found = json.loads(json.dumps(self.objects[key]))
        metadata = sent.pop("metadata", {})
        if metadata.get("resourceVersion", found["metadata"]["resourceVersion"]) != found["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        found["metadata"].setdefault("finalizers", []).extend(metadata.get("finalizers", []))
        status = found.setdefault("status", {})
        for name, value in sent.get("status", {}).items():
            if value is None:
                status.pop(name, None)
            elif name == "reservedFor" and not kind:
                status[name] = [*(each for each in status.get(name, []) if each["uid"] != value[0]["uid"]), *value]
            else:
                status[name] = value
        self.put_object(key, found)
        return json.dumps(found).encode()


class Exact(Server):
    """It compares specifications by their bytes, as the real one does: a patch rewrites opaque parameters, protobuf does not."""

    finalizers: tuple[str, ...] = ()
    uid, conflicts, packed, rewrites_status = "c", 0, True, False
    users: tuple[str, ...] | list[str] = ()

    async def patch(self, path, body, kind=""):
        if path.endswith("/status") and not self.rewrites_status:
            return await super().patch(path, body, kind)
        self.writes.append((self.at(path), path.endswith("/status")))
        raise ApiError(422, "Invalid", "spec: field is immutable")

    async def get_as(self, path, accept):
        assert accept == "application/vnd.kubernetes.protobuf"
        metadata, status = (self.objects[self.at(path)].get(each) or {} for each in ("metadata", "status"))
        users = tuple(each["name"] for each in status.get("reservedFor") or ())
        version = metadata["resourceVersion"]
        return claim_in_protobuf(self.finalizers, uid=self.uid, users=users, version=version) if self.packed else b"{}"

    async def put(self, path, body, *, kind):
        assert kind == "application/vnd.kubernetes.protobuf"
        self.writes.append((self.at(path), "put"))
        if self.conflicts:
            self.conflicts -= 1
            raise ApiError(409, "Conflict", "the object has been modified")
        assert path.endswith("/status") is self.rewrites_status
        *_, finalizers = read(body)
        self.users = users_in(body)
        found = json.loads(json.dumps(self.objects[self.at(path)]))
        found["metadata"]["finalizers"] = finalizers
        self.put_object(self.at(path), found)
        return json.dumps(found).encode()


def binding(*choices):
    return Binding(POD, "n1", claims=choices)


def test_a_claim_is_allocated_and_reserved_by_two_writes():
    server = Server("c")
    decided = binding(DeviceChoice("ns/c", allocation("gpu-0"), decided=True))
    assert asyncio.run(server.claims.allocate(decided)) == Allocated(Outcome.DONE)
    assert server.writes == [("ns/c", False), ("ns/c", True)]
    status = server.objects["ns/c"]["status"]
    assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "uid-p"}]
    assert status["allocation"]["nodeSelector"] == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    }
    asyncio.run(server.claims.release(decided))
    assert "allocation" not in server.objects["ns/c"]["status"]
    assert "reservedFor" not in server.objects["ns/c"]["status"]


@pytest.mark.parametrize("before", [(), ("other",), (claim_status.FINALIZER,)])
def test_a_claim_whose_opaque_parameters_a_patch_would_change_is_allocated(before):
    server = Exact("c")
    server.finalizers, server.conflicts = before, 1
    decided = binding(DeviceChoice("ns/c", allocation("gpu-0"), decided=True, uid="c"))
    assert asyncio.run(server.claims.allocate(decided)) == Allocated(Outcome.DONE)
    assert server.writes == [("ns/c", False), ("ns/c", "put")] * 2 + [("ns/c", True)]
    assert server.objects["ns/c"]["metadata"]["finalizers"] == list(dict.fromkeys((*before, claim_status.FINALIZER)))
    assert "allocation" in server.objects["ns/c"]["status"]


def test_a_claim_whose_allocation_a_patch_would_change_is_reserved():
    """Another scheduler allocated it; a conflict with a further user is tried again."""
    server = Exact("c")
    server.put_object("ns/c", {**server.objects["ns/c"], "status": {"allocation": claim_status.allocation(allocation("gpu-0"))}})
    server.conflicts, server.rewrites_status = 1, True
    assert asyncio.run(server.claims.allocate(binding(DeviceChoice("ns/c", allocation("gpu-0"), uid="c")))) == Allocated(
        Outcome.DONE
    )
    assert server.writes == [("ns/c", True), ("ns/c", "put")] * 2
    assert server.users == [POD.uid]


@pytest.mark.parametrize("seed", range(20))
def test_a_reservation_of_several_is_taken_back_from_a_claim_whose_allocation_a_patch_would_change(seed):
    """Others come, go and write at the same moment; the reservation is gone, and theirs are not."""
    draw = random.Random(seed)
    server, others = Exact("c"), draw.sample(["q", "r", "s"], draw.randint(1, 3))
    users = [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in draw.sample(["p", *others], len(others) + 1)]
    given = claim_status.allocation(allocation("gpu-0"))
    server.put_object("ns/c", {**server.objects["ns/c"], "status": {"allocation": given, "reservedFor": users}})
    server.conflicts, server.rewrites_status = draw.randint(0, 3), True
    taken = server.get_as

    bumps = [draw.random() < 0.5]  # with the conflicts fewer than a claim is tried

    async def meanwhile(path, accept):
        if bumps and bumps.pop():
            server.put_object("ns/c", server.objects["ns/c"])
        return await taken(path, accept)

    server.get_as = meanwhile
    asyncio.run(server.claims.release(binding(DeviceChoice("ns/c", allocation("gpu-0"), uid="c"))))
    assert server.users == [each["uid"] for each in users if each["uid"] != POD.uid]


@pytest.mark.parametrize("wrong", [{"uid": "another"}, {"packed": False}])
def test_the_refusal_stands_for_another_claim_of_that_name_and_without_protobuf(wrong):
    server = Exact("c")
    for name, value in wrong.items():
        setattr(server, name, value)
    decided = binding(DeviceChoice("ns/c", allocation("gpu-0"), decided=True, uid="c"))
    outcome, message, _ = asyncio.run(server.claims.allocate(decided))
    assert (outcome, "field is immutable" in message) == (Outcome.REFUSED, True)
    assert server.writes == [("ns/c", False)]


def test_a_claim_that_is_allocated_is_reserved_by_one_write():
    server = Server("c")
    server.put_object("ns/c", {**server.objects["ns/c"], "status": {"allocation": claim_status.allocation(allocation("gpu-0"))}})
    asyncio.run(server.claims.allocate(binding(DeviceChoice("ns/c", allocation("gpu-0")))))
    assert server.writes == [("ns/c", True)]
    asyncio.run(server.claims.release(binding(DeviceChoice("ns/c", allocation("gpu-0")))))
    status = server.objects["ns/c"]["status"]
    assert "allocation" in status, "it was there before this pod"
    assert [each["uid"] for each in status["reservedFor"]] == [POD.uid], "without a user nobody would ever free it"


def test_a_claim_that_changes_in_between_is_not_allocated():
    server = Server("c")

    def interfere():
        server.before_status = lambda: None
        found = json.loads(json.dumps(server.objects["ns/c"]))
        server.put_object("ns/c", {**found, "status": {"allocation": claim_status.allocation(allocation("gpu-1"))}})

    server.before_status = interfere
    outcome, message, _ = asyncio.run(server.claims.allocate(binding(DeviceChoice("ns/c", allocation("gpu-0"), decided=True))))
    assert (outcome, "was allocated other devices" in message) == (Outcome.REFUSED, True)
    assert claim_status.devices_of(server.objects["ns/c"]["status"]["allocation"])[0][3] == "gpu-1"
    outcome, message, _ = asyncio.run(server.claims.allocate(binding(DeviceChoice("ns/c", allocation("gpu-0"), decided=True))))
    assert (outcome, "was allocated other devices" in message) == (Outcome.REFUSED, True)


@pytest.mark.parametrize("first", [True, False])
def test_of_two_claims_with_one_device_the_later_is_taken_back(first):
    server = Server("c", "other")

    def other():
        server.before_status = lambda: None
        found = server.objects["ns/other"]
        server.put_object("ns/other", {**found, "status": {"allocation": claim_status.allocation(allocation("gpu-0"))}})

    if first:
        other()
        server.put_object("ns/c", server.objects["ns/c"])
    decided = binding(DeviceChoice("ns/c", allocation("gpu-0"), decided=True))
    outcome, message, _ = asyncio.run(server.claims.allocate(decided))
    if first:
        assert (outcome, "ns/other" in message) == (Outcome.REFUSED, True)
        assert "allocation" not in server.objects["ns/c"]["status"]
    else:
        assert outcome is Outcome.DONE
        other()
        assert "allocation" in server.objects["ns/c"]["status"], "ours was there before"


def test_nothing_remains_where_one_of_several_claims_is_refused():
    server = Server("c", "d")
    server.objects["ns/d"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    decided = binding(
        DeviceChoice("ns/c", allocation("gpu-0"), decided=True), DeviceChoice("ns/d", allocation("gpu-1"), decided=True)
    )
    outcome, message, _ = asyncio.run(server.claims.allocate(decided))
    assert (outcome, "ns/d is being deleted" in message) == (Outcome.REFUSED, True)
    assert "allocation" not in server.objects["ns/c"]["status"]


@pytest.mark.parametrize("failed", [False, True])
def test_binding_conditions_are_waited_for(failed):
    server = Server("c")
    decided = binding(DeviceChoice("ns/c", allocation("gpu-0", conditions=("Ready",), failures=("Broken",)), decided=True))

    async def play():
        settled = []
        task = asyncio.ensure_future(server.claims.allocate(decided, lambda: settled.append(1)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        assert settled == [1], "nothing but the device is waited for"
        found = json.loads(json.dumps(server.objects["ns/c"]))
        condition = {"type": "Broken" if failed else "Ready", "status": "True"}
        device = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0", "conditions": [condition]}
        found["status"]["devices"] = [device]
        server.put_object("ns/c", found)
        return await task

    outcome, message, blamed = asyncio.run(play())
    assert outcome is (Outcome.REFUSED if failed else Outcome.DONE)
    assert ("allocation" in server.objects["ns/c"]["status"]) is not failed
    assert ("failed: condition Broken" in message) is failed
    device = DeviceId("gpu.example.com", "n1", "gpu-0")
    assert blamed == ((FailedDevice("ns/c", device, "condition Broken"),) if failed else ())


def test_devices_that_are_not_ready_in_time_are_named_with_what_does_not_hold(monkeypatch):
    monkeypatch.setattr(device_claims, "_READY_LIMIT", 0.0)
    server = Server("c", "d")
    ready, unready = allocation("gpu-0", conditions=("Ready",)), allocation("gpu-1", "gpu-2", conditions=("Ready", "Cabled"))
    patch = server.patch

    async def reporting(path, body, kind=""):
        await patch(path, body, kind)
        for key, names, types in (("ns/c", ["gpu-0"], ["Ready"]), ("ns/d", ["gpu-1"], ["Ready"])):
            found = json.loads(json.dumps(server.objects[key]))
            if "allocation" in found.get("status", {}):
                true = [{"type": each, "status": "True"} for each in types]
                of = [{"driver": "gpu.example.com", "pool": "n1", "device": name, "conditions": true} for name in names]
                server.put_object(key, {**found, "status": {**found["status"], "devices": of}})
        return json.dumps(server.objects[server.at(path)]).encode()

    server.patch = reporting
    decided = binding(DeviceChoice("ns/c", ready, decided=True), DeviceChoice("ns/d", unready, decided=True))
    outcome, _, blamed = asyncio.run(server.claims.allocate(decided))
    assert outcome is Outcome.REFUSED
    assert [(each.claim, each.device.device, each.why.partition(" did")[0]) for each in blamed] == [
        ("ns/d", "gpu-1", "condition Cabled"),
        ("ns/d", "gpu-2", "condition Cabled, Ready"),
    ]


@pytest.mark.parametrize(("code", "named"), [(422, True), (403, True), (400, True), (500, False), (404, False)])
def test_an_allocation_that_the_server_does_not_take_names_its_devices(code, named):
    server = Server("c")
    patch = server.patch

    async def refuse(path, body, kind=""):
        if path.endswith("/status") and "allocation" in json.loads(body)["status"] and not kind:
            raise ApiError(code, "Invalid", "denied by the policy")
        return await patch(path, body, kind)

    server.patch = refuse
    decided = binding(DeviceChoice("ns/c", allocation("gpu-0", "gpu-1"), decided=True))
    outcome, message, blamed = asyncio.run(server.claims.allocate(decided))
    assert (outcome, "denied by the policy" in message) == (Outcome.REFUSED, True)
    assert [(each.device.device, each.refused) for each in blamed] == ([("gpu-0", True), ("gpu-1", True)] if named else [])


def test_what_is_written_of_shares_tolerations_and_configs():
    chosen = Chosen(
        "r",
        DeviceId("gpu.example.com", "n1", "gpu-0"),
        shared=True,
        consumed=(("memory", Fraction(1, 2)), ("cores", 3)),
        tolerations=(Toleration("k", "Exists", seconds=5),),
    )
    written = claim_status.allocation(Allocation((chosen,), (("FromClass", ("r",), '{"driver": "gpu.example.com"}'),)))
    (result,) = written["devices"]["results"]
    assert result["consumedCapacity"] == {"memory": "0.5", "cores": "3"}
    assert result["tolerations"] == [{"key": "k", "operator": "Exists", "tolerationSeconds": 5}]
    assert len(result["shareID"]) == 36
    assert written["devices"]["config"] == [{"source": "FromClass", "opaque": {"driver": "gpu.example.com"}, "requests": ["r"]}]
    assert "nodeSelector" not in written


def test_claims_of_few_pods_are_written_at_once():
    """Each write in flight needs a connection; those of many pods wait for their turn, and all are done in the end."""
    count = 4 * device_claims._AT_ONCE
    server = Server(*(f"c{each}" for each in range(count)))
    server.busy = server.most = 0
    patch = server.patch

    async def counted(path, body, kind=""):
        server.busy += 1
        server.most = max(server.most, server.busy)
        try:
            return await patch(path, body, kind)
        finally:
            server.busy -= 1

    server.patch = counted

    async def run():
        chosen = (DeviceChoice(f"ns/c{each}", allocation(f"gpu-{each}"), decided=True) for each in range(count))
        return await asyncio.gather(*(server.claims.allocate(binding(each)) for each in chosen))

    assert asyncio.run(run()) == [Allocated(Outcome.DONE)] * count
    assert 1 < server.most <= device_claims._AT_ONCE
    assert len(server.writes) == 2 * count


def test_a_claim_is_waited_for_and_no_other():
    """A change of another claim resumes nothing; what was given up leaves nothing behind."""
    server = Server("a", "b")
    claims = server.claims

    async def run():
        waits = asyncio.ensure_future(claims._next_change("ns/a"))
        given_up = asyncio.ensure_future(claims._next_change("ns/a"))
        await asyncio.sleep(0)
        server.put_object("ns/b", server.objects["ns/b"])
        await asyncio.sleep(0)
        assert not waits.done()
        given_up.cancel()
        await asyncio.sleep(0)
        server.put_object("ns/a", server.objects["ns/a"])
        await waits
        late = asyncio.ensure_future(claims._next_change("ns/b"))
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.gather(late, given_up, return_exceptions=True)

    asyncio.run(run())
    assert not claims._waiting


def test_a_partition_of_a_gpu_that_another_scheduler_has_given_away_is_taken_back():
    """The GPU is another device than its partition: what both consume of the counters shows that they overlap."""
    server = Server("c", "other")
    devices = (
        Device("gpu-0", "gpu.example.com", counters=(("set", (("slices", 7),)),)),
        Device("gpu-0-1g", "gpu.example.com", counters=(("set", (("slices", 1),)),)),
    )
    server.claims.note_slices(
        [
            Upsert(Slice("devices", "gpu.example.com", "n1", 1, 2, devices=devices)),
            Upsert(Slice("counters", "gpu.example.com", "n1", 1, 2, counters=(("set", {"slices": 7}),))),
        ]
    )
    found = {**server.objects["ns/other"], "status": {"allocation": claim_status.allocation(allocation("gpu-0"))}}
    server.put_object("ns/other", found)
    decided = binding(DeviceChoice("ns/c", allocation("gpu-0-1g"), decided=True))
    outcome, message, blamed = asyncio.run(server.claims.allocate(decided))
    assert (outcome, blamed) == (Outcome.REFUSED, ())
    assert message == (
        "device gpu.example.com/n1/gpu-0-1g needs 1 of counter slices of set, and 0 is left: resourceclaim ns/other was allocated first"
    )
    assert "allocation" not in server.objects["ns/c"]["status"]
    server.put_object("ns/other", {**server.objects["ns/other"], "status": {}})
    assert asyncio.run(server.claims.allocate(decided)) == Allocated(Outcome.DONE)


def test_a_claim_whose_amounts_cannot_be_read_has_its_devices_all_the_same():
    server = Server("c", "other")
    odd = claim_status.allocation(allocation("gpu-0"))
    odd["devices"]["results"][0]["consumedCapacity"] = {"memory": "much"}
    server.put_object("ns/other", {**server.objects["ns/other"], "status": {"allocation": odd}})
    outcome, message, _ = asyncio.run(server.claims.allocate(binding(DeviceChoice("ns/c", allocation("gpu-0"), decided=True))))
    assert (outcome, "ns/other was allocated first" in message) == (Outcome.REFUSED, True)

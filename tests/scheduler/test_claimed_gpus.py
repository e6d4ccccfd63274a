"""GPUs of ResourceSlices in what people see: nodes, totals of pools, metrics; an independent sum over API objects agrees."""

import random
from fractions import Fraction
from io import StringIO

import msgspec
import pytest
from rich.console import Console

from fairlead.cli.nodes import _table
from fairlead.cluster import device_views
from fairlead.cluster.port import DevicesKnown, Upsert
from fairlead.cluster.simulated.devices import Model, classes, slices
from fairlead.core.dra.model import DeviceClaim, Slice
from fairlead.core.model.nodes import NodePool
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.selectors import Requirement
from fairlead.scheduler.metrics_snapshot import take
from fairlead.scheduler.overview import nodes
from tests.builders import GPU, cluster, node, pod, queue, run
from tests.core.test_device_claims import claim, gpus, halves, held, state_of, uses
from tests.core.test_gpu_parts import A100, SMALL, asks, offers
from tests.scheduler.test_overview import NOW, core

DRIVER = "gpu.nvidia.com"


def objects(found, view):
    return [device_views.device_object(msgspec.convert(each, view)) for each in found]


def published(name, model=None, generation=1, **more):
    found = slices(name, model or Model("mig", 2, "A100-40GB"), generation, **more)
    return objects(found, device_views.ResourceSlice)


def result(device, pool, **more):
    return {"request": "r0", "driver": DRIVER, "pool": pool, "device": device, **more}


def allocated(name, *results, user=""):
    """A claim with an allocation, as the API server has it."""
    status = {"allocation": {"devices": {"results": list(results)}}}
    if user:
        status["reservedFor"] = [{"resource": "pods", "name": user, "uid": f"uid-{user}"}]
    spec = {"devices": {"requests": [{"name": "r0", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": spec, "status": status}


def read(view):
    return device_views.device_object(msgspec.convert(view, device_views.ResourceClaim))


def lines_of(state):
    return {line.name: line for line in nodes.lines(state)}


def known(*found):
    loop = core(*(each for each in found if not isinstance(each, (Slice, DeviceClaim))))
    given = [each for each in found if isinstance(each, (Slice, DeviceClaim))]
    given += objects(classes(), device_views.DeviceClass)
    loop.apply([*(Upsert(each) for each in given), DevicesKnown()], NOW)
    loop.state.begin(NOW)
    loop.state.settle(NOW)
    return loop


def test_nodes_show_gpus_of_slices_and_their_partitions():
    one = allocated("c", result("n-mig-1g5gb-0", "n"))
    name = next(each.name for item in published("n") for each in item.devices if "1g" in each.name)
    one["status"]["allocation"]["devices"]["results"][0]["device"] = name
    loop = known(queue("q"), node("n", gpus=0), node("other", gpus=0), *published("n"), read(one))
    line = lines_of(loop.state)["n"]
    assert (line.gpus, line.gpus_used, line.state) == (2, 0.142, "mixed")
    assert sorted(line.gpu_free_milli) == [858, 1000]
    parts = {each.resource: (each.part_milli, each.offered, each.used) for each in line.gpu_parts}
    assert parts[f"{DRIVER}/1g.5gb"] == (142, 14, 1)
    assert parts[f"{DRIVER}/3g.20gb"] == (500, 3, 0)
    other = lines_of(loop.state)["other"]
    assert (other.gpus, other.gpus_used, other.gpu_free_milli, other.gpu_parts) == (0, 0, [], [])
    console = Console(width=200, file=StringIO())
    console.print(_table([line]))
    assert "0.142/2" in console.file.getvalue()


def test_a_full_node_is_allocated_and_a_free_one_idle():
    claims = [claim("c", allocation=held("a", "gpu-0", "gpu-1"))]
    state = state_of(gpus("a", 2), gpus("b", 2), *claims)
    found = lines_of(state)
    assert {name: (each.state, each.gpus, each.gpus_used) for name, each in found.items()} == {
        "a": ("allocated", 2, 2.0),
        "b": ("idle", 2, 0.0),
    }
    assert (found["a"].gpu_free_milli, found["b"].gpu_free_milli) == ([0, 0], [1000, 1000])


def test_shares_and_partitions_of_one_gpu_add_up():
    state = state_of(*halves("a", 1), claim("c", allocation=held("a", "gpu-0-half-0")), hosts=("a",))
    line = lines_of(state)["a"]
    assert (line.gpus, line.gpus_used, line.gpu_free_milli) == (1, 0.5, [500])
    (share,) = published("n", Model("shared", 1, "H100-80GB"))
    used = result(share.devices[0].name, "n", consumedCapacity={"memory": "20Gi"}, shareID="a2b4c6d8-0000-4000-8000-000000000001")
    loop = known(queue("q"), node("n", gpus=0), share, read(allocated("c", used)))
    line = lines_of(loop.state)["n"]
    assert (line.gpus, line.gpus_used) == (1, 0.25)
    assert [(each.resource, each.part_milli, each.used) for each in line.gpu_parts] == [(f"{DRIVER}/share", 250, 1)]


@pytest.mark.parametrize(("plugin", "driver", "gpus_"), [(2, 2, 2), (4, 2, 4), (1, 2, 2)])
def test_gpus_of_a_plugin_and_a_driver_are_counted_once(plugin, driver, gpus_):
    host = offers("n", A100, gpu=plugin)
    slices_ = published("n", Model("plain", driver))
    user = pod("p", queue="q", at="n", started=1.0)
    taken = read(allocated("c", result(slices_[0].devices[0].name, "n")))
    loop = known(queue("q"), host, *slices_, user, taken)
    line = lines_of(loop.state)["n"]
    assert (line.gpus, line.gpus_used, len(line.gpu_free_milli)) == (gpus_, 2.0, gpus_)
    assert loop.state.queues.tree.total(GPU) == gpus_ * 1000
    loop.apply([Upsert(msgspec.structs.replace(host, labels={**host.labels, "other": "label"}))], NOW)
    assert loop.state.queues.tree.total(GPU) == gpus_ * 1000


def test_gpus_of_different_vendors_add_up():
    loop = known(queue("q"), offers("n", A100, gpu=2), gpus("n", 3))
    assert loop.state.queues.tree.total(GPU) == 5000
    assert lines_of(loop.state)["n"].gpus == 5


def test_partitions_of_a_plugin_beside_gpus_of_a_driver():
    loop = known(
        queue("q"), offers("n", A100, mig_1g_5gb=7), *published("n"), asks("a", SMALL, 3, queue="q", at="n", started=1.0)
    )
    line = lines_of(loop.state)["n"]
    assert (line.gpus, line.gpus_used) == (2, 0.426)
    assert {each.resource for each in line.gpu_parts} > {SMALL, f"{DRIVER}/1g.5gb"}


def test_slices_of_nodes_that_do_not_exist_do_not_count():
    state = state_of(gpus("a", 2), gpus("gone", 8), hosts=("a",))
    assert state.queues.tree.total(GPU) == 2000
    state.upsert_node(node("gone", gpus=0))
    assert state.queues.tree.total(GPU) == 10_000
    state.remove_node("gone")
    assert state.queues.tree.total(GPU) == 2000


def test_percentages_are_of_gpus_by_slices_and_follow_them():
    percent = Queue("q", resources=(QueueResource(GPU, quota_percent=50_000),))
    state = cluster([node("a", gpus=0)], [percent])
    run(state)
    assert state.queues.queues["q"].quota[GPU] == 0
    state.claims.upsert(gpus("a", 4))
    run(state, 1)
    assert state.queues.queues["q"].quota[GPU] == 2000
    state.claims.remove(Slice, "a")
    run(state, 2)
    assert state.queues.queues["q"].quota[GPU] == 0


def test_pools_have_the_gpus_of_their_nodes():
    pool = NodePool("mig", (Requirement("kind", "In", ("mig",)),))
    quota = Queue("q", resources=(QueueResource(GPU, 1000, pool="mig"),))
    host = msgspec.structs.replace(node("n", gpus=0), labels={"kind": "mig"})
    name = next(each.name for item in published("n") for each in item.devices if "3g" in each.name)
    loop = known(pool, quota, host, node("m", gpus=0), *published("n"), *published("m"), read(allocated("c", result(name, "n"))))
    tree = loop.state.queues.tree
    assert (tree.total(f"{GPU}@mig"), tree.total(GPU)) == (2000, 4000)
    found = {each.name: each for each in take(loop.state, NOW).pools}
    assert (found["mig"].gpus, found["mig"].allocated, found["mig"].fragmented) == (2.0, 0.5, 1.5)
    closed = msgspec.structs.replace(host, unschedulable=True)
    loop.apply([Upsert(closed)], NOW)
    assert tree.usable(f"{GPU}@mig") == 500


def test_what_claims_of_others_hold_is_not_divided_among_queues():
    state = state_of(gpus("a", 4), claim("c", allocation=held("a", "gpu-0", "gpu-1")), hosts=("a",))
    assert state.queues.fair.offered(GPU) == 2000


# -- random worlds, judged by a sum over API objects ---------------------------------------------


class World:
    """ResourceSlices, claims and nodes as API objects, in any order; `judge` adds them up without the core's code."""

    MODELS = (Model("mig", 2, "A100-40GB"), Model("plain", 3), Model("mig", 1, "A30"), Model("shared", 2, "H100-80GB"))

    def __init__(self, seed):
        self.rnd = random.Random(seed)
        self.state = cluster([], [queue("q")])
        self.nodes, self.pools, self.claims, self.slices = {}, {}, {}, {}

    def step(self):
        self.rnd.choices((self.change_node, self.publish, self.write_claim, self.free, self.lose), (2, 2, 5, 2, 1))[0]()

    def change_node(self):
        name = f"n{self.rnd.randrange(4)}"
        if name in self.nodes and self.rnd.random() < 0.4:
            del self.nodes[name]
            self.state.remove_node(name)
        else:
            plugin = self.rnd.choice((0, 0, 1, 4))
            self.nodes[name] = plugin
            self.state.upsert_node(offers(name, A100, **({"gpu": plugin} if plugin else {})))

    def publish(self, lost=()):
        name = f"n{self.rnd.randrange(4)}"
        model, generation = self.pools.get(name, (self.rnd.choice(self.MODELS), 0))
        if self.rnd.random() < 0.3:
            model = self.rnd.choice(self.MODELS)
        self.pools[name] = model, generation + 1
        found = slices(name, model, generation + 1, lost=lost)
        for each in found:
            self.put(each)
        for key in [key for key, each in self.slices.items() if each["spec"]["nodeName"] == name and each not in found]:
            del self.slices[key]
            self.state.claims.remove(Slice, key)

    def put(self, each):
        self.slices[each["metadata"]["name"]] = each
        self.state.claims.upsert(*objects([each], device_views.ResourceSlice))

    def lose(self):
        names = [device["name"] for each in self.slices.values() for device in each["spec"].get("devices", ())]
        self.publish(lost=self.rnd.sample(names, min(len(names), 5)))

    def write_claim(self):
        devices = [(each, device) for each in self.slices.values() for device in each["spec"].get("devices", ())]
        if not devices:
            return
        name, results = f"c{self.rnd.randrange(12)}", []
        for _ in range(self.rnd.randint(1, 3)):
            item, device = self.rnd.choice(devices)
            more = {"adminAccess": True} if self.rnd.random() < 0.1 else {}
            if device.get("allowMultipleAllocations"):
                more = {"shareID": f"a2b4c6d8-0000-4000-8000-{len(results):012d}", "consumedCapacity": {"memory": "8Gi"}}
            results.append(result(device["name"], item["spec"]["pool"]["name"], **more))
        self.claims[name] = allocated(name, *results)
        self.state.claims.upsert(read(self.claims[name]))

    def free(self):
        if self.claims:
            name = self.rnd.choice(sorted(self.claims))
            del self.claims[name]
            self.state.claims.remove(DeviceClaim, f"ns/{name}")

    def milli(self, item):
        """Thousandths of a GPU that a result is, by today's slices."""
        if item.get("adminAccess"):
            return 0
        in_pool = [each for each in self.slices.values() if each["spec"]["pool"]["name"] == item["pool"]]
        device = next((d for each in in_pool for d in each["spec"].get("devices", ()) if d["name"] == item["device"]), None)
        if device is None:
            return 0
        share = Fraction(1)
        if item.get("shareID"):
            mebibytes = int(device["capacity"]["memory"]["value"].removesuffix("Mi"))
            share = min(share, Fraction(8 * 1024, mebibytes))
        if "consumesCounters" not in device:
            return int(1000 * share)
        (uses_,) = device["consumesCounters"]
        totals = next(s for each in in_pool for s in each["spec"].get("sharedCounters", ()) if s["name"] == uses_["counterSet"])
        of = {name: int(each["value"].removesuffix("Mi")) for name, each in totals["counters"].items()}
        used = {name: int(each["value"].removesuffix("Mi")) for name, each in uses_["counters"].items()}
        sliced = Fraction(sum("memory-slice" in name for name in used), sum("memory-slice" in name for name in of))
        parts = [Fraction(used[name], of[name]) for name in ("memory", "multiprocessors")]
        return int(1000 * share * max(sliced, *parts))

    def judge(self, state):
        found = lines_of(state)
        assert found.keys() == self.nodes.keys()
        offered = dict.fromkeys(self.nodes, 0)
        for name, plugin in self.nodes.items():
            there = [each["spec"] for each in self.slices.values() if each["spec"]["nodeName"] == name]
            sets = {each["name"] for spec in there for each in spec.get("sharedCounters", ())}
            bare = {d["name"] for spec in there for d in spec.get("devices", ()) if "consumesCounters" not in d}
            offered[name] = 1000 * max(plugin, len(sets | bare))
        held_ = dict.fromkeys(self.nodes, 0)
        for each in self.claims.values():
            for item in each["status"]["allocation"]["devices"]["results"]:
                if item["pool"] in held_:
                    held_[item["pool"]] += self.milli(item)
        assert {name: round(1000 * line.gpus) for name, line in found.items()} == offered
        assert {name: round(1000 * line.gpus_used) for name, line in found.items()} == held_
        assert state.queues.tree.total(GPU) == sum(offered.values())

    def again(self):
        """A core that begins from the objects as they are, in another order."""
        state = cluster([], [queue("q")])
        given = [*((Upsert, each) for each in self.slices.values()), *((DeviceClaim, each) for each in self.claims.values())]
        self.rnd.shuffle(given)
        names = list(self.nodes)
        self.rnd.shuffle(names)
        for what, each in given:
            if names and self.rnd.random() < 0.3:
                name = names.pop()
                state.upsert_node(offers(name, A100, **({"gpu": self.nodes[name]} if self.nodes[name] else {})))
            state.claims.upsert(read(each) if what is DeviceClaim else objects([each], device_views.ResourceSlice)[0])
        for name in names:
            state.upsert_node(offers(name, A100, **({"gpu": self.nodes[name]} if self.nodes[name] else {})))
        return state


@pytest.mark.parametrize("seed", range(40))
def test_nodes_say_what_the_objects_add_up_to(seed):
    world = World(seed)
    for _ in range(25):
        world.step()
        world.judge(world.state)
    world.judge(world.again())


def test_a_victims_devices_stay_used_until_it_is_gone():
    state = state_of(gpus("a", 1), claim("c", allocation=held("a", "gpu-0"), users=("uid-p",)), hosts=("a",))
    state.upsert_pod(uses("p", "c", at="a"))
    assert lines_of(state)["a"].gpus_used == 1.0
    state.remove_pod("uid-p")
    assert lines_of(state)["a"].gpus_used == 1.0
    state.claims.upsert(claim("c"))
    assert lines_of(state)["a"].gpus_used == 0.0

"""Devices of claims in the history and in money: what queues pay is what nodes have and is held, whatever comes in which order."""

import random
from fractions import Fraction

import msgspec
import pytest

from fairlead.cluster import device_views, views
from fairlead.cluster.simulated import devices
from fairlead.cluster.simulated.devices import Model
from fairlead.observability.history import Wanted
from fairlead.observability.ledger import ledger
from fairlead.observability.store import History
from fairlead.operator.accounting.accounting import Accounting
from fairlead.operator.accounting.observations import ClaimObserved, PodObserved, SliceObserved
from tests.databases import on_databases
from tests.operator.observed import pod
from tests.operator.test_gpu_parts import node
from tests.operator.test_node_intervals import intervals, pool, put_down

DRIVER = devices.DRIVER


def slices(name, model, generation=1, at=0.0, **more):
    found = devices.slices(name, model, generation, **more)
    return [SliceObserved(each["metadata"]["name"], msgspec.convert(each, device_views.ResourceSlice), at) for each in found]


def claim(name, *results, users=(), owner="", at=0.0):
    """A claim with devices, as (node, device)."""
    metadata = {"name": name, "namespace": "vision", "uid": f"uid-claim-{name}"}
    if owner:
        metadata["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": f"uid-{owner}", "controller": True}]
    given = [{"request": "r", "driver": DRIVER, "pool": where, "device": device} for where, device in results]
    status = {"reservedFor": [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in users]}
    if given:
        status["allocation"] = {"devices": {"results": given}}
    view = msgspec.convert({"metadata": metadata, "spec": {}, "status": status}, device_views.ResourceClaim)
    return ClaimObserved(f"vision/{name}", view, at)


def using(name, *, claims=("c",), at=0.0, phase="Running", **more):
    """A pod without GPUs of its own, that uses claims."""
    document = msgspec.to_builtins(pod(name, phase=phase, **more).view)
    document["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1"}
    document["spec"]["resourceClaims"] = [{"name": each, "resourceClaimName": each} for each in claims]
    return PodObserved(f"vision/{name}", msgspec.convert(document, views.Pod), at)


def begun(history, *observed, now=0.0):
    accounting = Accounting(history)
    accounting.apply(observed, now)
    accounting.close_others()
    accounting.write(now)
    return accounting


def runs(history):
    found = [run for run, _ in history.held(0.0, 1e9)[1]]
    return sorted((run.name, run.node, run.gpus, run.started_at, run.ended_at) for run in found)


def device(model, part):
    return next(each for each in devices.of_gpu(model, 0) if part in each)


MIG = Model("mig", 2, "A100-40GB")


def test_a_node_of_slices_has_its_gpus_and_a_run_its_part(history):
    small, third = device(MIG, "1g5gb"), device(MIG, "3g20gb")
    accounting = begun(history, *slices("n", MIG), node("n", 0.0), pool("h100", 0.0, 10.0))
    put_down(
        accounting,
        claim("a", ("n", small), owner="one", users=("one",)),
        claim("b", ("n", third), owner="two", users=("two",)),
        using("one", node="n"),
        using("two", node="n"),
        now=0.0,
    )
    assert intervals(history) == [("n", "h100", 2.0, 10_000_000, 0.0, None)]
    assert [(name, gpus) for name, _, gpus, _, _ in runs(history)] == [("one", 0.142), ("two", 0.5)]
    stays, found = history.held(0.0, 3600.0)
    cost = ledger(stays, [run for run, _ in found], 0.0, 3600.0, lambda run: run.name, 3600.0)
    assert {line.name: round(line.cost["USD"], 6) for line in cost.lines} == {"one": 0.71, "two": 2.5}
    assert round(cost.idle.cost["USD"], 6) == 6.79
    assert cost.balance == {"USD": 0.0}


def test_a_plugin_and_a_driver_of_one_vendor_are_paid_for_once(history):
    begun(history, *slices("n", Model("plain", 4)), node("n", 0.0, gpu="8"), pool("h100", 0.0, 10.0))
    assert intervals(history) == [("n", "h100", 8.0, 10_000_000, 0.0, None)]


@pytest.mark.parametrize("order", range(6))
def test_the_order_in_which_objects_are_observed_does_not_matter(history, order):
    observed = [
        *slices("n", MIG),
        claim("a", ("n", device(MIG, "3g20gb")), owner="one", users=("one",)),
        using("one", node="n"),
        claim("s", ("n", device(MIG, "1g5gb")), users=("one",)),
    ]
    random.Random(order).shuffle(observed)
    accounting = begun(history, node("n", 0.0))
    for each in observed:
        put_down(accounting, each, now=0.0)
    put_down(accounting, using("one", node="n"), now=0.0)
    assert runs(history) == [("one", "n", 0.5, 0.0, None), ("s", "n", 0.142, 0.0, None)]


def test_a_shared_claim_is_charged_once_and_by_the_next_of_its_pods_when_the_first_ends(history):
    accounting = begun(history, *slices("n", Model("plain", 2)), node("n", 0.0))
    put_down(
        accounting,
        claim("s", ("n", "gpu-0"), users=("one", "two")),
        using("one", claims=("s",), node="n"),
        using("two", claims=("s",), node="n"),
        now=0.0,
    )
    assert runs(history) == [("one", "n", 0, 0.0, None), ("s", "n", 1.0, 0.0, None), ("two", "n", 0, 0.0, None)]
    ended = using("one", claims=("s",), node="n", phase="Succeeded", ended=10)
    put_down(accounting, ended, claim("s", ("n", "gpu-0"), users=("two",)), now=12.0)
    assert [each for each in runs(history) if each[0] == "s"] == [("s", "n", 1.0, 0.0, 10.0), ("s", "n", 1.0, 10.0, None)]
    found = {entry.job.name: (entry.runs, entry.gpu_seconds) for entry in history.jobs(Wanted(), 30.0)}
    assert found == {"one": (1, 10.0), "two": (1, 20.0)}
    put_down(accounting, PodObserved("vision/two", None, 40.0), now=40.0)
    assert runs(history)[-1] == ("two", "n", 0, 0.0, 40.0)
    assert [each[-1] for each in runs(history) if each[0] == "s"] == [10.0, 40.0]


def test_an_operator_that_begins_again_goes_on_with_what_claims_hold(history):
    observed = [
        *slices("n", Model("plain", 2)),
        node("n", 0.0),
        claim("s", ("n", "gpu-0"), users=("one",)),
        claim("a", ("n", "gpu-1"), owner="one", users=("one",)),
        using("one", claims=("s", "a"), node="n"),
    ]
    begun(history, *observed)
    before = runs(history)
    assert before == [("one", "n", 1.0, 0.0, None), ("s", "n", 1.0, 0.0, None)]
    begun(history, *observed, now=60.0)
    assert runs(history) == before
    assert len(intervals(history)) == 1
    begun(history, *slices("n", Model("plain", 2)), node("n", 0.0), now=120.0)
    assert [each[-1] for each in runs(history)] == [60.0, 60.0]


def test_a_driver_that_restarts_and_a_device_that_vanishes_change_no_price(history):
    accounting = begun(history, *slices("n", Model("plain", 2)), node("n", 0.0))
    put_down(accounting, claim("a", ("n", "gpu-0"), owner="one"), using("one", claims=("a",), node="n"), now=0.0)
    gone = [SliceObserved(each.name, None) for each in slices("n", Model("plain", 2))]
    put_down(accounting, *gone, now=5.0)
    put_down(accounting, using("one", claims=("a",), node="n"), now=6.0)
    put_down(accounting, *slices("n", Model("plain", 2), 2, lost=("gpu-0",)), now=7.0)
    put_down(accounting, ClaimObserved("vision/a", None), now=8.0)
    put_down(accounting, using("one", claims=("a",), node="n", phase="Succeeded", ended=9), now=9.0)
    assert runs(history) == [("one", "n", 1.0, 0.0, 9.0)]
    assert [(gpus, start, end) for _, _, gpus, _, start, end in intervals(history)] == [(2.0, 0.0, 8.0), (1.0, 8.0, None)]


MODELS = {"n0": MIG, "n1": Model("plain", 3), "n2": Model("mig", 1, "A30"), "n3": Model("plain", 1)}


class World:
    """Nodes, slices, pods and claims in any order; `judge` adds up moment by moment who holds what, without accounting's code."""

    def __init__(self, seed, url):
        self.rnd = random.Random(seed)
        self.url = url
        self.now, self.made = 0.0, 0
        self.claims, self.pods, self.free = {}, {}, {}
        self.ended = []  # (holder of GPU time, thousandths, from, to)
        self.spans = {}  # open: what -> (job, thousandths, from)
        self.history = History(url)
        for name, model in MODELS.items():
            self.free[name] = [list(devices.of_gpu(model, number)) for number in range(model.gpus)]
        self.accounting = begun(self.history, *self.base())

    def base(self):
        found = [each for name, model in MODELS.items() for each in slices(name, model)]
        return [*found, *(node(name, 0.0) for name in MODELS), pool("h100", 0.0, 12.0)]

    def see(self, *observed):
        observed = list(observed)
        self.rnd.shuffle(observed)
        for each in observed:
            self.accounting.apply([each], self.now)
        self.accounting.write(self.now)

    def parts(self, where, name):
        model = MODELS[where]
        shown = next(each for each in devices.devices(where, model) if each["name"] == name)
        if "consumesCounters" not in shown:
            return 1000
        totals = devices.counter_sets(model)[0]["counters"]
        used = shown["consumesCounters"][0]["counters"]
        found = [Fraction(sum("slice" in key for key in used), sum("slice" in key for key in totals))]
        amounts = [
            [Fraction(of[key]["value"].removesuffix("Mi")) for of in (used, totals)] for key in ("memory", "multiprocessors")
        ]
        found += [amount / total for amount, total in amounts]
        return int(1000 * max(found))

    def start(self):
        """Pods begin on a GPU that is free, with a claim of their own or one that all share."""
        where = self.rnd.choice([name for name, gpus in self.free.items() if gpus] or [""])
        if not where:
            return
        names = self.free[where].pop()
        device_ = self.rnd.choice(names)
        self.made += 1
        key, shared = f"c{self.made}", self.rnd.random() < 0.5
        users = [f"p{self.made}-{at}" for at in range(self.rnd.randint(1, 3) if shared else 1)]
        self.claims[key] = [where, device_, users, shared, names]
        for each in users:
            self.pods[each] = key
        self.pay(key)
        self.see(self.claim(key), *(self.pod(each) for each in users))

    def claim(self, key):
        where, device_, users, shared, _ = self.claims[key]
        return claim(key, (where, device_), users=users, owner="" if shared else users[0], at=self.now)

    def pod(self, name, **more):
        key = self.pods[name]
        return using(name, claims=(key,), node=self.claims[key][0], at=self.now, **more)

    def pay(self, key):
        """Who holds a claim from now on."""
        before = self.spans.get(key)
        users = self.claims[key][2] if key in self.claims else []
        payer = users[0] if users else None
        if before is not None and before[0] == payer:
            return
        if before is not None:
            self.ended.append((before[0], before[1], before[2], self.now))
            del self.spans[key]
        if payer is not None:
            where, device_ = self.claims[key][:2]
            self.spans[key] = payer, self.parts(where, device_), self.now

    def end(self):
        if not self.pods:
            return
        name = self.rnd.choice(sorted(self.pods))
        key = self.pods.pop(name)
        users = self.claims[key][2]
        users.remove(name)
        gone = PodObserved(f"vision/{name}", None, self.now)
        self.pay(key)
        if users:
            self.see(gone)
            self.see(self.claim(key))
        else:
            where, _, _, _, names = self.claims.pop(key)
            self.free[where].append(names)
            self.see(gone)
            self.see(ClaimObserved(f"vision/{key}", None, self.now))

    def restart(self):
        self.accounting.write(self.now)
        self.history.close()
        self.history = History(self.url)
        observed = [*self.base(), *(self.claim(key) for key in self.claims), *(self.pod(name) for name in self.pods)]
        self.rnd.shuffle(observed)
        self.accounting = begun(self.history, *observed, now=self.now)

    def step(self):
        self.now += self.rnd.randint(1, 100)
        self.rnd.choices((self.start, self.end, self.restart), (5, 4, 1))[0]()

    def judge(self):
        self.now += 10
        stays, found = self.history.held(0.0, self.now)
        held = ledger(stays, [run for run, _ in found], 0.0, self.now, lambda run: run.job.partition("-")[2][:-2], self.now)
        expected = {}
        open_ = [(job, milli, since, self.now) for job, milli, since in self.spans.values()]
        for job, milli, since, until in [*self.ended, *open_]:
            expected[job[:-2]] = expected.get(job[:-2], 0) + milli * (until - since)  # by the users of one claim
        gpu_time = {line.name: round(line.gpu_hours * 3_600_000) for line in held.lines if line.gpu_hours}
        assert gpu_time == {job: round(amount) for job, amount in expected.items() if amount}
        assert round(held.nodes.gpu_hours * 3600) == round(7 * self.now)
        assert round(held.idle.gpu_hours * 3_600_000) == round(7000 * self.now) - sum(gpu_time.values())
        assert held.balance == {"USD": 0.0}


@on_databases(range(12))
def test_what_is_held_is_what_the_claims_are_whatever_happens(seed, database):
    world = World(seed, database)
    for _ in range(40):
        world.step()
    world.judge()
    world.history.close()

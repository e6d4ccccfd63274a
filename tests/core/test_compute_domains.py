"""ComputeDomains: one clique for all pods of a domain, one domain for a node."""

import json
import random

import msgspec
import pytest

from fairlead.api.names import CLIQUE_LABEL, COMPUTE_DOMAIN_CLASS, COMPUTE_DOMAIN_LABEL
from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.dra.model import Ask, Claim, Config, Device, DeviceClaim, DeviceClass, DeviceTemplate, Reach, Request, Slice
from fairlead.core.model.pods import DeviceUse, Near
from fairlead.core.model.transactions import Deallocate, Evict, Place, Preempt
from fairlead.core.nodes.compute_domains import domain_of
from tests.builders import cluster, group, node, placed, pod, refused, run, spec, start

DRIVER = "compute-domain.nvidia.com"


def template(uid, kind=COMPUTE_DOMAIN_CLASS):
    """The template of a channel, as NVIDIA's driver makes it for a ComputeDomain."""
    opaque = {"driver": DRIVER, "parameters": {"kind": "ComputeDomainChannelConfig", "domainID": uid, "allocationMode": "Single"}}
    asks = Claim("", "", (Request("channel", (Ask("channel", kind),)),), configs=(Config(json.dumps(opaque), ("channel",)),))
    return DeviceTemplate(f"ns/{uid}", asks)


def channels(name, count=4):
    return Slice(
        f"cd-{name}", DRIVER, name, reach=Reach(name), devices=tuple(Device(f"channel-{n}", DRIVER) for n in range(count))
    )


def host(name, clique="c0", domain="", gpus=2):
    labels = {**({CLIQUE_LABEL: clique} if clique else {}), **({COMPUTE_DOMAIN_LABEL: domain} if domain else {})}
    return node(name, gpus=gpus, labels=labels)


def member(name, uid, gang="", gpus=1, **more):
    use = DeviceUse("channel", f"ns/{name}-channel", f"ns/{uid}")
    return pod(name, group=gang, spec_=spec(gpus=gpus), claims=(use,), **more)


def made(state, name, uid):
    """The controller has made a pod's claim from its template."""
    asks = template(uid).asks
    state.claims.upsert(DeviceClaim(f"ns/{name}-channel", f"c-{name}", asks, owner=f"uid-{name}"))


def world(hosts, domains=("d1", "d2"), groups=(), pods=()):
    state = cluster(hosts, groups=groups)
    fill(state, hosts, domains, pods)
    return state


def fill(state, hosts, domains, pods):
    """Channels of these nodes, templates of domains, and pods with their claims."""
    state.claims.upsert(DeviceClass(COMPUTE_DOMAIN_CLASS))
    for each in hosts:
        state.claims.upsert(channels(each.name))
    for uid in domains:
        state.claims.upsert(template(uid))
    state.claims.all_known()
    for each, uid in pods:
        if uid:
            made(state, each.name, uid)
        state.upsert_pod(each)


def gang(name, size, uid, **more):
    return [(member(f"{name}-{i}", uid, name, **more), uid) for i in range(size)]


def test_which_domain_a_claim_joins():
    assert domain_of(template("d1").asks) == "d1"
    assert not domain_of(template("d1", kind="gpu.nvidia.com").asks)
    odd = msgspec.structs.replace(
        template("d1").asks, configs=(Config("[]"), Config("{"), Config('{"parameters": {"domainID": 3}}'))
    )
    assert not domain_of(odd)
    assert not domain_of(
        msgspec.structs.replace(template("d1").asks, configs=(Config(template("d1").asks.configs[0].parameters, ("x",)),))
    )


def test_a_gang_is_in_one_clique():
    hosts = [host("a", "c0"), host("b", "c1"), host("c", "c1"), host("d", "")]
    state = world(hosts, groups=[group("g", 4)], pods=gang("g", 4, "d1"))
    assert set(start(state).values()) == {"b", "c"}


def test_it_waits_with_numbers():
    state = world([host("a", "c0"), host("b", "c1")], groups=[group("g", 3)], pods=gang("g", 3, "d1"))
    reason = refused(run(state))["g-0"]
    assert reason.code is ReasonCode.TOPOLOGY
    assert f"needs 3 pods in one {CLIQUE_LABEL}; the largest {CLIQUE_LABEL} holds at most 2 when empty" in reason.message


def test_pods_without_a_gang_stay_in_the_clique_of_their_domain():
    hosts = [host("a", "c0", gpus=1), host("b", "c1", gpus=4)]
    state = world(hosts, pods=[(member("p", "d1"), "d1")])
    first = start(state)["p"]
    for name in ("q", "r", "s", "t"):
        made(state, name, "d1")
        state.upsert_pod(member(name, "d1"))
    assert set(start(state, 2.0).values()) <= {first}
    made(state, "u", "d1")
    state.upsert_pod(member("u", "d1"))
    reason = next(each for each in refused(run(state, 3.0)).values())
    assert "where the ComputeDomain is" in reason.message or "Insufficient" in reason.message


def test_a_node_is_in_one_domain():
    state = world([host("a"), host("b", domain="d2")], groups=[group("g", 1), group("h", 1)], pods=gang("g", 1, "d1"))
    assert start(state) == {"g-0": "a"}
    made(state, "h-0", "d3")
    state.claims.upsert(template("d3"))
    state.upsert_pod(member("h-0", "d3", "h"))
    reason = refused(run(state, 2.0))["h-0"]
    assert reason.code is ReasonCode.DEVICES
    assert "2 node(s) were in another ComputeDomain" in reason.message
    state.remove_pod("uid-g-0")
    assert start(state, 3.0) == {"h-0": "a"}


def test_the_label_of_its_own_domain_is_no_obstacle():
    state = world([host("a", domain="d1"), host("b", domain="d2")], groups=[group("g", 2)], pods=gang("g", 2, "d1"))
    assert set(start(state).values()) == {"a"}


def test_members_ask_for_the_same_whichever_is_known_first():
    """Also before their group is known, and so in one shape."""
    state = world([host("a", "c0")], pods=gang("g", 3, "d1"))
    tasks = [state.tasks[f"uid-g-{rank}"] for rank in range(3)]
    assert {each.shape.spec.near for each in tasks} == {Near("ns/g", (CLIQUE_LABEL,), "", "d1")}
    assert len({id(each.shape) for each in tasks}) == 1


class World:
    """Nodes that come and get labels late, domains, gangs and pods in any order. It judges what is bound."""

    def __init__(self, seed):
        self.rnd = random.Random(seed)
        self.now, self.number = 0.0, 0
        self.hosts = {f"n{each}": host(f"n{each}", self.rnd.choice(("c0", "c1", "")), gpus=3) for each in range(5)}
        self.state = world(list(self.hosts.values()), domains=())
        self.pods, self.domain_of, self.unwritten = {}, {}, []

    def submit(self):
        rnd = self.rnd
        self.number += 1
        uid, name = f"d{rnd.choice((self.number, max(1, self.number - 1)))}", f"g{self.number}" if rnd.random() < 0.7 else ""
        size, priority = rnd.randint(1, 4), self.priority()
        events = [lambda: self.state.claims.upsert(template(uid))]
        if name:
            events.append(lambda: self.state.upsert_group(group(name, size)))
        for rank in range(size):
            self.number += 1
            each = member(f"p{self.number}-{rank}", uid, name, created=self.now, priority=priority)
            self.pods[each.uid], self.domain_of[each.uid] = each, uid
            events += [lambda each=each: made(self.state, each.name, uid), lambda each=each: self.state.upsert_pod(each)]
        rnd.shuffle(events)
        for event in events:
            event()

    def priority(self):
        """Of the next that is submitted."""
        return 0

    def preempt(self, plan):
        raise AssertionError(plan)

    def end(self):
        if self.pods:
            self.gone(self.rnd.choice(sorted(self.pods)))

    def gone(self, uid):
        each = self.pods.pop(uid, None)
        if each is not None:
            self.state.remove_pod(uid)
            self.state.claims.remove(DeviceClaim, f"ns/{each.name}-channel")

    def label(self, name=""):
        """The driver labels nodes with pods of a domain, late, and takes the label from those without."""
        name = name or self.rnd.choice(sorted(self.hosts))
        there = {self.domain_of[uid] for uid, each in self.pods.items() if each.node == name}
        labels = {key: value for key, value in self.hosts[name].labels.items() if key != COMPUTE_DOMAIN_LABEL}
        if there:
            labels[COMPUTE_DOMAIN_LABEL] = min(there)
        self.hosts[name] = msgspec.structs.replace(self.hosts[name], labels=labels)
        self.state.upsert_node(self.hosts[name])

    def write(self, *, sure=False):
        self.rnd.shuffle(self.unwritten)
        while self.unwritten:
            binding = self.unwritten.pop()
            each = self.pods.get(binding.pod.uid)
            if each is None:
                continue
            if not sure and self.rnd.random() < 0.15:
                self.state.bind_failed(each.uid, self.now)
                continue
            self.pods[each.uid] = bound = msgspec.structs.replace(each, node=binding.node)
            for choice in binding.claims:
                if choice.allocation is not None:
                    claim = self.state.device_claims.claims[choice.claim]
                    self.state.claims.upsert(msgspec.structs.replace(claim, allocation=choice.allocation, users=(each.uid,)))
            self.state.upsert_pod(bound)
            self.judge()

    def judge(self):
        cliques, domains = {}, {}
        for uid, each in self.pods.items():
            if each.node:
                cliques.setdefault(self.domain_of[uid], set()).add(self.hosts[each.node].labels.get(CLIQUE_LABEL))
                domains.setdefault(each.node, set()).add(self.domain_of[uid])
        assert all(len(found) == 1 and None not in found for found in cliques.values()), cliques
        assert all(len(found) == 1 for found in domains.values()), domains
        for name, found in domains.items():
            assert self.hosts[name].labels.get(COMPUTE_DOMAIN_LABEL, min(found)) in found, (name, found)

    def decide(self):
        self.now += self.rnd.choice((0.0, 20.0, 200.0))
        for each in run(self.state, self.now):
            if isinstance(each, Preempt):
                self.preempt(each)
            elif isinstance(each, Evict):  # of a gang that has lost members
                for victim in each.victims:
                    self.gone(victim.pod.uid)
            elif isinstance(each, Place):
                self.unwritten += each.bindings
            elif isinstance(each, Deallocate):
                for binding in each.bindings:
                    for choice in binding.claims:
                        claim = self.state.device_claims.claims.get(choice.claim)
                        if claim is not None:
                            self.state.claims.upsert(msgspec.structs.replace(claim, allocation=None, users=()))
        wrong = [each for each in invariants.violations(self.state) if "members placed" not in each]
        assert not wrong, wrong

    def settle(self):
        """Everything is written and labelled until nothing moves."""
        for _ in range(8):
            self.now += 600.0
            self.write(sure=True)
            for name in self.hosts:
                self.label(name)
            self.decide()
        self.write(sure=True)

    def could_start(self):
        """What waits, all of it, though there is a clique for it: gangs without a place, and pods without a gang."""
        waiting = {}
        for uid, each in self.pods.items():
            waiting.setdefault((self.domain_of[uid], each.group or uid), []).append(each)
        for (domain, name), members in waiting.items():
            if any(each.node for each in members) or not self.complete(name, members):
                continue
            free = {}
            for host_name in self.hosts:
                there = [(uid, other) for uid, other in self.pods.items() if other.node == host_name]
                if all(self.domain_of[uid] == domain for uid, _ in there):
                    free[host_name] = min(3 - len(there), 4 - len(there))
            homes = {
                self.hosts[each.node].labels.get(CLIQUE_LABEL)
                for uid, each in self.pods.items()
                if each.node and self.domain_of[uid] == domain
            }
            for clique in homes or {"c0", "c1"}:
                if sum(free[each] for each in free if self.hosts[each].labels.get(CLIQUE_LABEL) == clique) >= len(members):
                    yield name, clique

    def complete(self, name, members):
        gang = self.state.gangs.get(f"ns/{name}")
        return gang is None or gang.group is None or len(members) >= gang.group.min_member


@pytest.mark.parametrize("seed", range(30))
def test_no_domain_is_in_two_cliques_and_no_node_in_two_domains(seed):
    life = World(seed)
    for _ in range(50):
        getattr(life, life.rnd.choice(("submit", "submit", "decide", "decide", "write", "write", "end", "label", "label")))()
    life.settle()
    assert not list(life.could_start())


def test_nodes_of_one_clique_are_reserved():
    """A gang of a ComputeDomain that waits is not passed by smaller work for ever: the clique that is free first is kept for it."""
    hosts = [host(f"{clique}{at}", clique) for clique in ("c", "d") for at in range(2)]
    ends = {"c": 7200.0, "d": 3600.0}
    state = world(hosts, groups=[group("g", 2)], pods=gang("g", 2, "d1", gpus=2))
    for each in hosts:
        state.upsert_pod(pod(f"x-{each.name}", at=each.name, gpus=2, started=0.0, time_limit=ends[each.name[0]]))
    for now in (10.0, 400.0):
        assert not placed(run(state, now))
    (hold,) = state.reserved.of_units()
    assert (sorted(state.nodes.names[row] for row in hold.rows), hold.start) == (["d0", "d1"], 3600.0)
    invariants.check(state)

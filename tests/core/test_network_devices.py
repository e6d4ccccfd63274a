"""Preemption for devices of the network: their holders are victims wherever they run, by the same rules as those on the node.

Judged by trying every set of victims in random small clusters.
"""

import random
from itertools import combinations

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.dra import model
from fairlead.core.model.transactions import Preempt
from tests.builders import group, run
from tests.core.claim_stream import ClaimStream
from tests.core.test_device_claims import asks, gpus

CPU, PRIORITY = 2000, 2


def network(count):
    return msgspec.structs.replace(gpus("net", count), reach=model.Reach(everywhere=True))


class Case:
    """running: name -> (node, CPU, priority, pools of its devices). The unit asks for devices and CPU for each member."""

    def __init__(self, seed):
        rnd = random.Random(seed)
        self.hosts = [f"n{each}" for each in range(rnd.randint(2, 4))]
        self.shared = rnd.randint(1, 3)
        self.local = {host: int(rnd.random() < 0.3) for host in self.hosts}
        items = [network(self.shared), *(gpus(host, 1) for host in self.hosts if self.local[host])]
        policy = {"reservations": 0, "moves_per_minute": 0.0, "share_wait": 0.0}
        self.stream = stream = ClaimStream(self.hosts, items, CPU, [group("g", 2)], **policy)
        for number in range(rnd.randint(2, 7)):
            wanted = [asks(1)] if rnd.random() < 0.6 else []
            stream.submit(f"p{number}", 1e6, wanted, cpu=rnd.choice((500, 1000, 1900)), priority=rnd.randint(0, 3))
        stream.step()
        for uid in [uid for uid, pod in stream.pods.items() if not pod.node or rnd.random() < 0.1]:
            stream.delete(uid)
        self.running = {
            pod.name: (
                pod.node,
                dict(pod.spec.requests)["cpu"],
                pod.priority,
                [each.device.pool for each in self.devices_of(pod)],
            )
            for pod in stream.pods.values()
        }
        self.members, self.cpu, self.count = rnd.choice((1, 1, 2)), rnd.choice((100, 1000)), rnd.choice((1, 1, 2))

    def devices_of(self, pod):
        return [each for use in pod.claims for each in self.stream.claims[use.key].allocation.devices]

    def victims(self):
        """Names of those that are evicted for the unit."""
        stream = self.stream
        stream.now = 100.0
        for number in range(self.members):
            more = {"group": "g"} if self.members > 1 else {}
            stream.submit(f"u{number}", 1e6, [asks(self.count)], cpu=self.cpu, priority=PRIORITY, **more)
        self.plans = [each for each in run(stream.state, stream.now) if isinstance(each, Preempt)]
        invariants.check(stream.state)
        return {victim.pod.name for plan in self.plans for victim in plan.victims}

    # -- the judge -----------------------------------------------------------------------------

    def fits(self, gone):
        cpu, local, shared = dict.fromkeys(self.hosts, CPU), dict(self.local), self.shared
        for name, (host, amount, _, pools) in self.running.items():
            if name in gone:
                continue
            cpu[host] -= amount
            for pool in pools:
                if pool == "net":
                    shared -= 1
                else:
                    local[pool] -= 1
        return self._placed(self.members, cpu, local, shared)

    def _placed(self, left, cpu, local, shared):
        if not left:
            return True
        for host in self.hosts:
            for own in range(min(self.count, local[host]) + 1):
                if cpu[host] < self.cpu or self.count - own > shared:
                    continue
                after = {**cpu, host: cpu[host] - self.cpu}, {**local, host: local[host] - own}
                if self._placed(left - 1, *after, shared - (self.count - own)):
                    return True
        return False

    def least(self):
        """The highest priority that must be evicted at least, -1: none; None: no set of victims is enough."""
        lower = [name for name, each in self.running.items() if each[2] < PRIORITY]
        sets = (chosen for size in range(len(lower) + 1) for chosen in combinations(lower, size))
        return min((max((self.running[each][2] for each in some), default=-1) for some in sets if self.fits(some)), default=None)


def judge(case):
    victims, least = case.victims(), case.least()
    if least is None or least < 0:
        assert not victims
        return False
    assert case.fits(victims)
    assert not any(case.fits(victims - {each}) for each in victims), "some are evicted in vain"
    assert max(case.running[each][2] for each in victims) == least
    nodes = {binding.node for plan in case.plans for binding in plan.beneficiaries}
    return any(case.running[each][0] not in nodes for each in victims)


@pytest.mark.parametrize("seeds", [range(100), range(100, 200)])
def test_as_a_judge_would_evict(seeds):
    elsewhere = sum(judge(Case(seed)) for seed in seeds)
    assert elsewhere, "no victim ran on another node than its beneficiary"


def test_a_holder_on_another_node_is_evicted_and_its_device_is_had_once_its_claim_is_free():
    stream = ClaimStream(["a", "b"], [network(1)], CPU, reservations=0, moves_per_minute=0.0, share_wait=0.0)
    stream.submit("low", 1e6, [asks(1)], cpu=100)
    stream.step()
    stream.submit("full", 1e6, cpu=1900, priority=5)
    stream.step()
    host = stream.where["uid-low"]
    stream.submit("high", 1e6, [asks(1)], cpu=1900, priority=3)
    assert stream.step() == {"high": "b" if stream.where["uid-full"] == "a" else "a"}
    assert stream.evicted == ["low"]
    assert host in {"a", "b"}

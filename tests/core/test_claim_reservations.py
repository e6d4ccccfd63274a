"""Reservations for jobs with claims: backfill never delays them, whichever devices it takes.

Random worlds run twice, with and without what comes after the job that waits: that world is the judge. All end at their time limits.
"""

import random

import msgspec
import pytest

from fairlead.core.actions.reserve import REPLAN_AFTER
from fairlead.core.dra import model
from fairlead.core.forecast import forecast
from fairlead.core.queues.reserved_devices import ReservedDevices
from tests.builders import group
from tests.core.claim_stream import ClaimStream
from tests.core.test_device_claims import asks, gpus, halves
from tests.core.test_network_devices import network

ASKED, STEP, LAST = 10.0, 10.0, 3000.0


class Case:
    """What runs, the job that waits (one pod, or a gang of two), and a stream of others. passed: how many of those started."""

    def __init__(self, seed, *, feed, **policy):
        rnd = random.Random(seed)
        hosts = [f"n{each}" for each in range(rnd.randint(1, 3))]
        items = []
        for host in hosts:
            items += [gpus(host, rnd.randint(1, 4))] if rnd.random() < 0.5 else halves(host, rnd.randint(1, 3))
        if rnd.random() < 0.4:
            items.append(network(rnd.randint(1, 2)))
        settings = {"reservations": 1, "patience": 0.0, "moves_per_minute": 0.0, "share_wait": 0.0, "preempt": False, **policy}
        self.stream = stream = ClaimStream(hosts, items, rnd.choice((4000, 64_000)), [group("big", 2)], **settings)
        for number in range(rnd.randint(2, 8)):
            length = rnd.choice((300, 600, 900, 1500))
            wanted = asks(rnd.choice((1, 1, 2)), kind=rnd.choice(("", "whole", "half")))
            stream.submit(f"r{number}", length, [wanted], time_limit=float(length))
        stream.step()
        for uid in [uid for uid, each in stream.pods.items() if not each.node]:
            stream.delete(uid)
        stream.now = ASKED
        members = rnd.choice((1, 1, 2))
        for number in range(members):
            wanted = asks(rnd.choice((1, 2, 3)), kind=rnd.choice(("", "whole", "half")))
            more = {"group": "big"} if members > 1 else {}
            stream.submit(f"big{number}", 100, [wanted], cpu=rnd.choice((100, 3000)), time_limit=100.0, **more)
        stream.step()
        self.promised = next((hold.start for hold in stream.state.reserved.of_units()), None)
        self.foretold = forecast(stream.state, ASKED).get("uid-big0" if members == 1 else "ns/big")
        while stream.now < LAST and "big0" not in stream.started:
            stream.now += STEP
            for _ in range(rnd.randint(0, 2) if feed else 0):
                self._feed(rnd)
            stream.step()
        self.started = stream.started.get("big0", LAST)
        self.passed = sum(name.startswith("f") for name in stream.started)

    def _feed(self, rnd):
        length, number = rnd.choice((50, 200, 500, 2000)), len(self.stream.lengths)
        wanted = [asks(rnd.choice((1, 1, 2)), kind=rnd.choice(("", "whole", "half")))] if rnd.random() < 0.8 else ()
        self.stream.submit(f"f{number}", length, wanted, cpu=rnd.choice((100, 1000)), time_limit=float(length))


@pytest.mark.parametrize("seeds", [range(at, at + 16) for at in range(0, 48, 16)])
def test_backfill_delays_no_job_with_claims(seeds):
    passed = 0
    for seed in seeds:
        alone = Case(seed, feed=False)
        if alone.started <= ASKED or alone.started >= LAST:
            continue
        case = Case(seed, feed=True)
        assert case.promised == case.foretold == max(alone.started, ASKED + REPLAN_AFTER), seed
        assert case.started <= max(alone.started, ASKED + REPLAN_AFTER + STEP), seed
        passed += case.passed
    assert passed, "no other job started meanwhile"


def test_without_the_devices_that_are_kept_it_is_delayed(monkeypatch):
    """The worlds can fail: amounts alone do not keep devices."""
    monkeypatch.setattr(ReservedDevices, "closed", lambda self, ranking: self.all_closed() & False)
    late = 0
    for seed in range(16):
        alone = Case(seed, feed=False)
        if ASKED < alone.started < LAST:
            late += Case(seed, feed=True).started > max(alone.started, ASKED + REPLAN_AFTER + STEP)
    assert late


@pytest.mark.parametrize("seed", range(8))
def test_the_first_of_a_queue_is_passed_no_longer_than_it_is_allowed(seed):
    """The other kind of reservation, for what waited longer than `share_wait`, keeps devices as well."""
    wait = 300.0
    if not ASKED < Case(seed, feed=False, reservations=0, share_wait=wait).started < LAST:
        return
    case = Case(seed, feed=True, reservations=0, share_wait=wait)
    assert case.started <= ASKED + wait + 2000.0 + wait / 60 + 2 * STEP


def test_what_is_kept_is_had_by_what_ends_in_time():
    """Two of five GPUs are free, one is given back at 400 s, and three are kept."""
    stream = ClaimStream(["a"], [gpus("a", 5)], reservations=1, patience=0.0, share_wait=0.0, preempt=False)
    for number, length in enumerate((400, 500, 5000)):
        stream.submit(f"r{number}", length, [asks(1)], time_limit=float(length))
    stream.step()
    stream.now = ASKED
    stream.submit("big", 100, [asks(3)], time_limit=100.0)
    assert not stream.step()
    stream.submit("short", 300, [asks(1)], time_limit=300.0)
    assert stream.step() == {"short": "a"}
    stream.submit("long", 9000, [asks(1)], time_limit=9000.0)
    assert not stream.step()
    stream.now = 400.0
    assert stream.step() == {"big": "a"}


def test_two_states_of_a_node_have_in_common_what_is_free_in_both():
    stream = ClaimStream(["a"], list(halves("a", 2)))
    stream.submit("p", 1e6, [asks(1, kind="half")])
    stream.step()
    now = stream.state.device_claims.devices.state_of(0)
    stream.submit("q", 1e6, [asks(1, kind="whole")])
    stream.step()
    later = stream.state.device_claims.devices.state_of(0)
    less = now.less(later)
    assert (less.alone, less.free) == (now.alone | later.alone, later.free)
    with pytest.raises(ValueError, match="not of one inventory"):
        now.less(with_other_devices(stream))


def with_other_devices(stream):
    """The state of a node with other devices."""
    stream.state.claims.upsert(msgspec.structs.replace(gpus("b", 1), reach=model.Reach("a")))
    return stream.state.device_claims.devices.state_of(0)


def test_what_the_job_does_not_need_may_be_taken_for_long():
    """Two of five GPUs are free, two are given back at 400 s, and three are kept."""
    stream = ClaimStream(["a"], [gpus("a", 5)], reservations=1, patience=0.0, share_wait=0.0, preempt=False)
    for number, length in enumerate((400, 400, 5000)):
        stream.submit(f"r{number}", length, [asks(1)], time_limit=float(length))
    stream.step()
    stream.now = ASKED
    stream.submit("big", 100, [asks(3)], time_limit=100.0)
    assert not stream.step()
    for number in range(2):
        stream.submit(f"long{number}", 9000, [asks(1)], time_limit=9000.0)
    assert len(stream.step()) == 1
    stream.now = 400.0
    assert stream.step() == {"big": "a"}

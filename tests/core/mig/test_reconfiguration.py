"""One node's reconfiguration, step by step: random sequences of all that can happen to it, and what must hold after each."""

import random
from itertools import pairwise

import msgspec
import pytest

from fairlead.core.mig.reconfiguration import (
    CORDONED,
    Decision,
    Outcome,
    Phase,
    Record,
    Seen,
    Times,
    begin,
    decide,
    rests,
)

TIMES = Times(settle=30.0, timeout=900.0, cooldown=600.0)
CALM = Seen(config="a", state="success", idle=True, allowed=True, wanted=True, offers=True, quarantined=False, cordoned=False)


def seen(**fields):
    return msgspec.structs.replace(CALM, **fields)


def settling(now=0.0):
    return begin("b", "a", ("ns/p",), now, 0.0)


def test_the_label_is_written_once_the_node_has_settled_idle():
    record = settling()
    waits = decide(record, seen(cordoned=True), TIMES, 10.0)
    assert (waits.record, waits.apply, waits.again) == (record, False, 20.0)
    applies = decide(record, seen(cordoned=True), TIMES, 30.0)
    assert applies.apply
    assert applies.record == Record(Phase.APPLYING, "b", "a", 30.0, ("ns/p",), 30.0)


@pytest.mark.parametrize(
    "change",
    [
        {"idle": False},
        {"config": "c"},
        {"state": "pending"},
        {"state": "failed"},
        {"allowed": False},
        {"wanted": False},
        {"cordoned": False},
    ],
)
def test_it_is_abandoned_before_the_label_if_anything_changed(change):
    decision = decide(settling(), seen(**{"cordoned": True, **change}), TIMES, 100.0)
    assert (decision.apply, decision.outcome, decision.record.phase) == (False, Outcome.ABANDONED, Phase.DONE)
    assert decision.message
    assert rests(decision.record, TIMES, 100.0) == 0.0, "nothing was changed on the node"


def applying(now=30.0):
    return Record(Phase.APPLYING, "b", "a", now, ("ns/p",), now)


@pytest.mark.parametrize(
    ("change", "now", "phase", "outcome"),
    [
        ({"state": "success"}, 100.0, Phase.DONE, Outcome.SUCCEEDED),
        ({"state": "success", "offers": None}, 100.0, Phase.DONE, Outcome.SUCCEEDED),
        ({"state": "success", "offers": False}, 100.0, Phase.APPLYING, None),
        ({"state": "success", "offers": False}, 930.0, Phase.MISMATCHED, Outcome.MISMATCHED),
        ({"state": "failed"}, 100.0, Phase.FAILED, Outcome.FAILED),
        ({"state": "pending"}, 929.0, Phase.APPLYING, None),
        ({"state": "rebooting", "offers": False}, 930.0, Phase.HUNG, Outcome.HUNG),
        ({"state": "", "offers": None}, 930.0, Phase.HUNG, Outcome.HUNG),
        ({"state": "pending", "offers": True}, 930.0, Phase.DONE, Outcome.SUCCEEDED),
    ],
)
def test_what_mig_manager_answers_decides(change, now, phase, outcome):
    decision = decide(applying(), seen(**{"config": "b", "cordoned": True, **change}), TIMES, now)
    assert (decision.record.phase, decision.outcome, decision.apply) == (phase, outcome, False)


def test_a_late_success_opens_a_node_that_hung_and_an_old_success_does_not():
    hung = Record(Phase.HUNG, "b", "a", 930.0, (), 30.0)
    closed = seen(config="b", state="pending", cordoned=True, quarantined=True, offers=False)
    waits = decide(hung, closed, TIMES, 9000.0)
    assert (waits.record, waits.again) == (hung, None), "mig-manager may still begin"
    answered = seen(config="b", cordoned=True, quarantined=True)
    late = decide(hung, answered, TIMES, 9000.0)
    assert late.record.phase == Phase.APPLYING
    early = decide(late.record, answered, TIMES, 9010.0)
    assert (early.record, early.again) == (late.record, 20.0), "it may be of the label before"
    assert decide(late.record, answered, TIMES, 9030.0).record.phase == Phase.DONE


def test_a_failed_node_is_closed_until_its_quarantine_ends_and_rests_until_its_label_changes():
    failed = Record(Phase.FAILED, "b", "a", 100.0, (), 30.0)
    here = seen(config="b", state="failed", cordoned=True, quarantined=True)
    assert decide(failed, here, TIMES, 5000.0).record is failed
    released = decide(failed, msgspec.structs.replace(here, quarantined=False), TIMES, 5000.0)
    assert (released.record.phase, released.outcome) == (Phase.RELEASED, Outcome.RELEASED)
    open_ = seen(config="b", state="failed")
    assert decide(released.record, open_, TIMES, 6000.0).record is released.record, "it is not blamed again"
    other = decide(released.record, seen(config="c", state="failed"), TIMES, 6000.0)
    assert (other.record.phase, other.outcome) == (Phase.FAILED, Outcome.FAILED)


def test_a_node_that_fails_by_an_administrators_label_is_quarantined_where_its_pool_has_a_policy():
    assert decide(None, seen(state="failed"), TIMES, 5.0).outcome == Outcome.FAILED
    assert decide(None, seen(state="failed", allowed=False), TIMES, 5.0) == Decision(None)
    assert decide(None, seen(), TIMES, 5.0) == Decision(None)


def test_a_taint_without_a_record_is_removed():
    decision = decide(None, seen(cordoned=True), TIMES, 5.0)
    assert decision.record.phase == Phase.DONE


def test_an_administrator_opens_a_node_by_the_taint_or_the_label():
    hung = Record(Phase.HUNG, "b", "a", 930.0, (), 30.0)
    opened = decide(hung, seen(config="b", state="pending", quarantined=True), TIMES, 1000.0)
    assert opened.record.phase == Phase.RELEASED
    unlabelled = decide(hung, seen(config="", state="pending", cordoned=True), TIMES, 1000.0).record
    assert unlabelled.phase == Phase.APPLYING
    over = decide(unlabelled, seen(config="", state="pending", cordoned=True), TIMES, 1900.0)
    assert (over.record.phase, over.outcome) == (Phase.DONE, Outcome.ABANDONED)


class Node:
    """A node with mig-manager, pods and an administrator, all at random; the record is what the decisions say."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.now = 0.0
        self.record = None
        self.config, self.state = "a", "success"
        self.applied, self.work = "a", None  # work: (when it ends, the configuration, how)
        self.cordoned = self.quarantined = False
        self.until = 0.0
        self.running = False
        self.hits = 0
        self.wanted = True
        self.manual = False  # an administrator changed the label
        self.closed_since = None
        self.wrong = "c" if self.draw.random() < 0.3 else ""  # the pool says something else of it

    def look(self):
        return Seen(
            config=self.config,
            state=self.state,
            idle=not self.running,
            allowed=self.draw.random() > 0.01,
            wanted=self.wanted,
            offers=None if self.draw.random() < 0.1 else self.config == self.applied and self.config != self.wrong,
            quarantined=self.quarantined,
            cordoned=self.cordoned,
        )

    def manager(self):
        """mig-manager's next move; it hits what runs."""
        if self.work is None and self.config not in ("", self.applied) and self.state != "failed":
            fate = self.draw.choices(["success", "failed", "hangs", "late"], [8, 1, 1, 1])[0]
            self.state = "pending"
            self.hits += self.running and not self.manual
            self.running = False
            took = {"late": 2000.0}.get(fate, self.draw.uniform(1.0, 300.0))
            self.work = self.now + took, self.config, fate
        elif self.work is not None and self.now >= self.work[0] and self.work[2] != "hangs":
            _, config, fate = self.work
            self.work = None
            self.applied = config if fate != "failed" else "?"
            if fate == "failed":
                self.state = "failed"
            elif config == self.config:
                self.state = "success"

    def others(self):
        """Pods and administrators."""
        if not self.cordoned and self.draw.random() < 0.1 and self.work is None and self.config == self.applied:
            self.running = True
        if self.running and self.draw.random() < 0.2:
            self.running = False
        if self.draw.random() < 0.02:
            self.wanted = not self.wanted
        if self.draw.random() < 0.01:  # also onto a node with pods: that is the administrator's
            self.config, self.manual = self.draw.choice("abc"), True
            if self.state == "failed" or (self.work is not None and self.work[2] == "hangs"):
                self.state, self.work = "pending", None
        if self.quarantined and self.now >= self.until:
            self.quarantined = False

    def operator(self):
        """One step: what is decided is written."""
        decision = decide(self.record, self.look(), TIMES, self.now)
        if decision.record is not self.record:
            self.record = decision.record
            if decision.apply:
                assert not self.running, "the label is written on an idle node only"
                assert self.config == decision.record.before
                self.config, self.state, self.manual = decision.record.to, "pending", False
            self.cordoned = self.record.phase in CORDONED
            if decision.outcome in (Outcome.FAILED, Outcome.HUNG):
                self.quarantined, self.until = True, self.now + 6 * 3600
            return True
        ready = self.state == "success" and not self.running and not self.cordoned and self.wanted
        if ready and rests(self.record, TIMES, self.now) <= 0 and self.draw.random() < 0.1:
            last = self.record.last if self.record is not None else 0.0
            to = self.draw.choice([each for each in "abc" if each != self.config])
            self.record, self.cordoned = begin(to, self.config, (), self.now, last), True
            return True
        return False


@pytest.mark.parametrize("seed", range(60))
def test_no_running_pod_is_hit_and_no_node_is_closed_for_ever(seed):
    node = Node(seed)
    labels, reasons = [], set()
    for _ in range(3000):
        node.now += node.draw.choice([1.0, 5.0, 60.0, 400.0])
        node.manager()
        node.others()
        if node.draw.random() < 0.7:  # the operator may be down for a while
            steps = 0
            before = node.config
            while node.operator():
                steps += 1
                assert steps < 6, "what is decided at one time settles"
            if node.config != before:
                labels.append(node.now)
        assert node.hits == 0
        reasons.add(node.record.phase if node.record is not None else None)
        if node.cordoned and node.closed_since is None:
            node.closed_since = node.now
        elif not node.cordoned:
            node.closed_since = None
        if node.closed_since is not None and node.state in ("success", "failed"):
            assert node.now - node.closed_since < 10 * 24 * 3600
    assert all(late - early >= TIMES.cooldown for early, late in pairwise(labels))
    # Left alone, with a mig-manager that answers, the node is opened.
    node.draw = random.Random("calm")
    for _ in range(40):
        node.now += 3600.0
        node.wanted = False
        node.quarantined = node.quarantined and node.now < node.until
        if node.work is not None or node.config not in ("", node.applied) or node.state == "pending":  # it was restarted
            node.work, node.applied, node.state = None, node.config, "success"
        while node.operator():
            pass
        if node.config == "":
            node.state = "success"
    assert not node.cordoned, node.record


def test_the_random_sequences_reach_every_phase():
    reached = set()
    for seed in range(20):
        node = Node(seed)
        for _ in range(2000):
            node.now += node.draw.choice([1.0, 5.0, 60.0, 400.0])
            node.manager()
            node.others()
            while node.operator():
                reached.add(node.record.phase)
    assert reached == set(Phase)

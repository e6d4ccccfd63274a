"""Why pods go: data for metrics and rules, one sentence for people, and the same bytes in the decision log."""

from __future__ import annotations

from fairlead.core.model.causes import NO_CAUSE, Cause, PreemptionReason, named
from fairlead.core.model.transactions import Preempt
from fairlead.scheduler.decision_log import encode


def test_a_cause_is_told_in_one_sentence():
    share, service = PreemptionReason.SHARE, PreemptionReason.SERVICE
    assert str(Cause((share, service))) == "its queue is below its fair share, it has less attained service"
    assert str(Cause((share,)).overriding(["ns/a"])) == (
        "its queue is below its fair share, and the grace time of PodDisruptionBudget ns/a has expired"
    )
    assert str(Cause(emptied="n1")) == "node n1 is drained so that whole nodes are free"
    assert str(NO_CAUSE) == ""


def test_metrics_name_the_most_frequent_reason_whatever_the_sentence_says():
    assert Cause((PreemptionReason.USER, PreemptionReason.SHARE)).main.label == "User"
    assert Cause((PreemptionReason.ELASTIC,)).overriding([]).main.label == "Elastic"
    assert NO_CAUSE.main.label == "Priority", "kube-scheduler knows no other reason"


def test_budgets_are_named_up_to_three():
    assert named([]) == "a PodDisruptionBudget"
    assert named(["ns/a", "ns/b", "ns/c", "ns/d"]) == "PodDisruptionBudget ns/a, ns/b, ns/c and 1 more"


def test_the_decision_log_holds_the_sentence():
    written = encode(Preempt((), (), why=Cause((PreemptionReason.PRIORITY,))))
    assert b'"why":"its priority is higher"' in written
    assert b'"why":""' in encode(Preempt((), ()))
    assert Cause((PreemptionReason.USER,)) == Cause((PreemptionReason.USER,)) != NO_CAUSE

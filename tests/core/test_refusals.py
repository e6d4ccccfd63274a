"""Refusals: each reason is published once, for all to which it applies; nothing is said of pods that are gone."""

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.actions.refusals import notify, refuse, report_overdue
from fairlead.core.actions.serve import serve
from fairlead.core.model.queues import Queue, UserLimits
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Overdue
from tests.builders import GPU, cluster, first, group, node, pod, queue, refused, run, settle

FULL = Reason(ReasonCode.RESOURCES, "full")
OTHER = Reason(ReasonCode.BACKOFF, "later")


def units_of(state, now=1.0):
    first(state, now)
    (node_,) = (each for each in state.queues.queues.values() if each.pending_classes)
    return [unit for pending_class in node_.pending_classes.values() for unit in pending_class.units]


def said(decided):
    """(group, code, names) of each refusal."""
    return [(each.group, str(each.reason.code), [ref.name for ref in each.pods]) for each in decided]


def test_single_pods_of_one_reason_share_a_refusal_in_their_order():
    state = cluster(pods=[pod("b", created=2.0), pod("a", created=1.0), pod("c", created=0.0)])
    assert said(refuse(state, units_of(state), FULL)) == [("", "Resources", ["c", "a", "b"])]


def test_each_gang_has_its_own():
    members = [pod(f"{name}-{i}", group=name) for name in "gh" for i in range(2)]
    state = cluster(pods=members, groups=[group("g", 2), group("h", 2)])
    reason = Reason(ReasonCode.RESOURCES, "needs 2 pods at once", gang="ns/g")
    decided = list(refuse(state, units_of(state), reason))
    assert said(decided) == [("ns/g", "Resources", ["g-0", "g-1"]), ("ns/h", "Resources", ["h-0", "h-1"])]
    assert [each.reason.message for each in decided] == [f"gang ns/{name} needs 2 pods at once" for name in "gh"]


def test_a_reason_is_reported_once_and_another_again():
    state = cluster(pods=[pod("a"), pod("b", created=1.0), *(pod(f"g-{i}", group="g") for i in range(2))], groups=[group("g", 2)])
    units = units_of(state)
    assert len(list(refuse(state, units, FULL))) == 2
    assert list(refuse(state, units, FULL)) == []
    changed = Reason(FULL.code, "full, with other numbers")
    assert list(refuse(state, units, changed)) == [], "its condition stays while its code does"
    assert said(refuse(state, units, OTHER)) == [("ns/g", "Backoff", ["g-0", "g-1"]), ("", "Backoff", ["a", "b"])]


def test_only_those_are_named_to_whom_it_is_new():
    state = cluster(pods=[pod("a"), pod("b", created=1.0)])
    one, two = sorted(units_of(state))
    assert said(refuse(state, [one], FULL)) == [("", "Resources", ["a"])]
    assert said(refuse(state, [one, two], FULL)) == [("", "Resources", ["b"])]


def waiting(*names):
    state = cluster([node("n", gpus=1)], [queue("other")], [pod(name, queue="ghost") for name in names])
    first(state, 1.0)
    list(state.notices.take())
    return state, [state.tasks[f"uid-{name}"] for name in names]


def test_pods_that_no_pass_serves_have_their_reason_and_those_that_are_gone_none():
    state, tasks = waiting("gone", "stays")
    state.remove_pod("uid-gone")
    list(state.notices.take())
    state.notices.add(tasks, Reason(ReasonCode.UNKNOWN_QUEUE, "no such queue"))
    assert said(notify(state)) == [("", "UnknownQueue", ["stays"])]
    assert list(notify(state)) == [], "once"
    state.notices.add(tasks, Reason(ReasonCode.UNKNOWN_QUEUE, "still none"))
    assert list(notify(state)) == [], "it is reported"


def test_pods_made_again_under_the_same_name_are_others():
    state, tasks = waiting("a")
    old = tasks[0]
    state.remove_pod("uid-a")
    state.upsert_pod(old.pod)
    list(state.notices.take())
    state.notices.add([old], Reason(ReasonCode.UNKNOWN_QUEUE, "no such queue"))
    assert list(notify(state)) == []


def test_of_what_is_set_aside_nothing_else_is_said():
    state, tasks = waiting("a", "b")
    state.isolation.contain("serve", tasks[0], RuntimeError("a defect"))
    list(state.notices.take())
    state.notices.add(tasks, Reason(ReasonCode.UNKNOWN_QUEUE, "no such queue"))
    assert said(notify(state)) == [("", "UnknownQueue", ["b"])]
    tasks[0].reported = None
    state.notices.add(tasks[:1], Reason(ReasonCode.INTERNAL_ERROR, "set aside"))
    assert said(notify(state)) == [("", "InternalError", ["a"])]


def test_who_comes_after_its_class_was_refused_has_its_reason():
    state = cluster([node("n", gpus=1)], pods=[pod("runs", at="n"), pod("a", created=1.0)], patience=9e9)
    unit = first(state, 2.0)
    assert set(refused(serve(state, unit, 2.0))) == {"a"}
    state.upsert_pod(pod("late", created=3.0))
    first(state, 4.0)
    assert said(notify(state)) == [("", "Resources", ["late"])]
    assert list(notify(state)) == []


def test_who_comes_after_the_limit_of_its_user_was_reached_has_that_reason():
    state = cluster([node("n")], [Queue("q", per_user=UserLimits(resources=((GPU, 1000),)))], patience=9e9)
    for number in range(2):
        state.upsert_pod(pod(f"p-{number}", queue="q", user="ann", created=float(number)))
    assert set(refused(settle(state, 1.0))) == {"p-1"}
    state.upsert_pod(pod("late", queue="q", user="ann", created=3.0))
    first(state, 4.0)
    assert said(notify(state)) == [("", "UserLimit", ["late"])]


def test_a_job_that_waits_too_long_is_reported_once_as_a_whole():
    state = cluster([node("n", gpus=1)], groups=[group("g", 2), group("late", 1)], patience=9e9)
    state.upsert_class(ServiceClass("soon", max_wait=60.0))
    for name in ("g-0", "g-1"):
        state.upsert_pod(pod(name, group="g", gpus=8, service_class="soon"))
    state.upsert_pod(pod("single", gpus=8, service_class="soon"))
    state.upsert_pod(pod("starts", service_class="soon", created=0.0))
    state.upsert_pod(pod("gone", gpus=8, service_class="soon"))
    assert not [each for each in run(state, 59.0) if isinstance(each, Overdue)]
    state.begin(60.0)
    state.settle(60.0)
    assert state.pending.overdue
    state.remove_pod("uid-gone")
    decided = list(report_overdue(state))
    assert {each.group: [ref.name for ref in each.pods] for each in decided} == {"ns/g": ["g-0", "g-1"], "": ["single"]}
    assert {each.service_class for each in decided} == {"soon"}
    assert decided[0].message == "it has waited longer than the 60 s that ServiceClass 'soon' allows"
    assert list(report_overdue(state)) == []
    assert not [each for each in run(state, 500.0) if isinstance(each, Overdue)]


def test_who_starts_in_the_pass_in_which_it_is_overdue_is_not_reported():
    state = cluster(pods=[pod("p", service_class="soon")], patience=9e9)
    state.upsert_class(ServiceClass("soon", max_wait=60.0))
    run(state, 1.0)
    state.upsert_node(node("n"))
    assert not [each for each in run(state, 61.0) if isinstance(each, Overdue)]
    assert state.tasks["uid-p"].row >= 0

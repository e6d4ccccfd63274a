"""maxWait: a job rises in its queue as that time draws near, and an event when it is over."""

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.queues import Queue
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Overdue
from tests.builders import cluster, confirm, node, placed, pod, refused, run

PROMPT = ServiceClass("prompt", max_wait=400.0)


def late(decided):
    return [sorted(pod.name for pod in each.pods) for each in decided if isinstance(each, Overdue)]


def test_a_job_near_its_max_wait_rises_quarter_by_quarter():
    state = cluster([node("n", gpus=1)], [Queue("q")])
    state.upsert_class(PROMPT)
    for i in range(3):
        state.upsert_pod(pod(f"old-{i}", queue="q", created=float(i)))
    confirm(state, run(state, 10.0))
    state.upsert_pod(pod("prompt", queue="q", created=50.0, service_class="prompt"))
    run(state, 60.0)
    assert state.next_due == 150.0, "when a quarter of its time is over"
    state.remove_pod("uid-old-0")
    decided = run(state, 100.0)
    assert set(placed(decided)) == {"old-1"}, "so far age decides"
    confirm(state, decided)
    run(state, 150.0)
    state.remove_pod("uid-old-1")
    assert set(placed(run(state, 151.0))) == {"prompt"}
    invariants.check(state)


def test_a_missed_time_is_reported_once_for_each_job():
    state = cluster([node("n", gpus=0)], [Queue("q")])
    state.upsert_class(PROMPT)
    state.upsert_group(Group("ns", "g", 2, "q", service_class="prompt"))
    for i in range(2):
        state.upsert_pod(pod(f"g-{i}", queue="q", group="g"))
    state.upsert_pod(pod("single", queue="q", service_class="prompt"))
    state.upsert_pod(pod("patient", queue="q"))
    told = []
    for now in (0.0, 100.0, 200.0, 399.0):
        decided = run(state, now)
        told += list(refused(decided))
        assert late(decided) == []
    decided = run(state, 400.0)
    assert sorted(late(decided)) == [["g-0", "g-1"], ["single"]]
    (single,) = [each for each in decided if isinstance(each, Overdue) and not each.group]
    assert single.service_class == "prompt"
    assert "waited longer than the 400 s" in single.message
    assert late(run(state, 500.0)) == []
    assert sorted(told) == ["g-0", "g-1", "patient", "single"], "why they wait is told once, however often they move up"
    assert state.next_due is None


def test_priority_goes_before_urgency_and_a_class_may_change_its_mind():
    state = cluster([node("n", gpus=1)], [Queue("q")])
    state.upsert_class(PROMPT)
    state.upsert_pod(pod("blocker", queue="q"))
    confirm(state, run(state))
    state.upsert_pod(pod("prompt", queue="q", service_class="prompt"))
    state.upsert_pod(pod("other", queue="q", priority=0, created=5.0))
    run(state, 390.0)
    state.upsert_class(ServiceClass("prompt"))
    state.upsert_pod(pod("better", queue="q", priority=1, created=6.0))
    state.remove_pod("uid-blocker")
    assert set(placed(run(state, 391.0))) == {"better"}
    state.remove_pod("uid-better")
    assert set(placed(run(state, 392.0))) == {"prompt"}, "by age: nothing draws near any more"
    assert late(run(state, 1000.0)) == []


def test_a_class_limits_how_long_its_work_may_run():
    state = cluster([node("n", gpus=8)], [Queue("q")])
    state.upsert_class(ServiceClass("short", time_limit=60.0, longest=120.0))
    state.upsert_pod(pod("plain", queue="q", service_class="short"))
    state.upsert_pod(pod("fits", queue="q", service_class="short", time_limit=120.0))
    state.upsert_pod(pod("long", queue="q", service_class="short", time_limit=121.0))
    decided = run(state)
    assert set(placed(decided)) == {"plain", "fits"}
    assert refused(decided)["long"].code == "NotAllowed"
    limits = {task.pod.name: state.services.limits.of(task) for task in state.tasks.values()}
    assert limits == {"plain": 60.0, "fits": 120.0, "long": 120.0}


def ended(decided):
    return [sorted(each.pod.name for each in evict.victims) for evict in decided if isinstance(evict, Evict)]


def test_time_limits_kill_and_learned_times_do_not():
    state = cluster([node("n", gpus=8)], [Queue("q")])
    state.upsert_class(ServiceClass("short", time_limit=100.0))
    state.upsert_group(Group("ns", "g", 2, "q", time_limit=50.0))
    for i in range(2):
        state.upsert_pod(pod(f"g-{i}", queue="q", group="g"))
    state.upsert_pod(pod("by-class", queue="q", service_class="short"))
    state.upsert_pod(pod("endless", queue="q", expected=10.0))
    state.upsert_pod(pod("kubelets", queue="q", deadline=10.0))
    confirm(state, run(state, 0.0))
    assert state.next_due == 50.0
    assert ended(run(state, 49.0)) == []
    (evict,) = run(state, 50.0)
    assert ended([evict]) == [["g-0", "g-1"]]
    assert (evict.group, evict.reason.code) == ("ns/g", "TimeLimit")
    assert ended(run(state, 51.0)) == [], "it is asked for once"
    for i in range(2):
        state.remove_pod(f"uid-g-{i}")
    assert ended(run(state, 100.0)) == [["by-class"]]
    assert ended(run(state, 160.0)) == [["by-class"]], "and again while it is still there"
    # A longer limit: running jobs have it, too.
    state.upsert_class(ServiceClass("short", time_limit=1000.0))
    assert ended(run(state, 300.0)) == []
    assert ended(run(state, 1000.0)) == [["by-class"]]
    assert ended(run(state, 5000.0)) == [["by-class"]]
    invariants.check(state)

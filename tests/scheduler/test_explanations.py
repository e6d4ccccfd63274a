"""What the leader reports of a job from its present state."""

import msgspec

from fairlead.cluster.kubernetes.aggregated import camelled
from fairlead.cluster.port import Synced, Upsert
from fairlead.core.model.groups import Group
from fairlead.core.model.policy import Policy
from fairlead.core.model.service_classes import ServiceClass
from fairlead.scheduler import explanations
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.core_thread import CoreThread
from tests.builders import group, node, pod, queue


def other(name, namespace, **more):
    return msgspec.structs.replace(pod(name, **more), namespace=namespace, uid=f"uid-{namespace}-{name}")


def core(*things):
    made = CoreLoop(Policy(), lambda _: None)
    made.apply([*(Upsert(each) for each in things), Synced()], 100.0)
    made.decide(100.0)
    return made


def test_jobs_of_other_namespaces_are_counted_but_not_named():
    made = core(
        node("n", gpus=2),
        queue("q"),
        pod("runs", queue="q", gpus=2, priority=9),
        other("secret", "theirs", queue="q", gpus=1, priority=5, created=1.0),
        pod("mine-first", queue="q", gpus=1, priority=3, created=2.0),
        pod("mine", queue="q", gpus=1, created=3.0),
    )
    told = explanations.live(made, "pod", "ns", "mine", 110.0)
    assert (told.position, told.queued, told.state, told.code) == (3, 3, "Waiting", "Resources")
    assert [(each.job, each.user, each.term) for each in told.ahead] == [
        ("a job of another namespace", "", "priority"),
        ("ns/mine-first", "ns", "priority"),
    ]
    assert "secret" not in repr(told)
    assert told.advice
    assert explanations.live(made, "pod", "theirs", "mine", 110.0) is None
    assert explanations.live(made, "podgroup", "ns", "mine", 110.0) is None
    listed = explanations.pending(made, "ns")
    assert [(each.name, each.position, each.kind) for each in listed] == [("mine-first", 2, "pod"), ("mine", 3, "pod")]
    assert explanations.pending(made, "nobody") == []


def test_no_job_is_told_to_wait_for_a_limit_that_is_below_its_request():
    made = core(node("n", gpus=8), queue("q", limit=2), *(pod(name, queue="q", gpus=gpus) for name, gpus in (("a", 2), ("b", 3))))
    made.apply([Upsert(pod("c", queue="q", gpus=1))], 101.0)
    made.decide(101.0)
    beyond, later = (explanations.live(made, "pod", "ns", name, 110.0) for name in ("b", "c"))
    assert (beyond.code, later.code) == ("LimitExceeded", "LimitExceeded")
    assert beyond.advice.startswith("It asks for more than the limit allows while nothing else runs: request less")
    assert later.advice.startswith("It starts when its queue holds less")


def test_a_group_without_pods_has_a_reason():
    told = explanations.live(core(node("n"), queue("q"), group("g", 3, queue="q")), "podgroup", "ns", "g", 110.0)
    assert (told.state, told.pods, told.message) == ("Empty", 0, "none of its pods is pending or running; it starts with 3")


def test_a_group_that_has_ended_is_explained_by_its_end():
    made = core(node("n"), queue("q"), group("g", 2, queue="q"), pod("g-0", group="g", queue="q", at="n", started=5.0))
    made.apply([Upsert(pod("g-0", group="g", queue="q", at="n", started=5.0, finished=True))], 101.0)
    told = explanations.live(made, "podgroup", "ns", "g", 110.0)
    message = "none of its pods is left: 0 of the 2 that it needs have succeeded, and it failed"
    assert (told.state, told.message, told.queue) == ("Failed", message, "q")
    made.apply([Upsert(Group("ns", "g", 2, ended="Succeeded"))], 102.0)
    told = explanations.live(made, "podgroup", "ns", "g", 110.0)
    assert (told.state, told.message, told.queue) == ("Succeeded", "its AIJob, or element, has succeeded", "default")


def test_no_job_is_told_to_wait_for_what_no_node_has():
    made = core(node("n", gpus=2), node("m", gpus=4), queue("q"), pod("large", queue="q", gpus=8), pod("runs", queue="q", gpus=4))
    made.apply([Upsert(pod("waits", queue="q", gpus=4))], 101.0)
    made.decide(101.0)
    large, waits = (explanations.live(made, "pod", "ns", name, 110.0) for name in ("large", "waits"))
    assert (large.code, waits.code) == ("Resources", "Resources")
    assert large.advice.startswith("No node is large enough: a pod asks for 8 nvidia.com/gpu, the largest node has 4.")
    assert waits.advice.startswith("It starts when enough capacity is free")


def test_the_job_that_would_preempt_it_in_return_is_named():
    made = core(
        node("n", gpus=2),
        queue("owner", quota=2),
        queue("guest"),
        ServiceClass("urgent", mode="Suspend", scope="Cluster"),
        *(pod(f"guest-{index}", queue="guest", priority=2) for index in range(2)),
    )
    made.apply(
        [Upsert(msgspec.structs.replace(pod(f"guest-{index}", queue="guest", priority=2), node="n")) for index in range(2)], 101.0
    )
    urgent = other("next", "theirs", queue="guest", priority=2, service_class="urgent", created=1.0)
    made.apply([Upsert(urgent), Upsert(pod("mine", queue="owner", created=2.0))], 102.0)
    made.decide(102.0)
    told = explanations.live(made, "pod", "ns", "mine", 110.0)
    assert (told.blocked_by.job, told.blocked_by.term, told.blocked_by.its, told.blocked_by.ours) == (
        "a job of another namespace",
        "priority",
        2,
        0,
    )
    assert camelled(told)["blockedBy"]["job"] == told.blocked_by.job, "as it is served"
    assert explanations.live(made, "pod", "theirs", "next", 110.0).blocked_by is None


def test_what_runs_and_what_cannot_wait():
    made = core(node("n", gpus=2), group("g", 3), pod("a", group="g"), pod("lost", queue="ghost"), pod("runs"))
    told = explanations.live(made, "podgroup", "ns", "g", 110.0)
    assert (told.code, told.position, told.pods) == ("GangIncomplete", None, 1)
    assert explanations.live(made, "pod", "ns", "runs", 110.0).state in ("Running", "Empty", "Waiting")
    assert explanations.live(made, "pod", "ns", "lost", 110.0).position is None


def test_a_question_is_answered_between_passes_and_an_error_is_the_askers():
    thread = CoreThread(Policy(), lambda _: None, clock=lambda: 100.0)
    thread.start()
    try:
        thread.send([Upsert(node("n", gpus=2)), Upsert(pod("waits", gpus=8)), Synced()])
        told = thread.ask(lambda core: explanations.live(core, "pod", "ns", "waits", 100.0)).result(10)
        assert told.pods == 1
        failed = thread.ask(lambda core: core.nothing)
        assert isinstance(failed.exception(10), AttributeError)
        assert thread.ask(lambda core: len(core.state.nodes)).result(10) == 1
    finally:
        thread.stop()
        thread.join(10)

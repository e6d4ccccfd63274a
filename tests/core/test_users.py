"""Users: whose turn it is inside a queue, and how much each may have and run."""

import math

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt
from tests.builders import GPU, cluster, confirm, node, placed, pod, preempted, refused, run

ONE_GPU = UserLimits(resources=((GPU, 1000),))


def limited(name="q", per_user=None, jobs=None, parent="", **more):
    return Queue(name, parent, per_user=per_user, jobs=jobs, **more)


def submit(state, user, count, start=0.0, **more):
    for i in range(count):
        name = f"{user}-{len(state.tasks)}"
        state.upsert_pod(pod(name, queue=more.pop("queue", "q"), user=user, created=start + i, **more))


def holders(state):
    """User -> GPUs of what has a node."""
    held = {}
    for task in state.tasks.values():
        if task.row >= 0:
            held[task.user] = held.get(task.user, 0) + task.shape.gpus
    return held


def codes(decided):
    return {name: reason.code for name, reason in refused(decided).items()}


def test_who_holds_least_goes_first_among_equals():
    state = cluster([node("n", gpus=6)], [Queue("q")])
    submit(state, "heavy", 20)
    submit(state, "late", 20, start=1000.0)
    confirm(state, run(state))
    assert holders(state) == {"heavy": 3, "late": 3}
    # A place becomes free: it goes to the user that holds less, however long the other waits.
    state.remove_pod(next(uid for uid, task in state.tasks.items() if task.row >= 0 and task.user == "late"))
    confirm(state, run(state))
    assert holders(state) == {"heavy": 3, "late": 3}
    invariants.check(state)


def test_class_priority_goes_before_users_and_age_decides_where_users_are_not_told_apart():
    state = cluster([node("n", gpus=2)], [Queue("q")])
    submit(state, "low", 2)
    submit(state, "high", 2, start=9.0, priority=5)
    assert {name[:4] for name in placed(run(state))} == {"high"}
    state = cluster([node("n", gpus=2)], [Queue("q")], fair_users=False)
    submit(state, "a", 5)
    submit(state, "b", 5, start=9.0)
    confirm(state, run(state))
    assert holders(state) == {"a": 2}


def test_a_limit_of_one_user_stops_only_that_user():
    state = cluster([node("n", gpus=8)], [limited(per_user=ONE_GPU)])
    submit(state, "a", 3)
    submit(state, "b", 1, start=50.0)
    decided = run(state)
    confirm(state, decided)
    assert holders(state) == {"a": 1, "b": 1}
    assert set(codes(decided).values()) == {"UserLimit"}
    assert "user 'a' holds 1 of at most 1 nvidia.com/gpu in queue 'q'" in next(iter(refused(decided).values())).message
    # A later job has the reason, too, and the next starts when the first is done.
    submit(state, "a", 1, start=60.0)
    assert set(codes(run(state)).values()) == {"UserLimit"}
    state.remove_pod(next(uid for uid, task in state.tasks.items() if task.row >= 0 and task.user == "a"))
    confirm(state, run(state))
    assert holders(state) == {"a": 1, "b": 1}
    state.upsert_queue(limited(per_user=UserLimits(resources=((GPU, 2000),))))
    confirm(state, run(state))
    assert holders(state) == {"a": 2, "b": 1}
    invariants.check(state)


def test_limits_hold_for_all_queues_below():
    top = limited("top", per_user=UserLimits(resources=((GPU, 3000),)))
    state = cluster([node("n", gpus=8)], [top, Queue("left", "top"), Queue("right", "top")])
    for name in ("left", "right"):
        for i in range(3):
            state.upsert_pod(pod(f"{name}-{i}", queue=name, user="a"))
    confirm(state, run(state))
    assert holders(state) == {"a": 3}
    # The tree changes: accounts move along.
    state.upsert_queue(Queue("right"))
    confirm(state, run(state))
    assert holders(state) == {"a": 6}
    invariants.check(state)


def test_so_many_jobs_run_of_a_user_and_of_a_queue():
    state = cluster(
        [node("n", gpus=16)],
        [limited(per_user=UserLimits(running=1), jobs=UserLimits(running=2))],
        groups=[Group("ns", "g", 2, "q")],
    )
    for i in range(2):
        state.upsert_pod(pod(f"g-{i}", group="g", queue="q", user="a"))
    submit(state, "a", 1, start=1.0)
    submit(state, "b", 1, start=2.0)
    submit(state, "c", 1, start=3.0)
    decided = run(state)
    confirm(state, decided)
    assert holders(state) == {"a": 2, "b": 1}, "a gang is one job"
    assert set(codes(decided).values()) == {"LimitExceeded"}, "no more jobs for anybody"
    state.remove_pod("uid-g-0")
    state.remove_pod("uid-g-1")
    confirm(state, run(state))
    assert len(holders(state)) == 2
    invariants.check(state)


def test_so_many_jobs_may_be_submitted_the_oldest_first_in_any_order_of_observation():
    policy = limited(per_user=UserLimits(submitted=2), jobs=UserLimits(submitted=3))
    pods = [pod(f"{user}-{i}", queue="q", user=user, created=10.0 * i) for user in "ab" for i in range(3)]
    outcomes = []
    for order in (pods, pods[::-1]):
        state = cluster([node("n", gpus=1)], [policy])
        for each in order:
            state.upsert_pod(each)
        decided = run(state)
        outcomes.append((placed(decided), {name: code for name, code in codes(decided).items() if "Limit" in code}))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1] == {"b-1": "LimitExceeded", "a-2": "UserLimit", "b-2": "LimitExceeded"}
    # One is done: the oldest of those beyond comes to wait.
    confirm(state, decided)
    state.remove_pod("uid-a-0")
    decided = run(state)
    assert codes(decided)["b-1"] == "Resources" if "b-1" in codes(decided) else "b-1" in placed(decided)
    state.upsert_queue(Queue("q"))
    run(state)
    assert not state.tables.census.applicants
    assert all(task.state.value != "unusable" for task in state.tasks.values())
    invariants.check(state)


def test_who_may_use_a_queue_and_a_class_by_name():
    state = cluster([node("n", gpus=8)], [Queue("q", users=("ann",)), Queue("default")])
    state.upsert_class(ServiceClass("best", users=("bob",)))
    state.upsert_pod(pod("mine", queue="q", user="ann"))
    state.upsert_pod(pod("his", queue="q", user="bob"))
    state.upsert_pod(pod("best", user="ann", service_class="best"))
    state.upsert_pod(pod("nobodys", service_class="typo"))
    decided = run(state)
    assert set(placed(decided)) == {"mine"}
    assert codes(decided) == {"his": "NotAllowed", "best": "NotAllowed", "nobodys": "UnknownServiceClass"}
    state.upsert_queue(Queue("q", users=("ann", "bob")))
    state.upsert_class(ServiceClass("typo"))
    assert set(placed(run(state))) == {"his", "nobodys"}


def test_a_users_own_lower_work_is_preempted_for_the_users_higher_and_no_other():
    state = cluster([node("n", gpus=8)], [limited(per_user=UserLimits(resources=((GPU, 2000),)))])
    submit(state, "a", 2)
    submit(state, "b", 2)
    confirm(state, run(state))
    state.upsert_pod(pod("urgent", queue="q", user="a", priority=5, created=99.0))
    (victims,) = preempted(run(state))
    assert len(victims) == 1
    assert victims[0].startswith("a-")


def test_a_pod_that_runs_stays_its_users():
    state = cluster([node("n", gpus=8)], [limited(per_user=ONE_GPU)])
    submit(state, "a", 1)
    confirm(state, run(state))
    (task,) = state.tasks.values()
    state.upsert_pod(msgspec.structs.replace(task.pod, user="b", priority=3))
    invariants.check(state)
    submit(state, "a", 1)
    submit(state, "b", 1)
    confirm(state, run(state))
    assert holders(state) == {"a": 1, "b": 1}
    assert task.user == "a"
    assert task.pod.priority == 0
    for uid in list(state.tasks):
        state.remove_pod(uid)
    invariants.check(state)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["top", "left", "right"]),
        st.sampled_from("abc"),
        st.integers(1, 3),
        st.integers(0, 2),
        st.sampled_from(["come", "come", "end", "limit", "move"]),
        st.integers(0, 3),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_no_limit_is_ever_exceeded_and_no_job_waits_in_vain(steps):
    limits = {
        "top": limited("top", UserLimits(running=4, resources=((GPU, 6000),)), UserLimits(running=6, submitted=12)),
        "left": limited("left", UserLimits(submitted=3, resources=((GPU, 4000),)), parent="top"),
        "right": limited("right", UserLimits(running=2), parent="top"),
    }
    state = cluster([node("n", gpus=8), node("m", gpus=4)], limits.values())
    for number, (queue, user, gpus, priority, what, amount) in enumerate(steps):
        if what == "come":
            state.upsert_pod(pod(f"p{number}", queue=queue, user=user, gpus=gpus, priority=priority, created=float(number)))
        elif what == "end":
            running = sorted(uid for uid, task in state.tasks.items() if task.row >= 0)
            if running:
                state.remove_pod(running[amount % len(running)])
        elif what == "limit":
            changed = msgspec.structs.replace(limits[queue], per_user=UserLimits(running=amount) if amount else None)
            limits[queue] = changed
            state.upsert_queue(changed)
        elif queue == "right":
            limits["right"] = msgspec.structs.replace(limits["right"], parent="" if limits["right"].parent else "top")
            state.upsert_queue(limits["right"])
        before = {name: _broken(state, name) for name in limits}
        for _ in range(20):
            decided = [each for each in run(state, float(number)) if isinstance(each, Place | Preempt)]
            if not decided:
                break
            confirm(state, decided)
            for each in decided:
                for victim in each.victims if isinstance(each, Preempt) else ():
                    state.remove_pod(victim.pod.uid)
            invariants.check(state)
            for name in limits:
                assert _broken(state, name) <= before[name], "what was within a limit stays within it"
        else:
            raise AssertionError("it never comes to rest")
        invariants.check(state)
        for node_ in state.queues.queues.values():
            for pending_class in node_.pending_classes.values():
                for unit in pending_class.units:
                    task = unit.tasks[0]
                    fits = task.ranking.best() >= 0 and _within_limits(limits, state, task)
                    assert not fits, f"{task} fits and waits"


def _within_limits(limits, state, task):
    """Whether one more job of a GPU or some keeps all limits on its path, added up from the pods that run."""
    name = task.queue
    while name:
        policy, below = limits[name], {name} | {each.name for each in limits.values() if each.parent == name}
        running = [each for each in state.tasks.values() if each.row >= 0 and each.queue in below]
        theirs = [each for each in running if each.pod.user == task.pod.user]
        per_user, jobs = policy.per_user or UserLimits(), policy.jobs or UserLimits()
        if len(theirs) + 1 > (math.inf if per_user.running is None else per_user.running):
            return False
        if len(running) + 1 > (math.inf if jobs.running is None else jobs.running):
            return False
        gpus = sum(each.pod.spec.gpus for each in (*theirs, task)) * 1000
        if gpus > dict(per_user.resources).get(GPU, math.inf):
            return False
        name = policy.parent
    return True


def _broken(state, name):
    """Which limits of a queue are exceeded now."""
    queue_node = state.queues.queues[name]
    meter = queue_node.meter
    if meter is None:
        return set()
    per_user, jobs = queue_node.policy.per_user or UserLimits(), queue_node.policy.jobs or UserLimits()
    broken = set()
    for (user, resource), held in meter.held.items():
        if held > dict(per_user.resources).get(resource, held):
            broken.add((user, resource))
    for user, running in meter.running.items():
        limit = per_user.running if user else jobs.running
        if limit is not None and running > limit:
            broken.add((user, "running"))
    return broken


def test_a_gang_of_two_users_runs_once_for_each_of_them_and_once_for_the_queue():
    """A job counts for a user as long as one of the user's pods in it has a node, whichever starts first and ends last."""
    for order in (("m-0", "m-1", "m-2"), ("m-2", "m-1", "m-0"), ("m-1", "m-0", "m-2")):
        limits = limited(per_user=UserLimits(running=1), jobs=UserLimits(running=2))
        state = cluster([node("n", gpus=8)], [limits], groups=[Group("ns", "m", 1, queue="q")])
        for i, user in enumerate(("ann", "bob", "bob")):
            state.upsert_pod(pod(f"m-{i}", queue="q", group="m", user=user))
        confirm(state, run(state))
        meter = state.queues.queues["q"].meter
        assert meter.running == {"ann": 1, "bob": 1, "": 1}
        invariants.check(state)
        state.upsert_pod(pod("ann-2", queue="q", user="ann"))
        state.upsert_pod(pod("bob-2", queue="q", user="bob"))
        assert codes(run(state)) == {"ann-2": ReasonCode.USER_LIMIT, "bob-2": ReasonCode.USER_LIMIT}
        for name in order:
            state.remove_pod(f"uid-{name}")
            invariants.check(state)
        assert not any(meter.running.values())
        assert len(placed(run(state))) == 2


def test_percentages_and_plain_queues_need_no_meter():
    state = cluster([node("n")], [Queue("q", resources=(QueueResource(GPU, 1000, 2000),))])
    assert state.queues.queues["q"].meter is None


RECLAIMS = Queue("q", users_reclaim=True)


def leave(state, fallen):
    """Evicted pods are gone, and recreated by their controllers, unless they are a gang's."""
    for name in fallen:
        gone = state.tasks[f"uid-{name}"].pod
        state.remove_pod(gone.uid)
        if not gone.group:
            state.upsert_pod(msgspec.structs.replace(gone, uid=f"{gone.uid}x", name=f"{name}x", node=""))


def settle(state, passes=8):
    """Decide, and let happen what was decided, until nothing moves; returns the victims."""
    fallen = []
    for _ in range(passes):
        decided = run(state)
        victims = [name for plan in preempted(decided) for name in plan]
        confirm(state, decided)
        leave(state, victims)
        fallen += victims
    return fallen


def test_a_user_takes_from_one_who_holds_more_until_they_are_even():
    for queue, after in ((Queue("q"), {"heavy": 6}), (RECLAIMS, {"heavy": 3, "late": 3})):
        state = cluster([node("n", gpus=6)], [queue])
        submit(state, "heavy", 6)
        confirm(state, run(state))
        submit(state, "late", 6, start=1000.0)
        settle(state)
        assert holders(state) == after
        submit(state, "heavy", 6, start=2000.0)  # what was taken is not taken back
        assert settle(state, 5) == []
        assert holders(state) == after
        invariants.check(state)


def test_the_preemptors_user_ends_with_no_more_than_the_victims():
    state = cluster([node("n", gpus=5)], [RECLAIMS])
    submit(state, "heavy", 5)
    confirm(state, run(state))
    submit(state, "late", 1, gpus=3, start=9.0)
    assert settle(state) == [], "he would hold 3, they 2"
    submit(state, "late", 4, start=10.0)
    assert len(settle(state)) == 2
    assert holders(state) == {"heavy": 3, "late": 2}


def test_three_users_come_to_even_parts_in_any_order():
    state = cluster([node("n", gpus=9)], [RECLAIMS])
    for start, user in enumerate(("a", "b", "c")):
        submit(state, user, 9, start=1000.0 * start)
        settle(state, 12)
    assert holders(state) == {"a": 3, "b": 3, "c": 3}
    assert settle(state, 5) == []


def test_non_preemptible_work_higher_classes_and_other_queues_are_not_preempted_for_users():
    others = (
        {"queue": "other"},
        {"priority": 5},
        {"service_class": "never"},
    )
    for more in others:
        state = cluster([node("n", gpus=4)], [RECLAIMS, Queue("other", users_reclaim=True)], reclaim=True)
        state.upsert_class(ServiceClass("never", mode="Never"))
        submit(state, "heavy", 4, **more)
        confirm(state, run(state))
        submit(state, "late", 4, start=9.0)
        if "queue" not in more:
            assert settle(state) == [], more
        else:
            assert holders(state).get("heavy") == 4


def test_gangs_are_preempted_whole_and_only_where_that_is_even():
    state = cluster([node("n", gpus=8)], [RECLAIMS])
    for name in ("one", "two"):
        state.upsert_group(Group("ns", name, 4, "q"))
        for index in range(4):
            state.upsert_pod(pod(f"{name}-{index}", queue="q", user="heavy", group=name))
    confirm(state, run(state))
    assert holders(state) == {"heavy": 8}
    submit(state, "late", 1, start=9.0)
    fallen = settle(state)
    assert len(fallen) == 4
    assert len({name[:3] for name in fallen}) == 1
    assert holders(state) == {"heavy": 4, "late": 1}
    submit(state, "late", 9, start=10.0)
    assert settle(state) == [], "without its other gang he would hold nothing"
    invariants.check(state)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.booleans()), min_size=1, max_size=14))
def test_users_never_flap(jobs):
    state = cluster([node("n", gpus=4), node("m", gpus=4)], [RECLAIMS])
    for number, (user, gpus, now) in enumerate(jobs):
        state.upsert_pod(pod(f"{user}{number}", queue="q", user=user, gpus=gpus, created=float(number)))
        if now:
            settle(state, 3)
    settle(state, 30)
    assert settle(state, 5) == []
    invariants.check(state)


def test_a_full_queue_is_evened_out_though_there_is_capacity_elsewhere():
    state = cluster([node("n", gpus=8)], [Queue("q", resources=(QueueResource(GPU, None, 4000),), users_reclaim=True)])
    submit(state, "heavy", 4)
    confirm(state, run(state))
    submit(state, "late", 4, start=9.0)
    settle(state)
    assert holders(state) == {"heavy": 2, "late": 2}


def test_no_pod_is_preempted_before_its_minimum_run_time_and_pending_classes_are_requeued_then():
    state = cluster([node("n", gpus=2)], [RECLAIMS])
    state.upsert_class(ServiceClass("s", min_runtime=100.0))
    submit(state, "heavy", 2, service_class="s", started=0.0)
    confirm(state, run(state))
    submit(state, "late", 1, start=9.0)
    assert preempted(run(state, 50.0)) == []
    assert state.next_due is not None
    assert len(preempted(run(state, max(100.5, state.next_due)))) == 1

"""Pods that other schedulers placed: where the policy requires it, the default queue of their namespace is charged for them."""

import random
from collections import Counter

import msgspec
import pytest

from fairlead.api.names import DEFAULT_QUEUE_LABEL, KUBERNETES_PROFILE
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core import invariants
from fairlead.core.forecast import forecast
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.nodes import NodePool
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Preempt
from fairlead.core.pods.tasks import TaskState
from fairlead.core.queues.division import Claim, divide
from tests.builders import GPU, cluster, confirm, group, held, node, placed, play, pod, preempted, queue, refused, run, settle

replace = msgspec.structs.replace


def foreign(name, gpus=1, at="n", namespace="team", **more):
    return replace(pod(name, gpus=gpus, at=at, ours=False, **more), namespace=namespace)


def team(name="team", queue="q"):
    return Namespace(name, ((DEFAULT_QUEUE_LABEL, queue),) if queue else ())


def world(nodes, queues, pods=(), namespaces=(), **policy):
    state = cluster(nodes, queues, charge_foreign=True, **policy)
    for each in namespaces or (team(),):
        state.upsert_namespace(each)
    for each in pods:
        state.upsert_pod(each)
    return state


def test_nothing_is_charged_unless_it_is_asked_for():
    state = cluster([node("n")], [queue("q", limit=4)])
    state.upsert_namespace(team())
    state.upsert_pod(foreign("f", gpus=3))
    assert (held(state, "q"), state.belonging.outside()[GPU]) == (0, 3000)
    invariants.check(state)


def test_the_queue_of_the_namespace_pays_and_its_limit_counts_it():
    state = world([node("n")], [queue("q", limit=4), queue("other")], [foreign("f", gpus=3, queue="other")])
    state.upsert_pod(pod("fits", queue="q"))
    state.upsert_pod(pod("waits", queue="q", created=1.0))
    decided = run(state)
    assert placed(decided) == {"fits": "n"}
    told = refused(decided)["waits"]
    assert told.code is ReasonCode.LIMIT_EXCEEDED
    assert told.message == (
        "queue 'q' holds 4 of at most 4 nvidia.com/gpu (3 of them held by pods of other schedulers); 1 more would exceed its limit"
    )
    assert told.numbers["foreign"] == 3000
    assert (held(state, "q"), held(state, "other"), state.belonging.outside()) == (4, 0, {})
    invariants.check(state)
    confirm(state, decided)
    state.remove_pod("uid-f")
    assert placed(run(state)) == {"waits": "n"}
    assert not any(state.queues.queues["q"].foreign.values())
    invariants.check(state)


def test_where_the_queue_does_not_exist_it_is_in_none_until_it_comes():
    state = world([node("n")], [queue("other")], [foreign("f", gpus=2)])
    assert state.belonging.outside()[GPU] == 2000
    state.upsert_queue(queue("q", quota=4))
    assert (held(state, "q"), state.belonging.outside()) == (2, {})
    invariants.check(state)
    state.remove_queue("q")
    assert (held(state, "q"), state.belonging.outside()[GPU]) == (0, 2000)
    invariants.check(state)


def test_it_follows_the_label_of_its_namespace():
    state = world([node("n")], [queue("q"), queue("r", limit=2)], [foreign("f", gpus=2)])
    state.upsert_pod(pod("w", queue="r"))
    state.upsert_namespace(team(queue="r"))
    assert (held(state, "q"), held(state, "r")) == (0, 2)
    assert refused(run(state))["w"].code is ReasonCode.LIMIT_EXCEEDED
    state.upsert_namespace(team(queue="q"))
    assert placed(run(state)) == {"w": "n"}, "whoever the limit stopped is looked at again"
    state.remove_namespace("team")
    assert state.belonging.outside()[GPU] == 2000, "queue default does not exist here"
    invariants.check(state)


def test_without_a_label_queue_default_pays_for_devices_only():
    daemon = foreign("kube-proxy", gpus=0, namespace="kube-system")
    state = world([node("n")], [queue("default"), queue("q")], [daemon, foreign("f", gpus=2, namespace="lab")])
    assert state.queues.queues["default"].used == {GPU: 2000, "cpu": 1000, "memory": 1 << 30, "pods": 1}
    assert "uid-kube-proxy" not in state.queues.queues["default"].guests
    state.upsert_namespace(team("kube-system", "q"))
    assert state.queues.queues["q"].used["cpu"] == 1000, "what is labelled pays for everything"
    state.remove_queue("default")
    assert state.belonging.outside()[GPU] == 2000
    invariants.check(state)


def test_default_exists_by_itself_only_while_there_is_no_other():
    state = cluster([node("n")], charge_foreign=True)
    state.upsert_pod(foreign("f", gpus=2))
    assert held(state, "default") == 2
    state.upsert_queue(queue("q"))
    assert state.belonging.outside()[GPU] == 2000
    state.remove_queue("q")
    assert held(state, "default") == 2
    invariants.check(state)


def test_it_counts_while_its_node_is_away_and_when_it_is_resized():
    state = world([node("n")], [queue("q")], [foreign("f", gpus=2), foreign("stray", gpus=1, at="nowhere")])
    assert held(state, "q") == 3
    state.remove_node("n")
    assert held(state, "q") == 3
    state.upsert_node(node("n"))
    run(state)
    state.upsert_pod(foreign("f", gpus=2, cpu=3000))
    assert (held(state, "q"), state.queues.queues["q"].used["cpu"]) == (3, 4000)
    state.upsert_pod(foreign("stray", gpus=1, at="n"))
    assert held(state, "q") == 3
    state.upsert_pod(replace(foreign("f", gpus=2, cpu=3000), finished=True))
    assert held(state, "q") == 1
    invariants.check(state)


def test_pools_are_charged_by_the_node():
    limits = (QueueResource(GPU, limit=4000, pool="h100"),)
    state = world([node("n", labels={"pool": "h"}), node("m")], [Queue("q", resources=limits)])
    state.upsert_pod(foreign("f", gpus=2))
    state.upsert_pool(NodePool("h100", (Requirement("pool", "In", ("h",)),)))
    q = state.queues.queues["q"]
    assert (q.used[f"{GPU}@h100"], q.foreign[f"{GPU}@h100"]) == (2000, 2000)
    state.upsert_node(node("n"))
    assert not q.used.get(f"{GPU}@h100")
    assert not q.foreign.get(f"{GPU}@h100")
    invariants.check(state)


def test_limits_of_users_count_amounts_and_no_jobs():
    policy = Queue("q", per_user=UserLimits(running=1, resources=((GPU, 3000),)))
    state = world([node("n")], [policy], [foreign("f", gpus=2, user="ann")])
    state.upsert_pod(pod("one", queue="q", user="ann"))
    decided = settle(state)
    assert placed(decided) == {"one": "n"}
    state.upsert_queue(Queue("q", per_user=UserLimits(resources=((GPU, 3000),))))
    state.upsert_pod(pod("more", queue="q", user="ann", created=1.0))
    state.upsert_pod(pod("theirs", queue="q", user="bob", gpus=3, created=2.0))
    decided = run(state)
    assert placed(decided) == {"theirs": "n"}
    assert "3 of at most 3 nvidia.com/gpu in queue 'q' (2 of them held by pods of other schedulers)" in (
        refused(decided)["more"].message
    )
    invariants.check(state)


def test_the_account_follows_no_later_stamp():
    policy = Queue("q", per_user=UserLimits(resources=((GPU, 3000),)))
    state = world([node("n")], [policy], [foreign("f", gpus=2, user="ann")])
    run(state)
    state.upsert_pod(foreign("f", gpus=2, user="bob", queue="elsewhere"))
    assert state.queues.queues["q"].meter.held["ann", GPU] == 2000
    state.upsert_pod(replace(foreign("f", gpus=2, user="bob"), priority=7, service_class="gold"))
    invariants.check(state)
    state.remove_pod("uid-f")
    assert not any(state.queues.queues["q"].meter.held.values())


def test_no_pod_is_evicted_in_vain_for_what_pods_of_others_hold():
    state = world([node("n", gpus=8)], [queue("q", quota=2), queue("m", quota=6)], [foreign("f", gpus=6)])
    for i in range(2):
        state.upsert_pod(pod(f"own-{i}", queue="q"))
    settle(state)
    for i in range(4):
        state.upsert_pod(pod(f"m{i}", queue="m", created=float(i)))
    decided = run(state)
    assert sorted(name for each in preempted(decided) for name in each) == ["own-0", "own-1"], (
        "beyond its quota of 2 what is ours gives way"
    )
    invariants.check(state)
    state = world([node("n", gpus=8)], [queue("q", quota=2), queue("m", quota=6)], [foreign("f", gpus=6)])
    for i in range(2):
        state.upsert_pod(pod(f"own-{i}", queue="q"))
    settle(state)
    state.upsert_pod(pod("large", queue="m", gpus=4, created=3.0))
    for now in range(5):
        assert preempted(run(state, float(now))) == [], "what would have to fall besides is not ours"
    assert state.tasks["uid-f"].state is TaskState.BOUND


def test_shares_contain_nothing_that_cannot_be_reclaimed():
    # Of 12 GPUs others hold 8 in q. What is left is shared by the queues that can have it.
    state = world([node("n", gpus=12)], [queue("q"), queue("a"), queue("b")], [foreign("f", gpus=8)])
    for i in range(4):
        state.upsert_pod(pod(f"a{i}", queue="a"))
    settle(state)
    for i in range(4):
        state.upsert_pod(pod(f"b{i}", queue="b", created=5.0))
        state.upsert_pod(pod(f"q{i}", queue="q", created=4.0))
    play(state)
    shares = state.queues.fair.share
    assert (shares["q"][GPU], shares["a"][GPU], shares["b"][GPU]) == (8000, 2000, 2000)
    assert (held(state, "q"), held(state, "a"), held(state, "b")) == (8, 2, 2)
    invariants.check(state)


def test_a_floor_is_taken_before_the_rest_is_divided():
    claims = [Claim("a", 40, floor=20), Claim("b", 40), Claim("c", 5, limit=3, floor=5)]
    assert divide(40, claims) == {"a": 20, "b": 15, "c": 5}
    assert divide(80, claims) == {"a": 38, "b": 37, "c": 5}
    assert divide(10, claims) == {"a": 20, "b": 0, "c": 5}


def test_non_preemptible_work_gets_nothing_guaranteed_though_others_hold_it():
    queues = [queue("q", quota=2), queue("m", quota=4), queue("free")]
    state = world([node("n", gpus=12)], queues, [foreign("f", gpus=6)])
    state.upsert_class(ServiceClass("firm", mode="Never", borrows=False))
    for i in range(4):
        state.upsert_pod(pod(f"p{i}", queue="free", service_class="firm", created=float(i)))
    decided = run(state)
    assert len(placed(decided)) == 2, "12 less the quota of m, less what others hold"
    assert refused(decided)["p3"].code is ReasonCode.QUOTA_EXCEEDED
    invariants.check(state)


@pytest.mark.parametrize("charged", [True, False])
def test_upstreams_preemption_takes_them_only_where_no_queue_is_charged(charged):
    state = world([node("n")], [queue("q"), queue("k")], [foreign("f", gpus=8)], [team(queue="q" if charged else "nosuch")])
    state.upsert_pod(pod("k", queue="k", gpus=8, priority=10, profile=KUBERNETES_PROFILE))
    decided = run(state)
    assert preempted(decided) == ([] if charged else [["f"]])
    invariants.check(state)
    if charged:
        state.upsert_namespace(team(queue="nosuch"))
        assert preempted(run(state)) == [["f"]]
    else:
        state.upsert_namespace(team(queue="q"))
    invariants.check(state)
    state.remove_pod("uid-f")
    invariants.check(state)
    assert placed(run(state)) == {"k": "n"}
    assert not held(state, "q")


def test_a_pod_that_becomes_unreadable_stays_whose_it_was():
    state = world([node("n")], [queue("q")], [foreign("f", gpus=2)])
    broken = Reason(ReasonCode.INVALID_SPEC, "cannot be read")
    state.upsert_pod(replace(foreign("f", gpus=0, at=""), ours=True, error=broken, unsized=True))
    assert held(state, "q") == 2
    invariants.check(state)
    unsized = replace(foreign("u", at="n"), error=broken, unsized=True)
    state.upsert_pod(unsized)
    state.upsert_pod(replace(unsized, node="", ours=True))
    invariants.check(state)
    state.remove_pod("uid-u")
    state.remove_pod("uid-f")
    assert held(state, "q") == 0
    invariants.check(state)


def test_the_forecast_gives_back_what_others_hold_when_they_end():
    state = world([node("n", gpus=4)], [queue("q", limit=4)], [foreign("f", gpus=4, started=0.0)])
    state.upsert_pod(pod("w", queue="q"))
    run(state)
    assert forecast(state, 0.0)


QUEUES = ("default", "a", "a1", "a2", "b", "b1")
NAMESPACES = ("n0", "n1", "n2", "kube-system")


class World:
    """Pods, queues and namespaces that come, change and go, and what queues should hold, reckoned from nothing."""

    def __init__(self, seed, charges):
        self.rng = random.Random(seed)
        self.charges = charges
        self.state = cluster([], charge_foreign=charges, patience=5.0)
        self.nodes = {}
        self.labels = {}
        self.queues = {}  # those in force
        self.objects = set()  # also those that were refused, for a cycle of parents
        self.foreign = {}
        self.made = 0
        self.now = 0.0
        for name in ("m0", "m1", "m2", "m3"):
            self.node(name)
        self.state.upsert_class(ServiceClass("firm", mode="Never", borrows=False))

    def node(self, name):
        self.nodes[name] = node(name, gpus=self.rng.choice((4, 8)), labels={"pool": self.rng.choice("xy")})
        self.state.upsert_node(self.nodes[name])

    def step(self):
        kinds = (
            self.foreigner,
            self.ours,
            self.leave,
            self.relabel,
            self.make,
            self.unmake,
            self.fail,
            self.resize,
            self.shatter,
        )
        self.rng.choices(kinds, (6, 6, 4, 2, 4, 1, 1, 1, 0.3))[0]()

    def foreigner(self):
        rng, self.made = self.rng, self.made + 1
        at = rng.choice((*sorted(self.nodes), "away"))
        made = foreign(
            f"f{self.made}",
            gpus=rng.choice((0, 1, 1, 2)),
            at=at,
            namespace=rng.choice(NAMESPACES),
            user=rng.choice(("ann", "bob")),
            queue=rng.choice(QUEUES),
            service_class=rng.choice(("", "firm")),
        )
        self.foreign[made.uid] = made
        self.state.upsert_pod(made)

    def ours(self):
        rng, self.made = self.rng, self.made + 1
        made = pod(
            f"p{self.made}",
            gpus=rng.choice((0, 1, 2, 4)),
            queue=rng.choice(QUEUES),
            priority=rng.choice((0, 0, 5)),
            created=self.now,
            user=rng.choice(("ann", "bob")),
            service_class=rng.choice(("", "", "firm")),
            profile=rng.choice(("ai", "ai", "ai", KUBERNETES_PROFILE)),
        )
        self.state.upsert_pod(made)
        if rng.random() < 0.2:
            name = f"g{self.made}"
            self.state.upsert_group(group(name, 2))
            for i in range(2):
                self.state.upsert_pod(pod(f"{name}-{i}", gpus=2, group=name, queue=made.queue, created=self.now))

    def leave(self):
        if self.state.tasks:
            uid = self.rng.choice(sorted(self.state.tasks))
            self.foreign.pop(uid, None)
            self.state.remove_pod(uid)

    def relabel(self):
        name, queue_ = self.rng.choice(NAMESPACES), self.rng.choice((*QUEUES, "", "nosuch"))
        self.labels[name] = queue_
        if queue_ or self.rng.random() < 0.5:
            self.state.upsert_namespace(team(name, queue_))
        else:
            self.state.remove_namespace(name)

    def make(self):
        rng, name = self.rng, self.rng.choice(QUEUES)
        resources = [QueueResource(GPU, rng.choice((None, 0, 4000, 8000)), rng.choice((None, None, 6000, 12000)))]
        if rng.random() < 0.3:
            resources.append(QueueResource(GPU, limit=6000, pool=rng.choice("xy")))
        per_user = UserLimits(running=4, resources=((GPU, 6000),)) if rng.random() < 0.3 else None
        made = Queue(
            name, rng.choice(("", "", *QUEUES)), 0, tuple(resources), per_user=per_user, users_reclaim=rng.random() < 0.3
        )
        self.objects.add(name)
        if self.state.upsert_queue(made) is None:
            self.queues[name] = made

    def unmake(self):
        if self.objects:
            name = self.rng.choice(sorted(self.objects))
            self.objects.remove(name)
            self.queues.pop(name, None)
            self.state.remove_queue(name)

    def fail(self):
        name = self.rng.choice(("m0", "m1", "m2", "m3", "away"))
        if name in self.nodes:
            del self.nodes[name]
            self.state.remove_node(name)
        else:
            self.node(name)

    def resize(self):
        if self.foreign:
            uid = self.rng.choice(sorted(self.foreign))
            old = self.foreign[uid]
            requests = tuple((name, 3000 if name == "cpu" else amount) for name, amount in old.spec.requests)
            new = replace(
                old,
                spec=replace(old.spec, requests=requests),
                node=self.rng.choice((old.node, "away")),
                terminating=old.terminating or self.rng.random() < 0.3,
            )
            self.foreign[uid] = new
            self.state.upsert_pod(new)

    def shatter(self):
        self.state.isolation.recovery.recount()

    def decide(self):
        self.now += self.rng.choice((0.5, 5.0, 70.0))
        charged = {uid for uid, task in self.state.tasks.items() if not task.pod.ours and task.charged}
        decided = run(self.state, self.now)
        fallen = [victim.pod.uid for each in decided if isinstance(each, Preempt | Evict) for victim in each.victims]
        assert not charged.intersection(fallen)
        confirm(self.state, decided)
        for uid in fallen:
            if self.rng.random() < 0.8:
                self.foreign.pop(uid, None)
                self.state.remove_pod(uid)
            else:
                self.state.evictions.failed(uid, self.now)

    def payer(self, each):
        """Written anew: the queue that pays for a pod of another scheduler, None where none does."""
        named = self.labels.get(each.namespace, "")
        if not self.charges or (not named and not each.spec.gpus):
            return None
        wanted = named or "default"
        exists = "default" in self.objects or not self.objects if wanted == "default" else wanted in self.queues
        return wanted if exists else None

    def expected(self):
        """(queue -> held, queue -> held by others), GPUs and CPU."""
        state = self.state
        all_, others = Counter(), Counter()

        def amounts(each):
            return {GPU: each.spec.gpus * 1000, "cpu": dict(each.spec.requests)["cpu"]}

        def add(queue_, held_, counters):
            while queue_:
                for resource, amount in held_.items():
                    for counter in counters:
                        counter[queue_, resource] += amount
                above = state.queues.queues[queue_].parent
                queue_ = above.name if above is not None else ""

        for uid, each in self.foreign.items():
            payer, task = self.payer(each), state.tasks[uid]
            if payer is not None and task.state is not TaskState.EVICTING:
                add(payer, amounts(each), (all_, others))
        for task in state.tasks.values():
            if task.pod.ours and (task.row >= 0 or task.pod.uid in state.placement.strays.get(task.pod.node, {})):
                add(task.queue, amounts(task.pod), (all_,))
        return all_, others

    def check(self):
        # Whether gangs are whole is checked in passes: here members go one by one.
        assert [each for each in invariants.violations(self.state) if not each.startswith("gang ")] == []
        all_, others = self.expected()
        waiting = bool(self.state.queues.accounts.debts) or any(
            each.state is TaskState.EVICTING for each in self.state.tasks.values()
        )
        for name, queue_ in self.state.queues.queues.items():
            for resource in (GPU, "cpu"):
                assert queue_.foreign.get(resource, 0) == others[name, resource], (name, resource)
                if not waiting and not self.state.in_flight.kept and not self.state.in_flight.returning:
                    assert queue_.used.get(resource, 0) == all_[name, resource], (name, resource)

    def restarted(self, charges):
        """What a restarted scheduler reports for every queue, by what pods of others hold."""
        other = World.__new__(World)
        other.__dict__ |= self.__dict__
        other.charges, other.objects = charges, set(self.queues)
        other.state = cluster(self.nodes.values(), self.queues.values(), self.foreign.values(), charge_foreign=charges)
        for name, queue_ in self.labels.items():
            if queue_:
                other.state.upsert_namespace(team(name, queue_))
        other.check()
        return {
            (name, resource): amount
            for name, each in other.state.queues.queues.items()
            for resource, amount in each.foreign.items()
            if amount
        }


@pytest.mark.parametrize("seed", [*range(24), 107])
def test_in_random_worlds_every_queue_holds_what_its_pods_and_theirs_do(seed):
    world = World(seed, charges=seed % 4 != 3)
    for _ in range(120):
        world.step()
        world.check()
        if world.rng.random() < 0.4:
            world.decide()
            world.check()
    assert world.restarted(charges=False) == {}
    world.restarted(charges=True)
    live = world.state.queues.queues
    assert world.objects != set(world.queues) or all(
        live[name].foreign.get(resource, 0) == amount for (name, resource), amount in world.restarted(world.charges).items()
    )


@pytest.mark.parametrize("seed", range(30))
def test_queues_beyond_their_quotas_by_pods_of_others_come_to_rest(seed):
    rng = random.Random(seed)
    parents = {"a": "", "a1": "a", "a2": "a", "b": "", "b1": "b", "c": ""}
    queues = [
        Queue(
            name,
            parent,
            0,
            (QueueResource(GPU, rng.choice((0, 2000, 4000)), rng.choice((None, None, 9000))),),
            users_reclaim=rng.random() < 0.5,
        )
        for name, parent in parents.items()
    ]
    teams = [team(f"t-{name}", name) for name in parents]
    nodes = [node(f"m{i}", gpus=4) for i in range(4)]
    pods = []
    free = {f"m{i}": 4 for i in range(4)}
    for i in range(rng.randrange(2, 9)):
        at = rng.choice(sorted(name for name, left in free.items() if left))
        free[at] -= 1
        user = rng.choice("xy")
        pods.append(foreign(f"f{i}", at=at, namespace=f"t-{rng.choice(sorted(parents))}", user=user))
    state = world(nodes, queues, pods, teams, moves_per_minute=0.0)
    for i in range(24):
        gpus, user = rng.choice((1, 1, 2, 4)), rng.choice("xy")
        state.upsert_pod(pod(f"p{i}", queue=rng.choice(sorted(parents)), gpus=gpus, created=float(i), user=user))
        if i % 6 == 5:
            play(state, float(i), rounds=60)
            invariants.check(state)
    assert all(state.tasks[each.uid].state is TaskState.BOUND for each in pods)

"""Random worlds: a cluster of pods, gangs, budgets and graces around the core, on a clock that jumps, and the verdict of a judge.

The judge knows the world, not the scheduler: which pods run where, what queues are guaranteed, and which pods would really end when evicted.
"""

from __future__ import annotations

import math
import random
from itertools import combinations

import msgspec

from fairlead.core import invariants
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.groups import Group
from fairlead.core.model.pods import Pod
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.transactions import Binding, Evict, Place, Preempt
from fairlead.core.pods.tasks import Placeholder, TaskState
from fairlead.core.state.cluster import ClusterState
from tests.builders import GPU, cluster, node, pod, queue, run

POLICY = {"budget_override": 300.0, "victim_timeout": 60.0, "max_grace": 200}
GPUS = 8
GRACES = (0, 1, 30, 30, 200, 900, 10**9)
APPS = ("", "none", "one", "half")
"""Labels by which budgets select pods: none of them may be disrupted, one at a time, half of them."""


class Life(msgspec.Struct):
    """A pod in the cluster. ends: `soon`, `late` (when its grace is over) or `never`; asked: when it was deleted first."""

    pod: Pod
    ends: str
    asked: float = 0.0
    granted: float = 0.0
    gone: float = math.inf

    @property
    def bound(self) -> bool:
        return bool(self.pod.node)


class World:
    """What the API server and the kubelets do. rnd decides everything, so a seed is a history."""

    def __init__(self, seed: int, **policy: object) -> None:
        self.rnd = rnd = random.Random(seed)
        self.now = 1000.0
        self.number = 0
        self.recreates = rnd.random() < 0.7
        self.lives: dict[str, Life] = {}
        self.groups: dict[str, Group] = {}
        self.log: list[str] = []
        nodes = [node(f"n{number}", gpus=GPUS) for number in range(rnd.randint(1, 4))]
        self.nodes = {each.name: each for each in nodes}
        self.queues = self._tree()
        self.policy = {**POLICY, **policy}
        self.budgets: dict[str, DisruptionBudget] = {}
        self.state = self.rebuilt()
        self._budgets()

    def _tree(self) -> list:
        rnd, left = self.rnd, GPUS * len(self.nodes)
        made = [queue("borrow", quota=0)]
        parents = ["", "org"] if rnd.random() < 0.4 else [""]
        inside = 0
        for name in ("red", "green", "blue")[: rnd.randint(1, 3)]:
            quota = rnd.choice([0, 2, 4, 8, 8, 16])
            quota = min(quota, left)
            left -= quota
            parent = rnd.choice(parents)
            inside += quota if parent else 0
            made.append(queue(name, quota=quota, parent=parent))
        if "org" in parents:
            made.append(queue("lent", quota=0, parent="org"))
            made.insert(0, queue("org", quota=inside))
        return made

    @property
    def leaves(self) -> list[str]:
        return [each.name for each in self.queues if each.name != "org"]

    def rebuilt(self) -> ClusterState:
        """A state made of what the cluster shows now."""
        pods = [life.pod for life in self.lives.values()]
        state = cluster(self.nodes.values(), self.queues, pods, self.groups.values(), **self.policy)
        for budget in self.budgets.values():
            state.upsert_budget(budget)
        return state

    # -- the cluster ---------------------------------------------------------------------------

    def say(self, what: str) -> None:
        self.log.append(f"{self.now:9.1f} {what}")

    def submit(self, name: str, like: Pod | None = None, ends: str = "", **more: object) -> None:
        rnd = self.rnd
        made = pod(name, created=float(int(self.now)), **more) if like is None else like
        if like is None:
            app = rnd.choice(APPS)
            labels = (("app", app),) if app else ()
            made = msgspec.structs.replace(made, labels=labels, grace=rnd.choice(GRACES))
        ends = ends or rnd.choices(("soon", "late", "never"), (6, 3, 1))[0]
        self.lives[made.uid] = Life(made, ends)
        self.say(f"+ {made.name} {made.queue} {made.spec.gpus} gpus grace {made.grace} {dict(made.labels)} ends {ends}")
        self.state.upsert_pod(made)

    def arrive(self) -> None:
        """A pod or a gang is submitted."""
        rnd = self.rnd
        self.number += 1
        where, gpus = rnd.choice([*self.leaves, "borrow"]), rnd.choice([1, 2, 4, 8])
        if rnd.random() < 0.25:
            size, name = rnd.randint(2, 3), f"g{self.number}"
            self.groups[f"ns/{name}"] = Group("ns", name, size, where)
            self.state.upsert_group(self.groups[f"ns/{name}"])
            for member in range(size):
                self.submit(f"{name}-{member}", queue=where, gpus=gpus, group=name)
        else:
            self.submit(f"p{self.number}", queue=where, gpus=gpus)

    def delete(self, uid: str, grace: int | None) -> None:
        """As the API server does: a later delete may only give less, and counts from the first."""
        life = self.lives[uid]
        if not life.bound:
            self.vanish(uid)
            return
        if life.pod.terminating:
            if grace is None or grace >= life.granted:
                return
        else:
            life.asked = self.now
            grace = life.pod.grace if grace is None else grace
        life.granted = grace
        wait = {"soon": min(grace, 5.0), "late": float(grace), "never": math.inf}[life.ends]
        life.gone = max(self.now, life.asked + wait)
        life.pod = msgspec.structs.replace(life.pod, terminating=True, leaves=float(int(life.asked + grace)))
        self.say(f"- {life.pod.name} has {grace} s, gone at {life.gone}")
        self.state.upsert_pod(life.pod)
        self._budgets()

    def vanish(self, uid: str, *, again: bool = True) -> None:
        life = self.lives.pop(uid)
        self.say(f"x {life.pod.name}")
        self.state.remove_pod(uid)
        if again and self.recreates:
            old = life.pod
            new = msgspec.structs.replace(
                old, uid=f"{uid}+", name=f"{old.name}+", node="", terminating=False, leaves=0.0, created=float(int(self.now))
            )
            self.submit(new.name, new, life.ends)
        self._budgets()

    def _allowed(self, app: str) -> int:
        mine = [life for life in self.lives.values() if ("app", app) in life.pod.labels]
        healthy = sum(life.bound and not life.pod.terminating for life in mine)
        return max(0, healthy - {"none": len(mine), "one": len(mine) - 1, "half": math.ceil(len(mine) / 2)}[app])

    def _budgets(self) -> None:
        for app in APPS[1:]:
            budget = DisruptionBudget("ns", app, (Requirement("app", "In", (app,)),), self._allowed(app))
            if self.budgets.get(budget.key) != budget:
                self.budgets[budget.key] = budget
                self.state.upsert_budget(budget)

    def evict(self, uid: str, grace: int | None, *, dry: bool = False, outright: bool = False) -> bool:
        """The Eviction API, or a delete."""
        life = self.lives.get(uid)
        if life is None:
            return True
        app = dict(life.pod.labels).get("app", "")
        if not outright and app and not life.pod.terminating and life.bound and self._allowed(app) < 1:
            return False
        if not dry:
            self.delete(uid, grace)
        return True

    def carry_out(self, decided: list) -> None:
        for each in decided:
            if isinstance(each, Place):
                for binding in each.bindings:
                    self._bind(binding)
            elif isinstance(each, Preempt):
                self._preempt(each)
            elif isinstance(each, Evict):
                self.say(f"evict {[victim.pod.name for victim in each.victims]} {each.graces}")
                for victim in each.victims:
                    self.evict(victim.pod.uid, dict(each.graces).get(victim.pod.uid))

    def _bind(self, binding: Binding) -> None:
        life = self.lives.get(binding.pod.uid)
        if life is None:
            return
        if self.rnd.random() < 0.03:
            self.say(f"binding of {life.pod.name} fails")
            self.state.bind_failed(life.pod.uid, self.now)
            return
        self.say(f"{life.pod.name} on {binding.node}")
        life.pod = msgspec.structs.replace(life.pod, node=binding.node)
        self.state.pods.bound(life.pod.uid)
        self.state.upsert_pod(life.pod)
        self._budgets()

    def _preempt(self, plan: Preempt) -> None:
        graces, overrides = dict(plan.graces), set(plan.overrides)
        uids = [victim.pod.uid for victim in plan.victims]
        self.say(f"preempt {[each.pod.name for each in plan.victims]} for {[each.pod.name for each in plan.beneficiaries]}")
        if self.rnd.random() < 0.1 and uids[0] in self.lives:
            self.delete(uids[0], 10**9)  # its user was faster
        refused = [uid for uid in uids if uid not in overrides and not self.evict(uid, None, dry=True)]
        if not refused:
            refused = [uid for uid in uids if not self.evict(uid, graces.get(uid), outright=uid in overrides)]
        for uid in refused:
            self.say(f"eviction of {uid} refused")
            self.state.evictions.failed(uid, self.now, by_budget=True)

    # -- time ----------------------------------------------------------------------------------

    def step(self, longest: float) -> list:
        """The clock goes on to the next that happens; one pass."""
        dues = [self.now + longest, *(life.gone for life in self.lives.values())]
        if self.state.next_due is not None:
            dues.append(max(self.state.next_due, self.now + 0.01))
        self.now = min(dues)
        for uid in sorted(uid for uid, life in self.lives.items() if life.gone <= self.now):
            self.vanish(uid)
        decided = run(self.state, self.now)
        self.carry_out(decided)
        return decided

    def disturb(self) -> None:
        """A random event of the cluster."""
        rnd, chance = self.rnd, self.rnd.random()
        bound = sorted(uid for uid, life in self.lives.items() if life.bound and not life.pod.terminating)
        if chance < 0.55 or not bound:
            self.arrive()
        elif chance < 0.8:
            self.delete(rnd.choice(bound), rnd.choice([None, 30, 900, 10**9, 10**9]))
        elif chance < 0.9:
            for life in self.lives.values():
                if life.ends == "never" and not life.pod.terminating and rnd.random() < 0.5:
                    life.ends = "soon"
        else:
            self.vanish(rnd.choice(bound), again=False)

    # -- the judge -----------------------------------------------------------------------------

    def units(self) -> list[list[Life]]:
        """What waits, gang by gang; only gangs of which nothing runs."""
        gangs: dict[str, list[Life]] = {}
        for uid, life in sorted(self.lives.items()):
            gangs.setdefault(life.pod.group or uid, []).append(life)
        return [each for each in gangs.values() if not any(life.bound for life in each)]

    def claims(self, unit: list[Life]) -> bool:
        """Whether a unit could have a place within what its queues are guaranteed, if all evictable borrowers were gone."""
        first, tops = unit[0].pod, {each.name: each for each in self.queues}
        group = self.groups.get(f"ns/{first.group}")
        if group is not None and len(unit) < group.min_member:
            return False
        want = sum(life.pod.spec.gpus for life in unit)
        path = [tops[first.queue]]
        while path[-1].parent:
            path.append(tops[path[-1].parent])
        for above in path:
            if self._held(above.name) + want > self._quota(above):
                return False
        size = first.spec.gpus
        room = 0
        for name in self.nodes:
            here = [life for life in self.lives.values() if life.pod.node == name]
            free = GPUS - sum(life.pod.spec.gpus for life in here)
            lent = [life for life in here if self._borrowed(life, path) and self._goes(life)]
            room += (free + sum(life.pod.spec.gpus for life in lent)) // size
        if room >= len(unit):
            return True
        return len(unit) == 1 and any(self._one_beyond(name, size) for name in self.nodes)

    def _held(self, name: str) -> int:
        below = {each.name for each in self.queues if name in (each.name, each.parent)}
        return sum(life.pod.spec.gpus for life in self.lives.values() if life.bound and life.pod.queue in below)

    @staticmethod
    def _quota(each) -> int:
        return next((entry.quota or 0 for entry in each.resources if entry.name == GPU), 0) // 1000

    def _borrowed(self, life: Life, path: list) -> bool:
        """Whether all that its queue holds is borrowed, by itself and with those above it but not above the taker's (`path`)."""
        tops = {each.name: each for each in self.queues}
        own = tops[life.pod.queue]
        above = tops.get(own.parent)
        return self._quota(own) == 0 and (above is None or above in path or self._quota(above) == 0)

    def _goes(self, life: Life) -> bool:
        """Whether it would really go when asked, and all of its gang with it."""
        mates = [each for each in self.lives.values() if each.pod.group == life.pod.group] if life.pod.group else [life]
        return all(each.ends != "never" for each in mates if each.bound)

    def _one_beyond(self, name: str, size: int) -> bool:
        """Whether one node has capacity for a pod without some pods of queues that stay at or above their quotas without them."""
        here = [life for life in self.lives.values() if life.pod.node == name]
        free = GPUS - sum(life.pod.spec.gpus for life in here)
        may = [life for life in here if not life.pod.group and self._goes(life)]
        tops = {each.name: each for each in self.queues}
        for count in range(min(3, len(may)) + 1):
            for chosen in combinations(may, count):
                if free + sum(life.pod.spec.gpus for life in chosen) < size:
                    continue
                names = {life.pod.queue for life in chosen} | {tops[life.pod.queue].parent for life in chosen} - {""}
                if all(self._held(each) - self._of(chosen, each) >= self._quota(tops[each]) for each in names):
                    return True
        return False

    def _of(self, chosen: tuple[Life, ...], name: str) -> int:
        below = {each.name for each in self.queues if name in (each.name, each.parent)}
        return sum(life.pod.spec.gpus for life in chosen if life.pod.queue in below)

    def holds_that_stand(self) -> list[str]:
        """Places that are held although none of their victims is left, or beyond the time for that."""
        wrong, state = [], self.state
        for uid, task in state.tasks.items():
            if task.state is not TaskState.HELD:
                continue
            if not task.waits_for or not all(victim in self.lives for victim in task.waits_for):
                wrong.append(f"{uid} waits for {sorted(task.waits_for)}")
            late = [each for each in task.waits_for if each not in state.departures.leaving]
            late += [each for each, known in state.departures.leaving.items() if known.due < self.now - 1.0]
            if late:
                wrong.append(f"{uid} waits for {late} beyond their time")
        kept = {id(each) for uid in self.lives for each in state.leftovers.of([uid])}
        for row in state.nodes.rows.values():
            there = [task for task in state.nodes.pods[row].values() if isinstance(task, Placeholder) and not task.moved]
            wrong += [f"{task} on {state.nodes.names[row]}" for task in there if id(task) not in kept]
        return wrong

    def check(self) -> None:
        invariants.check(self.state)
        assert not self.holds_that_stand(), "\n".join([*self.log[-60:], *self.holds_that_stand()])

"""Lists of victims that are kept from pass to pass hold what a plain scan of everything that runs finds, in the same order."""

import msgspec
import pytest

from fairlead.core.model.causes import PreemptionReason
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.pods.members import first_to_go, index_of
from fairlead.core.pods.tasks import TaskState
from fairlead.core.preemption.listing import VictimLists
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.victims import VictimTable
from tests import builders
from tests.builders import cluster, pod, run
from tests.core.worlds import World

CLASSES = (
    ServiceClass("sliced", levels=(600.0, 3600.0), checkpoint_interval=300.0, max_loss=60.0, express=1, mode="Suspend"),
    ServiceClass("young", min_runtime=120.0),
    ServiceClass("wide", scope="Cluster", levels=(100.0,)),
    ServiceClass("never", mode="Never"),
    ServiceClass("paused", mode="Suspend"),
)


class Plain:
    """Who may be preempted, by asking about all that runs: queue by queue, sorted anew."""

    def __init__(self, state):
        self.state = state
        self.of = {}
        self.lists, self.spares = {}, {}
        for queue, node in state.queues.queues.items():
            found = sorted(self._make(node), reverse=True)
            self.lists[queue] = [each for each in found if each[0][0]]
            self.spares[queue] = [each for each in found if not each[0][0]]
            for each in found:
                self.of.update((task.pod.uid, each) for task in each[1])

    def _make(self, node):
        seen, jobs, state = set(), {}, self.state
        for task in node.placed.values():
            if task.pod.terminating and state.departures.stays_on(task, state.services.now):
                if task.state is TaskState.BOUND and task.row >= 0:
                    yield self._victim((task,))
                continue
            gang = task.gang
            if gang is None or gang.group is None:
                if state.suspended.suspendable(task):
                    jobs.setdefault(task.pod.owner, []).append(task)
                elif runs(task):
                    yield self._victim((task,))
            elif gang.key not in seen:
                seen.add(gang.key)
                members = gang.placed()
                if all(runs(each) for each in members):
                    spare, needed = first_to_go(members, gang.needed)
                    yield from (self._spare(each) for each in spare)
                    if needed:
                        yield self._victim(tuple(needed))
        for tasks in jobs.values():
            if all(runs(task) for task in tasks):
                yield self._victim(tuple(sorted(tasks, key=lambda task: task.pod.key)))

    def _victim(self, tasks):
        services = self.state.services
        return (
            1,
            max(task.pod.priority for task in tasks),
            -max(services.victim_level(task) for task in tasks),
            sum(services.lost_with(task) for task in tasks if not task.pod.terminating),
            len(tasks),
            -max(task.pod.created for task in tasks),
            min(task.pod.uid for task in tasks),
        ), tasks

    def _spare(self, task):
        outer, index = index_of(task.pod)
        lost = self.state.services.lost_with(task)
        return (0, task.pod.priority, -(outer * (1 << 30) + index), lost, 1, -task.pod.created, task.pod.uid), (task,)

    def one_by_one(self, preemption):
        """Each with its reason, in the order in which they are preempted."""
        if not preemption.any_preemptible():
            return []
        found = self._for(preemption, self.spares, None)
        for reason in preemption.reasons():
            found += self._for(preemption, self.lists, reason)
        return found

    def _for(self, preemption, lists, wanted):
        queues, found = self.state.queues.queues, []
        for order, tasks in sorted(each for victims in lists.values() for each in victims):
            if wanted is PreemptionReason.PRIORITY and order[1] >= preemption.unit.priority:
                continue
            if preemption.reaches(queues[tasks[0].queue]):
                reason = preemption.reason_for_all(tasks)
                if reason is not None and wanted in (None, reason):
                    found.append((reason, order, tasks))
        return found

    def on(self, preemption, row):
        here = {self.of[uid][0]: self.of[uid] for uid in self.state.nodes.pods[row] if uid in self.of}
        reasons = [(preemption.reason_for_all(tasks), order, tasks) for order, tasks in here.values()]
        may = [each for each in reasons if each[0] is not None]
        return sorted(may, key=lambda each: (bool(each[1][0]), each[0], each[1]))


def runs(task):
    return task.state is TaskState.BOUND and task.row >= 0 and not task.pod.terminating


class Mixed(World):
    """A world with classes, users, elastic gangs and jobs that are suspended; pods and groups that run are edited."""

    def _tree(self):
        made = super()._tree()
        return [msgspec.structs.replace(each, users_reclaim=self.rnd.random() < 0.5) for each in made]

    def rebuilt(self):
        state = super().rebuilt()
        for each in CLASSES:
            state.upsert_class(each)
        return state

    def submit(self, name, like=None, ends="", **more):
        rnd = self.rnd
        if like is None:
            like = pod(name, created=float(int(self.now)), **more)
            service, owner = rnd.choice(["", "", *[each.name for each in CLASSES]]), f"o{rnd.randint(1, 9)}"
            like = msgspec.structs.replace(
                like,
                labels=(("app", app),) if (app := rnd.choice(["", "one"])) else (),
                user=rnd.choice(["ann", "ben", "cat"]),
                priority=rnd.choice([0, 0, 0, 5]),
                service_class=service,
                elastic=bool(like.group) and rnd.random() < 0.3,
                grace=rnd.choice([0, 30, 900]),
                root=f"batch/v1/Job/{owner}",
                owner=owner,
            )
        super().submit(name, like, ends)

    def disturb(self):
        rnd, chance = self.rnd, self.rnd.random()
        lives = [self.lives[uid] for uid in sorted(self.lives)]
        if chance < 0.1 and lives:
            life = rnd.choice(lives)
            changed = {"priority": rnd.choice([0, 5])} if rnd.random() < 0.5 else {"service_class": rnd.choice(["", "young"])}
            life.pod = msgspec.structs.replace(life.pod, **changed)
            self.state.upsert_pod(life.pod)
        elif chance < 0.2 and self.groups:
            key = rnd.choice(sorted(self.groups))
            least = max(1, self.groups[key].min_member + rnd.choice([-1, 1]))
            self.groups[key] = msgspec.structs.replace(
                self.groups[key], min_member=least, service_class=rnd.choice(["", "sliced", "young"])
            )
            self.state.upsert_group(self.groups[key])
        elif chance < 0.25:
            at = rnd.randrange(len(self.queues))
            old = self.queues[at]
            self.queues[at] = msgspec.structs.replace(old, users_reclaim=not old.users_reclaim)
            self.state.upsert_queue(self.queues[at])
        elif chance < 0.28:
            service = rnd.choice(CLASSES)
            self.state.upsert_class(msgspec.structs.replace(service, mode=rnd.choice(["Requeue", "Suspend", "Never"])))
        elif chance < 0.31:
            name = rnd.choice(sorted(self.nodes))
            self.state.remove_node(name)
            self.state.upsert_node(self.nodes[name])
        else:
            super().disturb()


def compare(world, *, asked):
    state, plain = world.state, Plain(world.state)
    kept = state.caches.get(VictimLists)
    kept.refresh()
    for spare, lists in ((False, plain.lists), (True, plain.spares)):
        found = [victim for kind in kept.kinds.values() if kind.spare is spare for victim in kind.victims]
        listed = sorted((victim.order, victim.tasks) for victim in found)
        assert listed == sorted(each for victims in lists.values() for each in victims), world.log[-30:]
    for kind in kept.kinds.values():
        assert kind.victims == sorted(kind.victims, key=lambda victim: victim.order, reverse=True)
        assert all(victim.kind is kind for victim in kind.victims)
    assert {uid: (victim.order, victim.tasks) for uid, victim in kept.of.items()} == plain.of
    firsts = [each.first() for node in state.queues.queues.values() for each in node.pending_classes.values()] if asked else []
    for unit in [each for each in firsts if each is not None]:
        table, preemption = VictimTable(state), PreemptionPolicy(state, unit, enforce_quota=world.rnd.random() < 0.5)
        plainly = PreemptionPolicy(state, unit, enforce_quota=preemption.enforce_quota)
        near = [(reason, victim.order, victim.tasks) for reason, victim in table._near(preemption)]
        assert near == plain.one_by_one(plainly), world.log[-30:]
        rows = table.rows(preemption)
        for row in range(state.nodes.count):
            there = [(reason, victim.order, victim.tasks) for reason, victim in table.preemptible_on(preemption, row)]
            assert there == plain.on(plainly, row)
            assert not there or row in rows


def play(seed, events):
    world = Mixed(seed, moves_per_minute=0)
    while events:
        if world.rnd.random() < 0.6:
            events -= 1
            world.disturb()
            if world.rnd.random() < 0.3:
                compare(world, asked=False)
        world.step(world.rnd.choice([0.5, 5.0, 60.0]))
        if world.rnd.random() < 0.7:
            compare(world, asked=True)


@pytest.mark.parametrize("seed", range(25))
def test_what_is_kept_is_what_a_scan_finds(seed):
    play(seed, 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25, 525))
def test_what_is_kept_is_what_a_scan_finds_in_many_worlds(seed):
    play(seed, 60)


def test_what_nobody_asks_for_is_not_noted_for_ever():
    world = Mixed(1)
    world.state.caches.get(VictimLists).refresh()
    changes = world.state.queues.accounts.changes
    changes.note(str(number) for number in range(5000))
    run(world.state, world.now)
    assert changes.everything
    assert not changes.pods


def test_what_trials_have_listed_is_not_listed_again_in_every_pass(monkeypatch):
    """Searches are trials as a rule: what has not changed since the pass before is not derived again."""
    running = [pod(f"r{number}", priority=5 if number else 99, at="n") for number in range(8)]
    state = cluster([builders.node("n", gpus=8)], [builders.queue("default", 8)], running, reservations=0)
    derived, derive, at_once = [], VictimLists._derive, VictimLists._list_plain

    def counted(self, groups):
        derived.extend(groups)
        derive(self, groups)

    def counted_at_once(self, node):
        rest = at_once(self, node)
        derived.extend(set(node.placed) - set(rest))
        return rest

    monkeypatch.setattr(VictimLists, "_derive", counted)
    monkeypatch.setattr(VictimLists, "_list_plain", counted_at_once)
    found = []
    for number in range(4):
        derived.clear()
        state.upsert_pod(pod(f"w{number}", priority=10, gpus=8, cpu=1000 + number))
        assert run(state, 100.0 * number)
        found.append(len(derived))
    assert found == [8, 8, 1, 1], "in the first search, once more outside it, then only the pod that has come"

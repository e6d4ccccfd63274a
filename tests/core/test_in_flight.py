"""What is remembered of evictions in flight, table by table: entries come and go together."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.undo import UndoLog
from fairlead.core.pods.tasks import Placeholder, Task, TaskState
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.in_flight import InFlight, Kept

SPEC = PodSpec((("cpu", 1000),))


@dataclass
class World:
    """Tasks by name, and the tables about them."""

    state: ClusterState = field(default_factory=ClusterState)
    tasks: dict[str, Task] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = UndoLog()
        self.in_flight = InFlight(self.log, self.tasks)

    def task(self, uid: str, *states: TaskState) -> Task:
        """A task that became these, one after the other."""
        task = self.tasks[uid] = Task(Pod(uid, "ns", uid, SPEC), self.state.shapes.intern(SPEC))
        for each in states:
            task.become(each)
        return task

    def placeholder(self, uid: str) -> Placeholder:
        return Placeholder(Pod(uid, "", uid, SPEC, placeholder=True), self.state.shapes.intern(SPEC))

    def empty(self) -> bool:
        """Whether nothing is remembered."""
        tables = self.in_flight
        return not any((tables.waits, tables.plans, tables.freed, tables.lingering, tables.closed, tables.kept, tables.returning))


def planned() -> tuple[World, Task]:
    """Victims `a` and `b` of a plan, and the task that waits for them."""
    world = World()
    held = world.task("held", TaskState.ASSUMED, TaskState.HELD)
    for uid in ("a", "b"):
        world.task(uid, TaskState.BOUND, TaskState.EVICTING)
        world.in_flight.plan(uid, frozenset("ab"))
    world.in_flight.wait(["a", "b"], [held])
    return world, held


def test_a_task_is_freed_with_the_last_victim() -> None:
    """The plan is remembered until then."""
    world, held = planned()
    del world.tasks["a"]
    world.in_flight.gone("a")
    assert held.waits_for == {"b"}
    assert not world.in_flight.freed
    assert set(world.in_flight.plans) == {"a", "b"}
    del world.tasks["b"]
    world.in_flight.gone("b")
    assert world.in_flight.take_freed() == [held]
    world.in_flight.leave(held)
    assert world.empty()


def test_a_task_that_waits_for_the_victims_of_two_plans_is_freed_once_all_are_gone() -> None:
    """It joined a gang whose members got their places one plan after the other."""
    world, held = planned()
    world.task("c", TaskState.BOUND, TaskState.EVICTING)
    other, joined = (world.task(name, TaskState.ASSUMED, TaskState.HELD) for name in ("other", "joined"))
    world.in_flight.wait(["c"], [other])
    world.in_flight.join(joined, (*held.waits, *other.waits))
    del world.tasks["c"]
    world.in_flight.gone("c")
    assert world.in_flight.take_freed() == [other]
    assert joined.waits_for == {"a", "b"}
    for uid in ("a", "b"):
        assert not world.in_flight.freed
        del world.tasks[uid]
        world.in_flight.gone(uid)
    assert world.in_flight.take_freed() == [held, joined]


def test_a_task_that_no_longer_waits_is_not_freed() -> None:
    """Its victims may still be gone later."""
    world, held = planned()
    world.in_flight.leave(held)
    assert world.in_flight.waiting_for("a") == []
    for uid in ("a", "b"):
        del world.tasks[uid]
        world.in_flight.gone(uid)
    assert world.empty()


def test_victims_that_stay_are_waited_for_no_more() -> None:
    """That a victim was gone before is forgotten with the plan."""
    world, held = planned()
    del world.tasks["a"]
    world.in_flight.gone("a")
    world.in_flight.leave(held)
    world.in_flight.stays("b")
    assert world.empty()


def test_a_trial_leaves_the_tables_as_they_were() -> None:
    """Also where a victim was listed before."""
    world, held = planned()
    before = world.in_flight.waits["a"]
    mark = world.log.mark()
    world.in_flight.wait(["a"], [world.task("other", TaskState.ASSUMED, TaskState.HELD)])
    world.in_flight.linger("a", 3)
    world.in_flight.close(["a", "b"], world.placeholder("leaving/a/0"))
    world.in_flight.keep(Kept("a", ("", "", "", "", 0), world.placeholder("moved/a"), 60.0))
    world.log.rollback(mark)
    assert world.in_flight.waits["a"] == before
    assert not any((world.in_flight.lingering, world.in_flight.closed, world.in_flight.kept))
    assert held.waits_for == {"a", "b"}


def test_a_placeholder_is_reopened_with_the_last_of_its_victims() -> None:
    """It stands for all of them."""
    world, _ = planned()
    placeholder = world.placeholder("leaving/a/0")
    world.in_flight.close(["a", "b"], placeholder)
    assert world.in_flight.reopen("a") == []
    assert world.in_flight.reopen("b") == [placeholder]


def test_a_place_is_kept_then_returned_to() -> None:
    """A replacement comes, and a member of its gang gets its place."""
    world, _ = planned()
    kept = Kept("a", ("", "", "", "", 0), world.placeholder("moved/a"), 60.0)
    world.in_flight.keep(kept)
    assert world.in_flight.replace("new", "a") is kept
    assert not world.in_flight.kept
    world.in_flight.pass_on("new", "mate")
    assert set(world.in_flight.returning) == {"mate"}
    assert world.in_flight.take("mate") is kept
    assert not world.in_flight.returning


def test_nothing_is_remembered_of_a_pod_that_is_expelled() -> None:
    """As a victim, and as a task that waits."""
    world, held = planned()
    placeholders = [world.placeholder("leaving/a/0"), world.placeholder("moved/a")]
    world.in_flight.linger("a", 3)
    world.in_flight.close(["a"], placeholders[0])
    world.in_flight.keep(Kept("a", ("", "", "", "", 0), placeholders[1], 60.0))
    assert world.in_flight.expel("a") == placeholders
    assert set(world.in_flight.waits) == {"b"}
    world.in_flight.reserve("held", Kept("held", ("", "", "", "", 0), world.placeholder("moved/held"), 60.0))
    assert world.in_flight.cut_out(held) is not None
    assert world.in_flight.waiting_for("b") == []
    assert world.in_flight.expel("b") == []
    assert world.empty()

"""`fairlead scheduler` with faults, as a process of its own: serving a pod `poison...` raises, and so does a pass while a pod `broken` waits.

The faults are here, in the test: nothing in the product can be made to fail from outside.
"""

from __future__ import annotations

from fairlead.cli import main
from fairlead.core import allocation, schedule
from fairlead.core.actions import serve
from fairlead.scheduler import core_loop


class InjectedError(Exception):
    """Raised here, nowhere else."""


def allocate(state, unit, *, whole=allocation.allocate):
    if unit.tasks[0].pod.name.startswith("poison"):
        state.log.mark()
        state.placement.assign(unit.tasks[0], 0, ())
        raise InjectedError
    return whole(state, unit)


def passes(state, *arguments, whole=schedule.schedule):
    if any(task.pod.name == "broken" for task in state.tasks.values()):
        raise InjectedError
    yield from whole(state, *arguments)


if __name__ == "__main__":
    vars(serve)["allocate"] = allocate
    vars(core_loop)["schedule"] = passes
    main.run()

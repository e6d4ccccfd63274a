"""Whether so many devices are free that moves could help a unit with claims: a bound, before any move is tried.

A move gives a pod as many devices elsewhere as it leaves, so what is free of all nodes stays the same. It must be what the unit
needs at least: of each counter, and of devices by number. Where a pod that moves could take less than it has (an alternative),
that is not seen, and no moves are searched for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fairlead.core.dra.model import Amount, Claim
from fairlead.core.dra.refusals import Refusal
from fairlead.core.model.late import late
from fairlead.core.pods.tasks import Task
from fairlead.core.state.cluster import ClusterState

if TYPE_CHECKING:
    from fairlead.core.dra import held, needs, problem
    from fairlead.core.dra.inventory import Inventory
    from fairlead.core.dra.needs import Needs
else:  # loaded with the first unit that has claims
    held, needs, problem = (late(f"fairlead.core.dra.{each}") for each in ("held", "needs", "problem"))


def enough_devices(state: ClusterState, tasks: Sequence[Task]) -> bool:
    """Whether as much is free on all nodes together as the claims of these tasks need at least."""
    missing = lacking_devices(state, tasks)
    return missing is not None and not missing


def lacking_devices(state: ClusterState, tasks: Sequence[Task]) -> Needs | None:
    """What all nodes together lack of what the claims of these tasks need at least; None: more than any nodes could give."""
    claims = state.device_claims
    if not claims.known:
        return None
    free: Needs = {}
    inventories: list[Inventory] = []
    for row in state.nodes.rows.values():
        there = claims.devices.state_of(row)
        if there is not None and there.inventory.ids:
            inventories.append(there.inventory)
            for name, amount in needs.sums(there).items():
                free[name] = free.get(name, 0) + amount
    needed: Needs = {}
    known: dict[tuple[int, ...], Needs | None] = {}
    for task in tasks:
        # Where a device plugin serves an extended resource no claim is needed, so none is counted.
        contents = tuple(
            need.content
            for need in task.shape.spec.devices
            if not need.served and not (need.claim and claims.allocation_of(need.claim) is not None)
        )
        if contents not in known:
            known[contents] = _least(state, inventories, [claims.wants.content(each) for each in contents])
        found = known[contents]
        if found is None:
            return None
        for name, amount in found.items():
            needed[name] = needed.get(name, 0) + amount
    return {name: amount - free.get(name, 0) for name, amount in needed.items() if amount > free.get(name, 0)}


class FreedDevices:
    """What tasks would free of counters and devices if they left: what their claims have that no other pod uses.

    Of a claim that several pods use nothing is free before all of these have ended (`DeviceClaims.displace`).
    """

    def __init__(self, state: ClusterState, tasks: Iterable[Task]) -> None:
        self._of = {task.pod.uid: self._freed_by(state, task) for task in tasks}

    @staticmethod
    def _freed_by(state: ClusterState, task: Task) -> Needs:
        claims, found = state.device_claims, dict[tuple[str, str], Amount]()
        for key in claims.keys_of(task.pod):
            claim = claims.claims.get(key)
            if claims.users_with_places(key) > 1 or (claim is not None and not set(claim.users) <= {task.pod.uid}):
                continue
            for name, amount in _held_by(state, key).items():
                found[name] = found.get(name, 0) + amount
        return found

    def without(self, tasks: Iterable[Task]) -> Needs:
        """What some of the tasks free together; never less than that."""
        found: Needs = {}
        for task in tasks:
            for name, amount in self._of[task.pod.uid].items():
                found[name] = found.get(name, 0) + amount
        return found


def _held_by(state: ClusterState, key: str) -> Needs:
    """What a claim holds of counters, and how many devices; of a shared device all, since it may be the last share."""
    allocation = state.device_claims.allocation_of(key)
    found: Needs = {}
    for each in allocation.devices if allocation is not None else ():
        found[needs.DEVICES] = found.get(needs.DEVICES, 0) + 1
        device = state.device_claims.devices.known.get(each.device)
        for _, counters in device.counters if device is not None else ():
            for counter, amount in counters:
                name = each.device.driver, counter
                found[name] = found.get(name, 0) + amount
    return found


def _least(state: ClusterState, inventories: list[Inventory], contents: list[Claim]) -> Needs | None:
    """What claims need at least, on whichever node they are allocated; None: on none, were all of it free."""
    found: Needs | None = None
    for inventory in inventories if contents else ():
        asked = problem.prepare(held.Held().on(inventory), contents, state.device_claims.classes)
        if isinstance(asked, Refusal):
            continue
        here = needs.least(asked)
        found = here if found is None else {name: min(amount, found[name]) for name, amount in here.items() if name in found}
    return found if contents else {}

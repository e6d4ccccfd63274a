"""Leftovers: capacity that victims still fill beyond what their beneficiaries take; it stays closed until the victims are gone.

A placeholder holds it on its row. No queue is charged for it: the debts of the victims' queues are (`queues.Debt`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Placeholder, Task, TaskState
from fairlead.core.state.in_flight import GivenUp
from fairlead.core.state.placement import Placement
from fairlead.core.state.tables import Tables


class Leftovers:
    """Puts placeholders of victims on rows, and takes them off (`InFlight.closed`)."""

    def __init__(self, tables: Tables, placement: Placement) -> None:
        self._log = tables.log
        self._nodes = tables.nodes
        self._shapes = tables.shapes
        self._tasks = tables.tasks
        self._placement = placement
        self._device_claims = tables.device_claims
        self._in_flight = tables.in_flight

    def close(self, spec: PodSpec, row: int, devices: tuple[int, ...], victims: list[str]) -> None:
        """A placeholder on a row until the victims are gone."""
        number = len(self._in_flight.closed.get(victims[0], ()))
        queue, name = self._tasks[victims[0]].queue, f"leaving-{victims[0]}"
        if spec.devices or spec.near is not None or spec.isolated or spec.pressure:
            # What victims mean to those beside them is counted of these.
            spec = msgspec.structs.replace(
                spec, devices=(), near=None, isolated="", pressure=()
            )  # the victims' claims are closed by themselves
        pod = Pod(f"leaving/{victims[0]}/{number}", "", name, spec, queue=queue, ours=False, placeholder=True)
        placeholder = Placeholder(pod, self._shapes.intern(spec))
        self._log.call(self._shapes.release, placeholder.ranking)
        self._placement.assign(placeholder, row, devices)
        self._in_flight.close(victims, placeholder)
        self.close_claims(victims, row)

    def close_claims(self, victims: Iterable[str], row: int) -> None:
        """What victims have by ResourceClaims on a row, and no beneficiary takes, stays closed until they are gone."""
        for uid in victims:
            task = self._tasks.get(uid)
            if task is not None and task.pod.claims:
                self._device_claims.close(task.pod, row)

    def hold(self, places: dict[str, tuple[int, tuple[int, ...]]], coming: Iterable[tuple[Sequence[str], Task]]) -> None:
        """Keep closed what victims still occupy beyond what their beneficiaries take, until they are gone.

        places: victim's UID -> its row and devices. coming: placeholders of pods that are moved, and the victims that must
        leave before it is replaced; what these pods take there is taken from what stays closed.

        Per row one placeholder holds the difference in amounts and the devices that stayed entirely free. What is left of a
        shared device has one of its own.
        """
        after = {id(task) for victims, task in coming if not places.keys().isdisjoint(victims)}
        by_row: dict[int, list[str]] = {}
        for uid, (row, _) in places.items():
            by_row.setdefault(row, []).append(uid)
        for row, uids in by_row.items():
            left, taken = self._beyond(row, uids, places, after)
            free = self._nodes.devices.states[self._nodes.device.item(row)]
            rest = {device: min(milli, free[device]) for device, milli in taken.items() if milli > 0 and device < len(free)}
            whole = tuple(sorted(device for device, milli in rest.items() if milli == WHOLE))
            amounts = {name: amount for name, column in self._nodes.resources.items() if (amount := left.get(column, 0)) > 0}
            if amounts or whole:
                self.close(PodSpec(tuple(sorted(amounts.items())), gpus=len(whole)), row, whole, uids)
            for device, milli in sorted(rest.items()):
                if 0 < milli < WHOLE:
                    self.close(PodSpec((), gpus=1, gpu_milli=milli, paired=self._paired(uids)), row, (device,), uids)
        self._hold_shared(places, after)

    def _hold_shared(self, places: dict[str, tuple[int, tuple[int, ...]]], after: set[int]) -> None:
        """The same of what the nodes of pools share, wherever in its pool a beneficiary takes it.

        A placeholder takes from all pools of its row: where pools overlap it may keep more closed than victims fill.
        """
        shared, tasks = self._nodes.shared, self._tasks
        left: Counter[tuple[str, str]] = Counter()
        on: dict[tuple[str, str], list[str]] = {}  # the victims that take something of a pool
        for uid, (row, _) in sorted(places.items()):
            for key, amount in shared.parts(tasks[uid].shape.spec.shared, row):
                left[key] += amount
                on.setdefault(key, []).append(uid)
        if not on:
            return
        for task in self._takers():
            if not task.waits_for.isdisjoint(places) or id(task) in after:
                left.subtract(dict(shared.parts(task.shape.spec.shared, task.row)))
        for key, uids in sorted(on.items()):
            if (amount := left[key]) > 0:
                row, asked = places[uids[0]][0], ((key[1], amount),)
                left.subtract(dict(shared.parts(asked, row)))
                self.close(PodSpec((), shared=asked), row, (), uids)

    def _takers(self) -> Iterator[Task]:
        """What holds places, or is moved, and takes of what pools share."""
        pods, states = self._nodes.pods, (TaskState.HELD, TaskState.PLACEHOLDER)
        for row in self._nodes.shared.rows():
            yield from (task for task in pods[row].values() if task.shape.spec.shared and task.state in states)

    def _beyond(
        self, row: int, uids: list[str], places: dict[str, tuple[int, tuple[int, ...]]], after: set[int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """What victims hold on a row beyond what comes there: amounts by column, and thousandths by device."""
        left: dict[int, int] = {}
        taken: dict[int, int] = {}
        for uid in uids:
            shape = self._tasks[uid].shape
            for column, amount in shape.taken:
                left[column] = left.get(column, 0) + amount
            for device in places[uid][1]:
                taken[device] = taken.get(device, 0) + shape.gpu_milli
        for task in self._nodes.pods[row].values():
            if (task.state is TaskState.HELD and not task.waits_for.isdisjoint(uids)) or (after and id(task) in after):
                for column, amount in task.shape.taken:
                    left[column] = left.get(column, 0) - amount
                for device in task.devices:
                    taken[device] = taken.get(device, 0) - task.shape.gpu_milli
        return left, taken

    def keep_closed(self, place: GivenUp) -> None:
        """A place is given up: as much of it as is free stays closed until the victims that still fill its row are gone."""
        row, devices, spec = place.row, place.devices, place.spec
        lingering = self._in_flight.lingering
        self._keep_shared_closed(place)
        still = [uid for uid in place.victims if lingering.get(uid) == row]
        if row < 0 or not still:
            return
        nodes = self._nodes
        free = nodes.devices.states[nodes.device.item(row)]
        left = tuple(device for device in devices if device < len(free) and free[device] >= spec.gpu_milli)
        amounts = ((name, min(amount, nodes.free[nodes.resources[name]].item(row))) for name, amount in spec.requests)
        requests = tuple((name, amount) for name, amount in amounts if amount > 0)
        if requests or left:
            closed = PodSpec(requests, gpus=len(left), gpu_milli=spec.gpu_milli, paired=spec.paired)
            self.close(closed, row, left, still)

    def _paired(self, uids: Iterable[str]) -> tuple[str, ...]:
        """What keeps fractions off while a victim is there that may share its GPU with one other pod only."""
        return next((paired for uid in uids if (paired := self._tasks[uid].shape.spec.paired)), ())

    def _keep_shared_closed(self, place: GivenUp) -> None:
        """The same of what the nodes of its pools share, while a victim that takes it is anywhere in them."""
        shared, row = self._nodes.shared, place.row
        for name, amount in place.spec.shared if row >= 0 else ():
            keys = shared.keys(row, name)
            still = [
                uid
                for uid in place.victims
                if (at := self._in_flight.lingering.get(uid)) is not None
                and any(each == name for each, _ in self._tasks[uid].shape.spec.shared)
                and not set(keys).isdisjoint(shared.keys(at, name))
            ]
            free = min([amount, *(shared.free(key) for key in keys)])
            if still and keys and free > 0:
                self.close(PodSpec((), shared=((name, free),)), row, (), still)

    def of(self, victims: Iterable[str]) -> list[Placeholder]:
        """The placeholders that keep closed what victims still fill beyond what was given away."""
        return list({id(each): each for uid in victims for each in self._in_flight.closed.get(uid, ())}.values())

    def release(self, *uids: str) -> None:
        """All at once before any of these victims is counted where it runs: devices are chosen for it then."""
        for uid in uids:
            for placeholder in self._in_flight.reopen(uid):
                self._placement.unassign(placeholder)
                self._shapes.release(placeholder.ranking)

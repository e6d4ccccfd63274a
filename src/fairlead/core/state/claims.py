"""Claims: events of `resource.k8s.io`, and what they mean for pods that use ResourceClaims.

Pods that wait need something else once their claims change. A victim that is gone counts as terminating until its claims have no
devices any more: others are to have these, and could not. So does one of a ComputeDomain while its node has the domain's label
and a pod of another domain is to have a place there: two domains would be set up on the node at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.core.dra.model import DeviceObject
from fairlead.core.model.allocations import FailedDevice
from fairlead.core.model.pods import Pod
from fairlead.core.pods.tasks import Gang, Task, TaskState
from fairlead.core.state.pending import Pending
from fairlead.core.state.pods import Pods
from fairlead.core.state.tables import Tables


class Claims:
    """Takes in their events. comes_to_wait: is called with a task that has come to wait, or None."""

    def __init__(self, tables: Tables, pods: Pods, pending: Pending, comes_to_wait: Callable[[Task | None], None]) -> None:
        self._tables, self._pods, self._pending = tables, pods, pending
        self._claims = tables.device_claims
        self._comes_to_wait = comes_to_wait
        self._unreleased: dict[str, Pod | None] = {}  # victims that are gone, and what is not released: the last view

    def upsert(self, item: DeviceObject) -> None:
        """A ResourceSlice, a DeviceClass, a ResourceClaim or a template came or changed."""
        self._claims.upsert(item)
        self.follow()

    def remove(self, kind: type[DeviceObject], name: str) -> None:
        """One of them is gone."""
        self._claims.remove(kind, name)
        self.follow()

    def all_known(self) -> None:
        """All of them that exist have been listed."""
        self._claims.all_known()

    def remember_failures(self, failures: Sequence[tuple[float, FailedDevice]], now: float) -> None:
        """Devices because of which bindings failed before this scheduler began, each with its time in seconds."""
        self._claims.remember_failures(failures, now)

    def detains(self, uid: str, pod: Pod | None) -> bool:
        """Whether a victim is gone, or has ended, that leaves nothing free yet. pod: its last view, None: it is gone."""
        task = self._tables.tasks.get(uid)
        if task is None or task.state is not TaskState.EVICTING or not task.pod.claims:
            return False
        if not self._unfree(task):
            self._unreleased.pop(uid, None)
            return False
        self._unreleased[uid] = pod
        return True

    def _unfree(self, task: Task) -> bool:
        """Whether a victim that is gone leaves devices, or a node, that those who wait for it cannot have yet."""
        return self._claims.still_held(task.pod) or self._keeps_node(task)

    def _keeps_node(self, task: Task) -> bool:
        """Whether the node of a victim is still in its ComputeDomain, and another domain waits for it."""
        near, row = task.shape.spec.near, self._tables.nodes.rows.get(task.pod.node)
        if near is None or not near.domain or row is None or not self._tables.network.domains.is_labelled(near.domain, row):
            return False
        waiting = (self._tables.tasks.get(uid) for uid in self._tables.in_flight.waiting_for(task.pod.uid))
        return any(
            each is not None
            and each.row == row
            and (other := each.shape.spec.near) is not None
            and other.domain not in ("", near.domain)
            for each in waiting
        )

    def release_nodes(self) -> None:
        """Labels of nodes have changed, or plans were given up: victims whose claims and nodes are free are gone."""
        for uid in sorted(self._unreleased):
            task = self._tables.tasks.get(uid)
            if task is not None and not self._unfree(task):
                self._release(uid)

    def held_with(self, tasks: Sequence[Task]) -> list[Task]:
        """Other pods that use the same ResourceClaims, and whose places are held until victims are gone."""
        keys = dict.fromkeys(use.key for task in tasks for use in task.pod.claims if use.key)
        uids = dict.fromkeys(uid for key in keys for uid in self._claims.wants.users(key))
        others = (self._tables.tasks.get(uid) for uid in uids)
        return [each for each in others if each is not None and each.state is TaskState.HELD and each not in tasks]

    def group_changed(self, gang: Gang) -> None:
        """How many members of a gang start together may be different: they are charged for shared claims by that."""
        self._claims.wants.concerned.update(dict.fromkeys(uid for uid, task in gang.tasks.items() if task.pod.claims))
        self.follow()

    def follow(self) -> None:
        """Pods whose claims changed need something else, if they still wait; victims whose claims are free are gone."""
        concerned = self._claims.wants.concerned
        while concerned:
            uid = next(iter(concerned))
            del concerned[uid]
            task = self._tables.tasks.get(uid)
            if task is None:
                continue
            if uid in self._unreleased and not self._unfree(task):
                self._release(uid)
                continue
            again = self._pods.upsert(task.pod)
            if again is not None and task.not_before and task.unit is None:
                self._pending.resume_delay(again, task)  # a write for it was refused a moment ago
            else:
                self._comes_to_wait(again)

    def _release(self, uid: str) -> None:
        last = self._unreleased.pop(uid)
        if last is None:
            self._pods.remove(uid)
        else:
            self._pods.upsert(last)

"""Tables: what is known of the cluster, before anything is done with it.

The parts of the state share these. They are made here, in an order in which each names only what was made before.
"""

from __future__ import annotations

from fairlead.api.names import AI_PROFILE, KUBERNETES_PROFILE
from fairlead.core.model.agenda import Timers
from fairlead.core.model.policy import Policy
from fairlead.core.model.undo import UndoLog
from fairlead.core.nodes.device_claims import DeviceClaims
from fairlead.core.nodes.network import Network
from fairlead.core.nodes.numa import NumaNodes
from fairlead.core.nodes.storage import Storage
from fairlead.core.nodes.table import NodeTable
from fairlead.core.nodes.whole_domains import WholeDomains
from fairlead.core.pods import scores
from fairlead.core.pods.filters.base import Surroundings
from fairlead.core.pods.holdings import Holdings
from fairlead.core.pods.owned import Owned
from fairlead.core.pods.pairs import Pairs
from fairlead.core.pods.scores.upstream import Kubernetes
from fairlead.core.pods.shape_table import ShapeTable
from fairlead.core.pods.tasks import Gang, Task
from fairlead.core.queues.admission import Admission
from fairlead.core.queues.queues import Queues
from fairlead.core.queues.reservations import Reservations
from fairlead.core.queues.runtimes import RunTimes
from fairlead.core.queues.services import Services
from fairlead.core.state.census import Census
from fairlead.core.state.in_flight import InFlight
from fairlead.core.state.labelled import Labelled
from fairlead.core.state.notices import Notices
from fairlead.core.state.pressures import Pressures


class Tables:
    """Nodes, shapes, queues, classes of service, tasks by UID and gangs by `namespace/name`.

    unsettled: gangs whose units must be made anew before the next decision, by their keys. by_queue: our tasks by queue and UID.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.log = UndoLog()
        self.nodes = NodeTable(self.log, policy)
        self.pairs = Pairs(self.log, self.nodes)
        self.holdings = Holdings(self.log)
        self.storage = Storage()
        self.device_claims = DeviceClaims(self.nodes, self.log)
        self.network = Network(self.log, self.nodes)
        self.whole_domains = WholeDomains(self.nodes, self.network)
        self.numa = NumaNodes(self.log, self.nodes)
        strategies = {AI_PROFILE: scores.make(policy, self.nodes), KUBERNETES_PROFILE: Kubernetes(self.nodes, {})}
        around = Surroundings(self.nodes, self.pairs, self.holdings, self.storage, self.device_claims, self.network, self.numa)
        self.shapes = ShapeTable(around, strategies)
        self.timers = Timers()
        self.services = Services(self.timers)
        self.runtimes = RunTimes(self.services)
        self.queues = Queues(self.log, self.nodes, policy, self.timers)
        self.reserved = Reservations(self.log, self.nodes, self.queues, self.runtimes)
        self.admission = Admission(self.queues, self.services, self.pairs.namespaces)
        self.timers.derive("failed devices", lambda: self.device_claims.failures.next_due)
        self.timers.derive("unserved resources", lambda: self.device_claims.unserved.next_due)
        self.timers.derive("reservations", self.reserved.next_due)
        # That a pod may be preempted from now on matters only to what waits.
        self.timers.derive("preemptible", lambda: self.services.next_due if self.queues.waiting.unschedulable else None)
        self.tasks: dict[str, Task] = {}
        self.owned = Owned(self.tasks)
        self.gangs: dict[str, Gang] = {}
        self.unsettled: dict[str, Gang] = {}
        self.pressures = Pressures()
        self.notices = Notices()
        self.in_flight = InFlight(self.log, self.tasks)
        self.queues.tree.closing = self.in_flight.closed
        self.census = Census(self.tasks, self.queues)
        self.labelled = Labelled(self.tasks)
        self.by_queue: dict[str, dict[str, Task]] = {}
        self._known = 0  # tasks so far

    def add(self, task: Task) -> None:
        """A pod has come to be known."""
        self._known += 1
        task.number = self._known
        self.tasks[task.pod.uid] = task
        self.labelled.add(task)
        if task.pod.ours:
            self.by_queue.setdefault(task.queue, {})[task.pod.uid] = task

    def drop(self, uid: str) -> Task | None:
        """A pod is gone; its task."""
        task = self.tasks.pop(uid, None)
        if task is not None:
            task.number = 0
            self.labelled.remove(task)
            self.census.leave(uid)
            self._leave_queue(task)
        return task

    def move(self, task: Task, queue: str) -> None:
        """A task is in another queue."""
        if task.pod.ours and task.queue != queue:
            self._leave_queue(task)
            self.by_queue.setdefault(queue, {})[task.pod.uid] = task
        task.queue = queue
        if self.census.active:
            self.census.touch(task)

    def sort_into_queues(self) -> None:
        """`by_queue` anew, of all tasks."""
        self.by_queue.clear()
        for uid, task in self.tasks.items():
            if task.pod.ours:
                self.by_queue.setdefault(task.queue, {})[uid] = task

    def _leave_queue(self, task: Task) -> None:
        others = self.by_queue.get(task.queue, {})
        if others.pop(task.pod.uid, None) is not None and not others:
            del self.by_queue[task.queue]

    def gang(self, namespace: str, group: str) -> Gang:
        """The gang of a PodGroup, whether its object is known or not."""
        key = f"{namespace}/{group}"
        gang = self.gangs.get(key)
        if gang is None:
            gang = self.gangs[key] = Gang(key)
        return gang

    def unsettle(self, gang: Gang) -> None:
        """The gang's units must be made anew before the next decision."""
        self.unsettled[gang.key] = gang
        self.queues.accounts.changes.gangs[gang.key] = None

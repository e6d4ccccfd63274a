"""A snapshot of a cluster: everything listed once, and the scheduler's own core on it.

The commands that show things (`queue`, `nodes`, `share`, `explain`) share this. They only read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
import typer

from fairlead.api import names
from fairlead.api.reasons import Reason
from fairlead.cli.leader import Leader
from fairlead.cli.output import Exit, Output, fail, progress
from fairlead.cluster import views
from fairlead.cluster.kinds import STORAGE
from fairlead.cluster.kubernetes.client import ApiError, Client, ReadOnly, Unreachable
from fairlead.cluster.kubernetes.config import ConfigError, load
from fairlead.cluster.kubernetes.listing import everything, list_all
from fairlead.cluster.port import Synced, Upsert
from fairlead.cluster.translate import Change, Objects, first_events
from fairlead.core.model.pods import Pod
from fairlead.core.model.policy import Policy
from fairlead.core.model.transactions import Place, Preempt, Refuse, Resume
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.explanations import reason_of
from fairlead.scheduler.outputs import Output as Decision

ByLeader = Callable[[Leader, float], Awaitable[tuple[Any, Any] | None]]
"""Makes a view from the leader's answers; takes the time by the server's clock, too."""

KubeconfigOption = Annotated[str, typer.Option(help="Kubeconfig file; default: $KUBECONFIG, the pod's account, ~/.kube/config.")]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Only this namespace. Default: all.")]
SeenFromOption = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        help="Where you may not see the whole cluster: as of this namespace.",
        show_default="of the kubeconfig",
    ),
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")]
IntervalOption = Annotated[float, typer.Option(min=0.2, max=3600, help="With --watch: seconds between two refreshes.")]


class Snapshot:
    """All relevant objects, and a core that has applied them. now: seconds since the epoch, by the server's clock."""

    def __init__(self, now: float, *, missing: tuple[str, ...] = ()) -> None:
        self.now = now
        self.missing = missing  # kinds that the server does not serve
        self.nodes: list[views.Node] = []
        self.pods: list[views.Pod] = []
        self.groups: list[views.PodGroup] = []
        self.classes: list[views.ServiceClass] = []
        self.priorities: list[views.PriorityClass] = []
        self.queues: list[views.Queue] = []
        self.reservations: list[views.Reservation] = []
        self.pools: list[views.NodePool] = []
        self.budgets: list[views.Budget] = []
        self.namespaces: list[views.Namespace] = []
        self.storage: dict[str, list[Change[Any]]] = {}  # kind -> objects; only where a pod has claims
        self.decisions: list[Decision] = []
        self._core: CoreLoop | None = None
        self._counted: dict[str, Pod] | None = None
        self._outlook: dict[str, Reason | None] | None = None

    @property
    def state(self) -> ClusterState:
        """The core's state, nothing decided yet."""
        return self.core.state

    @property
    def core(self) -> CoreLoop:
        """A core that knows everything and has decided nothing."""
        if self._core is None:
            objects = self.objects()
            self._core = CoreLoop(Policy(charge_foreign=objects.charges_foreign), self.decisions.extend)
            self._core.apply([*first_events(objects, self.storage), Synced()], self.now)
            self._core.state.begin(self.now)
            self._core.state.settle(self.now)
            self._core.state.queues.settle(self.now)
        return self._core

    def outlook(self) -> dict[str, Reason | None]:
        """What a pass would decide now for each pending pod: UID -> why it waits, None: it would start.

        Pods that a pass cut short did not reach are left out. The state of `core` does not change.
        """
        if self._outlook is None:
            other = Snapshot(self.now)
            other.__dict__ |= {**self.__dict__, "_core": None, "decisions": []}
            reasons = other.decide()
            starts = other.would_start()
            found: dict[str, Reason | None] = {}
            for uid, task in other.state.tasks.items():
                if uid in starts:
                    found[uid] = None
                elif not task.pod.node and (reason := reasons.get(uid) or reason_of(other.state, [task], task.gang)) is not None:
                    found[uid] = reason
            self._outlook = found
        return self._outlook

    @property
    def counted(self) -> dict[str, Pod]:
        """Pod UID -> the pod as it counts: in its PodGroup, and with its class's priority, as far as its queue lets it."""
        if self._counted is None:
            events = first_events(self.objects())
            pods = [each.object for each in events if isinstance(each, Upsert) and isinstance(each.object, Pod)]
            self._counted = {pod.uid: pod for pod in pods}
        return self._counted

    def default_queue(self, namespace: str) -> str:
        """The queue of a namespace's pods that name none."""
        for each in self.namespaces:
            if each.metadata.name == namespace:
                return (each.metadata.labels or {}).get(names.DEFAULT_QUEUE_LABEL, names.DEFAULT_QUEUE)
        return names.DEFAULT_QUEUE

    def objects(self) -> Objects:
        """What it shows, without volumes."""
        return Objects(
            self.now,
            self.nodes,
            self.pods,
            self.namespaces,
            self.queues,
            self.groups,
            self.classes,
            self.priorities,
            self.reservations,
            self.pools,
            self.budgets,
        )

    def decide(self) -> dict[str, Reason]:
        """What a pass would decide now: pod UID -> why it waits; pods that would start have none."""
        self.core.decide(self.now)
        reasons: dict[str, Reason] = {}
        for each in self.decisions:
            if isinstance(each, Refuse):
                reasons |= {pod.uid: each.reason for pod in each.pods}
        return reasons

    def would_start(self) -> dict[str, str]:
        """After `decide`: pod UID -> node, of those that would be placed at once or after evictions."""
        placed: dict[str, str] = {}
        for each in self.decisions:
            bindings = each.bindings if isinstance(each, Place) else each.beneficiaries if isinstance(each, Preempt) else ()
            placed |= {binding.pod.uid: binding.node for binding in bindings}
            if isinstance(each, Resume):
                placed |= {pod.uid: node for pod, node in zip(each.pods, each.nodes, strict=True)}
        return placed

    def would_evict(self) -> dict[str, list[str]]:
        """After `decide`: pod UID -> the pods, `namespace/name`, that would be evicted for it and its gang."""
        return {
            binding.pod.uid: [victim.pod.key for victim in each.victims]
            for each in self.decisions
            if isinstance(each, Preempt)
            for binding in each.beneficiaries
        }


async def read(client: Client, report: Callable[[int, int], None] | None = None) -> Snapshot:
    """List everything. report: takes how many pods are listed, of all. Raises `ApiError` and `Unreachable`."""
    objects, missing = await everything(client, report)
    snapshot = Snapshot(objects.now, missing=missing)
    snapshot.nodes, snapshot.pods, snapshot.namespaces = objects.nodes, objects.pods, objects.namespaces
    snapshot.queues, snapshot.groups, snapshot.classes = objects.queues, objects.groups, objects.classes
    snapshot.reservations, snapshot.pools, snapshot.priorities = objects.reservations, objects.pools, objects.priorities
    snapshot.budgets = objects.budgets
    if any(volume.persistent_volume_claim or volume.ephemeral for pod in snapshot.pods for volume in pod.spec.volumes or ()):
        for kind in STORAGE:
            found = await list_all(client, kind.path, kind.view)
            snapshot.storage[kind.name] = [Change(kind.key(each.metadata), each) for each in found]
    return snapshot


def run(kubeconfig: str, work: Callable[[Client], Any], *, writes: bool = False) -> Any:
    """Run a coroutine function with an open client; an error ends the command with its exit code."""

    async def main() -> Any:
        async with Client(load(kubeconfig or None), connections=8, read_only=not writes) as client:
            return await work(client)

    try:
        return asyncio.run(main())
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)
    except Unreachable as error:
        fail(f"the cluster does not answer: {error}", Exit.UNREACHABLE)
    except ApiError as error:
        if error.code in (401, 403):
            fail(f"the cluster refuses: {error.message}", Exit.REFUSED)
        if writes and error.code in (409, 422):
            fail(error.message, Exit.REFUSED)
        if error.code == 404:
            fail(error.message, Exit.NOT_FOUND)
        fail(f"the cluster answers {error}")
    except ReadOnly as error:
        fail(str(error))


def default_namespace(kubeconfig: str) -> str:
    """The namespace of the kubeconfig's context."""
    try:
        return load(kubeconfig or None).namespace
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)


def show(
    kubeconfig: str,
    output: Output,
    view_of: Callable[[Snapshot], tuple[Any, Any]],
    *,
    watch: bool = False,
    interval: float = 2.0,
    by_leader: ByLeader | None = None,
    namespace: str = "",
) -> None:
    """Print a view of the cluster, (data for JSON and YAML, something rich to draw): once, or until Ctrl-C.

    view_of: makes it from a snapshot; by_leader: from the leader's answers, None where it gives none. With `watch` the leader
    sends what changed. namespace: as of which the leader answers a user who may not see the whole cluster; empty: that of the
    kubeconfig.
    """
    from fairlead.cli.output import console as make_console
    from fairlead.cli.output import emit

    console = make_console()

    async def view(client: Client, leader: Leader) -> tuple[Any, Any, Snapshot | None]:
        answered = await by_leader(leader, client.server_time or time.time()) if by_leader is not None else None
        if answered is not None:
            return *answered, None
        snapshot = await _listed(client)
        return *view_of(snapshot), snapshot

    async def once(client: Client) -> tuple[Any, Any, Snapshot | None]:
        return await view(client, Leader(client, namespace or client.config.namespace))

    if not watch:
        data, drawing, snapshot = run(kubeconfig, once)
        emit(data, output, lambda: console.print(drawing))
        if snapshot is not None:
            _warn(snapshot)
        return

    async def refresh(client: Client) -> None:
        from rich.live import Live

        leader = Leader(client, namespace or client.config.namespace)
        if output is not Output.TABLE:
            while True:  # one document a line
                data = (await view(client, leader))[0]
                typer.echo(msgspec.json.encode(data).decode())
                await asyncio.sleep(interval)
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                live.update((await view(client, leader))[1], refresh=True)
                await asyncio.sleep(interval)

    try:
        run(kubeconfig, refresh)
    except KeyboardInterrupt:
        return


async def _listed(client: Client) -> Snapshot:
    """The cluster, for a view that the leader did not give."""
    try:
        with progress("listing the cluster") as report:
            return await read(client, report)
    except ApiError as error:
        if error.code != 403:
            raise
        hint = f"{error.message}; the leader answers as of a namespace in which you may `view`: --namespace NAME"
        raise ApiError(error.code, error.reason, hint) from error


def _warn(snapshot: Snapshot) -> None:
    if snapshot.missing:
        listed = " and ".join(snapshot.missing)
        typer.echo(
            f"{listed} are not installed in this cluster: install them with `fairlead crds | kubectl apply -f -`", err=True
        )


def span(seconds: float) -> str:
    """A length of time as squeue writes it: `3:07`, `1:04:09`, `2-03:00:00`."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{left:02d}"
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"

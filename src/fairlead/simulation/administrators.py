"""What administrators do to a simulated cluster in a storm: they reserve windows, move queues, change policies, drain nodes.

All of it is undone when the storm is over, or sooner, so that whatever was submitted still comes to its end.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from itertools import count

from fairlead.api import names
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import PODS
from fairlead.cluster.simulated.store import Object
from fairlead.simulation.audit import Auditor
from fairlead.simulation.users import Strike
from fairlead.simulation.workload import TEAMS
from fairlead.simulation.world import GPU, POOL_LABEL, POOLS, World

_BACK = (30.0, 1800.0)  # seconds, from and to
_CREATED_AGAIN = 130.0  # seconds within which a queue that was deleted is there again, as it was then
_MERGE = "application/merge-patch+json"
_DIVISION = "division"
_TAINT = {"key": "example.com/maintenance", "effect": "NoSchedule"}

_QUEUE_POLICIES: tuple[Object, ...] = (
    {"priority": 10},
    {"priority": -10},
    {"userFairness": "Reclaim"},
    {"perUser": {"running": 3}},
    {"jobs": {"running": 4}},
)
"""Each states other fields than a queue has by itself."""

_CLASS_POLICIES: dict[str, tuple[Object, ...]] = {
    "sliced": ({"timeSlicing": {"levels": [2, 8]}}, {"preemption": {"mode": "Requeue"}}, {"preemption": {"minRuntime": "20m"}}),
    "patient": ({"preemption": {"minRuntime": "1h"}}, {"preemption": {"mode": "Never"}}, {"preemption": {"scope": "Cluster"}}),
    "loose": ({"preemption": {"mode": "Suspend"}}, {"preemption": {"mode": "Never"}}, {"preemption": {"gracePeriod": "2m"}}),
    "urgent": ({"preemption": {"scope": "Queue"}}, {"preemption": {"mode": "Never"}}),
    "steady": ({"preemption": {"mode": "Requeue"}}, {"preemption": {"scope": "Queue"}}),
    "serving": ({"preemption": {"mode": "Suspend"}}, {"preemption": {"borrowing": "Never"}}),
}
"""By class of service of those who submit AIJobs."""


class Administrators:
    """Strikes of a world's administrators.

    afterwards: called with what is done when the storm is over. relabels: whether pools may lose nodes, too.
    """

    def __init__(
        self,
        world: World,
        seed: int,
        auditor: Auditor,
        afterwards: Callable[[Callable[[], object]], None],
        *,
        relabels: bool,
    ) -> None:
        self._world = world
        self._auditor = auditor
        self._random = random.Random(f"administrators {seed}")
        self._afterwards = afterwards
        self._relabels = relabels
        self._numbers = count()
        self._classes: dict[str, Object] = {
            name: record.object["spec"] for (_, name), record in world.api.store.records("fairlead.dev/serviceclasses")
        }
        self._quotas = {team: self._resources_of(team)[0]["quota"] for team in TEAMS}

    def strikes(self) -> list[tuple[str, Strike]]:
        """What they do."""
        found: list[tuple[str, Strike]] = [
            ("window_reserved", self._reserve),
            ("queue_moved", self._move_queue),
            ("queue_policy_edited", self._edit_queue),
            ("quota_edited", self._edit_quota),
            ("class_policy_edited", self._edit_class),
            ("budget_made", self._make_budget),
            ("node_tainted", self._taint_node),
            ("node_drained", self._drain_node),
        ]
        return [*found, ("node_relabelled", self._relabel_node)] if self._relabels else found

    # -- windows -------------------------------------------------------------------------------

    async def _reserve(self) -> None:
        """Nodes are reserved, from now or later on, for maintenance or for a queue; some windows are made longer or shorter."""
        chances, now = self._random, self._world.clock.now()
        start = now + chances.uniform(-300.0, 1800.0)
        name = f"window-{next(self._numbers)}"
        selector: Object = {"matchLabels": {POOL_LABEL: chances.choice(POOLS).name}}
        if chances.random() < 0.6:
            some = chances.sample(sorted(self._world.manifests), chances.randint(1, 4))
            selector = {"matchExpressions": [{"key": names.HOSTNAME_LABEL, "operator": "In", "values": some}]}
        spec: Object = {
            "start": self._world.clock.text(start),
            "end": self._world.clock.text(start + chances.uniform(400.0, 5400.0)),
            "nodeSelector": selector,
            "purpose": "Maintenance",
        }
        if chances.random() < 0.5:
            spec |= {"purpose": "Capacity", "queue": chances.choice(TEAMS)}
        if chances.random() < 0.3:
            spec["resources"] = {GPU: chances.randint(1, 4)}
        self._create({"apiVersion": names.API_VERSION, "kind": "Reservation", "metadata": {"name": name}, "spec": spec})
        if chances.random() < 0.3:
            end = self._world.clock.text(start + chances.uniform(400.0, 7200.0))
            self._later(lambda: self._patch("reservations", name, {"end": end}))
        self._undo(lambda: self._delete("reservations", name))

    # -- queues --------------------------------------------------------------------------------

    async def _move_queue(self) -> None:
        """A queue comes below another one, with a quota or without."""
        division: Object = {}
        if self._random.random() < 0.5:
            division = {"resources": [{"name": GPU, "quota": round(self._world.gpus * self._random.uniform(0.2, 0.9))}]}
        manifest = {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": _DIVISION}, "spec": division}
        self._create(manifest)
        team = self._random.choice(TEAMS)
        self._patch_queue(team, {"parent": _DIVISION})
        self._undo(lambda: self._patch_queue(team, {"parent": None}), often=True)
        self._afterwards(lambda: self._world.clock.call_later(2 * _CREATED_AGAIN, lambda: self._delete("queues", _DIVISION)))

    async def _edit_queue(self) -> None:
        team, policy = self._random.choice(TEAMS), self._random.choice(_QUEUE_POLICIES)
        self._patch_queue(team, policy)
        self._undo(lambda: self._patch_queue(team, dict.fromkeys(policy)), often=True)

    async def _edit_quota(self) -> None:
        team = self._random.choice(TEAMS)
        self._set_quota(team, self._random.choice((0, 1, round(self._quotas[team] * self._random.uniform(0.2, 1.5)))))
        self._undo(lambda: self._set_quota(team, self._quotas[team]), often=True)

    def _set_quota(self, team: str, quota: int) -> None:
        resources = self._resources_of(team)
        if resources:
            self._patch_queue(team, {"resources": [{**resources[0], "quota": quota}, *resources[1:]]})

    def _resources_of(self, team: str) -> list[Object]:
        with contextlib.suppress(StatusError):
            queues = self._world.api.served(names.API_VERSION, "queues")
            return list(self._world.api.get(queues, "", team).object["spec"].get("resources") or ())
        return []

    def _patch_queue(self, team: str, spec: Object) -> None:
        self._auditor.edited(team)
        self._patch("queues", team, spec)

    # -- classes of service, disruption budgets ------------------------------------------------

    async def _edit_class(self) -> None:
        """How a class preempts changes: for what runs of it, too."""
        name = self._random.choice(sorted(_CLASS_POLICIES))
        policy = self._random.choice(_CLASS_POLICIES[name])
        if name not in self._classes:
            return  # a day without them
        before = {key: _only(self._classes[name].get(key), value) for key, value in policy.items()}
        self._patch("serviceclasses", name, policy)
        self._undo(lambda: self._patch("serviceclasses", name, before))

    async def _make_budget(self) -> None:
        """A budget for all pods of a team: none, some, or half of them may be disrupted."""
        name, team = f"budget-{next(self._numbers)}", self._random.choice(TEAMS)
        spec: Object = {"selector": {}, "maxUnavailable": self._random.choice((0, 1, 4, "50%"))}
        self._create(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": team},
                "spec": spec,
            },
            team,
        )
        budgets = self._world.api.served("policy/v1", "poddisruptionbudgets")
        self._undo(lambda: self._quietly(lambda: self._world.api.delete(budgets, team, name)))

    # -- nodes ---------------------------------------------------------------------------------

    async def _taint_node(self) -> None:
        name = self._some_node()
        self._taint(name, on=True)
        self._undo(lambda: self._taint(name, on=False))

    def _taint(self, name: str, *, on: bool) -> None:
        """The taint of maintenance is there, or not; others stay."""
        nodes = self._world.api.served("v1", "nodes")
        with contextlib.suppress(StatusError):
            taints = self._world.api.get(nodes, "", name).object["spec"].get("taints") or []
            others = [each for each in taints if each["key"] != _TAINT["key"]]
            self._patch_node(name, {"spec": {"taints": [*others, _TAINT] if on else others or None}})

    async def _drain_node(self) -> None:
        """A node is cordoned, and its pods are evicted where their budgets allow it."""
        name = self._some_node()
        self._patch_node(name, {"spec": {"unschedulable": True}})
        for key in sorted(
            key for key, record in self._world.api.store.records(PODS) if record.object["spec"].get("nodeName") == name
        ):
            eviction: Object = {"metadata": {"name": key[1], "namespace": key[0]}}
            self._quietly(lambda key=key, eviction=eviction: self._world.api.evict(*key, eviction))  # type: ignore[misc]
        self._undo(lambda: self._patch_node(name, {"spec": {"unschedulable": None}}))

    async def _relabel_node(self) -> None:
        """A node leaves its pool, or is taken for one of another."""
        name = self._some_node()
        pool = self._world.manifests[name]["metadata"]["labels"][POOL_LABEL]
        self._patch_node(
            name, {"metadata": {"labels": {POOL_LABEL: self._random.choice((None, *(each.name for each in POOLS)))}}}
        )
        self._undo(lambda: self._patch_node(name, {"metadata": {"labels": {POOL_LABEL: pool}}}))

    def _some_node(self) -> str:
        return self._random.choice([name for name in self._world.manifests if self._world.has_node(name)])

    def _patch_node(self, name: str, patch: Object) -> None:
        nodes = self._world.api.served("v1", "nodes")
        self._quietly(lambda: self._world.api.patch(nodes, "", name, _MERGE, patch))

    # -- writes --------------------------------------------------------------------------------

    def _undo(self, call: Callable[[], object], *, often: bool = False) -> None:
        """As it was, when the storm is over, or sooner. often: once more, for a queue that comes back as it was in the storm."""
        self._afterwards(call)
        if often:
            self._afterwards(lambda: self._world.clock.call_later(_CREATED_AGAIN, lambda: (call(), None)[1]))
        if self._random.random() < 0.5:
            self._later(call)

    def _later(self, call: Callable[[], object]) -> None:
        self._world.clock.call_later(self._random.uniform(*_BACK), lambda: (call(), None)[1])

    def _patch(self, plural: str, name: str, spec: Object) -> None:
        resource = self._world.api.served(names.API_VERSION, plural)
        self._quietly(lambda: self._world.api.patch(resource, "", name, _MERGE, {"spec": spec}))

    def _delete(self, plural: str, name: str) -> None:
        self._quietly(lambda: self._world.api.delete(self._world.api.served(names.API_VERSION, plural), "", name))

    def _create(self, manifest: Object, namespace: str = "") -> None:
        self._quietly(lambda: self._world.create(manifest, namespace))

    @staticmethod
    def _quietly(call: Callable[[], object]) -> None:
        with contextlib.suppress(StatusError):
            call()


def _only(old: object, new: object) -> object:
    """The merge patch that restores what another one changes."""
    if isinstance(new, dict):
        return {key: _only(old.get(key) if isinstance(old, dict) else None, value) for key, value in new.items()}
    return old

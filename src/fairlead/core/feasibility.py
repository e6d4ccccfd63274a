"""Where one pod could run as things stand, what rules out the rest, and what each place is worth: kube-scheduler's view.

`judge` changes nothing. It asks the same filters, scores and preemption that profile `kubernetes` places pods with,
node by node and in kube-scheduler's order, so that each node's first refusal is named. Nodes for which waiting pods
are nominated are asked twice: with those of at least this pod's priority there, and without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from fairlead.core.nodes.node_classes import CLOSED
from fairlead.core.pods.filters import ORDER, STATIC, gpu_pairs, node_affinity, node_isolation
from fairlead.core.pods.filters.base import Refusal, Relation, Stop
from fairlead.core.pods.holdings import Trial
from fairlead.core.pods.scores.upstream import (
    WEIGHTS,
    Preferences,
    balanced_allocation,
    image_locality,
    least_allocated,
)
from fairlead.core.pods.tasks import Task
from fairlead.core.preemption import default_preemption
from fairlead.core.state.cluster import ClusterState

_AMOUNTS = "NodeResourcesFit"


class Rejection(NamedTuple):
    """The first plugin that rejects a node, in which way, and why in words."""

    plugin: str
    refusal: Refusal
    message: str = ""


class Preemption(NamedTuple):
    """Whom to evict where, for the pod to fit."""

    node: str
    victims: tuple[str, ...]


class Judgement(msgspec.Struct, frozen=True):
    """The verdict on a pod. scores: node -> plugin -> weighted score, for each feasible node."""

    feasible: tuple[str, ...] = ()
    rejects: dict[str, Rejection] = {}
    scores: dict[str, dict[str, int]] = {}
    preempts: Preemption | None = None
    gated: bool = False
    stop: Stop | None = None


def judge(state: ClusterState, task: Task, nominated: Mapping[str, Iterable[Task]]) -> Judgement:
    """Judge a pod that has no node. nominated: node -> waiting pods for whom it is kept."""
    if task.pod.gated:
        return Judgement(gated=True)
    return _Judge(state, task, nominated).judge()


def _place(stop: Stop) -> int:
    """In which order plugins are asked; what upstream does not have comes last."""
    return ORDER.index(stop.plugin) if stop.plugin in ORDER else len(ORDER)


class _Judge:
    def __init__(self, state: ClusterState, task: Task, nominated: Mapping[str, Iterable[Task]]) -> None:
        self.state = state
        self.task = task
        self.ranking = task.ranking
        self.shape = task.shape
        self.spec = task.shape.spec
        self.nodes = state.nodes
        self.nominated = {
            name: [each for each in others if each.pod.priority >= task.pod.priority and each is not task]
            for name, others in nominated.items()
        }
        state.nodes.name_ranks.settle()
        self.named = node_affinity.named_nodes(self.spec)
        self.stop = self._stop()
        self.relations: tuple[Relation, ...] = ()
        if self.stop is None:
            self.relations = tuple(each for each in self.ranking.relations if each.applies())

    def judge(self) -> Judgement:
        names = sorted(self.nodes.rows)
        if self.stop is not None:
            refusal = Refusal.ERROR if self.stop.error else Refusal.UNRESOLVABLE
            everywhere = Rejection(self.stop.plugin, refusal, self.stop.message)
            return Judgement(rejects=dict.fromkeys(names, everywhere), stop=self.stop)
        rejects: dict[str, Rejection] = {}
        feasible: list[str] = []
        for name in names:
            rejection = self._rejection(self.nodes.rows[name])
            if rejection is None:
                feasible.append(name)
            else:
                rejects[name] = rejection
        scores = self._scores(feasible) if feasible else {}
        preempts = None if feasible else self._preempts(rejects)
        return Judgement(tuple(feasible), rejects, scores, preempts)

    def _stop(self) -> Stop | None:
        """What rules out every node, whichever it is: the first plugin's, in their order."""
        stops: dict[str, Stop] = {}
        error = self.task.pod.error
        if error is not None:
            return Stop(_AMOUNTS, error.message, error=True)  # what it asks for is not known
        if self.named is not None and not self.named:
            stops["NodeAffinity"] = Stop("NodeAffinity", "no node has all the names that one term requires")
        for each in self.ranking.relations:
            stop = each.stop()
            if stop is not None:
                stops[each.plugin] = stop
        for mistake in self.spec.mistakes:
            if not mistake.scoring:
                stops.setdefault(
                    mistake.plugin, Stop(mistake.plugin, mistake.message, error=mistake.plugin == "PodTopologySpread")
                )
        return min(stops.values(), key=_place, default=None)

    # -- filters -------------------------------------------------------------------------------

    def _rejection(self, row: int) -> Rejection | None:
        """Why a row is out: with those nominated for it there, else without them."""
        if self.named is not None and self.nodes.names[row] not in self.named:
            return Rejection("NodeAffinity", Refusal.UNRESOLVABLE, "node(s) aren't among those that the pod requires")
        others = self.nominated.get(self.nodes.names[row])
        if others:
            mark = self.state.log.mark()
            for each in others:
                self.state.placement.assign(each, row, ())
                if each.pod.terminating:
                    self.state.pairs.count_leaving(each.shape, row, 1)
            before = self.state.holdings.trial
            self.state.holdings.trial = self._with(others, row)
            rejection = self._first_rejection(row)
            self.state.holdings.trial = before
            self.state.log.rollback(mark)
            if rejection is not None:
                return rejection
        return self._first_rejection(row)

    def _with(self, others: list[Task], row: int) -> Trial:
        """How upstream sees a row with these pods there, besides those of a preemption that is being tried."""
        before = self.state.holdings.trial
        trial = Trial(task.shape.spec for task in self.nodes.pods[row].values()) if before is None else before.copy()
        for each in others:
            trial.add(each.shape.spec, 1)
        return trial

    def _first_rejection(self, row: int) -> Rejection | None:
        nodes, spec = self.nodes, self.spec
        number = nodes.classes.column.item(row)
        if number == CLOSED:
            return Rejection(_AMOUNTS, Refusal.UNRESOLVABLE, self.state.bound.unread.complaint(nodes, [nodes.names[row]]))
        declared = None
        for each in STATIC:
            if not each.admits(spec, nodes.classes.known[number]):
                declared = Rejection(each.plugin, Refusal.UNRESOLVABLE, each.complaint(spec, nodes.classes.known[number]))
                if each.plugin != ORDER[-1]:
                    return declared
        relations = list(self.relations)
        if relations and relations[0].plugin == "NodePorts":
            refusal = relations[0].refuses(row)
            if refusal is not None:
                return Rejection("NodePorts", refusal, relations[0].complaint)
            relations = relations[1:]
        short = self._short_of(row) or self._kept_off(row)
        if short is not None:
            return short
        for relation in relations:
            refusal = relation.refuses(row)
            if refusal is not None:
                return Rejection(relation.plugin, refusal, relation.complaint)
        return declared

    def _short_of(self, row: int) -> Rejection | None:
        """What is lacking, and whether the node would ever have enough of it."""
        nodes = self.nodes
        pods = nodes.resources["pods"]
        lacking = [(column, amount) for column, amount in self.shape.demand if nodes.free[column].item(row) < amount]
        if not lacking:
            return None
        never = any(column != pods and amount > nodes.alloc[column].item(row) for column, amount in lacking)
        names = list(nodes.resources)
        message = ", ".join("Too many pods" if column == pods else f"Insufficient {names[column]}" for column, _ in lacking)
        return Rejection(_AMOUNTS, Refusal.UNRESOLVABLE if never else Refusal.UNSCHEDULABLE, message)

    def _kept_off(self, row: int) -> Rejection | None:
        """Whether jobs that have nodes to themselves, or share GPUs in pairs, keep it off, or it is such a job's."""
        if self.shape.minds_partners and not gpu_pairs.fits_one(self.nodes, self.shape, row):
            return Rejection(gpu_pairs.PLUGIN, Refusal.UNSCHEDULABLE, gpu_pairs.complaint(self.shape))
        if not self.shape.isolates or node_isolation.fits_one(self.nodes, self.shape, row):
            return None
        return Rejection(node_isolation.PLUGIN, Refusal.UNSCHEDULABLE, node_isolation.complaint(self.shape))

    # -- scores --------------------------------------------------------------------------------

    def _scores(self, feasible: list[str]) -> dict[str, dict[str, int]]:
        if any(mistake.scoring for mistake in self.spec.mistakes):
            return {}
        rows = np.array([self.nodes.rows[name] for name in feasible], np.int32)
        preferences = Preferences(self.shape, self.ranking.around)
        plugins = preferences.weighted(rows)
        preferences.close()
        plugins["NodeResourcesFit"] = least_allocated(self.nodes, self.shape, rows)
        balanced = balanced_allocation(self.nodes, self.shape, rows)
        if balanced is not None:
            plugins["NodeResourcesBalancedAllocation"] = balanced
        plugins["ImageLocality"] = image_locality(self.nodes, self.shape, rows)
        # No pod has claims to devices yet: all nodes are worth the same.
        plugins["DynamicResources"] = np.zeros(len(rows), np.int64)
        listed = {plugin: plugins[plugin].tolist() for plugin in WEIGHTS if plugin in plugins}
        return {name: {plugin: scores[place] for plugin, scores in listed.items()} for place, name in enumerate(feasible)}

    # -- preemption ----------------------------------------------------------------------------

    def _preempts(self, rejects: dict[str, Rejection]) -> Preemption | None:
        pod = self.task.pod
        if pod.never_preempts or any(rejection.refusal is Refusal.ERROR for rejection in rejects.values()):
            return None
        if pod.nominated in rejects and rejects[pod.nominated].refusal is not Refusal.UNRESOLVABLE:
            waited_for = self.nodes.pods[self.nodes.rows[pod.nominated]].values()
            if any(each.pod.priority < pod.priority and each.pod.terminating and each.pod.preempted for each in waited_for):
                return None
        rows = [self.nodes.rows[name] for name, rejection in rejects.items() if rejection.refusal is Refusal.UNSCHEDULABLE]
        choice = default_preemption.choose(self.state, pod.priority, rows, lambda row: self._rejection(row) is None)
        if choice is None:
            return None
        return Preemption(self.nodes.names[choice.row], tuple(sorted(task.pod.key for task in choice.victims)))

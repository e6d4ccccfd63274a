"""Which idle nodes get another MIG configuration, for what waits, with the fewest reconfigurations.

mig-manager applies the label `nvidia.com/mig.config` to the whole node and stops all GPU clients of it, so that only
nodes without running pods are candidates. Its state label shows how far it is: a node in `pending` or `rebooting` counts
with what it will offer; one in `failed` is not used, with a reason.

The plan serves as many of the first `heads` waiting pods as is possible, then as many pods as is possible, with the
fewest nodes changed; ties go to the first configuration and the first node by name. Nodes that are alike are one class,
so the search is over how many of each class get which configuration. A greedy plan is the first incumbent; branch and
bound improves it. Both draw on one work budget, beyond which the best plan so far is returned as not exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from operator import add, sub

import msgspec

from fairlead.core.mig.supply import Demand, Serving

_WORK = 800_000


class ConfigState(StrEnum):
    """The values of the label `nvidia.com/mig.config.state`."""

    SUCCESS = "success"
    PENDING = "pending"
    REBOOTING = "rebooting"
    FAILED = "failed"


class Config(msgspec.Struct, frozen=True):
    """A configuration of mig-manager by its name. partitions: what a node of that model then offers, by profile, all
    GPUs together.

    A GPU without MIG is a partition named `gpu`.
    """

    name: str
    model: str
    partitions: tuple[tuple[str, int], ...]


class Node(msgspec.Struct, frozen=True):
    """A node of a pool that allows reconfiguration. free: partitions that no pod holds; running: pods on its GPUs."""

    name: str
    model: str
    config: str
    state: ConfigState
    free: tuple[tuple[str, int], ...]
    running: int


class Waiting(msgspec.Struct, frozen=True):
    """A pod that waits for one partition of any of these profiles."""

    name: str
    profiles: tuple[str, ...]


class Change(msgspec.Struct, frozen=True):
    """Write the label: this configuration, on this node."""

    node: str
    config: str
    before: str


class Cause(StrEnum):
    """Why a node is not a candidate."""

    FAILED = "Failed"
    CHANGING = "Changing"
    RUNNING = "Running"
    NO_CONFIG = "NoConfig"


class Excluded(msgspec.Struct, frozen=True):
    """A node that is not changed, and why."""

    node: str
    cause: Cause
    message: str


class Plan(msgspec.Struct, frozen=True):
    """served: names of pods that then have a partition, in the order of waiting; exact: no plan is better.

    Some of them are served without any change: by partitions that are free.
    """

    changes: tuple[Change, ...]
    served: tuple[str, ...]
    excluded: tuple[Excluded, ...]
    exact: bool


class DuplicateNodeError(ValueError):
    """Two of the nodes have one name."""


class _Class:
    """Idle nodes that are alike: of one model, with the same partitions free."""

    def __init__(self, nodes: list[Node], configs: list[Config]) -> None:
        self.nodes = nodes
        self.configs = configs


def plan(
    nodes: Sequence[Node], configs: Sequence[Config], waiting: Sequence[Waiting], *, heads: int = 1, work: int = _WORK
) -> Plan:
    """See the module. waiting: in queue order; heads: so many of them come before all others; work: steps of
    the search at most, two in about a microsecond. Raises `DuplicateNodeError`.
    """
    names = Counter(node.name for node in nodes)
    if len(names) < len(nodes):
        twice = min(name for name, count in names.items() if count > 1)
        raise DuplicateNodeError(f"node {twice!r} is given more than once: give each node of the pool once")
    by_name = {(each.model, each.name): each for each in configs}
    supply: dict[str, int] = {}
    classes: dict[tuple[str, str, tuple[tuple[str, int], ...]], list[Node]] = {}
    excluded = []
    for node in sorted(nodes, key=lambda node: node.name):
        reason = _reason(node, configs)
        if reason is not None:
            excluded.append(reason)
        if node.state == ConfigState.FAILED:
            continue
        coming = by_name.get((node.model, node.config)) if node.state != ConfigState.SUCCESS else None
        offered = coming.partitions if coming is not None else node.free if node.state == ConfigState.SUCCESS else ()
        _add(supply, offered)
        if reason is None:
            classes.setdefault((node.model, node.config, node.free), []).append(node)
    search = _Search(
        [
            _Class(
                alike,
                [each for each in sorted(configs, key=lambda each: each.name) if each.model == model and each.name != config],
            )
            for (model, config, _), alike in classes.items()
        ],
        supply,
        _Wanted(waiting, heads),
        work,
    )
    search.run()
    return Plan(search.changes(), search.wanted.names(search.best_served), tuple(excluded), search.exact)


def _reason(node: Node, configs: Sequence[Config]) -> Excluded | None:
    if node.state == ConfigState.FAILED:
        message = f"mig-manager failed to apply {node.config!r} on node {node.name}: see its log there, then set the label again"
        return Excluded(node.name, Cause.FAILED, message)
    if node.state != ConfigState.SUCCESS:
        return Excluded(node.name, Cause.CHANGING, f"node {node.name} is being changed to {node.config!r} ({node.state})")
    if node.running:
        return Excluded(
            node.name, Cause.RUNNING, f"{node.running} pods run on the GPUs of node {node.name}: they would be stopped"
        )
    if not any(each.model == node.model and each.name != node.config for each in configs):
        return Excluded(
            node.name, Cause.NO_CONFIG, f"no other configuration is known for {node.model}, the model of node {node.name}"
        )
    return None


class _Wanted:
    """The waiting pods as demands: those of the heads first, each demand in queue order."""

    def __init__(self, waiting: Sequence[Waiting], heads: int) -> None:
        groups: dict[tuple[bool, tuple[str, ...]], list[int]] = {}
        self._waiting = waiting
        for position, pod in enumerate(waiting):
            groups.setdefault((position >= heads, tuple(sorted(set(pod.profiles)))), []).append(position)
        ordered = sorted(groups.items(), key=lambda item: (item[0][0], item[1][0]))
        self._positions = [positions for _, positions in ordered]
        self._heads = sum(not later for (later, _), _ in ordered)
        self.demands = [Demand(profiles, len(positions)) for (_, profiles), positions in ordered]

    def score(self, counts: Sequence[int]) -> tuple[int, int]:
        """(heads served, pods served)."""
        return sum(counts[: self._heads]), sum(counts)

    def most(self) -> tuple[int, int]:
        """If all are served."""
        return self.score([demand.count for demand in self.demands])

    def names(self, counts: Sequence[int]) -> tuple[str, ...]:
        """The pods that are served: the first ones of each demand."""
        chosen = [position for positions, count in zip(self._positions, counts, strict=True) for position in positions[:count]]
        return tuple(self._waiting[position].name for position in sorted(chosen))


def _amounts(partitions: Sequence[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    _add(found, partitions)
    return found


def _add(supply: dict[str, int], partitions: Sequence[tuple[str, int]]) -> None:
    for profile, count in partitions:
        supply[profile] = supply.get(profile, 0) + count


class _Search:
    """Branch and bound over how many nodes of each class get which configuration.

    Supplies are lists of counts, by the profiles that a pod accepts. Options are ordered by class, so that of all options
    after one only those of its own class depend on what is chosen.
    """

    def __init__(self, classes: list[_Class], supply: Mapping[str, int], wanted: _Wanted, work: int) -> None:
        self.wanted = wanted
        self.exact = True
        self._classes = classes
        self._serving = Serving(wanted.demands)
        self._work = work
        self._options = [(number, config) for number, each in enumerate(classes) for config in each.configs]
        self._supply = self._counts(supply)
        free = [self._counts(_amounts(each.nodes[0].free)) for each in classes]
        of_config = {each: self._counts(_amounts(each.partitions)) for each in {config for _, config in self._options}}
        offers = [of_config[config] for _, config in self._options]
        self._gains = [list(map(sub, offer, free[number])) for (number, _), offer in zip(self._options, offers, strict=True)]
        self._own, self._later = self._rest(offers)
        self._chosen = [0] * len(self._options)
        self._changes = 0
        self._left = [len(each.nodes) for each in classes]
        self.best_served = self._serving.counts(self._supply)
        self._best = (wanted.score(self.best_served), 0)
        self._best_chosen = list(self._chosen)

    def _counts(self, amounts: Mapping[str, int]) -> list[int]:
        return [amounts.get(profile, 0) for profile in self._serving.profiles]

    def _rest(self, offers: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
        """For each option: what it and those after it in its class offer on one node, and what all later classes offer
        on all of their nodes.
        """
        own: list[list[int]] = []
        later: list[list[int]] = []
        following, total, at = [0] * len(self._supply), [0] * len(self._supply), len(self._classes)
        for (number, _), offer in zip(reversed(self._options), reversed(offers), strict=True):
            if number != at:
                if own:
                    nodes = len(self._classes[at].nodes)
                    total = [all_of + one * nodes for all_of, one in zip(total, following, strict=True)]
                following, at = [0] * len(self._supply), number
            following = list(map(add, following, offer))
            own.append(following)
            later.append(total)
        return own[::-1], later[::-1]

    def run(self) -> None:
        """Greedy, then exact."""
        self._greedy()
        self._branch()

    def changes(self) -> tuple[Change, ...]:
        """Of the best plan, by node."""
        lines = [list(each.nodes) for each in self._classes]
        found: list[Change] = []
        for (number, config), count in zip(self._options, self._best_chosen, strict=True):
            found += [Change(node.name, config.name, node.config) for node in lines[number][:count]]
            del lines[number][:count]
        return tuple(sorted(found, key=lambda change: change.node))

    def _spent(self) -> bool:
        """Whether the work is done; the best plan so far is then not known to be exact."""
        if self._serving.steps >= self._work:
            self.exact = False
        return not self.exact

    def _switch(self, option: int, count: int) -> None:
        self._chosen[option] += count
        self._changes += count
        self._left[self._options[option][0]] -= count
        self._supply = [have + count * gain for have, gain in zip(self._supply, self._gains[option], strict=True)]

    def _consider(self) -> None:
        counts = self._serving.counts(self._supply)
        value = self.wanted.score(counts), -self._changes
        if value > self._best:
            self._best, self.best_served, self._best_chosen = value, counts, list(self._chosen)

    def _greedy(self) -> None:
        """Again and again the change after which most are served, while it serves more. Beyond the work the first change
        that serves more, for half as much work again.
        """
        most, last = self.wanted.most(), 1.5 * self._work
        while self._best[0] < most and self._serving.steps <= last:
            before, gained = self._best[0], None
            for option, (number, _) in enumerate(self._options):
                if self._left[number]:
                    value = self.wanted.score(self._serving.counts(list(map(add, self._supply, self._gains[option]))))
                    if value > before:
                        before, gained = value, option
                    if before == most or (self._spent() and (gained is not None or self._serving.steps > last)):
                        break
            if gained is None:
                break
            self._switch(gained, 1)
            self._consider()
        for option, count in enumerate(list(self._chosen)):
            if count:
                self._switch(option, -count)

    def _branch(self) -> None:
        """All plans, depth first: of each option none, then one more each time, each with all plans of those after it."""
        option, deeper = 0, True  # deeper: the options from this one on are not chosen yet
        while option >= 0:
            if deeper and option < len(self._options) and self._may_improve(option):
                if self._spent():
                    return
                option += 1
                continue
            if not deeper:
                if self._left[self._options[option][0]] and self._may_improve(option):
                    self._switch(option, 1)
                    self._consider()
                    if self._spent():
                        return
                    option, deeper = option + 1, True
                    continue
                self._switch(option, -self._chosen[option])
            option, deeper = option - 1, False

    def _may_improve(self, option: int) -> bool:
        """Whether one more change from this option on may lead to a better plan: by what could be served if nodes
        offered all at once.
        """
        left = self._left[self._options[option][0]]
        supply = [
            have + left * own + later
            for have, own, later in zip(self._supply, self._own[option], self._later[option], strict=True)
        ]
        bound = self.wanted.score(self._serving.counts(supply))
        return (bound, -(self._changes + 1)) > self._best

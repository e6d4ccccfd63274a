"""Shape table: the rankings of all shapes that pods have, by what decides a shape: spec, labels, profile."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from fairlead.api.names import AI_PROFILE
from fairlead.core.model.pods import PodSpec
from fairlead.core.nodes.devices import DeviceFit
from fairlead.core.pods.filters import labels_read
from fairlead.core.pods.filters.base import Surroundings
from fairlead.core.pods.node_terms import TermsTable
from fairlead.core.pods.pairs import LabelSet
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.scores.base import Strategy
from fairlead.core.pods.shapes import Shape

_KEPT_BYTES = 256 << 20


class ShapeTable:
    """All shapes, by spec. Scores of shapes that are not asked for are dropped beyond a memory bound."""

    def __init__(self, around: Surroundings, strategies: Mapping[str, Strategy]) -> None:
        self.around = around
        self.nodes = around.nodes
        self.strategies = strategies
        self.strategy = strategies[AI_PROFILE]
        self._rankings: dict[tuple[PodSpec, LabelSet | None, str], Ranking] = {}
        self._terms = TermsTable(around.nodes)
        self._users: dict[int, int] = {}
        self._recent: OrderedDict[int, Ranking] = OrderedDict()
        self._fits: dict[tuple[int, int], DeviceFit] = {}
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._rankings)

    def intern(self, spec: PodSpec, labels: LabelSet | None = None, profile: str = AI_PROFILE) -> Ranking:
        """The shape of a spec, of the labels by which others select it, and of a profile; counts one more user of it."""
        ranking = self._rankings.get((spec, labels, profile))
        if ranking is None:
            self.nodes.read_labels(labels_read(spec))
            self.around.pairs.use(labels)
            held = self.around.pairs.held(self._numbers, spec) if labels is not None else ()
            shape = Shape(self._numbers, spec, labels, profile, held, self.nodes, self._fits)
            ranking = Ranking(shape, self._terms.of(spec), self.around, self.strategies[profile])
            self._rankings[spec, labels, profile] = ranking
            self._numbers += 1
        number = ranking.shape.number
        self._users[number] = self._users.get(number, 0) + 1
        if spec.gpus and (spec.gpus, spec.gpu_milli) not in self._fits:
            self._fits[spec.gpus, spec.gpu_milli] = self._fit(spec.gpus, spec.gpu_milli)
        return ranking

    def release(self, ranking: Ranking) -> None:
        """One user less; a shape without users is forgotten."""
        shape = ranking.shape
        left = self._users[shape.number] - 1
        if left:
            self._users[shape.number] = left
            return
        del self._users[shape.number]
        del self._rankings[shape.spec, shape.labels, shape.profile]
        self._recent.pop(shape.number, None)
        ranking.close()

    def arrived(self, spec: PodSpec) -> None:
        """A pod with this spec asked for a place. What devices cost follows at once where the strategy has learnt from it."""
        before = self.strategy.epoch
        self.strategy.arrived(spec)
        if self.strategy.epoch != before:
            self.renew()

    def renumbered(self) -> None:
        """Device states have other ids: nothing that is remembered by the old ones is asked any more."""
        self.renew()
        for strategy in self.strategies.values():
            strategy.renumbered()

    def renew(self) -> None:
        """What devices cost is derived anew, from what the strategy knows now."""
        for gpus, milli in self._fits:
            self._fits[gpus, milli] = self._fit(gpus, milli)

    def used(self, ranking: Ranking) -> None:
        """Note that a shape was asked, and drop the scores of those not asked for longest."""
        recent, number = self._recent, ranking.shape.number
        recent[number] = ranking
        recent.move_to_end(number)
        while len(recent) > 1 and len(recent) * ranking.nbytes > _KEPT_BYTES:
            _, stale = recent.popitem(last=False)
            stale.forget()

    def _fit(self, gpus: int, milli: int) -> DeviceFit:
        return DeviceFit(self.nodes.devices, gpus, milli, self.strategy.chooser())

"""Placement strategies: which of the feasible nodes is best for a shape.

One small interface (`base.Strategy`), one file each; `ai` is the default.
"""

from __future__ import annotations

from fairlead.core.model.policy import Policy
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.scores.ai import Ai
from fairlead.core.pods.scores.base import Strategy
from fairlead.core.pods.scores.binpack import Binpack
from fairlead.core.pods.scores.fgd import Fgd
from fairlead.core.pods.scores.spread import Spread

STRATEGIES: dict[str, type[Strategy]] = {each.name: each for each in (Ai, Binpack, Fgd, Spread)}


def make(policy: Policy, nodes: NodeTable) -> Strategy:
    """The strategy that a policy names. Raises `ValueError` for an unknown one."""
    kind = STRATEGIES.get(policy.strategy)
    if kind is None:
        raise ValueError(f"unknown strategy {policy.strategy!r}: choose one of {', '.join(sorted(STRATEGIES))}")
    return kind(nodes, policy.strategy_options)

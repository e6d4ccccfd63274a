"""`spread`: the emptiest node that fits; the mirror of `binpack`."""

from __future__ import annotations

from fairlead.core.pods.scores.binpack import Binpack


class Spread(Binpack):
    """Most left over is best; gangs go one pod to a node for as long as there are nodes."""

    name = "spread"
    fill = "spread"
    sign = 1

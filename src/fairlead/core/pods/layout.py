"""Layout: which rows identical pods get that are placed at once."""

from __future__ import annotations

import numpy as np

from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.nodes.whole_domains import first_of, in_order
from fairlead.core.pods.ranking import Ranking


def lay_out(ranking: Ranking, wanted: int, fill: str, closed: Mask | None = None, places: Ints | None = None) -> list[int]:
    """Rows for up to `wanted` pods of one shape, found in one pass over all nodes.

    `pack`: nodes that hold most of what is wanted first, so that a gang spans few nodes; among these the best score, and of
    equal ones those of the first domains of the network by `places`. `spread`: one pod on each node in order of scores, round
    by round.
    """
    keys = ranking.ranked()
    held = np.minimum(ranking.counts(), wanted)
    held[keys < 0] = 0
    if closed is not None:
        held[closed] = 0
    rows = np.flatnonzero(held)
    if not len(rows):
        return []
    if fill == "spread":
        order = rows[np.argsort(-keys[rows])]
        laid: list[int] = []
        level = 0
        while len(laid) < wanted:
            row_list = order[held[order] > level].tolist()
            if not row_list:
                break
            laid += row_list[: wanted - len(laid)]
            level += 1
        return laid
    most = int(held[rows].max())
    if most == wanted:
        full = rows[held[rows] == wanted]
        at = int(keys[full].argmax()) if places is None else first_of(keys[full], places[full])
        return [int(full[at])] * wanted
    order = rows[np.lexsort((-keys[rows], -held[rows])) if places is None else in_order(keys[rows], held[rows], places[rows])]
    takes = held[order]
    until = int(np.searchsorted(np.cumsum(takes), wanted)) + 1
    rows_of: list[int] = np.repeat(order[:until], takes[:until])[:wanted].tolist()
    return rows_of

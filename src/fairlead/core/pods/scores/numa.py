"""The score of NUMA nodes: first the nodes where the kubelet's own choice spreads a pod over the fewest of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.core.model.arrays import Ints
from fairlead.core.nodes.name_ranks import NAME_RANK_BITS
from fairlead.core.pods.filters.base import Relation
from fairlead.core.pods.filters.numa import NumaAlignment
from fairlead.core.pods.scores.base import SCORE_BITS

_COST_BITS = 3
_MOST = (1 << _COST_BITS) - 1
_NAMES = (1 << NAME_RANK_BITS) - 1


def aligned(keys: Ints, relations: Iterable[Relation]) -> Ints:
    """The keys of rows, with those first where kubelets spread pods over the fewest NUMA nodes; upstream knows no such score."""
    for each in relations:
        if isinstance(each, NumaAlignment) and each.shape.profile != KUBERNETES_PROFILE:
            keys = foremost(keys, each.costs())
    return keys


def foremost(keys: Ints, costs: npt.NDArray[np.int8]) -> Ints:
    """The keys of rows, shape (rows,), with those of the least cost first; costs: 0 to 7 of every feasible row.

    Where nodes differ in it, the last bits of scores are dropped for it.
    """
    rows = np.flatnonzero(keys >= 0)
    if not len(rows):
        return keys
    there = costs[rows].astype(np.int64)
    if (there == there[0]).all():
        return keys
    ranked = np.full(len(keys), -1, np.int64)
    scores = ((_MOST - there) << (SCORE_BITS - _COST_BITS)) | (keys[rows] >> NAME_RANK_BITS >> _COST_BITS)
    ranked[rows] = (scores << NAME_RANK_BITS) | (keys[rows] & _NAMES)
    return ranked

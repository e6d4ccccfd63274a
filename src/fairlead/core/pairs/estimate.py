"""Relative speeds of pairs of job kinds that share a GPU, estimated from those that were measured.

`speed[i, j]` is how fast a job of kind i runs beside one of kind j, as a part of its speed alone: 0 where the two do not
fit on one GPU. The model is what a rating has in collaborative filtering: a mean, how sensitive i is, how much j disturbs,
and products of a few features of both (Koren, Bell and Volinsky, "Matrix factorization techniques", 2009), fitted by ridge
regressions in turn. Its uncertainty is the error on what was measured, wider where a kind was seldom measured.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

Speeds = NDArray[np.float64]

_ROUNDS = 12
_FEATURES = 3
_RIDGE = 0.2  # of sensitivities and disturbances: a kind is believed to be this part of a measured pair nearer to the mean
_RIDGE_FEATURES = 0.6  # of the features of both
_DARING = 0.5  # weight of the doubt whether a pair runs at all: a try that fails costs the work of both jobs


class Estimate(msgspec.Struct, frozen=True):
    """What is believed of each ordered pair of kinds. All arrays: kinds x kinds.

    speed: between 0 and 1; the measured one where there is one. deviation: the standard error of it; 0 where it was measured.
    """

    speed: Speeds
    deviation: Speeds


class Measured:
    """The pairs that were measured, both ways, over the kinds 0 .. kinds - 1. The mean of repeated measurements counts."""

    def __init__(self, kinds: int) -> None:
        if kinds < 1:
            raise ValueError(f"{kinds} kinds: there must be at least one")
        self.kinds = kinds
        self._sum = np.zeros((kinds, kinds))
        self._count = np.zeros((kinds, kinds), dtype=np.int64)

    def record(self, first: int, second: int, speeds: tuple[float, float]) -> None:
        """One measurement of kinds that shared a GPU: the speed of each as a part of its speed alone. Raises `ValueError`."""
        for kind in (first, second):
            if not 0 <= kind < self.kinds:
                raise ValueError(f"kind {kind} is not one of 0 .. {self.kinds - 1}")
        for speed in speeds:
            if not 0 <= speed < np.inf:
                raise ValueError(f"relative speed {speed} of kinds {first} and {second}: it must be finite and at least 0")
        if first == second:
            speeds = ((speeds[0] + speeds[1]) / 2,) * 2
        ways = ((first, second, speeds[0]), (second, first, speeds[1]))
        for one, other, speed in ways[: 1 if first == second else 2]:
            self._sum[one, other] += min(speed, 1.0)
            self._count[one, other] += 1

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which ordered pairs were measured: kinds x kinds."""
        return self._count > 0

    @property
    def speed(self) -> Speeds:
        """The means of what was measured, 0 elsewhere: kinds x kinds."""
        return self._sum / np.maximum(self._count, 1)

    @property
    def not_runnable(self) -> NDArray[np.bool_]:
        """Which pairs were measured as not runnable: kinds x kinds, symmetric."""
        stopped = self.known & (self._sum == 0)
        found: NDArray[np.bool_] = stopped | stopped.T
        return found


def estimate(measured: Measured, *, alone: float = 0.7, prior: float = 0.0) -> Estimate:
    """What is believed of all pairs. alone: the speed that is assumed where no pair that runs was measured.

    prior: so many measured pairs that run are assumed besides, so that the first that does not run does not speak for all.
    """
    known, speed, stopped = measured.known, measured.speed, measured.not_runnable
    runs = known & ~stopped
    if not runs.any():
        believed, deviation = np.full_like(speed, alone), np.full_like(speed, 0.3)
    else:
        fitted = _fitted(speed, runs.astype(np.float64))
        error = float(np.sqrt(np.mean((speed - fitted)[runs] ** 2)))
        seen = np.minimum(runs.sum(axis=1)[:, None], runs.sum(axis=0)[None, :])
        believed, deviation = np.clip(fitted, 0.0, 1.0), (error + 0.02) * (1 + 2 / (1 + seen))
    chance = _chance(stopped, known | known.T, prior)
    whether = _DARING * np.sqrt(chance * (1 - chance)) * believed
    believed, deviation = believed * chance, np.hypot(deviation * chance, whether)
    return Estimate(np.where(known, speed, believed), np.where(known, 0.0, deviation))


def _chance(stopped: NDArray[np.bool_], known: NDArray[np.bool_], prior: float) -> Speeds:
    """How probable it is that two kinds run together: kinds x kinds.

    A pair that does not run has no speed, however far off it is, so the speeds are fitted without it. What is counted
    is which part of a kind's measured pairs did not run; the worse of both kinds decides.
    """
    count = known.sum(axis=1)
    share = stopped.sum() / max(1, known.sum() + prior)
    by_kind = (stopped.sum(axis=1) + share) / (count + 1)
    chance: Speeds = 1.0 - np.maximum(by_kind[:, None], by_kind[None, :])
    return chance


def _fitted(speed: Speeds, weight: Speeds) -> Speeds:
    """The model's values, of pairs with weight 1 as of others: kinds x kinds."""
    mean = float((speed * weight).sum() / weight.sum())
    kinds = len(speed)
    sensitive, disturbing = np.zeros(kinds), np.zeros(kinds)
    residual = speed - mean
    for _ in range(_ROUNDS):
        sensitive = ((residual - disturbing[None, :]) * weight).sum(axis=1) / (weight.sum(axis=1) + _RIDGE)
        disturbing = ((residual - sensitive[:, None]) * weight).sum(axis=0) / (weight.sum(axis=0) + _RIDGE)
    additive = sensitive[:, None] + disturbing[None, :]
    return mean + additive + _factors((residual - additive) * weight, weight)


def _factors(rest: Speeds, weight: Speeds) -> Speeds:
    """What few features of both kinds explain of what the sums leave: ridge regressions of rows and columns in turn."""
    features = min(_FEATURES, len(rest))
    # The features begin as the singular vectors of what is known: no draw, so the same measurements give the same estimate.
    left, values, right = np.linalg.svd(rest)
    rows = left[:, :features] * np.sqrt(values[:features])
    columns = right[:features].T * np.sqrt(values[:features])
    for _ in range(_ROUNDS):
        rows = _regressed(columns, rest, weight)
        columns = _regressed(rows, rest.T, weight.T)
    product: Speeds = rows @ columns.T
    return product


def _regressed(other: Speeds, rest: Speeds, weight: Speeds) -> Speeds:
    """The features of each row, given those of the columns: kinds x features."""
    gram = np.einsum("ij,jf,jg->ifg", weight, other, other) + _RIDGE_FEATURES * np.eye(other.shape[1])
    solved: Speeds = np.linalg.solve(gram, (rest @ other)[:, :, None])[:, :, 0]
    return solved

"""Where a partition is placed so that what arrives later still fits: the least expected loss.

For each profile the pool knows its availability N (`pool.py`): at how many (GPU, start) one more of it fits. The expected
loss is the sum over profiles of

    (its part of what arrives) x (its compute slices) x exp(-N / _SPREAD)

that is, what is lost if the next request is of that profile and finds no place: certain at N = 0, less likely by the
factor e for each `_SPREAD` places more. Of all (GPU, start) the one is taken after which this sum is smallest. The parts
are learned from the requests that arrive (`Mix`). Since the sum is over the pool, a place of a profile that has many
others costs little, and the last whole GPU is dear: a fixed score per GPU (best fit, lookahead) knows nothing of that.

How the constants were chosen: docs/design/mig.md.
"""

from __future__ import annotations

from math import exp, expm1

from fairlead.core.mig.pool import Pool

_SPREAD = 16.0
_TIE = 1e-12
_RENORMALIZE = 1e100


class Mix:
    """Which profiles arrive, as parts of all: counts that halve every `half_life` requests, beginning with one of
    each.
    """

    def __init__(self, profiles: int, half_life: float = 4000.0) -> None:
        self._counts = [0.0] * profiles
        self._unit = 1.0
        self._growth = 2.0 ** (1.0 / half_life)

    def observe(self, profile: int) -> None:
        """A request of this profile arrived, whether or not it was placed."""
        self._counts[profile] += self._unit
        self._unit *= self._growth
        if self._unit > _RENORMALIZE:
            self._counts = [each / self._unit for each in self._counts]
            self._unit = 1.0

    def parts(self) -> list[float]:
        """For each profile its part; their sum is 1."""
        total = sum(self._counts)
        return [each / total if total else 1 / len(self._counts) for each in self._counts]


class Placer:
    """Chooses places in one pool."""

    def __init__(self, pool: Pool, mix: Mix | None = None) -> None:
        self.pool = pool
        self.mix = mix if mix is not None else Mix(len(pool.states.geometry.profiles))
        self._growths: dict[tuple[int, int], tuple[float, ...]] = {}

    def losses(self) -> list[float]:
        """The expected loss, profile by profile, in compute slices for the next request."""
        profiles = self.pool.states.geometry.profiles
        return [
            part * profile.compute * exp(-total / _SPREAD)
            for part, profile, total in zip(self.mix.parts(), profiles, self.pool.totals, strict=True)
        ]

    def choose(self, profile: int) -> tuple[int, int] | None:
        """(GPU, placement) with the least expected loss; ties by GPU, then by start. None: it fits nowhere."""
        losses = self.losses()
        best: tuple[int, int] | None = None
        least = 0.0
        for state, gpu in self.pool.groups():
            for placement, after in self.pool.states.options(state, profile):
                value = sum(map(float.__mul__, losses, self._growth(state, after)))
                if best is None or value < least - _TIE or (value < least + _TIE and (gpu, placement) < best):
                    least, best = value, (gpu, placement)
        return best

    def _growth(self, state: int, after: int) -> tuple[float, ...]:
        """For each profile by which part of itself its loss grows when a GPU goes from one state to the other."""
        found = self._growths.get((state, after))
        if found is None:
            before, then = self.pool.availability.of(state), self.pool.availability.of(after)
            found = self._growths[state, after] = tuple(
                expm1((old - new) / _SPREAD) for old, new in zip(before, then, strict=True)
            )
        return found

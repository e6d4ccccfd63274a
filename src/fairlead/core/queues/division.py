"""How one amount is divided among siblings: guarantees first, then the rest by weight, priority by priority.

After KAI-Scheduler's division (its documents and tables, read in 2026): with demand R = min(limit, request), each is given
min(quota, R); guarantees may add up to more than there is, and nothing is scaled down. What is left is divided in rounds by
weight and past use among the siblings of each priority, a lower priority getting only what the higher ones left; whole units
where something is wanting, and the fractions that the rounding left over go to the largest remainder, among equal ones to the
larger guarantee. Integers throughout.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Claim(msgspec.Struct, frozen=True):
    """What one sibling asks of one resource. name: breaks ties; amounts in base units.

    quota None: nothing is guaranteed; limit None: none. usage: decayed past use as a part of the capacity, 0 to 1.
    floor: what it holds and what cannot be reclaimed from it.
    """

    name: str
    request: int
    quota: int | None = None
    limit: int | None = None
    weight: int = 1
    priority: int = 0
    usage: float = 0.0
    floor: int = 0

    @property
    def demand(self) -> int:
        """What it could use, or holds for good."""
        return max(self.floor, self.request if self.limit is None else min(self.limit, self.request))


def divide(total: int, claims: Sequence[Claim], unit: int = 1, usage_weight: float = 1.0) -> dict[str, int]:
    """Each sibling's fair share of `total`, in base units.

    unit: what is left beyond guarantees is given in multiples of it, unless a demand asks for less (devices are charged in
    thousandths, but shared whole). usage_weight: how much past use shifts the weights; 0: not at all. A sibling that would get
    less than its floor gets the floor, and the others divide the rest: no share contains what cannot be reclaimed.
    """
    fixed: dict[str, int] = {}
    while True:
        free = [claim for claim in claims if claim.name not in fixed]
        shares = _divide(total - sum(fixed.values()), free, unit, usage_weight)
        below = {claim.name: claim.floor for claim in free if claim.floor > shares[claim.name]}
        if not below:
            return shares | fixed
        fixed |= below


def _divide(total: int, claims: Sequence[Claim], unit: int, usage_weight: float) -> dict[str, int]:
    shares = {claim.name: min(claim.quota or 0, claim.demand) for claim in claims}
    left = total - sum(shares.values())
    remainders: dict[str, float] = {}
    for priority in sorted({claim.priority for claim in claims}, reverse=True):
        if left <= 0:
            break
        left = _at_priority(
            left, [claim for claim in claims if claim.priority == priority], shares, remainders, unit, usage_weight
        )
    # What rounding left over, one unit each, to the largest remainders of the highest priorities.
    if left > 0 and remainders:
        for claim in sorted(
            (each for each in claims if each.name in remainders), key=lambda each: _remainder_order(each, remainders)
        ):
            if left <= 0:
                break
            given = min(unit, left, claim.demand - shares[claim.name])
            shares[claim.name] += given
            left -= given
    return shares


def _remainder_order(claim: Claim, remainders: dict[str, float]) -> tuple[int, float, int, str]:
    """The order key of a sibling among those whose shares were rounded down.

    Only what no start and no end changes decides. By what each holds, or how long its jobs wait, a unit would go from one to the
    other again and again, and has to be taken back each time.
    """
    return -claim.priority, -remainders[claim.name], -(claim.quota or 0), claim.name


def _at_priority(
    left: int,
    claims: list[Claim],
    shares: dict[str, int],
    remainders: dict[str, float],
    unit: int,
    usage_weight: float,
) -> int:
    """Divide what is left among the siblings of one priority; returns what they leave."""
    while left > 0:
        wanting = [claim for claim in claims if claim.demand > shares[claim.name] and claim.weight > 0]
        parts = _parts(wanting, usage_weight)
        together = sum(parts)
        if not together:
            break
        amount, satisfied = left, False
        for claim, part in zip(wanting, parts, strict=True):
            missing = claim.demand - shares[claim.name]
            if missing * together <= amount * part:
                shares[claim.name] += missing
                left -= missing
                remainders.pop(claim.name, None)
                satisfied = True
            else:
                whole = amount * part // (together * unit) * unit
                shares[claim.name] += whole
                left -= whole
                remainders[claim.name] = (amount * part - whole * together) / together
        if not satisfied:
            break
    return left


def _parts(claims: list[Claim], usage_weight: float) -> list[int]:
    """The part of each, relative to the others: its weight, less by how much more than that it used of late.

    max(0, n + k (n - usage)) with n = weight / all weights, times all weights and a power of two so that it is whole.
    """
    weights = sum(claim.weight for claim in claims)
    k = round(usage_weight * _PRECISION)
    return [
        max(0, claim.weight * _PRECISION * (_PRECISION + k) - k * round(claim.usage * _PRECISION) * weights) for claim in claims
    ]


_PRECISION = 1 << 20

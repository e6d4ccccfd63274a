"""All attacks, one after the other; what came of each; and whether ordinary use went on in the same cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from testbed.attacks import (
    belonging,
    blocking,
    flooding,
    identity,
    innocent,
    leaks,
    operator,
    placement,
    poison,
)
from testbed.attacks.errors import RangeError, UnansweredError
from testbed.attacks.lab import HERE, Range
from testbed.attacks.model import HARMLESS, REFUSED, WORKS, Attack, Attacks, Outcome


def catalogue() -> list[Attack]:
    """Every attack; ids are unique, and those of a group stand together."""
    subjects = (identity, belonging, placement, leaks, operator, blocking, poison, flooding)
    found = [attack for subject in subjects for attack in subject.SUBJECT.attacks]
    twice = [name for name, count in Counter(attack.id for attack in found).items() if count > 1]
    if twice:
        raise RangeError(f"attacks of the same id: {', '.join(twice)}")
    return found


def run(chosen: Sequence[Attack], progress: Callable[[str], None], checkout: Path = HERE, uses: Sequence[str] = ()) -> Attacks:
    """Try the chosen ones on a range of their own, then ordinary use, or some of it. Raises `RangeError`."""
    outcomes: list[Outcome] = []
    groups = [list(together) for _, together in groupby(chosen, key=lambda each: each.group or each.id)]
    used: dict[str, str] | None = None
    while used is None:
        with Range(checkout, progress) as lab:
            if _tried(lab, groups, outcomes):
                used = innocent.use(lab, progress, uses)
            else:
                progress("the range no longer answers: another one is stood up")
    counts = Counter(each.outcome for each in outcomes)
    valid = not any(used.values())
    return Attacks(len(outcomes), counts[REFUSED], counts[HARMLESS], counts[WORKS], valid, outcomes, used)


def _tried(lab: Range, groups: list[list[Attack]], outcomes: list[Outcome]) -> bool:
    """Try groups until none is left; False if the range is beyond use before that."""
    while groups:
        found = list(tried_together(lab, groups.pop(0)))
        for each in found:
            lab.progress(f"{each.outcome:8} {each.id:5} {each.title} ({each.seconds:.1f} s): {each.evidence[:160]}")
        outcomes += found
        if not _reset(lab):
            return False
    return True


def _reset(lab: Range) -> bool:
    try:
        lab.reset()
    except RangeError:
        return False
    return True


def tried_together(lab: Range, attacks: Sequence[Attack]) -> Iterator[Outcome]:
    """The attacks of one group: all attempted, then all checked; then the range is as before."""
    failed_before = lab.failed_passes()
    refusals: dict[str, list[str]] = {}
    spent: dict[str, float] = {}
    for attack in attacks:
        begun = time.monotonic()
        lab.refusals.clear()
        lab.refused = False
        unanswered = _unanswered(attack.attempt, lab)
        lab.kept[attack] = unanswered
        refusals[attack.id] = list(lab.refusals)
        spent[attack.id] = time.monotonic() - begun
    for attack in attacks:
        begun = time.monotonic()
        lab.refusals.clear()
        lab.refused = bool(refusals[attack.id])
        evidence = lab.kept[attack] or _checked(attack, lab)
        refused = [*refusals[attack.id], *lab.refusals]
        if attack is attacks[-1]:
            # What a process came to is laid to the last of a group: attacks that may end one have a group of their own.
            failed = lab.failed_passes() - failed_before
            told = [*([f"{failed} passes failed"] if failed > 0 else []), *lab.died()]
            evidence = "; ".join([*([evidence] if evidence else []), *told])
        seconds = round(spent[attack.id] + time.monotonic() - begun, 2)
        outcome = WORKS if evidence else REFUSED if refused else HARMLESS
        told_of = evidence or (refused[0] if refused else "")
        yield Outcome(attack.id, attack.title, attack.subject, outcome, told_of, seconds)


def _unanswered(attempt: Callable[[Range], None], lab: Range) -> str:
    try:
        attempt(lab)
    except UnansweredError as error:
        return f"the API server no longer answers: {error}"
    return ""


def _checked(attack: Attack, lab: Range) -> str:
    try:
        return attack.check(lab)
    except UnansweredError as error:
        return f"the API server no longer answers: {error}"

"""An attack: what a tenant tries, and a check that decides from the cluster's state whether it worked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from testbed.attacks.lab import Range

WORKS, REFUSED, HARMLESS = "works", "refused", "harmless"


@dataclass(frozen=True)
class Attack:
    """One thing that a tenant tries.

    attempt: what is tried; refusals of the API server are noted by the range. check: what it brought, as evidence, or "" if
    nothing. group: attacks of one group do not disturb each other: all are attempted, then all are checked. quick: part of
    `make test`.
    """

    id: str
    title: str
    subject: str
    attempt: Callable[[Range], None]
    check: Callable[[Range], str]
    group: str
    quick: bool


class Outcome(msgspec.Struct):
    """What came of an attack. evidence: what was seen, or the refusal."""

    id: str
    title: str
    subject: str
    outcome: str
    evidence: str
    seconds: float


class Attacks(msgspec.Struct):
    """A run. innocent: what an ordinary user did besides, and "" or what went wrong; valid: nothing of that did."""

    tried: int
    refused: int
    harmless: int
    works: int
    valid: bool
    attacks: list[Outcome]
    innocent: dict[str, str]


class Catalogue:
    """The attacks of one subject, in order."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.attacks: list[Attack] = []

    def attack(
        self, name: str, title: str, *, check: Callable[[Range], str], group: str = "", quick: bool = False
    ) -> Callable[[Callable[[Range], None]], Callable[[Range], None]]:
        """Register what is decorated as the attempt of an attack."""

        def register(attempt: Callable[[Range], None]) -> Callable[[Range], None]:
            self.attacks.append(Attack(name, title, self.subject, attempt, check, group, quick))
            return attempt

        return register

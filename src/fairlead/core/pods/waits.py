"""Waits: tasks whose places are held until the same victims are gone, and these victims, as one object for all of them.

A gang of thousands takes the places of thousands: each of its members waits for each of the victims. Sets of their own would hold
that product.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Wait:
    """victims: UIDs of those that are not gone yet. tasks: UIDs of those that wait for them, in the order in which they came."""

    __slots__ = ("tasks", "victims")

    def __init__(self, victims: Iterable[str], tasks: Iterable[str]) -> None:
        self.victims = set(victims)
        self.tasks = dict.fromkeys(tasks)


class Waiting(Protocol):
    """A task, as far as it waits for victims."""

    waits: tuple[Wait, ...]


def waits_of(tasks: Iterable[Waiting]) -> list[Wait]:
    """What any of some tasks waits in, each once."""
    return list({id(wait): wait for task in tasks for wait in task.waits}.values())


def awaited_by(tasks: Iterable[Waiting]) -> set[str]:
    """The victims for which any of some tasks waits, by UID."""
    return {uid for wait in waits_of(tasks) for uid in wait.victims}

"""Levels of the network that are named by a label of nodes, whether a NodePool has it as a level or not."""

from __future__ import annotations

from typing import Final

_BY_LABEL: Final = "\0label:"  # no label, and no name of a level, begins so


def level_of(label: str) -> str:
    """The level whose domains are the values of a label of nodes."""
    return label if names_label(label) else _BY_LABEL + label


def names_label(level: str) -> bool:
    """Whether a level is one of those."""
    return level.startswith(_BY_LABEL)


def label_of(level: str) -> str:
    """The label of such a level; any other level as it is."""
    return level.removeprefix(_BY_LABEL)

"""Modules that are loaded with their first use: what most processes never use costs them nothing when they start.

The name of such a module is bound at the head of the one that uses it, beside the import that checkers read:

    if TYPE_CHECKING:
        from fairlead.core.dra import allocator
    else:
        allocator = late("fairlead.core.dra.allocator")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Late:
    """Stands for a module; what is read of it is kept."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(import_module(self._name), attribute)
        self.__dict__[attribute] = found
        return found


def late(name: str) -> Any:
    """A module by its full name. Importing it may raise with the first use, as its import statement would."""
    return _Late(name)

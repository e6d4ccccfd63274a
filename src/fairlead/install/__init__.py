"""Fairlead as the objects of a cluster: what `fairlead install` applies, checks and removes (docs/design/install.md)."""

from fairlead.install.objects import objects
from fairlead.install.values import History, Values, ValuesError

__all__ = ["History", "Values", "ValuesError", "objects"]

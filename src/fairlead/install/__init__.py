"""Fairlead as the objects of a cluster: what `fairlead install` applies, checks and removes (docs/design/install.md)."""

from fairlead.install.objects import installed, objects
from fairlead.install.values import NAMESPACE, History, Monitoring, Values, ValuesError

__all__ = ["NAMESPACE", "History", "Monitoring", "Values", "ValuesError", "installed", "objects"]

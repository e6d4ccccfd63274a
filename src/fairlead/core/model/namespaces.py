"""Namespaces as the core sees them."""

from __future__ import annotations

import msgspec

from fairlead.core.model.selectors import Labels


class Namespace(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A namespace and its labels, which selectors of pod affinity read."""

    name: str
    labels: Labels = ()

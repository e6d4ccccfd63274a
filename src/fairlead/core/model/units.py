"""The unit in which devices are counted, and the bounds of amounts: sums of them stay exact in 64 bits."""

from __future__ import annotations

from fairlead.api.quantity import SANE_MAXIMUM

WHOLE = 1000
"""Milli-units of one whole device."""

MOST_AMOUNT = SANE_MAXIMUM
"""What counts at most of a resource of one node."""

LARGE_AMOUNT = 1 << 50
"""What counts at most of the CPU of one node, in thousandths. If a pod requests more of anything, its node must be checked."""

LEAST_FREE = -(1 << 61)
"""Free amounts are never below this."""

NOT_REQUESTED = -(1 << 62)
"""Any free amount is enough for this."""

"""The unit in which devices are counted."""

from __future__ import annotations

WHOLE = 1000
"""Milli-units of one whole device."""

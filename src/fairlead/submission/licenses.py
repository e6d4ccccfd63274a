"""Licenses of Slurm: amounts of the whole cluster that a job takes, here shared resources of NodePools, taken by its members."""

from __future__ import annotations

import re

from fairlead.api.shared_resources import NAME

_LICENSE = re.compile(rf"(?P<name>{NAME})(:(?P<count>[0-9]{{1,15}}))?", re.ASCII)


class LicenseError(ValueError):
    """What cannot be asked for, and what to write instead."""


def licenses(text: str) -> dict[str, int]:
    """How many of each license `lustre:4,matlab` asks for. Raises `LicenseError`."""
    found: dict[str, int] = {}
    if "|" in text:
        raise LicenseError(f"{text!r}: alternatives are not supported: name one of them")
    for part in text.split(","):
        one = _LICENSE.fullmatch(part)
        if one is None:
            raise LicenseError(f"{part!r} is not NAME or NAME:COUNT, with a name of a-z, 0-9 and - as NodePools have it")
        found[one["name"]] = found.get(one["name"], 0) + int(one["count"] or 1)
    return {name: count for name, count in found.items() if count}


def of_each(asked: dict[str, int], members: int) -> dict[str, int]:
    """What each of some equal members takes, so that all together take what a job asks for. Raises `LicenseError`."""
    for name, count in asked.items():
        if count % members:
            raise LicenseError(
                f"{count} of {name} cannot be divided among {members} equal members: ask for a multiple of {members}, or let the "
                "NodePool count in smaller units"
            )
    return {name: count // members for name, count in asked.items()}

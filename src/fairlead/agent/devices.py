"""The GPUs of this node: which pod has which. Real ones are found; where there are none, so many are pretended."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import structlog

from fairlead.core.links.choice import choices_of
from fairlead.core.links.matrix import FaultKind, Links, LinksError
from fairlead.core.links.report import read

WHOLE = 1000
_REPORT = ("nvidia-smi", "topo", "-m")
_PATIENCE = 30.0  # seconds for the report: it asks all drivers

log = structlog.get_logger("agent")


def found() -> int:
    """How many NVIDIA GPUs this host has."""
    return sum(each.name.removeprefix("nvidia").isdigit() for each in Path("/dev").glob("nvidia[0-9]*"))


def links_in(text: str, count: int) -> Links:
    """How so many GPUs are connected, by what `nvidia-smi topo -m` printed. Raises `LinksError`."""
    links = read(text)
    if links.gpus != count:
        raise LinksError(FaultKind.OTHER_GPUS, f"it has {links.gpus} GPUs, and this node {count}")
    return links


def links_here() -> Links | None:
    """How the GPUs of this host are connected; None: it has fewer than two, or that cannot be found, which is logged."""
    count = found()
    if count < 2:
        return None
    try:
        ran = subprocess.run(_REPORT, capture_output=True, text=True, timeout=_PATIENCE, check=True)  # noqa: S603
        return links_in(ran.stdout, count)
    except (OSError, subprocess.SubprocessError, LinksError) as error:
        log.warning("GPUs are chosen without their topology", error=f"{' '.join(_REPORT)}: {error}"[:300])
        return None


class Devices:
    """Devices by index, in thousandths, as pods may share one. links: how they are connected, None: not known."""

    def __init__(self, count: int, links: Links | None = None) -> None:
        self.free = [WHOLE] * count
        self._held: dict[str, dict[int, int]] = {}
        self._partners: dict[str, str] = {}  # of pods that have half a device: what their bindings name
        self._choices = choices_of(links) if links is not None and links.gpus == count else None

    def take(self, uid: str, count: int, milli: int = WHOLE) -> list[int] | None:
        """Devices for a pod, None if they are not to be had. The same again for who has some.

        Those that are used in part and fit come first, the fullest before the others; of free ones the best connected set.
        """
        if uid in self._held:
            return sorted(self._held[uid])
        fitting = sorted((free, index) for index, free in enumerate(self.free) if free >= milli)
        if len(fitting) < count:
            return None
        shared = [index for free, index in fitting if free < WHOLE][:count]
        chosen = shared + self._whole(count - len(shared))
        self._held[uid] = dict.fromkeys(chosen, milli)
        for index in chosen:
            self.free[index] -= milli
        return sorted(chosen)

    def take_half(self, uid: str, partner: str) -> list[int] | None:
        """Half of a device for a pod that shares it with one other at most: beside its partner, or beside one that named it.

        Bindings may come in another order than they were decided, and a partner may have ended: then a free device. One that is
        named, and names a third which is here, was bound anew beside that one.
        """
        if uid in self._held:
            return sorted(self._held[uid])
        self._partners[uid] = partner
        own = self._beside(each for each in self._partners if each == partner)
        named = self._beside(each for each, named in self._partners.items() if named == uid)
        chosen = (own or named or self._whole(1))[:1]
        if not chosen:
            return None
        self._held[uid] = {chosen[0]: WHOLE // 2}
        self.free[chosen[0]] -= WHOLE // 2
        return chosen

    def _beside(self, mates: Iterable[str]) -> list[int]:
        """The devices of which pods have half, and the other half is free."""
        return [index for each in mates for index in self._held.get(each, ()) if self.free[index] == WHOLE // 2]

    def _whole(self, count: int) -> list[int]:
        """So many of the devices that are all free."""
        free = [index for index, left in enumerate(self.free) if left == WHOLE]
        best = self._choices.best(sum(1 << index for index in free), count) if self._choices is not None else None
        return free[:count] if best is None else [index for index in free if best >> index & 1]

    def give_back(self, uid: str) -> None:
        """A pod has ended."""
        self._partners.pop(uid, None)
        for index, milli in self._held.pop(uid, {}).items():
            self.free[index] += milli

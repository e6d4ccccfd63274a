"""The GPUs of this node: which pod has which. Real ones are found; where there are none, so many are pretended."""

from __future__ import annotations

from pathlib import Path

WHOLE = 1000


def found() -> int:
    """How many NVIDIA GPUs this host has."""
    return sum(each.name.removeprefix("nvidia").isdigit() for each in Path("/dev").glob("nvidia[0-9]*"))


class Devices:
    """Devices by index, in thousandths, as pods may share one."""

    def __init__(self, count: int) -> None:
        self.free = [WHOLE] * count
        self._held: dict[str, dict[int, int]] = {}

    def take(self, uid: str, count: int, milli: int = WHOLE) -> list[int] | None:
        """Devices for a pod, the fullest that fit first; None if they are not to be had. The same again for who has some."""
        if uid in self._held:
            return sorted(self._held[uid])
        fitting = sorted((free, index) for index, free in enumerate(self.free) if free >= milli)[:count]
        if len(fitting) < count:
            return None
        self._held[uid] = {index: milli for _, index in fitting}
        for _, index in fitting:
            self.free[index] -= milli
        return sorted(self._held[uid])

    def give_back(self, uid: str) -> None:
        """A pod has ended."""
        for index, milli in self._held.pop(uid, {}).items():
            self.free[index] += milli

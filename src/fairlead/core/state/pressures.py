"""Pressures: what kinds of jobs use of what the pods of a node share, learned from pods that were measured while they ran.

A pod that declares nothing is taken to be like those of its kind before it: of the same namespace and user, with the same name
but for its numbered parts, else with the same images. Among these it is like those with as many GPUs, else what is known of each
GPU is taken times its own. The newest measurement counts for a quarter.
A pod that uses all that a node has only shows how much each of its GPUs would use at least: it never makes what is known of each
GPU less. What was measured too long ago teaches nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from fairlead.core.model.pods import Pod
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.contention import KEPT

_KINDS = 4096
_NEW, _PARTS = 1, 4  # the part of the newest measurement
_ALL = 900  # thousandths of a capacity that are taken for all of it: measurements have errors

Name = tuple[str, ...]


class _Kind(NamedTuple):
    """devices: by how many, in milli, what is known is divided."""

    name: Name
    devices: int = WHOLE


class Pressures:
    """Learned pressures, thousandths by the kinds of `api/pressure`. now: time of the latest pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self._known: OrderedDict[Name, tuple[int, ...]] = OrderedDict()

    def learn(self, pod: Pod) -> bool:
        """A pod was measured; whether more is known of its kind than that there is such a kind."""
        if not pod.measured or self.now > pod.measured_at + KEPT:
            return False
        changed = False
        for kind in _kinds(pod):
            before = self._known.pop(kind.name, None)
            found = tuple(amount * WHOLE // kind.devices for amount in pod.measured)
            if before is not None:
                known = zip(before, found, pod.measured, strict=True)
                found = tuple(
                    max(old, new) if seen >= _ALL and kind.devices > WHOLE else _mean(old, new) for old, new, seen in known
                )
            self._known[kind.name] = found
            changed |= before != found
        while len(self._known) > _KINDS:
            self._known.popitem(last=False)
        return changed

    def of(self, pod: Pod) -> tuple[int, ...]:
        """What is thought of a pod that declares nothing; empty: nothing."""
        if not self._known:
            return ()
        each, devices = next(
            ((known, kind.devices) for kind in _kinds(pod) if (known := self._known.get(kind.name))), ((), WHOLE)
        )
        found = tuple(amount * devices // WHOLE for amount in each)
        # In steps, so that pods of one kind stay of one shape while little is learned.
        rounded = tuple(min(1000, (amount + _STEP // 2) // _STEP * _STEP) for amount in found)
        return rounded if any(rounded) else ()


_STEP = 25  # thousandths


def _mean(old: int, new: int) -> int:
    """Of what was known and what was measured."""
    return (old * (_PARTS - _NEW) + new * _NEW + _PARTS // 2) // _PARTS


def _kinds(pod: Pod) -> list[_Kind]:
    """The kinds of a pod, the most alike first."""
    devices = pod.spec.gpus * pod.spec.gpu_milli
    found: list[_Kind] = []
    for what, *rest in kinds_of(pod):
        name = (what, pod.namespace, pod.user, *rest)
        found.append(_Kind((*name, str(devices))))
        if devices:
            found.append(_Kind(name, devices))
    return found


def kinds_of(pod: Pod) -> list[Name]:
    """What the kinds of a pod are named by beside its namespace and user, the most alike first."""
    names: list[Name] = [("name", stem(pod.name))]
    return [*names, ("images", *pod.spec.images)] if pod.spec.images else names


def stem(name: str) -> str:
    """A name without the parts that have digits, as controllers and users number what is alike; the first part stays."""
    first, *parts = name.split("-")
    return "-".join([first, *(part for part in parts if not any(letter.isdigit() for letter in part))])

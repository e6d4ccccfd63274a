"""What the operator must know of a kind of workload: how it is suspended and resumed, and which of its pods start together.

Kinds that can be suspended have a field for it, which belongs to the user: what Fairlead suspended carries the annotation
`fairlead.dev/suspended-by: policy`, with the epoch of the target state and the name of its PodGroup, and only that is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.cluster.followers import Form

Manifest = dict[str, Any]

POLICY = "policy"


class Workload(msgspec.Struct, frozen=True):
    """One kind. plural: in its path.

    suspend_at: path of its field for that; empty: it cannot be suspended; suspended, resumed: the field's values; None: it is
    absent. gangs: the PodGroups of an object, and how many pods each needs; None: its pods are pods by themselves. templates:
    its pod templates. serves: those of its PodGroups that are for parts of it, and which (`fairlead.cluster.serving`).
    followers: of its PodGroups whose pods lead others, that are created once these have nodes: which (`cluster.followers`).
    level: the label of the network level in one domain of which its gangs must run, if its spec has one; else empty.
    all_ours: whether all objects of the kind are ours, whatever scheduler their templates name. suspendable: whether an object
    of a kind that can be suspended can be; others are left as they are, and their pods are evicted.
    """

    api_version: str
    kind: str
    plural: str
    suspend_at: tuple[str, ...] = ("spec", "suspend")
    gangs: Callable[[Manifest], Mapping[str, int]] | None = None
    templates: Callable[[Manifest], Iterable[Manifest]] = lambda _: ()
    suspended: bool | str | int = True
    resumed: bool | str | int | None = False
    all_ours: bool = False
    serves: Callable[[Manifest], Mapping[str, tuple[str, ...]]] = lambda _: {}
    level: Callable[[Manifest], str] = lambda _: ""
    suspendable: Callable[[Manifest], bool] = lambda _: True
    followers: Callable[[Manifest], Mapping[str, tuple[Form, ...]]] = lambda _: {}

    def path(self, namespace: str, name: str) -> str:
        """Where an object of the kind is."""
        prefix = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        return f"{prefix}/namespaces/{namespace}/{self.plural}/{name}"

    def ours(self, manifest: Manifest) -> bool:
        """Whether Fairlead schedules its pods, or some of them."""
        return self.all_ours or any(
            (each.get("spec") or {}).get("schedulerName") in names.SCHEDULERS for each in self.templates(manifest) if each
        )

    def over(self, manifest: Manifest) -> bool:
        """Whether it has ended: nothing is done to it any more."""
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        return any(each.get("type") in _ENDS and each.get("status") == "True" for each in conditions)

    def to_suspend(self, manifest: Manifest, epoch: int, group: str) -> Manifest | None:
        """A merge patch that suspends it; None if nothing is to be done. group: the name of the PodGroup with the target.

        A workload that its user resumed in this epoch stays resumed, and one that its user suspended stays the user's.
        """
        if not self.suspend_at or self.over(manifest) or self._suspended(manifest) or not self.suspendable(manifest):
            return None
        if _ours(manifest) and _epoch(manifest) >= epoch:
            return None
        marks = dict(zip(_MARKS, (POLICY, str(epoch), group), strict=True))
        return _merged(
            {"metadata": {"annotations": marks, "labels": {names.SUSPENDED_BY_LABEL: POLICY}}}, self._set(suspended=True)
        )

    def to_resume(self, manifest: Manifest) -> Manifest | None:
        """A merge patch that resumes it if we suspended it; None if nothing is to be done."""
        if not _ours(manifest):
            return None
        patch: Manifest = {"metadata": {"annotations": dict.fromkeys(_MARKS), "labels": {names.SUSPENDED_BY_LABEL: None}}}
        if self._suspended(manifest) and not self.over(manifest):
            return _merged(patch, self._set(suspended=False))
        return patch

    def _suspended(self, manifest: Manifest) -> bool:
        found: Any = manifest
        for step in self.suspend_at:
            found = found.get(step) if isinstance(found, dict) else None
        return bool(found) and found != self.resumed

    def _set(self, *, suspended: bool) -> Manifest:
        patch: Any = self.suspended if suspended else self.resumed
        for step in reversed(self.suspend_at):
            patch = {step: patch}
        return dict(patch)


_ENDS = ("Complete", "Completed", "Failed", "Succeeded")
_MARKS = (names.SUSPENDED_BY_ANNOTATION, names.TARGET_EPOCH_ANNOTATION, names.SUSPENDED_FOR_ANNOTATION)


def number(value: object, default: int) -> int:
    """A count as an object gives it; `default` where it gives no valid one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def _merged(one: Manifest, two: Manifest) -> Manifest:
    """Two patches as one: a field that suspends may be an annotation, too."""
    both = dict(one)
    for key, value in two.items():
        both[key] = _merged(one[key], value) if isinstance(one.get(key), dict) and isinstance(value, dict) else value
    return both


def _annotations(manifest: Manifest) -> dict[str, str]:
    return (manifest.get("metadata") or {}).get("annotations") or {}


def _ours(manifest: Manifest) -> bool:
    return _annotations(manifest).get(names.SUSPENDED_BY_ANNOTATION) == POLICY


def _epoch(manifest: Manifest) -> int:
    text = _annotations(manifest).get(names.TARGET_EPOCH_ANNOTATION, "")
    return int(text) if text.isdigit() else 0

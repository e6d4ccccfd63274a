"""What the operator must know of a kind of workload to suspend and resume it.

All kinds that have a field for it say so by `spec.suspend`, which belongs to the user: what Fairlead suspended carries the
annotation `fairlead.dev/suspended-by: policy`, with the epoch of the intent, and only that is resumed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.api import names

Manifest = dict[str, Any]

POLICY = "policy"


class Workload(msgspec.Struct, frozen=True):
    """One kind with `spec.suspend`. plural: in its path."""

    api_version: str
    kind: str
    plural: str

    def path(self, namespace: str, name: str) -> str:
        """Where an object of the kind is."""
        prefix = "/api/v1" if self.api_version == "v1" else f"/apis/{self.api_version}"
        return f"{prefix}/namespaces/{namespace}/{self.plural}/{name}"

    def over(self, manifest: Manifest) -> bool:
        """Whether it has ended: nothing is done to it any more."""
        conditions = (manifest.get("status") or {}).get("conditions") or ()
        return any(each.get("type") in ("Complete", "Failed") and each.get("status") == "True" for each in conditions)

    def to_suspend(self, manifest: Manifest, epoch: int) -> Manifest | None:
        """A merge patch that suspends it; None if nothing is to be done.

        Whoever resumed it himself since this epoch's intent is heeded, and what he suspended is his.
        """
        if self.over(manifest) or _suspended(manifest):
            return None
        if _ours(manifest) and _epoch(manifest) >= epoch:
            return None
        marks = {names.SUSPENDED_BY_ANNOTATION: POLICY, names.TARGET_EPOCH_ANNOTATION: str(epoch)}
        return {"metadata": {"annotations": marks}, "spec": {"suspend": True}}

    def to_resume(self, manifest: Manifest) -> Manifest | None:
        """A merge patch that resumes it if we suspended it; None if nothing is to be done."""
        if not _ours(manifest):
            return None
        patch: Manifest = {"metadata": {"annotations": dict.fromkeys(_MARKS)}}
        if _suspended(manifest) and not self.over(manifest):
            patch["spec"] = {"suspend": False}
        return patch


_MARKS = (names.SUSPENDED_BY_ANNOTATION, names.TARGET_EPOCH_ANNOTATION)


def _annotations(manifest: Manifest) -> dict[str, str]:
    return (manifest.get("metadata") or {}).get("annotations") or {}


def _ours(manifest: Manifest) -> bool:
    return _annotations(manifest).get(names.SUSPENDED_BY_ANNOTATION) == POLICY


def _epoch(manifest: Manifest) -> int:
    text = _annotations(manifest).get(names.TARGET_EPOCH_ANNOTATION, "")
    return int(text) if text.isdigit() else 0


def _suspended(manifest: Manifest) -> bool:
    return bool((manifest.get("spec") or {}).get("suspend"))

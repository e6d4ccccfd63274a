"""Reviews: questions about a client's identity and permissions. There is one user here, which may do everything."""

from __future__ import annotations

from typing import Any

from fairlead.cluster.simulated.store import Object

_USER = {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]}
_EVERYTHING: dict[str, Any] = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}


def answered(kind: str, review: Object) -> Object:
    """A review with its answer."""
    if kind == "SelfSubjectReview":
        return {**review, "status": {"userInfo": _USER}}
    if kind == "SelfSubjectRulesReview":
        return {**review, "spec": {}, "status": _EVERYTHING}
    if kind == "TokenReview":
        return {**review, "status": {"user": {}, "error": "invalid bearer token"}}
    return {**review, "status": {"allowed": True}}

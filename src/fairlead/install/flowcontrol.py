"""API Priority and Fairness: what Fairlead asks of the API server does not wait behind what tenants ask.

The leases have a level of their own, so that a leader keeps its lease while its own bindings queue; scheduler and operator share
another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairlead.api.names import FIRST_RELEASE
from fairlead.install.accounts import LEASES, PROCESSES, account

_VERSION = "flowcontrol.apiserver.k8s.io/v1"
_EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True, "verbs": ["*"]}


def objects(namespace: str, users: Iterable[str] = (), release: str = FIRST_RELEASE) -> list[dict[str, Any]]:
    """Levels and schemas of a release. namespace: of the processes' accounts; users: others that they run as."""
    subjects = [
        {"kind": "ServiceAccount", "serviceAccount": {"name": account(process, release), "namespace": namespace}}
        for process in PROCESSES
    ]
    subjects += [{"kind": "User", "user": {"name": each}} for each in users]
    leases = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "namespaces": [LEASES],
        "verbs": ["get", "create", "update"],
    }
    anything = {
        "resourceRules": [_EVERYTHING],
        "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
    }
    # Nothing of the leases' level is lent: it is always free for the next renewal. Both schemas match before those that come with
    # the API server, whose first is 100.
    return [
        _level(f"{release}-leases", shares=10, lendable=0, queues={"queues": 16, "handSize": 4, "queueLengthLimit": 50}),
        _level(release, shares=40, lendable=50, queues={"queues": 64, "handSize": 6, "queueLengthLimit": 100}),
        _schema(f"{release}-leases", 90, {"subjects": subjects, "resourceRules": [leases]}),
        _schema(release, 95, {"subjects": subjects, **anything}),
    ]


def _level(name: str, *, shares: int, lendable: int, queues: dict[str, int]) -> dict[str, Any]:
    limited = {
        "nominalConcurrencyShares": shares,
        "lendablePercent": lendable,
        "limitResponse": {"type": "Queue", "queuing": queues},
    }
    return _object("PriorityLevelConfiguration", name, {"type": "Limited", "limited": limited})


def _schema(name: str, precedence: int, rule: dict[str, Any]) -> dict[str, Any]:
    spec = {
        "priorityLevelConfiguration": {"name": name},
        "matchingPrecedence": precedence,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [rule],
    }
    return _object("FlowSchema", name, spec)


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}

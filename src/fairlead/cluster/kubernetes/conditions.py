"""Conditions of our objects. Several of us write them, each those of its own types, so they are applied and not replaced."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api import names
from fairlead.api.kinds import KINDS
from fairlead.cluster.kubernetes.client import Client, encode
from fairlead.cluster.kubernetes.events import NOTE_LIMIT

_KINDS = {kind.plural: kind.kind for kind in KINDS}


def condition(kind: str, *, holds: bool, reason: str, message: str, since: str) -> dict[str, str]:
    """A condition of type `kind`. since: when it became so, in Kubernetes' form."""
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message[:NOTE_LIMIT],
        "lastTransitionTime": since,
    }


async def apply(client: Client, plural: str, key: str, conditions: Sequence[dict[str, str]], manager: str) -> None:
    """Make these all the conditions of an object that `manager` owns; other writers' stay.

    key: `namespace/name`, or the name of what has no namespace. Raises `ApiError`, `Unreachable`.
    """
    namespace, _, name = key.rpartition("/")
    where = f"namespaces/{namespace}/" if namespace else ""
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    body = {
        "apiVersion": names.API_VERSION,
        "kind": _KINDS[plural],
        "metadata": metadata,
        "status": {"conditions": list(conditions)},
    }
    await client.apply(f"/apis/{names.API_VERSION}/{where}{plural}/{name}/status", encode(body), manager)

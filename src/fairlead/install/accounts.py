"""The accounts of both processes of a release, and where their leases are."""

from __future__ import annotations

from fairlead.api import names
from fairlead.api.names import FIRST_RELEASE

PROCESSES = ("scheduler", "operator")
LEASES = "kube-system"
"""Where the leases are, wherever the processes run: of two installations of one release one leads."""


def account(process: str, release: str = FIRST_RELEASE) -> str:
    """The ServiceAccount of a process, its roles and its Lease."""
    return names.lease(release, process)


def usernames(namespace: str, release: str = FIRST_RELEASE) -> list[str]:
    """The accounts as the API server knows them."""
    return [f"system:serviceaccount:{namespace}:{account(process, release)}" for process in PROCESSES]

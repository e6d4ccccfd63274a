"""The accounts of both processes, and where their leases are."""

from __future__ import annotations

PROCESSES = ("scheduler", "operator")
LEASES = "kube-system"
"""Where the leases are, wherever the processes run: of two installations one leads."""


def account(process: str) -> str:
    """The ServiceAccount of a process, and its roles."""
    return f"fairlead-{process}"


def usernames(namespace: str) -> list[str]:
    """The accounts as the API server knows them."""
    return [f"system:serviceaccount:{namespace}:{account(process)}" for process in PROCESSES]

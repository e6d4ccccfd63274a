"""What a Kubernetes API server answers, by subject. Every case runs against the real one and the simulated one."""

from __future__ import annotations

from tests.contract.cases import (
    applying,
    bad_input,
    creating,
    definitions,
    deleting,
    device_controllers,
    devices,
    fencing,
    lists,
    options,
    other_kinds,
    patching,
    pods,
    protobuf,
    replacing,
    tables,
    watching,
)
from tests.contract.cases.common import CASES, NS

__all__ = [
    "CASES",
    "NS",
    "applying",
    "bad_input",
    "creating",
    "definitions",
    "deleting",
    "device_controllers",
    "devices",
    "fencing",
    "lists",
    "options",
    "other_kinds",
    "patching",
    "pods",
    "protobuf",
    "replacing",
    "tables",
    "watching",
]

"""A snapshot of the state by names, free of rows: equal states are equal here."""

from __future__ import annotations

from typing import Any

from fairlead.core.state.cluster import ClusterState


def snapshot(state: ClusterState) -> dict[str, Any]:
    """Everything that counts, by name and in order."""
    nodes = state.nodes
    return {
        "nodes": {
            name: {
                "free": {resource: nodes.free[index].item(row) for resource, index in sorted(nodes.resources.items())},
                "devices": nodes.devices.states[nodes.device.item(row)],
                "pods": {uid: task.devices for uid, task in sorted(nodes.pods[row].items())},
            }
            for name, row in sorted(nodes.rows.items())
        },
        "queues": {
            name: {resource: amount for resource, amount in sorted(node.used.items()) if amount}
            for name, node in sorted(state.queues.queues.items())
        },
        "tasks": {
            uid: (task.state.value, nodes.names[task.row] if task.row >= 0 else "", task.devices)
            for uid, task in sorted(state.tasks.items())
        },
    }

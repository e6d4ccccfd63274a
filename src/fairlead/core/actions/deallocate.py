"""Deallocate: claims that hold devices for a pod that cannot run where these are give them back, so that others can be had.

A claim is allocated before its pod is bound; the scheduler may have ended in between, or the node is full or gone by now. What
only one pod uses, and has not begun to, is free to be allocated anew: that disturbs no other work, so it comes before evictions.
A member of a gang that is too small cannot run at all: what it holds is given back once that is reported (`refusals`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fairlead.core.model.transactions import Binding, Deallocate, Transaction
from fairlead.core.pods.tasks import Task
from fairlead.core.state.cluster import ClusterState


def idle_claims(state: ClusterState, tasks: Iterable[Task]) -> list[Binding]:
    """For each of these that has no place, the claims that hold devices for it alone."""
    found: list[Binding] = []
    if not state.device_claims.known:
        return found
    for task in tasks:
        if task.shape.spec.devices and task.row < 0 and not task.pod.placeholder:
            choices = state.device_claims.idle(task.pod)
            if choices:
                found.append(Binding(task.ref, "", claims=choices))
    return found


def deallocate(bindings: list[Binding]) -> Iterator[Transaction]:
    """The transaction for these, if there are any."""
    if bindings:
        yield Deallocate(tuple(bindings))

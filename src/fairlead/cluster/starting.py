"""Whether a pod that has a node has started, and what keeps it if it has not, as its kubelet reports.

A pod has started once every container of it has run, be it for a moment: what fails afterwards is the program's, and readiness is
no part of it. Until then it is starting, also while its init containers run or its image is pulled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fairlead.cluster import views
from fairlead.cluster.times import seconds

HOPELESS = frozenset({"InvalidImageName"})
"""What a container waits for that does not come about, however often the pod is made again: its own text is wrong."""
RETRIED = frozenset({"CreateContainerConfigError", "ErrImageNeverPull", "SignatureValidationFailed"})
"""What hardly comes about by waiting: a Secret, a ConfigMap or a key that is not there, an image that is not to be pulled or is
not signed. The kubelet's own retries are waited for, and one start of the whole gang."""
_MOST = 400  # characters of a kubelet's message
_UNINFORMATIVE = frozenset({"", "ContainerCreating", "PodInitializing"})


class Trouble(msgspec.Struct, frozen=True, gc=False):
    """What a pod that has not started waits for. reason: a container's own, empty: it gives none; message: a sentence."""

    reason: str = ""
    message: str = ""


def trouble_of(
    phase: str,
    conditions: Iterable[views.Condition],
    containers: Sequence[views.ContainerStatus],
    init_containers: Sequence[views.ContainerStatus] = (),
) -> Trouble | None:
    """What keeps a pod that has a node from having started; None: it has."""
    if phase not in ("", "Pending") or (containers and all(_has_run(each) for each in containers)):
        return None
    for kind, statuses in (("init container", init_containers), ("container", containers)):
        for each in statuses:
            waits = each.state.waiting if each.state is not None else None
            if waits is not None and waits.reason not in _UNINFORMATIVE:
                detail = f": {waits.message}" if waits.message else ""
                return Trouble(waits.reason, f"{kind} {each.name}: {waits.reason}{detail}"[:_MOST])
    runs = [each.name for each in init_containers if each.state is not None and each.state.running is not None]
    if runs and not any(_has_run(each) for each in containers):
        return Trouble("", f"init container {runs[-1]} is still running")
    sandbox = next((each for each in conditions if each.type == "PodReadyToStartContainers"), None)
    if sandbox is not None and sandbox.status == "False":
        return Trouble("", "its volumes cannot be mounted or its sandbox cannot be made: see the pod's events")
    if not containers:
        return Trouble("", "the kubelet has not started it yet")
    names = ", ".join(each.name for each in containers if not _has_run(each))
    return Trouble("", f"container {names}: its image is being pulled, or the container is being created"[:_MOST])


def bound_at(conditions: Iterable[views.Condition], start_time: str | None, created: str | None) -> float:
    """When a pod got its node, seconds since the epoch; as near to it as the pod's status shows."""
    scheduled = next((each for each in conditions if each.type == "PodScheduled" and each.status == "True"), None)
    return seconds(scheduled.last_transition_time if scheduled is not None else None) or seconds(start_time) or seconds(created)


def _has_run(status: views.ContainerStatus) -> bool:
    state, last = status.state, status.last_state
    runs = state is not None and (state.running is not None or state.terminated is not None)
    return runs or status.restart_count > 0 or (last is not None and last.terminated is not None)

"""How the containers of a pod ended, and which of them failed it.

A sidecar is an init container that the kubelet ends once the others have ended, mostly by a signal: its exit code is no evidence
about the pod. Any other init container has failed before another container began.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.cluster import views
from fairlead.cluster.times import seconds


def failed(
    containers: Sequence[views.ContainerStatus], init_containers: Iterable[views.ContainerStatus]
) -> list[views.Terminated]:
    """How those ended that failed, the first one first; of init containers only where no other container has ended."""
    ended = terminated(containers) or terminated(init_containers)
    return sorted((each for each in ended if each.exit_code), key=lambda each: seconds(each.finished_at))


def terminated(containers: Iterable[views.ContainerStatus]) -> list[views.Terminated]:
    """How those ended that did."""
    return [each.state.terminated for each in containers if each.state is not None and each.state.terminated is not None]

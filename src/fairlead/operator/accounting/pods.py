"""What accounting reads of a pod: what it holds, when it got its node, how it ended."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.exits import failed, terminated
from fairlead.cluster.gpu_parts import held_milli
from fairlead.cluster.times import seconds
from fairlead.core.model.pods import Pod
from fairlead.core.model.units import WHOLE
from fairlead.operator.accounting.causes import Failure


def devices_of(pod: Pod, labels: Mapping[str, str] | None = None) -> float:
    """Devices; fractions, partitions and replicas as such. labels: of its node; None: not known.

    Profile `kubernetes` knows no fractions: what asks for one there gets no device.
    """
    if pod.profile == names.KUBERNETES_PROFILE and pod.spec.gpu_milli < WHOLE:
        return 0.0
    return held_milli(pod.spec, labels) / WHOLE


def bound_at(status: views.PodStatus) -> float:
    """When a pod got its node, by its status; 0: unknown."""
    scheduled = next((each for each in status.conditions or () if each.type == "PodScheduled" and each.status == "True"), None)
    return seconds(scheduled.last_transition_time if scheduled is not None else None) or seconds(status.start_time)


def is_evicted(status: views.PodStatus) -> bool:
    """Whether a pod was evicted."""
    return any(each.type == "DisruptionTarget" and each.status == "True" for each in status.conditions or ())


def failure_of(view: views.Pod) -> Failure | None:
    """How a pod failed, by its containers' statuses."""
    status = view.status or views.PodStatus()
    bad = failures_of(status)
    if status.phase not in ("Succeeded", "Failed") or not bad:
        return None
    at = min((seconds(each.finished_at) for each in bad if each.finished_at), default=0.0)
    evicted = view.metadata.deletion_timestamp is not None or is_evicted(status)
    return Failure.of(bad[0].exit_code, at, evicted=evicted)


def failures_of(status: views.PodStatus) -> list[views.Terminated]:
    """How the containers ended that failed a pod, the first one first."""
    return failed(status.container_statuses or (), status.init_container_statuses or ())


def end_of(status: views.PodStatus) -> tuple[float, int | None]:
    """When the containers of a pod had ended, 0 if that is not known, and its exit code."""
    bad = failures_of(status)
    ended = bad or terminated(status.container_statuses or ()) or terminated(status.init_container_statuses or ())
    code = bad[0].exit_code if bad else 0 if ended else None
    return max((seconds(each.finished_at) for each in ended), default=0.0), code

"""What accounting reads of a pod: what it holds, when it got its node, how it ended."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api import names
from fairlead.cluster import views
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
    failed = [each for each in terminated(status) if each.exit_code]
    if status.phase not in ("Succeeded", "Failed") or not failed:
        return None
    at = min((seconds(each.finished_at) for each in failed if each.finished_at), default=0.0)
    evicted = view.metadata.deletion_timestamp is not None or is_evicted(status)
    return Failure.of(failed[0].exit_code, at, evicted=evicted)


def terminated(status: views.PodStatus) -> list[views.Terminated]:
    """How those containers ended that did, those before the others first."""
    found = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    return [each.state.terminated for each in found if each.state is not None and each.state.terminated is not None]

"""What users and administrators read of decisions: conditions and events on pods, PodGroups and nodes."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api import names
from fairlead.core.model.transactions import Choose, Fault, Kept, Overdue, PodRef, Refuse, Unread, Warn
from fairlead.scheduler.outputs import Trouble
from fairlead.scheduler.writing.events import Events
from fairlead.scheduler.writing.statuses import Statuses


class Messages:
    """Puts them in line."""

    def __init__(self, statuses: Statuses, events: Events) -> None:
        self._statuses = statuses
        self._events = events

    def refuse(self, refusal: Refuse) -> None:
        """Why pods wait."""
        for pod in _real(refusal.pods):
            self._statuses.refusals.put(pod.uid, (pod, refusal.reason, pod.uid in refusal.withdrawn))
            self._events.put(pod, "FailedScheduling", refusal.reason.message, warning=True)
        if refusal.group:
            self._events.put(refusal.group, "FailedScheduling", refusal.reason.message, warning=True)

    def fault(self, fault: Fault) -> None:
        """Pods are set aside for an internal error."""
        for pod in _real(fault.pods):
            self._statuses.refusals.put(pod.uid, (pod, fault.reason, False))
            self._events.put(pod, str(fault.reason.code), fault.reason.message, warning=True)
        if fault.group:
            self._events.put(fault.group, str(fault.reason.code), fault.reason.message, warning=True)

    def choose(self, choice: Choose) -> None:
        """A job takes another form; which one is written with its PodGroup's status."""
        self._events.put(choice.group, "AlternativeChosen", choice.message, action="Choosing")

    def overdue(self, late: Overdue) -> None:
        """A job has waited for longer than its class allows."""
        about: list[PodRef | str] = [*_real(late.pods), *([late.group] if late.group else [])]
        kind = names.MAX_WAIT_CONDITION
        for each in about:
            self._statuses.conditions.put(f"{kind} {each}", (each, kind, kind, late.message))
            self._events.put(each, kind, late.message, warning=True)

    def unread(self, unread: Unread) -> None:
        """What a pod on a node asks for cannot be read."""
        pod, node, message = unread.pod, unread.node, unread.reason.message
        if pod is None:
            self._events.put(node, "NodeClosed", f"no pod is placed on it: {message}", warning=True, action="Counting")
        elif unread.closes:
            why = f"because its size cannot be read: {message}"
            self._events.put(
                pod,
                "NodeClosed",
                f"no pod is placed on node {node} while this pod is on it, {why}",
                warning=True,
                action="Counting",
            )
            self._events.put(
                node, "NodeClosed", f"no pod is placed on it while pod {pod.key} is on it, {why}", warning=True, action="Counting"
            )
        else:
            note = f"{message}; on node {node} it is counted as it was read before, or by its requests"
            self._events.put(pod, str(unread.reason.code), note, warning=True, action="Counting")

    def warn(self, warning: Warn) -> None:
        """A warning of the core, as it stands."""
        for pod in _real(warning.pods):
            self._events.put(pod, warning.event, warning.message, warning=True, action="Preempting")

    def kept(self, kept: Kept) -> None:
        """What changed of a placed pod does not count."""
        self._events.put(kept.pod, str(kept.reason.code), kept.reason.message, warning=True, action="Counting")

    def trouble(self, trouble: Trouble) -> None:
        """An object could not be taken in."""
        if trouble.pod is not None:
            self._events.put(trouble.pod, "FailedScheduling", trouble.message, warning=True)


def _real(pods: Sequence[PodRef]) -> list[PodRef]:
    """Without placeholders: the cluster has no such pods."""
    return [pod for pod in pods if not pod.placeholder]

"""A pod of a job as it is seen, and how that is read from its object."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from fairlead.api import names, spans
from fairlead.cluster import convert, views
from fairlead.cluster.exits import failed, terminated
from fairlead.cluster.starting import bound_at, trouble_of
from fairlead.cluster.times import seconds
from fairlead.operator.jobs.starting import Starting

NUMBER = re.compile("^[0-9]{1,9}$", re.ASCII)
"""How attempts, elements and indexes are written in labels."""
CHECKPOINTED = 85
"""With this exit code a member reports that it has saved its work; it is started again, and that is not counted."""
DEADLINE = "DeadlineExceeded"
"""Reason of a failed pod whose kubelet ended it at its `activeDeadlineSeconds`."""
NODE_LOST = "NodeLost"
HARDWARE = frozenset({NODE_LOST, "UnexpectedAdmissionError"})
"""Reasons of a failed pod that speak against its node: it was lost, or its kubelet could not give what it had advertised."""
OF_THE_NODE = HARDWARE | {"NodeShutdown", "Terminated", "Evicted", "Preempting", "NodeAffinity", "Shutdown"}
"""Reasons of a failed pod that are its node's, not its own."""


class PodSeen(msgspec.Struct, frozen=True):
    """A pod of a job.

    exit_code: of the container that failed; disrupted: it was evicted, or its node went; element: of an array, else -1.
    saved: when it ended in good order after its deletion; started: when its kubelet took it on. made: when it was created,
    seconds since the epoch. limit: the time limit that it was made with, where it carries one itself. done: it succeeded
    before its deletion. excused: it failed and is marked as one that counts as succeeded. bound: when it got its node,
    seconds since the epoch. starting: what keeps it there from starting, None: it has started, or has no node.
    index: which of its role it is. began, ended: when its containers did, seconds since the epoch, 0 if that is not known; the
    one that failed, if one did. job: UID of the AIJob that controls it; a job of the same name may be another one.
    """

    name: str
    attempt: int
    phase: str
    node: str = ""
    terminating: bool = False
    disrupted: bool = False
    reason: str = ""
    exit_code: int | None = None
    element: int = -1
    saved: str = ""
    role: str = ""
    started: str = ""
    made: float = 0.0
    limit: str = ""
    done: bool = False
    excused: bool = False
    bound: float = 0.0
    starting: Starting | None = None
    index: int = 0
    began: float = 0.0
    ended: float = 0.0
    job: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    start_time: str | None = None
    conditions: list[views.Condition] = []
    container_statuses: list[views.ContainerStatus] = []
    init_container_statuses: list[views.ContainerStatus] = []


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class PodView(msgspec.Struct):
    """What of a pod is read."""

    metadata: views.Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def seen(view: PodView, attempt: int, element: int, now: float = 0.0, known: PodSeen | None = None) -> PodSeen:
    """Read from its object. known: as it was seen before, so that the start of its wait for the same reason is known."""
    status = view.status
    ended_badly = failed(status.container_statuses, status.init_container_statuses)
    return PodSeen(
        view.metadata.name,
        attempt,
        status.phase,
        view.spec.node_name,
        view.metadata.deletion_timestamp is not None,
        any(each.type == "DisruptionTarget" and each.status == "True" for each in status.conditions),
        status.reason,
        ended_badly[0].exit_code if ended_badly else None,
        element,
        saved_at(view),
        (view.metadata.labels or {}).get(names.ROLE_LABEL, ""),
        status.start_time or "",
        seconds(view.metadata.creation_timestamp),
        time_limit((view.metadata.annotations or {}).get(names.TIME_LIMIT_ANNOTATION, "")),
        status.phase == "Succeeded" and convert.ended_by_itself(view.metadata, _ended_at(status)),
        (view.metadata.annotations or {}).get(names.COUNTS_ANNOTATION) == "Succeeded",
        _bound(view, now, known),
        _starting(view, now, known.starting if known is not None else None),
        _index((view.metadata.labels or {}).get(names.INDEX_LABEL, "")),
        *_times(status.container_statuses, status.init_container_statuses),
        job=next((each.uid for each in view.metadata.owner_references or () if each.controller), ""),
    )


def _bound(view: PodView, now: float, known: PodSeen | None) -> float:
    """When a pod got its node: by our own clock where we observed it, else by the pod's status."""
    if not view.spec.node_name:
        return 0.0
    if known is not None:
        return known.bound if known.node else now
    return bound_at(view.status.conditions, view.status.start_time, view.metadata.creation_timestamp)


def _starting(view: PodView, now: float, known: Starting | None) -> Starting | None:
    status = view.status
    if not view.spec.node_name:
        return None
    trouble = trouble_of(status.phase, status.conditions, status.container_statuses, status.init_container_statuses)
    if trouble is None:
        return None
    return Starting(trouble, known.since if known is not None and known.trouble.reason == trouble.reason else now)


def _index(text: str) -> int:
    return int(text) if NUMBER.match(text) else 0


def _ended_at(status: _Status) -> list[str | None]:
    states = [each.state.terminated for each in status.container_statuses if each.state is not None]
    return [each.finished_at for each in states if each is not None]


def time_limit(text: str) -> str:
    """A time limit that can be read; empty: there is none."""
    try:
        return text if text and spans.seconds(text) > 0 else ""
    except ValueError:
        return ""


def saved_at(view: PodView) -> str:
    """When all containers of a deleted pod had ended in good order; empty if they have not."""
    ended = [each.state.terminated if each.state is not None else None for each in view.status.container_statuses]
    if view.metadata.deletion_timestamp is None or not ended:
        return ""
    found = [each.finished_at or "" for each in ended if each is not None and each.exit_code in (0, CHECKPOINTED)]
    return max(found) if len(found) == len(ended) else ""


def _times(containers: Sequence[views.ContainerStatus], before: Sequence[views.ContainerStatus]) -> tuple[float, float]:
    """When a pod's containers began, and when they ended; the one that failed, if one did. 0 where that is not known.

    before: those that run before the others, or beside them.
    """
    states = [each.state for each in containers if each.state is not None]
    begun = [part.started_at for each in states for part in (each.running, each.terminated) if part is not None]
    bad = failed(containers, before)
    ended = [seconds(each.finished_at) for each in terminated(containers) or terminated(before)]
    return max(map(seconds, begun), default=0.0), seconds(bad[0].finished_at) if bad else max(ended, default=0.0)

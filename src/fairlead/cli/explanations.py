"""Explanations of jobs for users who may not list the cluster: the leader's, by the aggregated API, else what statuses have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlead.api import names
from fairlead.cli.leader import NOT_SERVED, snake
from fairlead.cluster import views
from fairlead.core.model.units import WHOLE

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.client import Client
    from fairlead.scheduler.explanations import Explanation


async def by_leader(client: Client, kind: str, namespace: str, name: str) -> Explanation | None:
    """The leader's explanation of a job of one namespace; None where it does not answer, or knows no such job.

    kind: `pod`, `podgroup`, `job` or `aijob`. Raises `ApiError`, `Unreachable`.
    """
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.scheduler.explanations import Explanation

    try:
        body = msgspec.json.decode(await client.get(f"{names.VISIBILITY}/namespaces/{namespace}/{kind}s/{name}/explanation"))
        return msgspec.convert(snake(body["status"]), Explanation)
    except ApiError as error:
        if error.code not in NOT_SERVED:
            raise
    except (KeyError, TypeError, msgspec.MsgspecError):
        pass  # another version's answer
    return None


async def by_leader_or_status(client: Client, kind: str, namespace: str, name: str) -> Explanation:
    """The leader's explanation, else what its objects have in their statuses. Raises `ApiError`, `Unreachable`."""
    return await by_leader(client, kind, namespace, name) or await by_status(client, kind, namespace, name)


async def by_status(client: Client, kind: str, namespace: str, name: str) -> Explanation:
    """What a job's objects have in their statuses. Raises `ApiError`, `Unreachable`."""
    if kind == "job":
        return await _by_made(client, namespace, f"batch/v1/Job/{name}")
    return await (_by_pod if kind == "pod" else _by_group)(client, namespace, name)


async def _by_made(client: Client, namespace: str, root: str) -> Explanation:
    """Of the PodGroup that was made for a workload, now or by an earlier version."""
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.core.state.suspended import made_before, made_for

    _, kind, name = root.rsplit("/", 2)
    try:
        return await _by_group(client, namespace, made_for(namespace, root).partition("/")[2])
    except ApiError as error:
        if error.code != 404:
            raise
    before = made_before(namespace, kind, name).partition("/")[2]
    return await _by_group(client, namespace, before, made_only=True)


async def _by_group(client: Client, namespace: str, name: str, *, made_only: bool = False) -> Explanation:
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.scheduler.explanations import bare

    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/podgroups/{name}"
    view = msgspec.json.decode(await client.get(path), type=_Group)
    if made_only and names.MADE_FOR_LABEL not in (view.metadata.labels or {}):
        raise ApiError(404, "NotFound", f"podgroup {name!r} was not created by Fairlead")
    status, reason = view.status, view.status.reason
    return bare(
        f"podgroup/{name}",
        queue=view.spec.queue or "",
        state={"Scheduled": "Running", "Running": "Running"}.get(status.phase, status.phase or "Waiting"),
        pods=max(view.spec.min_member, status.scheduled),
        placed=status.scheduled,
        code=reason.code if reason is not None else None,
        message=reason.message if reason is not None else None,
        expected_start=status.expected_start,
        earliest_start=status.earliest_start,
        latest_start=status.latest_start,
    )


async def _by_pod(client: Client, namespace: str, name: str) -> Explanation:
    from fairlead.cluster import convert
    from fairlead.cluster.gpu_parts import held_milli, parts_of
    from fairlead.scheduler.explanations import GpuRequest, bare

    view = msgspec.json.decode(await client.get(f"/api/v1/namespaces/{namespace}/pods/{name}"), type=views.Pod)
    pod = convert.pod(view, names.DEFAULT_QUEUE)
    conditions = (view.status.conditions if view.status else None) or ()
    scheduled = next((each for each in conditions if each.type == "PodScheduled"), None)
    waits = scheduled is not None and scheduled.status == "False"
    return bare(
        f"pod/{name}",
        queue=pod.queue,
        state="Running" if pod.node else "Waiting",
        pods=1,
        placed=int(bool(pod.node)),
        gpus=held_milli(pod.spec) / WHOLE,
        gpu_parts=[GpuRequest(resource, count, milli / WHOLE) for resource, count, milli in parts_of(pod.spec)],
        priority=pod.priority,
        nodes=[pod.node] if pod.node else [],
        user=pod.user,
        code=scheduled.reason if waits and scheduled is not None else None,
        message=scheduled.message if waits and scheduled is not None else None,
    )


class _GroupStatus(views.PodGroupStatus):
    phase: str = ""


class _Group(msgspec.Struct):
    metadata: views.Metadata = msgspec.field(default_factory=views.Metadata)
    spec: views.PodGroupSpec = msgspec.field(default_factory=views.PodGroupSpec)
    status: _GroupStatus = msgspec.field(default_factory=_GroupStatus)

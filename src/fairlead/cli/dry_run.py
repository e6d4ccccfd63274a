"""`fairlead submit --dry-run`: what would be created, whether the API server would take it, and when the jobs would start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.client import Client
    from fairlead.cluster.translate import Objects
    from fairlead.simulation.whatif import Job, Outcome

_FORBIDDEN, _NOT_FOUND = 403, 404


class Expected(msgspec.Struct, frozen=True):
    """When one job, `namespace/name`, would start as things stand. starts: `now`, `later`, `never` or `unknown`.

    elements: of an array, those that may run at a time; starting: those of them that would start now. after: the jobs that it
    depends on. nodes: of what would start now.
    """

    job: str
    starts: str
    wait_seconds: float | None = None
    nodes: list[str] = []
    reason: str = ""
    elements: int | None = None
    starting: int | None = None
    after: list[str] = []


class DryRun(msgspec.Struct, frozen=True):
    """What would be created; left_out: what of the script has no meaning here; expected: one entry for each job."""

    manifests: list[dict[str, Any]]
    left_out: list[str]
    expected: list[Expected]


def line(found: Expected) -> str:
    """The same as a sentence."""
    what = found.job
    if found.elements is not None:
        what = f"{found.starting or 'none'} of {found.elements} elements of {found.job}"
    if found.starts == "unknown":
        return f"{found.job}: the expected start is unknown: {found.reason}"
    after = f", once it may by {', '.join(found.after)}" if found.after else ""
    why = f": {found.reason}" if found.reason else ""
    if found.starts == "now":
        return f"{what} would start now on {', '.join(found.nodes)}{after}{why}"
    if found.starts == "never":
        return f"{what} would not start now{after}{why}" if found.elements is None else f"{what} would start now{after}{why}"
    return f"{found.job} would start in about {found.wait_seconds or 0:.0f} s{after}{why}"


async def expected(client: Client, manifests: Sequence[dict[str, Any]]) -> list[Expected]:
    """When the AIJobs of these manifests would start, all of them together."""
    from fairlead.cli.snapshot import read
    from fairlead.cluster.kubernetes.client import ApiError

    jobs = [each for each in manifests if each["kind"] == "AIJob"]
    try:
        objects = (await read(client)).objects()
    except ApiError as error:
        return [Expected(_key(each), "unknown", reason=error.message) for each in jobs]
    submitted = {_key(each) for each in jobs}
    missing = {_key(each): await _missing(client, each, submitted) for each in jobs}
    return _played(objects, jobs, missing)


def _played(objects: Objects, jobs: Sequence[dict[str, Any]], missing: dict[str, str]) -> list[Expected]:
    from fairlead.simulation import whatif

    changed = msgspec.structs.replace(objects, nodes=list(objects.nodes))
    wrong = dict(missing)
    for manifest in jobs:
        if wrong[_key(manifest)]:
            continue
        try:
            whatif.apply(changed, manifest, manifest["metadata"]["namespace"])
        except whatif.WhatIfError as error:
            wrong[_key(manifest)] = str(error)
    outcome = whatif.play(changed)
    return [
        Expected(_key(each), "never", reason=wrong[_key(each)], after=[] if missing[_key(each)] else _after(each))
        if wrong[_key(each)]
        else _of(each, objects, outcome)
        for each in jobs
    ]


def _key(manifest: dict[str, Any]) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


def _after(manifest: dict[str, Any]) -> list[str]:
    """The dependencies of a job, as `submit --dependency` takes them."""
    given = manifest["spec"].get("dependsOn") or ()
    return [each["when"] if each["when"] == "singleton" else f"{each['when']}:{each['job']}" for each in given]


async def _missing(client: Client, manifest: dict[str, Any], submitted: set[str]) -> str:
    """The first job that a job depends on and that does not exist; empty: there is none."""
    from fairlead.api import names
    from fairlead.cluster.kubernetes.client import ApiError

    namespace = manifest["metadata"]["namespace"]
    for each in manifest["spec"].get("dependsOn") or ():
        if each["when"] == "singleton" or f"{namespace}/{each['job']}" in submitted:
            continue
        try:
            await client.get(f"/apis/{names.API_VERSION}/namespaces/{namespace}/aijobs/{each['job']}")
        except ApiError as error:
            if error.code == _NOT_FOUND:
                return f"job {each['job']!r}, which it depends on, does not exist in namespace {namespace}"
            if error.code != _FORBIDDEN:
                raise
    return ""


def _of(manifest: dict[str, Any], objects: Objects, outcome: Outcome) -> Expected:
    """The start of one job, from those of its gangs and single pods."""
    from fairlead.simulation import submitted

    key, namespace = _key(manifest), manifest["metadata"]["namespace"]
    job = submitted.read_ai_job(manifest, namespace, objects.classes, objects.now)
    groups, pods = submitted.ai_job(job, objects.now)
    names = {f"{namespace}/{each['metadata']['name']}" for each in groups or pods}
    found = [each for each in outcome.jobs if each.job in names]
    now = [each for each in found if each.starts == "now"]
    nodes = sorted({node for each in now for node in each.nodes})
    rest = sorted((each for each in found if each.starts != "now"), key=_wait)
    first = rest[0] if rest else None
    after = _after(manifest)
    elements, starting = (len(names), len(now)) if job.spec.array is not None else (None, None)
    if now:
        reason = f"the others not yet: {first.reason}" if first is not None else ""
        return Expected(key, "now", 0.0, nodes, reason, after=after, elements=elements, starting=starting)
    if first is None:
        return Expected(key, "never", reason="unknown reason", after=after, elements=elements, starting=starting)
    return Expected(key, first.starts, first.wait_seconds, [], first.reason, after=after, elements=elements, starting=starting)


def _wait(job: Job) -> float:
    return float("inf") if job.wait_seconds is None else job.wait_seconds

"""What a workload would make: the pods of Jobs, Deployments and their like, the pods and PodGroups of AIJobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.rules import strict
from fairlead.api.kinds.service_class import ServiceClass, ServiceClassSpec
from fairlead.cluster import views
from fairlead.cluster.times import timestamp
from fairlead.operator.jobs import indexes
from fairlead.operator.jobs import members as made
from fairlead.operator.jobs.defaults import filled
from fairlead.operator.jobs.templates import problem

Manifest = dict[str, Any]

MOST_PODS = 100_000
REPLICATED = ("Deployment", "ReplicaSet", "StatefulSet")
KINDS = ("AIJob", "Pod", "Job", *REPLICATED)


class CannotSubmit(ValueError):
    """A workload that cannot be made: what is wrong and what to do."""


def pods_of(manifest: Manifest, namespace: str, now: float, most: int = MOST_PODS) -> list[Manifest]:
    """The pods that a workload would make, of a Pod itself; of AIJobs see `ai_job`. Raises `CannotSubmit` beyond `most`."""
    kind, metadata, spec = manifest["kind"], manifest["metadata"], _object(manifest, "spec", manifest)
    if kind == "Pod":
        count, template = 1, {"metadata": metadata, "spec": spec}
    elif kind == "Job":
        count, template = _number(manifest, spec, "parallelism"), _object(spec, "template", manifest)
        if spec.get("completions") is not None:
            count = min(count, _number(manifest, spec, "completions"))
    elif kind in REPLICATED:
        count, template = _number(manifest, spec, "replicas"), _object(spec, "template", manifest)
    else:
        raise CannotSubmit(f"{kind} is not a workload that is known here")
    if not 0 <= count <= most:
        raise CannotSubmit(f"{kind} {metadata['name']!r}: {count} pods are not possible{_beyond(most)}")
    about = _object(template, "metadata", manifest)
    asked = _object(template, "spec", manifest)
    owner = [] if kind == "Pod" else [{"kind": kind, "name": metadata["name"], "controller": True}]
    pods = []
    for number in range(count):
        name = metadata["name"] if kind == "Pod" else f"{metadata['name']}-{number}"
        given = {
            "name": name,
            "namespace": namespace,
            "labels": about.get("labels") or {},
            "annotations": about.get("annotations") or {},
            "ownerReferences": owner,
        }
        given |= {"uid": _uid(kind, namespace, name), "creationTimestamp": timestamp(now)}
        pods.append({"kind": "Pod", "metadata": given, "spec": {**asked, "nodeName": ""}})
    return pods


def _object(parent: Manifest, field: str, manifest: Manifest) -> Manifest:
    """A field that is an object, or absent. manifest: the whole, for the message."""
    found = parent.get(field)
    if found is not None and not isinstance(found, dict):
        raise CannotSubmit(f"{manifest['kind']} {manifest['metadata']['name']!r}: {field} is no object")
    return found or {}


def _number(manifest: Manifest, spec: Manifest, field: str) -> int:
    """A count of pods; one where it is not given."""
    found = spec.get(field)
    if found is None:
        return 1
    if not isinstance(found, int) or isinstance(found, bool):
        raise CannotSubmit(f"{manifest['kind']} {manifest['metadata']['name']!r}: spec.{field} is no whole number")
    return found


def read_ai_job(manifest: Manifest, namespace: str, classes: Iterable[views.ServiceClass], now: float) -> AIJob:
    """An AIJob as the operator would act on it. Raises `CannotSubmit`."""
    name = manifest["metadata"]["name"]
    about = {"namespace": namespace, **manifest["metadata"], "uid": _uid("AIJob", namespace, name)}
    about["creationTimestamp"] = timestamp(now)
    spec = _object(manifest, "spec", manifest)
    try:
        job = msgspec.convert({"metadata": about, "spec": spec}, strict(AIJob))
    except msgspec.ValidationError as error:
        raise CannotSubmit(f"AIJob {name!r} cannot be read: {error}") from error
    _, wrong = problem(job)
    if wrong:
        raise CannotSubmit(f"AIJob {name!r}: {wrong}")
    if job.spec.suspend:
        raise CannotSubmit(f"AIJob {name!r} is suspended (spec.suspend): it makes no pods until it is resumed")
    return filled(job, {each.metadata.name: _class(each) for each in classes})


def _beyond(most: int) -> str:
    return f"; at most {most} like these" if most < MOST_PODS else ""


def ai_job(job: AIJob, now: float, most: int = MOST_PODS) -> tuple[list[Manifest], list[Manifest]]:
    """(PodGroups, pods) that the operator would make for a job at once, were all ended that it depends on.

    Of an array as many elements as may run at a time. Raises `CannotSubmit`, also for more than `most` pods.
    """
    elements, spec = [-1], job.spec.array
    if spec is not None:
        try:
            elements = indexes.parse(spec.indexes)
        except indexes.WrongIndexes as error:
            raise CannotSubmit(f"AIJob {job.metadata.name!r}: {error}") from error
        elements = elements[: spec.parallelism] if spec.parallelism else elements
    count = len(elements) * sum(made.bounds(role)[1] for role in job.spec.roles)
    if count > most:
        raise CannotSubmit(f"AIJob {job.metadata.name!r}: {count} pods are not possible{_beyond(most)}")
    members = [member for element in elements for member in made.members(job, element)]
    groups = [made.group(job, element) for element in elements] if spec is None or made.is_gang(job) else []
    roles = {role.name: role for role in job.spec.roles}
    pods = [made.pod(job, roles[member.role], member, 0) for member in members]
    for each in (*groups, *pods):
        metadata = each["metadata"]
        metadata["uid"] = _uid(each["kind"], metadata["namespace"], metadata["name"])
        metadata["creationTimestamp"] = timestamp(now)
    return groups, pods


def is_of(pod: views.Pod, job: AIJob) -> bool:
    """Whether a pod is one of an AIJob's of that name."""
    metadata = pod.metadata
    return metadata.namespace == job.metadata.namespace and any(
        (each.kind, each.name) == ("AIJob", job.metadata.name) for each in metadata.owner_references or ()
    )


def _class(view: views.ServiceClass) -> ServiceClass:
    """As the operator reads it, as far as AIJobs are filled in from it."""
    given = view.spec
    spec = ServiceClassSpec(
        default_for=given.default_for, time_limit=given.time_limit, users=given.users, namespace_selector=given.namespace_selector
    )
    return ServiceClass(metadata=view.metadata, spec=spec)


def _uid(kind: str, namespace: str, name: str) -> str:
    return f"what-if/{namespace}/{kind}/{name}"

"""The members of an AIJob: their names, and the pods, the Service and the PodGroup that are made for them."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from fairlead.api import names, spans
from fairlead.api.objects import AIJob, Role

Manifest = dict[str, Any]

PORT = 29500
"""Where members meet, as torchrun's default."""


class Member(msgspec.Struct, frozen=True, order=True):
    """One member: the how-manieth of its role. rank: among all members of the job."""

    rank: int
    role: str
    index: int


def members(job: AIJob) -> list[Member]:
    """All members, role by role."""
    found: list[Member] = []
    for role in job.spec.roles:
        found += [Member(len(found) + index, role.name, index) for index in range(role.replicas)]
    return found


def name_of(job: AIJob, member: Member, attempt: int) -> str:
    """What a member's pod is called."""
    return f"{job.metadata.name}-{member.role}-{member.index}-{attempt}"


def owner(job: AIJob) -> Manifest:
    """The reference that everything made for a job carries, so that it goes with it."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "AIJob",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def service(job: AIJob) -> Manifest:
    """The headless Service under which members find each other, ready or not."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "labels": {names.JOB_LABEL: job.metadata.name},
            "ownerReferences": [owner(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.JOB_LABEL: job.metadata.name},
            "ports": [{"name": "rendezvous", "port": PORT}],
        },
    }


def group(job: AIJob) -> Manifest:
    """The gang: all members, or none."""
    spec = job.spec
    asked: Manifest = {"minMember": sum(role.replicas for role in spec.roles)}
    for field, value in (
        ("queue", spec.queue),
        ("serviceClass", spec.service_class),
        ("timeLimit", spec.time_limit),
        ("expectedDuration", spec.expected_duration),
    ):
        if value:
            asked[field] = value
    return {
        "apiVersion": names.API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "labels": {names.JOB_LABEL: job.metadata.name},
            "ownerReferences": [owner(job)],
        },
        "spec": asked,
    }


def pod(job: AIJob, role: Role, member: Member, attempt: int) -> Manifest:
    """A member's pod of one attempt."""
    template = copy.deepcopy(role.template)
    given = template.get("metadata") or {}
    spec: Manifest = template.get("spec") or {}
    labels = {
        **(given.get("labels") or {}),
        names.JOB_LABEL: job.metadata.name,
        names.ROLE_LABEL: member.role,
        names.INDEX_LABEL: str(member.index),
        names.ATTEMPT_LABEL: str(attempt),
        names.POD_GROUP_LABEL: job.metadata.name,
    }
    if job.spec.queue:
        labels[names.QUEUE_LABEL] = job.spec.queue
    if job.spec.service_class:
        labels[names.SERVICE_CLASS_LABEL] = job.spec.service_class
    annotations = dict(given.get("annotations") or {})
    user = (job.metadata.annotations or {}).get(names.USER_ANNOTATION)
    if user:
        annotations[names.USER_ANNOTATION] = user
    spec.setdefault("schedulerName", names.SCHEDULER_NAME)
    spec["restartPolicy"] = "Never"  # the job restarts as a whole
    spec["hostname"], spec["subdomain"] = f"{member.role}-{member.index}", job.metadata.name
    checkpoint = job.spec.checkpoint
    if checkpoint is not None and checkpoint.grace_period and "terminationGracePeriodSeconds" not in spec:
        spec["terminationGracePeriodSeconds"] = int(spans.seconds(checkpoint.grace_period))
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        told = container.get("env") or []
        taken = {each.get("name") for each in told}
        container["env"] = told + [{"name": key, "value": value} for key, value in _env(job, member, attempt) if key not in taken]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_of(job, member, attempt),
            "namespace": job.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner(job)],
        },
        "spec": spec,
    }


def _env(job: AIJob, member: Member, attempt: int) -> list[tuple[str, str]]:
    """What a member is told: whose it is and which, where the first is, where checkpoints go; torchrun reads PET_*."""
    first = job.spec.roles[0]
    address = f"{first.name}-0.{job.metadata.name}.{job.metadata.namespace}.svc"
    found = [
        ("FAIRLEAD_JOB", job.metadata.name),
        ("FAIRLEAD_ROLE", member.role),
        ("FAIRLEAD_INDEX", str(member.index)),
        ("FAIRLEAD_ATTEMPT", str(attempt)),
        ("MASTER_ADDR", address),
        ("MASTER_PORT", str(PORT)),
    ]
    if job.spec.checkpoint is not None:
        found.append(("FAIRLEAD_CHECKPOINT_PATH", job.spec.checkpoint.path))
    if member.role == first.name:
        found += [
            ("RANK", str(member.index)),
            ("WORLD_SIZE", str(first.replicas)),
            ("PET_NNODES", str(first.replicas)),
            ("PET_NODE_RANK", str(member.index)),
            ("PET_RDZV_BACKEND", "c10d"),
            ("PET_RDZV_ENDPOINT", f"{address}:{PORT}"),
            ("PET_RDZV_ID", f"{job.metadata.uid}-{attempt}"),
        ]
    return found

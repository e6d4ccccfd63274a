"""The members of an AIJob: their names, and the pods, the Service and the PodGroup that are made for them."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from fairlead.api import names, pressure, shared_resources, spans
from fairlead.api.kinds.ai_job import AIJob, Pressure, Role
from fairlead.core.mig.parts import milli_of

Manifest = dict[str, Any]

PORT = 29500
"""Where members meet, as torchrun's default."""


class Member(msgspec.Struct, frozen=True, order=True):
    """One member. index: within its role. elastic: beyond the role's minimum. element: of an array; -1: of none."""

    role: str
    index: int
    elastic: bool = False
    element: int = -1


def bounds(role: Role) -> tuple[int, int]:
    """How few members of a role are enough, and how many it may have; the same where its size is fixed."""
    least = role.replicas if role.min_replicas is None else role.min_replicas
    return least, max(least, role.replicas if role.max_replicas is None else role.max_replicas)


def members(job: AIJob, element: int = -1) -> list[Member]:
    """All members that a job, or an element of its array, may have, role by role."""
    found: list[Member] = []
    for role in job.spec.roles:
        least, most = bounds(role)
        found += [Member(role.name, index, index >= least, element) for index in range(most)]
    return found


def needed(job: AIJob) -> int:
    """How many members it starts with."""
    return sum(bounds(role)[0] for role in job.spec.roles)


def digest(job: AIJob) -> str:
    """Of its roles: equal where the same members are made from them, so without where these are to be."""
    roles = [msgspec.structs.replace(role, topology=None) for role in job.spec.roles]
    return hashlib.sha256(msgspec.json.encode(roles, order="deterministic")).hexdigest()[:16]


def asks_gpus(role: Role) -> bool:
    """Whether its members ask for devices, or for a part of one."""
    template = role.template
    if names.GPU_FRACTION_ANNOTATION in ((template.get("metadata") or {}).get("annotations") or {}):
        return True
    asked = {
        resource
        for container in (template.get("spec") or {}).get("containers") or ()
        for part in (container.get("resources") or {}).values()
        if isinstance(part, dict)
        for resource in part
    }
    return any(each in names.GPU_RESOURCES or milli_of(each, table=names.GPU_PARTS) for each in asked)


def name_of(job: AIJob, member: Member, attempt: int) -> str:
    """What a member's pod is called."""
    return f"{gang_of(job, member.element)}-{member.role}-{member.index}-{attempt}"


def gang_of(job: AIJob, element: int = -1) -> str:
    """What the PodGroup of a job, or of an element of its array, is called."""
    return job.metadata.name if element < 0 else f"{job.metadata.name}-{element}"


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
            "annotations": stamp(job.metadata.annotations),
            "ownerReferences": [owner(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.JOB_LABEL: job.metadata.name},
            "ports": [{"name": "rendezvous", "port": PORT}],
        },
    }


def group(job: AIJob, element: int = -1) -> Manifest:
    """The gang: all members that are needed, or none."""
    spec = job.spec
    asked: Manifest = {"minMember": needed(job)}
    most = sum(bounds(role)[1] for role in spec.roles)
    if most > asked["minMember"]:
        asked["maxMember"] = most
    for field, value in (
        ("queue", spec.queue),
        ("serviceClass", spec.service_class),
        ("timeLimit", spec.time_limit),
        ("expectedDuration", spec.expected_duration),
        ("startTimeout", spec.start_timeout),
        ("topology", msgspec.to_builtins(spec.topology) if spec.topology is not None else None),
        (
            "roles",
            [
                {"name": role.name, "topology": msgspec.to_builtins(role.topology)}
                for role in spec.roles
                if role.topology is not None
            ],
        ),
    ):
        if value:
            asked[field] = value
    return {
        "apiVersion": names.API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": gang_of(job, element),
            "namespace": job.metadata.namespace,
            "labels": {names.JOB_LABEL: job.metadata.name},
            "annotations": {
                **provisioning(job.metadata.annotations),
                **stamp(job.metadata.annotations),
                names.ROLES_LABEL: digest(job),
                **_forms(job),
            },
            "ownerReferences": [owner(job)],
        },
        "spec": asked,
    }


def owned(references: Sequence[Any] | None, job: AIJob) -> bool:
    """Whether something with these owner references is a job's."""
    return any(each.uid == job.metadata.uid for each in references or ())


def stamp(annotations: dict[str, str] | None) -> dict[str, str]:
    """A workload's user, for the objects made for it, where the API server trusts the operator to name the user."""
    user = (annotations or {}).get(names.USER_ANNOTATION)
    return {names.USER_ANNOTATION: user} if user else {}


def provisioning(annotations: dict[str, str] | None) -> dict[str, str]:
    """Those annotations of a workload that its PodGroup has as well."""
    kept = (names.PROVISIONING_CLASS_ANNOTATION, names.PROVISIONING_PARAMETER_PREFIX)
    return {name: value for name, value in (annotations or {}).items() if name.startswith(kept)}


def _forms(job: AIJob) -> dict[str, str]:
    """The forms in which a job may run: see `alternatives`."""
    text = (job.metadata.annotations or {}).get(names.ALTERNATIVES_ANNOTATION) if job.spec.alternatives else None
    return {names.ALTERNATIVES_ANNOTATION: text} if text else {}


def _labels(job: AIJob, member: Member, attempt: int) -> dict[str, str]:
    """The labels of a member's pod; they override those of its template."""
    labels = {
        names.JOB_LABEL: job.metadata.name,
        names.ROLE_LABEL: member.role,
        names.INDEX_LABEL: str(member.index),
        names.ATTEMPT_LABEL: str(attempt),
        names.ROLES_LABEL: digest(job),
    }
    if member.element < 0 or is_gang(job):
        labels[names.POD_GROUP_LABEL] = gang_of(job, member.element)
    if member.element >= 0:
        labels[names.ELEMENT_LABEL] = str(member.element)
    if member.elastic:
        labels[names.ELASTIC_REPLICA_LABEL] = "true"
    if job.spec.queue:
        labels[names.QUEUE_LABEL] = job.spec.queue
    if job.spec.service_class:
        labels[names.SERVICE_CLASS_LABEL] = job.spec.service_class
    return labels


def pod(job: AIJob, role: Role, member: Member, attempt: int) -> Manifest:
    """A member's pod of one attempt."""
    template = copy.deepcopy(role.template)
    given = template.get("metadata") or {}
    spec: Manifest = template.get("spec") or {}
    labels = {**(given.get("labels") or {}), **_labels(job, member, attempt)}
    annotations = {**(given.get("annotations") or {}), **stamp(job.metadata.annotations)}
    if names.POD_GROUP_LABEL not in labels:
        for name, span in (
            (names.TIME_LIMIT_ANNOTATION, job.spec.time_limit),
            (names.EXPECTED_DURATION_ANNOTATION, job.spec.expected_duration),
        ):
            if span:
                annotations.setdefault(name, span)
    if role.pressure is not None:
        annotations[names.PRESSURE_ANNOTATION] = _pressing(role.pressure)
    if role.shared_resources:
        annotations[names.SHARED_RESOURCES_ANNOTATION] = shared_resources.written(role.shared_resources)
    spec.setdefault("schedulerName", names.own_scheduler())
    spec["restartPolicy"] = "Never"  # the job restarts as a whole
    if is_gang(job):
        _keep_off_quarantined(spec)
    if job.spec.workload_type == "Inference":
        _spread(spec, job)
    elif job.status is not None and job.status.preferred_nodes:
        _prefer(spec, job.status.preferred_nodes)
    _avoid(spec, avoided(job, member.element))
    spec["hostname"], spec["subdomain"] = host_of(member.role, member.index, member.element), job.metadata.name
    checkpoint = job.spec.checkpoint
    if checkpoint is not None and checkpoint.grace_period and "terminationGracePeriodSeconds" not in spec:
        spec["terminationGracePeriodSeconds"] = math.ceil(spans.seconds(checkpoint.grace_period))  # 0 would be no time at all
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        given = container.get("env") or []
        taken = {each.get("name") for each in given}
        container["env"] = given + [
            {"name": key, "value": value} for key, value in _env(job, member, attempt) if key not in taken
        ]
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


def _pressing(given: Pressure) -> str:
    """What a role declares, as its members' annotation has it."""
    amounts = given.memory_bandwidth, given.pcie, given.network, given.disk
    return ",".join(f"{kind}={amount}" for kind, amount in zip(pressure.KINDS, amounts, strict=True) if amount is not None)


def _keep_off_quarantined(spec: Manifest) -> None:
    """A gang fails as a whole where one node does: its members go where jobs do not fail again and again."""
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    wanted = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in wanted.get("nodeSelectorTerms") or wanted.setdefault("nodeSelectorTerms", [{}]):
        term.setdefault("matchExpressions", []).append({"key": names.QUARANTINED_LABEL, "operator": "DoesNotExist"})


def _prefer(spec: Manifest, nodes: Sequence[str]) -> None:
    """Where it ran its data and images are, and nothing has failed. The same for all members and until the next restart.

    So members of an attempt that was suspended are as they were, and get the places that were reserved for them.
    """
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).extend(
        {"weight": 1, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}}
        for node in nodes
    )


def avoided(job: AIJob, element: int) -> Sequence[str]:
    """The nodes on which a job, or an element of its array, failed by itself."""
    if job.status is None:
        return ()
    if element < 0:
        return job.status.avoided_nodes
    return next((each.avoided_nodes for each in job.status.elements if each.index == element), ())


def _avoid(spec: Manifest, nodes: Sequence[str]) -> None:
    """Not where it failed, if there is another place: a second failure on the same node would not show which is to blame."""
    if nodes:
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity.setdefault("preferredDuringSchedulingIgnoredDuringExecution", []).extend(
            {"weight": 1, "preference": {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [node]}]}}
            for node in nodes
        )


def _spread(spec: Manifest, job: AIJob) -> None:
    """Replicas of a service fail one by one only where they are apart, if the free capacity allows."""
    if spec.get("topologySpreadConstraints"):
        return
    selector = {"matchLabels": {names.JOB_LABEL: job.metadata.name}}
    spec["topologySpreadConstraints"] = [
        {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
        for key in (names.HOSTNAME_LABEL, names.ZONE_LABEL)
    ]


def is_gang(job: AIJob) -> bool:
    """Whether it, or an element of its array, is more than one pod."""
    return sum(bounds(role)[1] for role in job.spec.roles) > 1


def host_of(role: str, index: int, element: int = -1) -> str:
    """Under which name, in the job's Service, a member is found."""
    return f"{role}-{index}" if element < 0 else f"{role}-{index}-{element}"


def _env(job: AIJob, member: Member, attempt: int) -> list[tuple[str, str]]:
    """A member's environment: its job and index, the address of the first, where checkpoints go; torchrun reads PET_*.

    Where the size is not fixed no member has a rank: the rendezvous assigns ranks whenever members come or go.
    """
    first = job.spec.roles[0]
    address = f"{host_of(first.name, 0, member.element)}.{job.metadata.name}.{job.metadata.namespace}.svc"
    found = [
        ("FAIRLEAD_JOB", job.metadata.name),
        ("FAIRLEAD_ROLE", member.role),
        ("FAIRLEAD_INDEX", str(member.index)),
        ("FAIRLEAD_ATTEMPT", str(attempt)),
        ("MASTER_ADDR", address),
        ("MASTER_PORT", str(PORT)),
    ]
    if job.spec.array is not None:
        element = str(member.element)
        found += [(name, element) for name in ("FAIRLEAD_ARRAY_INDEX", "JOB_COMPLETION_INDEX", "SLURM_ARRAY_TASK_ID")]
    if job.spec.checkpoint is not None:
        found.append(("FAIRLEAD_CHECKPOINT_PATH", job.spec.checkpoint.path))
    if member.role == first.name:
        least, most = bounds(first)
        element = f"-{member.element}" if member.element >= 0 else ""
        found += [
            ("PET_RDZV_BACKEND", "c10d"),
            ("PET_RDZV_ENDPOINT", f"{address}:{PORT}"),
            ("PET_RDZV_ID", f"{job.metadata.uid}{element}-{attempt}"),
        ]
        if least < most:
            found.append(("PET_NNODES", f"{least}:{most}"))
        else:
            index, size = str(member.index), str(least)
            found += [("PET_NNODES", size), ("PET_NODE_RANK", index), ("RANK", index), ("WORLD_SIZE", size)]
    return found

"""The alternatives of a job: the forms in which it may run, which of them the scheduler is offered, and the job in one of them.

Form 0 is the job's role as it is written. An alternative replaces the number of members, the GPUs of each, and adds the nodes of
its pool. Without a pool it stands for all pools, the fastest first (`relativeSpeed`, 1 where none is given; then by name).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob, Alternative, AlternativeStatus, Role
from fairlead.api.kinds.node_pool import NodePool
from fairlead.api.kinds.pod_group import GroupAlternative
from fairlead.api.kinds.service_class import ServiceClass
from fairlead.cluster.alternatives import Forms, written
from fairlead.core.model.groups import Choice
from fairlead.core.model.selectors import Requirement

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Offer(msgspec.Struct, frozen=True):
    """choices: the forms that are offered, in order of preference. problem: of alternatives that are not, in words."""

    choices: tuple[Choice, ...] = ()
    problem: str = ""


def offer(job: AIJob, pools: Mapping[str, NodePool], classes: Mapping[str, ServiceClass]) -> Offer:
    """The forms of a job. Empty: it has no alternatives, or its role asks for no GPUs as they need it."""
    alternatives = job.spec.alternatives
    if not alternatives:
        return Offer()
    role = job.spec.roles[0]
    place = _gpu_place(role)
    if place is None:
        return Offer(problem="alternatives need a role of which exactly one container asks for whole GPUs in its limits")
    _, resource, amount = place
    service = classes.get(job.spec.service_class or "")
    allowed = service.spec.alternative_pools if service is not None else None
    found, problems = [Choice(0, "", role.replicas, resource, amount)], list[str]()
    for index, each in enumerate(alternatives, start=1):
        for pool, nodes in _pools_of(each, pools):
            if nodes is None:
                problems.append(f"alternative {index} names pool {pool}, and there is no such NodePool")
            elif allowed is not None and pool not in allowed:
                if each.pool:
                    problems.append(f"alternative {index}: ServiceClass {job.spec.service_class} does not allow pool {pool}")
            else:
                members, gpus = each.replicas or role.replicas, each.gpus_per_member or amount
                found.append(Choice(index, pool, members, resource, gpus, nodes))
    return Offer(tuple(found), "; ".join(problems))


def _pools_of(alternative: Alternative, pools: Mapping[str, NodePool]) -> Iterator[tuple[str, tuple[Requirement, ...] | None]]:
    """The pools that an alternative stands for, and what nodes of each have; None: there is no such pool."""
    if alternative.pool:
        known = pools.get(alternative.pool)
        yield alternative.pool, _requirements(known) if known is not None else None
        return
    for name in sorted(pools, key=lambda name: (-(pools[name].spec.relative_speed or 1.0), name)):
        yield name, _requirements(pools[name])


def _requirements(pool: NodePool) -> tuple[Requirement, ...]:
    """What labels nodes of a pool have."""
    selector = pool.spec.node_selector
    if selector is None:
        return ()
    labels = tuple(Requirement(key, "In", (value,)) for key, value in sorted((selector.match_labels or {}).items()))
    more = (Requirement(each.key, each.operator, tuple(each.values or ())) for each in selector.match_expressions or ())
    return (*labels, *more)


def _gpu_place(role: Role) -> tuple[int, str, int] | None:
    """Which container asks for GPUs, by which resource, and how many; None: none, several, or what is no whole number."""
    if names.GPU_FRACTION_ANNOTATION in ((role.template.get("metadata") or {}).get("annotations") or {}):
        return None
    found = []
    for number, container in enumerate((role.template.get("spec") or {}).get("containers") or ()):
        limits = (container.get("resources") or {}).get("limits") or {}
        found += [(number, resource, limits[resource]) for resource in names.GPU_RESOURCES if resource in limits]
    if len(found) != 1:
        return None
    number, resource, amount = found[0]
    try:
        count = int(amount)
    except (TypeError, ValueError):
        return None
    return (number, resource, count) if count > 0 else None


def current(job: AIJob, offered: Offer) -> Choice | None:
    """The form in which a job's pods are made; where that is offered no more, as it is written."""
    if not offered.choices:
        return None
    given = job.status.alternative if job.status is not None else None
    key = (given.index, given.pool) if given is not None else (0, "")
    return next((each for each in offered.choices if (each.index, each.pool) == key), offered.choices[0])


def in_form(job: AIJob, offered: Offer) -> AIJob:
    """The job as it runs now: its role in the present form, its forms as an annotation for its PodGroup."""
    form = current(job, offered)
    if form is None:
        return job
    text = written(Forms(offered.choices, (form.index, form.pool)))
    annotations = {**(job.metadata.annotations or {}), names.ALTERNATIVES_ANNOTATION: text}
    spec = msgspec.structs.replace(job.spec, roles=[_role(job.spec.roles[0], form)])
    metadata = msgspec.structs.replace(job.metadata, annotations=annotations)
    return msgspec.structs.replace(job, metadata=metadata, spec=spec)


def _role(role: Role, form: Choice) -> Role:
    """A role in a form."""
    place = _gpu_place(role)
    if form.index == 0 or place is None:
        return role
    template = copy.deepcopy(role.template)
    resources = template["spec"]["containers"][place[0]]["resources"]
    resources["limits"][form.resource] = str(form.amount)
    if form.resource in (resources.get("requests") or {}):
        resources["requests"][form.resource] = str(form.amount)
    if form.nodes:
        required = _within(_within(_within(template["spec"], "affinity"), "nodeAffinity"), _REQUIRED)
        required["nodeSelectorTerms"] = terms = required.get("nodeSelectorTerms") or [{}]
        for term in terms:
            expressions = [_expression(each) for each in form.nodes]
            term["matchExpressions"] = [*(term.get("matchExpressions") or ()), *expressions]
    return msgspec.structs.replace(role, replicas=form.replicas, template=template)


def _within(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """What a field of a manifest has, to be changed; also where it is null."""
    found: dict[str, Any] = manifest.get(name) or {}
    manifest[name] = found
    return found


def _expression(requirement: Requirement) -> dict[str, object]:
    found: dict[str, object] = {"key": requirement.key, "operator": requirement.operator}
    return {**found, "values": list(requirement.values)} if requirement.values else found


def to_take(job: AIJob, offered: Offer, chosen: GroupAlternative | None) -> AlternativeStatus | None:
    """The form that the scheduler chose for this attempt, if it is offered and another than the present one.

    chosen: of the PodGroup's status.
    """
    now = current(job, offered)
    if chosen is None or now is None or chosen.attempt != (job.status.attempt if job.status is not None else 0):
        return None
    key = (chosen.index, chosen.pool)
    if key == (now.index, now.pool) or all((each.index, each.pool) != key for each in offered.choices):
        return None
    return AlternativeStatus(index=chosen.index, pool=chosen.pool)

"""Placement: GPUs are given out by schedulers; a tenant's pod does not take them by naming its node.

Nor what the nodes of a pool share, by its annotation.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api import names
from fairlead.api.policies.objects import CRON_JOBS, PODS, TEMPLATED, Manifest, entry, listed, refusal, rules, validating

_VENDORS = tuple(dict.fromkeys(f"{each.partition('/')[0]}/" for each in names.GPU_RESOURCES))
_ADMINISTRATORS = ("system:masters", "system:nodes")


def placement(schedulers: Sequence[str], others: Sequence[str] = (), *, require_scheduler: bool) -> list[Manifest]:
    """schedulers: ours. require_scheduler: pods that ask for GPUs must name one of them, or of others.

    Controllers are no exception: they make what a tenant's template contains. Exempt are the system namespaces,
    administrators (group system:masters) and mirror pods (system:nodes).
    """
    made: list[Manifest] = []
    for suffix, resources, spec, metadata in (
        ("", PODS, "object.spec", "object.metadata"),
        ("-templates", TEMPLATED, "object.spec.template.spec", "object.spec.template.metadata"),
        ("-cronjobs", CRON_JOBS, _CRON_POD + ".spec", _CRON_POD + ".metadata"),
    ):
        there = spec if suffix else "object.spec"
        named = f"!has({spec}.nodeName) || {spec}.nodeName == ''"
        conditions = [("has-pods", f"has({there})")]
        if not require_scheduler:
            conditions.append(("names-a-node", f"!({named})"))  # which few do: all others skip the rest
        conditions += [("by-a-tenant", _BY_TENANT), ("asks-gpus", _asks_gpus(spec, metadata))]
        validations = [
            refusal(
                named,
                "a pod that asks for GPUs, or takes shared resources, may not set spec.nodeName: schedulers place it; use "
                "nodeSelector or affinity",
            )
        ]
        if require_scheduler:
            given = f"has({spec}.schedulerName) ? {spec}.schedulerName : ''"
            message = f"a pod that asks for GPUs must set spec.schedulerName to one of {', '.join((*schedulers, *others))}"
            validations.append(refusal(f"({given}) in {listed((*schedulers, *others))}", message))
        made += validating(f"fairlead-placement{suffix}", rules(resources, "CREATE"), validations, conditions=conditions)
    return [*made, *priorities(schedulers)]


def priorities(schedulers: Sequence[str], release: str = names.FIRST_RELEASE) -> list[Manifest]:
    """Priorities of the cluster's own pods are not for work that our schedulers place outside the system namespaces."""
    given = "has(object.spec.priorityClassName) && object.spec.priorityClassName.startsWith('system-')"
    ours = f"has(object.spec.schedulerName) && object.spec.schedulerName in {listed(schedulers)}"
    return validating(
        f"{release}-priorities",
        rules(PODS, "CREATE"),
        [refusal("false", "PriorityClasses system-* are the cluster's own; use a ServiceClass or another PriorityClass")],
        conditions=[("of-the-system", given), ("ours", ours), ("by-a-tenant", _BY_TENANT)],
    )


_CRON_POD = "object.spec.jobTemplate.spec.template"
_BY_TENANT = f"!has(request.userInfo.groups) || !request.userInfo.groups.exists(g, g in {listed(_ADMINISTRATORS)})"


def _asks_gpus(spec: str, metadata: str) -> str:
    vendor = " || ".join(f"r.startsWith('{each}')" for each in _VENDORS)

    def asked(containers: str) -> str:
        kinds = (f"(has(c.resources.{kind}) && c.resources.{kind}.exists(r, {vendor}))" for kind in ("requests", "limits"))
        return f"(has({spec}.{containers}) && {spec}.{containers}.exists(c, has(c.resources) && ({' || '.join(kinds)})))"

    fraction = f"(has({metadata}) && {entry(metadata, 'annotations', names.GPU_FRACTION_ANNOTATION)} != '')"
    shared = f"(has({metadata}) && {entry(metadata, 'annotations', names.SHARED_RESOURCES_ANNOTATION)} != '')"
    claims = f"(has({spec}.resourceClaims) && size({spec}.resourceClaims) > 0)"
    return " || ".join((asked("containers"), asked("initContainers"), fraction, shared, claims))

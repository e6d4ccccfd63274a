"""Belonging: what a unit was admitted with cannot be changed once it has a place."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api import names, spans
from fairlead.api.policies.objects import GANG_LABELS, Manifest, entry, passes_on, refusal, rules, validating
from fairlead.api.policies.spelling import is_span

_LABELS = (
    names.QUEUE_LABEL,
    names.SERVICE_CLASS_LABEL,
    names.POD_GROUP_LABEL,
    names.ELASTIC_REPLICA_LABEL,
    *GANG_LABELS,
)
_ANNOTATIONS = (
    names.GPU_FRACTION_ANNOTATION,
    names.GPU_PARTNER_ANNOTATION,
    names.EXPECTED_DURATION_ANNOTATION,
    names.SHARED_RESOURCES_ANNOTATION,
)
_WAITS = "['', 'Pending', 'Suspended']"


def belonging(trusted: Sequence[str]) -> list[Manifest]:
    """trusted: users who may change what a started PodGroup asks for, such as the operator when its job is resized."""
    unchanged = [
        refusal(
            f"{entry('object.metadata', field, key)} == {entry('oldObject.metadata', field, key)}",
            f"{field.removesuffix('s')} {key} cannot be changed: the pod has a node and stays what it was admitted as",
        )
        for field, keys in (("labels", _LABELS), ("annotations", _ANNOTATIONS))
        for key in keys
    ]
    limit = (
        entry("object.metadata", "annotations", names.TIME_LIMIT_ANNOTATION),
        entry("oldObject.metadata", "annotations", names.TIME_LIMIT_ANNOTATION),
    )
    shortened = refusal(
        _no_longer(*limit),
        f"annotation {names.TIME_LIMIT_ANNOTATION} can only become shorter: the pod has a node",
    )
    placed = ("placed", "has(oldObject.spec.nodeName) && oldObject.spec.nodeName != ''")
    phase = "(has(oldObject.status) && has(oldObject.status.phase) ? oldObject.status.phase : '')"
    started = ("started", f"!({phase} in {_WAITS})")
    by_user = ("by-its-user", f"!({passes_on(trusted)})")
    fixed = ("queue", "serviceClass")
    return [
        *validating("fairlead-belonging", rules([("", ["pods"])], "UPDATE"), [*unchanged, shortened], conditions=[placed]),
        *validating(
            "fairlead-belonging-podgroups",
            rules([(names.GROUP, ["podgroups"])], "UPDATE"),
            [_fixed(field) for field in (*fixed, "minMember", "topology", "roles")] + [_spec_limit()],
            conditions=[started, by_user],
        ),
        *validating(
            "fairlead-belonging-aijobs",
            rules([(names.GROUP, ["aijobs"])], "UPDATE"),
            [_fixed(field) for field in (*fixed, "topology")] + [_spec_limit()],
            conditions=[started],
        ),
    ]


def _fixed(field: str) -> Manifest:
    now, before = f"object.spec.{field}", f"oldObject.spec.{field}"
    same = f"has({now}) == has({before}) && (!has({now}) || {now} == {before})"
    return refusal(same, f"spec.{field} cannot be changed: it has started and stays what it was admitted as")


def _spec_limit() -> Manifest:
    now, before = (f"(has({each}.spec.timeLimit) ? {each}.spec.timeLimit : '')" for each in ("object", "oldObject"))
    return refusal(_no_longer(now, before), "spec.timeLimit can only become shorter: it has started")


def _no_longer(now: str, before: str) -> str:
    return f"{now} == {before} || ({is_span(now)} && {is_span(before)} && {spans.in_cel(now)} <= {spans.in_cel(before)})"

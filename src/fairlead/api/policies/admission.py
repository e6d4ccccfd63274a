"""Admission: a queue or a class of service refuses namespaces, users and classes that it does not admit.

Each Queue and ServiceClass is a parameter and judges the objects that name it. The rules of parent queues are left to the
scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api import names
from fairlead.api.policies.objects import (
    GANG_LABELS,
    OURS,
    OUTSIDE_SYSTEM,
    PODS,
    TEMPLATED,
    Manifest,
    Resources,
    binding,
    entry,
    listed,
    pod_metadata,
    policy,
    refusal,
    rules,
    together,
)

_STAMP = names.USER_ANNOTATION
_NAMES = (("Queue", "queue", names.QUEUE_LABEL), ("ServiceClass", "serviceClass", names.SERVICE_CLASS_LABEL))


def admission(schedulers: Sequence[str]) -> list[Manifest]:
    """One policy for queues, one for classes. schedulers: names whose pods take their namespace's default queue."""
    rest = {
        "matchConstraints": _matching([*PODS, *TEMPLATED, *OURS]),
        "matchConditions": [{"name": "asks-anew", "expression": _ASKS_ANEW}],
    }
    return [each for kind, *_ in _NAMES for each in _judging(f"fairlead-{kind.lower()}-users", kind, schedulers, rest)]


def default_queues(release: str, schedulers: Sequence[str]) -> list[Manifest]:
    """The policy for queues that a further release has: of pods and templates with its schedulers, for their default queues."""
    conditions = [("of-its-schedulers", _OURS.format(listed(schedulers))), ("asks-anew", _ASKS_ANEW)]
    rest = {"matchConstraints": _matching([*PODS, *TEMPLATED]), "matchConditions": [together(conditions)]}
    return _judging(f"{release}-queue-users", "Queue", schedulers, rest)


def _matching(resources: Resources) -> Manifest:
    return {"namespaceSelector": OUTSIDE_SYSTEM, "resourceRules": rules(resources, "CREATE", "UPDATE")}


def _judging(name: str, kind: str, schedulers: Sequence[str], rest: Manifest) -> list[Manifest]:
    """A policy by which each object of a kind judges what names it. rest: what is matched."""
    annotations = "variables.metadata.annotations"
    variables = [
        {"name": "metadata", "expression": pod_metadata("object")},
        {"name": "labels", "expression": "has(variables.metadata.labels) ? variables.metadata.labels : {}"},
        {
            "name": "user",
            "expression": f"has({annotations}) && '{_STAMP}' in {annotations} ? {annotations}['{_STAMP}'] : request.namespace",
        },
        {"name": "around", "expression": "has(namespaceObject.metadata.labels) ? namespaceObject.metadata.labels : {}"},
        {"name": "selector", "expression": _SELECTOR},
        {"name": "users", "expression": "!has(params.spec.users) || variables.user in params.spec.users"},
    ]
    default_label = names.DEFAULT_QUEUE_LABEL
    default = f"('{default_label}' in variables.around ? variables.around['{default_label}'] : '')"
    asks_class = _named("object", "serviceClass", names.SERVICE_CLASS_LABEL, "''")
    # What belongs to a gang or to another object may have its class from there; that is asked itself, or by the scheduler.
    member = (
        f"{listed((names.POD_GROUP_LABEL, *GANG_LABELS))}.exists(l, l in variables.labels) || "
        "has(object.metadata.ownerReferences) || has(object.spec.schedulingGroup)"
    )
    classes = {
        "expression": "variables.named != params.metadata.name || !has(params.spec.serviceClasses) || "
        f"({asks_class}) in params.spec.serviceClasses || (({asks_class}) == '' && ({member} || object.kind == 'AIJob'))",
        "messageExpression": f"'queue ' + params.metadata.name + ' does not admit ServiceClass \"' + ({asks_class}) + '\"'",
        "reason": "Forbidden",
    }
    [(field, label)] = [(field, label) for each, field, label in _NAMES if each == kind]
    otherwise = f"({_OURS.format(listed(schedulers))} ? {default} : '')" if kind == "Queue" else "''"
    named = _named("object", field, label, otherwise)
    others = "variables.named != params.metadata.name"
    barred = f"may not use {'queue' if kind == 'Queue' else 'ServiceClass'} ' + params.metadata.name"
    spec = {
        "paramKind": {"apiVersion": names.API_VERSION, "kind": kind},
        **rest,
        "variables": [*variables, {"name": "named", "expression": named}],
        "validations": [
            refusal(f"{others} || variables.selector", f"'namespace ' + request.namespace + ' {barred}", computed=True),
            refusal(f"{others} || variables.users", f"'user ' + variables.user + ' {barred}", computed=True),
            *([classes] if kind == "Queue" else []),
        ],
    }
    return [policy(name, spec), binding(name, {"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}})]


def _named(what: str, field: str, label: str, otherwise: str) -> str:
    labels = f"{pod_metadata(what)}.labels"
    given = f"{what}.spec.{field}"
    return f"has({given}) ? {given} : (has({labels}) && '{label}' in {labels} ? {labels}['{label}'] : {otherwise})"


def _now_and_before(field: str, label: str) -> str:
    def plain(what: str) -> str:
        return f"(has({what}.spec.{field}) ? {what}.spec.{field} : {entry(pod_metadata(what), 'labels', label)})"

    return f"{plain('object')} != {plain('oldObject')}"


# What was admitted stays admitted: an update is asked only where it names another queue or class.
_ASKS_ANEW = "request.operation == 'CREATE' || " + " || ".join(_now_and_before(field, label) for _, field, label in _NAMES)
_OURS = (
    "(has(object.spec.template) && has(object.spec.template.spec) && has(object.spec.template.spec.schedulerName) ? "
    "object.spec.template.spec.schedulerName : has(object.spec.schedulerName) ? object.spec.schedulerName : '') in {}"
)
_ONE_RULE = (
    "(r.operator == 'In' && r.key in variables.around && variables.around[r.key] in r.values) || "
    "(r.operator == 'NotIn' && !(r.key in variables.around && variables.around[r.key] in r.values)) || "
    "(r.operator == 'Exists' && r.key in variables.around) || "
    "(r.operator == 'DoesNotExist' && !(r.key in variables.around))"
)
_GIVEN = "params.spec.namespaceSelector"
_SELECTOR = (
    f"!has({_GIVEN}) || "
    f"((!has({_GIVEN}.matchLabels) || "
    f"{_GIVEN}.matchLabels.all(k, k in variables.around && variables.around[k] == {_GIVEN}.matchLabels[k])) && "
    f"(!has({_GIVEN}.matchExpressions) || {_GIVEN}.matchExpressions.all(r, {_ONE_RULE})))"
)

"""Spelling: the valid values of our annotations and labels on pods, exactly as the scheduler reads them; and durations in CEL."""

from __future__ import annotations

from fairlead.api import names, spans
from fairlead.api.policies.objects import (
    CRON_JOBS,
    POD_TEMPLATES,
    PODS,
    TEMPLATED,
    Manifest,
    quoted,
    rules,
    validating,
)

# Quantities are read as the scheduler reads them, but for exponents of more than two digits: on 1e999999999 Kubernetes' own
# parser computes for minutes, so such a text must not reach it.
_QUANTITY = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?$"
_SPAN = r"^([0-9]+([.][0-9]+)?(ms|s|m|h|d))+$"


def is_span(text: str) -> str:
    """CEL: a text is a span of at most a century."""
    return f"(size({text}) <= 100 && {text}.matches({quoted(_SPAN)}) && {spans.in_cel(text)} <= {spans.LONGEST})"


def _is_fraction(text: str) -> str:
    read = f"quantity({text})"
    between = f"{read}.compareTo(quantity('0')) > 0 && {read}.compareTo(quantity('1')) < 0"
    return f"(size({text}) <= 64 && {text}.matches({quoted(_QUANTITY)}) && isQuantity({text}) && {between})"


_MEANINGS = (
    ("annotations", names.GPU_FRACTION_ANNOTATION, _is_fraction("v"), "a GPU fraction between 0 and 1, such as 0.5"),
    ("annotations", names.TIME_LIMIT_ANNOTATION, is_span("v"), "a duration such as 90s, 30m, 24h or 7d"),
    ("annotations", names.EXPECTED_DURATION_ANNOTATION, is_span("v"), "a duration such as 90s, 30m, 24h or 7d"),
    ("labels", names.ELASTIC_REPLICA_LABEL, "v in ['true', 'false']", "true or false"),
)


def spelling() -> list[Manifest]:
    """Pods and pod templates. A value of an older object stays valid until it is changed."""
    kinds = (
        ("fairlead-spelling", [*PODS, *TEMPLATED], _pod_metadata),
        ("fairlead-spelling-cronjobs", CRON_JOBS, lambda what: _template(f"{what}.spec.jobTemplate.spec.template")),
        ("fairlead-spelling-podtemplates", POD_TEMPLATES, lambda what: _template(f"{what}.template")),
        ("fairlead-spelling-aijobs", [(names.GROUP, ["aijobs"])], _roles),
    )
    made: list[Manifest] = []
    for name, resources, metadata in kinds:
        variables = [("all", metadata("object")), ("before", f"request.operation == 'CREATE' ? [] : {metadata('oldObject')}")]
        validations = []
        for i, (field, key, meaning, described) in enumerate(_MEANINGS):
            variables += [(f"v{i}", _values("all", field, key)), (f"before{i}", _values("before", field, key))]
            kind = field.removesuffix("s")
            message = f"'{kind} {key}: \"' + variables.v{i}.map(v, string(v)).join('\", \"') + '\" is not {described}'"
            expression = f"variables.v{i} == variables.before{i} || variables.v{i}.all(v, type(v) == string && {meaning})"
            validations.append({"expression": expression, "messageExpression": message, "reason": "Invalid"})
        uses = f"({metadata('object')}).exists(m, {' || '.join(_has_key(field, key) for field, key, *_ in _MEANINGS)})"
        conditions = [("uses-our-keys", uses)]
        made += validating(name, rules(resources, "CREATE", "UPDATE"), validations, conditions=conditions, variables=variables)
    return made


def _values(of: str, field: str, key: str) -> str:
    return f"variables.{of}.filter(m, {_has_key(field, key)}).map(m, dyn(m.{field}[{quoted(key)}]))"


def _has_key(field: str, key: str) -> str:
    return f"(has(m.{field}) && type(m.{field}) == map && {quoted(key)} in m.{field})"


def _pod_metadata(what: str) -> str:
    template = f"{what}.spec.template"
    return f"[dyn({what}.metadata)] + (has({template}) && has({template}.metadata) ? [dyn({template}.metadata)] : [])"


def _template(template: str) -> str:
    return f"(has({template}) && has({template}.metadata) ? [dyn({template}.metadata)] : [])"


def _roles(what: str) -> str:
    with_metadata = "type(r.template) == map && 'metadata' in r.template && type(r.template.metadata) == map"
    return f"{what}.spec.roles.filter(r, {with_metadata}).map(r, dyn(r.template.metadata))"

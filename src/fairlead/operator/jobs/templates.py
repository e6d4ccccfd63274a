"""What is wrong with an AIJob that the definition lets through: pod templates are free of a schema, and amounts have bounds.

An invalid job waits with condition `Accepted=False`, which names the invalid field, and is reconciled again when it changes.
Problems that only the API server knows show when the pod is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlead.api.kinds.ai_job import AIJob
from fairlead.operator.jobs.members import bounds

FORBIDDEN = frozenset({"kube-system", "kube-public", "kube-node-lease"})
"""Namespaces in which no policy checks what users create: the operator makes no pods there for any user."""

MAX_MEMBERS = 10_000
"""Members of a job, or of an element of its array, where nothing else is set."""


def problem(job: AIJob, max_members: int = MAX_MEMBERS) -> tuple[str, str]:
    """(reason, message) of what keeps a job from being made; two empty texts: nothing does."""
    namespace = job.metadata.namespace
    if namespace in FORBIDDEN:
        return "NamespaceNotAllowed", f"no jobs run in namespace {namespace}: it belongs to the cluster. Use another namespace"
    members = sum(bounds(role)[1] for role in job.spec.roles)
    if members > max_members:
        return (
            "TooManyMembers",
            f"it may have {members} members; at most {max_members} are allowed: lower replicas or maxReplicas",
        )
    names = [role.name for role in job.spec.roles]
    for name in names:
        if names.count(name) > 1:
            return "InvalidSpec", f"role {name!r} occurs {names.count(name)} times: give each role a different name"
    for role in job.spec.roles:
        wrong = _template(role.template)
        if wrong:
            return "InvalidTemplate", f"role {role.name!r}: template.{wrong}"
    return "", ""


def _template(template: Mapping[str, Any]) -> str:
    metadata, spec = template.get("metadata"), template.get("spec")
    if not _maybe(metadata, dict):
        return f"metadata is {_shown(metadata)}, not an object"
    for part in ("labels", "annotations"):
        texts = (metadata or {}).get(part)
        if not _maybe(texts, dict) or any(not isinstance(each, str) for each in (texts or {}).values()):
            return f"metadata.{part} is {_shown(texts)}, not texts by name"
    if not isinstance(spec, dict):
        return f"spec is {_shown(spec)}, not an object with containers"
    return _spec(spec)


def _spec(spec: Mapping[str, Any]) -> str:
    if not spec.get("containers"):
        return "spec.containers is empty: a pod has at least one"
    for part in ("containers", "initContainers"):
        wrong = _objects(spec, part)
        if wrong:
            return f"spec.{wrong}"
        for place, container in enumerate(spec.get(part) or ()):
            wrong = _container(container)
            if wrong:
                return f"spec.{part}[{place}].{wrong}"
    return _affinity(spec) or _list(spec, "topologySpreadConstraints")


def _container(container: Mapping[str, Any]) -> str:
    wrong = _objects(container, "env")
    if wrong:
        return wrong
    for place, each in enumerate(container.get("env") or ()):
        if not isinstance(each.get("name"), str):
            return f"env[{place}].name is {_shown(each.get('name'))}, not a text"
    resources = container.get("resources")
    if not _maybe(resources, dict):
        return f"resources is {_shown(resources)}, not an object"
    return ""


def _affinity(spec: Mapping[str, Any]) -> str:  # noqa: PLR0911 - the first mistake
    path, found = "spec", spec
    for step in ("affinity", "nodeAffinity"):
        given = found.get(step)
        path = f"{path}.{step}"
        if given is None:
            return f"{path} is null: leave it out" if step in found else ""
        if not isinstance(given, dict):
            return f"{path} is {_shown(given)}, not an object"
        found = given
    preferred = _objects(found, "preferredDuringSchedulingIgnoredDuringExecution")
    if preferred:
        return f"{path}.{preferred}"
    required = found.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    path += ".requiredDuringSchedulingIgnoredDuringExecution"
    if not isinstance(required, dict):
        return f"{path} is {_shown(required)}, not an object"
    wrong = _objects(required, "nodeSelectorTerms")
    if wrong:
        return f"{path}.{wrong}"
    for place, term in enumerate(required.get("nodeSelectorTerms") or ()):
        wrong = _objects(term, "matchExpressions")
        if wrong:
            return f"{path}.nodeSelectorTerms[{place}].{wrong}"
    return ""


def _objects(within: Mapping[str, Any], name: str) -> str:
    """What is wrong with a list of objects; empty: nothing."""
    found = within.get(name)
    if name in within and found is None and name not in ("initContainers", "env"):
        return f"{name} is null: leave it out"
    if not _maybe(found, list):
        return f"{name} is {_shown(found)}, not a list"
    for place, each in enumerate(found or ()):
        if not isinstance(each, dict):
            return f"{name}[{place}] is {_shown(each)}, not an object"
    return ""


def _list(spec: Mapping[str, Any], name: str) -> str:
    return "" if _maybe(spec.get(name), list) else f"spec.{name} is {_shown(spec.get(name))}, not a list"


def _maybe(value: object, kind: type) -> bool:
    return value is None or isinstance(value, kind)


def _shown(value: object) -> str:
    return "not there" if value is None else f"{str(value)[:40]!r}"

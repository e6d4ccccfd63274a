"""ValidatingAdmissionPolicies in CEL, as far as policies like Fairlead's own need them.

Understood: resource rules with operations, match conditions, a parameter by name, validations with
message and reason. Not: namespace selectors, variables, audit annotations, authorizer checks.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from fairlead.cluster.simulated.errors import StatusError, forbidden
from fairlead.cluster.simulated.resources import Catalog, Resource
from fairlead.cluster.simulated.rules import evaluated
from fairlead.cluster.simulated.store import Object, Store

_POLICIES = "admissionregistration.k8s.io/validatingadmissionpolicies"
_BINDINGS = "admissionregistration.k8s.io/validatingadmissionpolicybindings"
_CODES = {"Forbidden": 403, "Invalid": 422, "Unauthorized": 401, "RequestEntityTooLarge": 413}


class Request:
    """What is to be admitted."""

    __slots__ = ("before", "name", "namespace", "object", "operation", "resource", "subresource", "user")

    def __init__(
        self,
        resource: Resource,
        operation: str,
        namespace: str,
        name: str,
        obj: Object | None,
        before: Object | None = None,
        *,
        subresource: str = "",
    ) -> None:
        self.resource = resource
        self.operation = operation
        self.namespace = namespace
        self.name = name
        self.object = obj
        self.before = before
        self.subresource = subresource
        self.user = "kubernetes-admin"


Mentioned = dict[str, "Mentioned"]
"""The members of a value that an expression speaks of, and theirs; empty: the whole value."""


@lru_cache(maxsize=1024)
def mentioned(expression: str, variable: str) -> Mentioned | None:
    """Which members of a variable an expression may read; None: it does not mention the variable."""
    tree: Mentioned | None = None
    for path, then in re.findall(rf"(?<![\w.]){variable}\b((?:\.\w+)*)(\(?)", expression):
        steps = path.split(".")[1:]
        if then:
            steps = steps[:-1]  # a function's name
        if tree is None:
            tree = at = {}
        elif not tree:
            return tree
        else:
            at = tree
        for step in steps:
            if step in at and not at[step]:
                break  # the whole of it already
            at = at.setdefault(step, {})
        else:
            at.clear()
    return tree


def _narrowed(value: Any, members: Mentioned) -> Any:
    if not members or not isinstance(value, dict):
        return value
    return {name: _narrowed(value[name], below) for name, below in members.items() if name in value}


def admit(store: Store, catalog: Catalog, request: Request) -> None:
    """Raise `StatusError` if a policy denies the request."""
    if not store.count(_BINDINGS):
        return
    for _, record in store.sorted(_BINDINGS):
        binding = record.object["spec"]
        found = store.get(_POLICIES, ("", binding.get("policyName", "")))
        if found is None or "Deny" not in binding.get("validationActions", ()):
            continue
        policy = found.object["spec"]
        if any(_matches(rule, request) for rule in policy.get("matchConstraints", {}).get("resourceRules", ())):
            _judge(store, catalog, policy, binding, record.object["metadata"]["name"], request)


def _matches(rule: Object, request: Request) -> bool:
    resource = request.resource
    path = f"{resource.plural}/{request.subresource}" if request.subresource else resource.plural
    return (
        any(group in ("*", resource.group) for group in rule.get("apiGroups", ()))
        and any(operation in ("*", request.operation) for operation in rule.get("operations", ()))
        and any(each in ("*", path, f"*/{request.subresource}") for each in rule.get("resources", ()))
    )


def _judge(store: Store, catalog: Catalog, policy: Object, binding: Object, bound_as: str, request: Request) -> None:
    context: dict[str, Any] = {
        "object": request.object,
        "oldObject": request.before,
        "request": {
            "operation": request.operation,
            "name": request.name,
            "namespace": request.namespace,
            "userInfo": {"username": request.user},
        },
    }
    for condition in policy.get("matchConditions", ()):
        if not _evaluate(condition["expression"], context, policy, request):
            return
    if policy.get("paramKind"):
        context["params"] = _parameter(store, catalog, policy["paramKind"], binding.get("paramRef") or {})
        if context["params"] is None:
            if (binding.get("paramRef") or {}).get("parameterNotFoundAction") == "Allow":
                return
            raise _denied(request, binding, bound_as, "no params found for policy binding", "Forbidden")
    for validation in policy.get("validations", ()):
        if not _evaluate(validation["expression"], context, policy, request):
            message = validation.get("message") or f"failed expression: {validation['expression']}"
            if validation.get("messageExpression"):
                message = str(evaluated(validation["messageExpression"], context))
            raise _denied(request, binding, bound_as, message, validation.get("reason", "Invalid"))


def _evaluate(expression: str, context: dict[str, Any], policy: Object, request: Request) -> bool:
    # Turning objects into CEL's costs more than most expressions: only what it speaks of is.
    spoken = ((name, value, mentioned(expression, name)) for name, value in context.items())
    seen = {name: _narrowed(value, members) for name, value, members in spoken if members is not None}
    try:
        return bool(evaluated(expression, seen))
    except Exception as error:
        if policy.get("failurePolicy") == "Ignore":
            return True
        resource = request.resource
        raise forbidden(
            resource.group, resource.plural, request.name, f"expression '{expression}' resulted in error: {error}"
        ) from error


def _parameter(store: Store, catalog: Catalog, kind: Object, reference: Object) -> Object | None:
    resource = catalog.of_kind(kind["apiVersion"], kind["kind"])
    if resource is None:
        return None
    record = store.get(resource.table, (reference.get("namespace", "") if resource.namespaced else "", reference.get("name", "")))
    return record.object if record else None


def _denied(request: Request, binding: Object, bound_as: str, message: str, reason: str) -> StatusError:
    detail = f"ValidatingAdmissionPolicy '{binding['policyName']}' with binding '{bound_as}' denied request: {message}"
    resource = request.resource
    error = forbidden(resource.group, resource.plural, request.name, detail)
    return StatusError(_CODES.get(reason, 422), reason, error.message, error.details)

"""Admission policies in CEL, which the API server enforces without asking anybody.

- fencing: a binding of a scheduler that lost its lease is refused (docs/architecture.md);
- identity: whoever creates a workload is stamped on it and on the pods it makes, and nobody changes that stamp;
- admission: a queue or a class of service refuses namespaces and users that it does not admit.

Controllers pass on what the workload's template says: they are trusted not to invent it. Those of the control plane are known;
operators are named where the policies are printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.api import names

_REGISTRATION = "admissionregistration.k8s.io/v1"
_STAMP = names.USER_ANNOTATION
_SYSTEM_NAMESPACES = ["kube-system", "kube-public", "kube-node-lease"]
_ANYWHERE_ELSE = {
    "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": _SYSTEM_NAMESPACES}],
}
_WITH_TEMPLATE = [
    ("batch", ["jobs"]),
    ("apps", ["deployments", "replicasets", "statefulsets", "daemonsets"]),
]
_STAMPED = [
    ("", ["pods"]),
    *_WITH_TEMPLATE,
    ("batch", ["cronjobs"]),
    (names.GROUP, ["aijobs", "podgroups"]),
]
_USING = [("", ["pods"]), *_WITH_TEMPLATE, (names.GROUP, ["aijobs", "podgroups"])]


def policies(trusted: Sequence[str] = ()) -> list[dict[str, Any]]:
    """All policies and their bindings.

    trusted: users whose pods keep the stamp of their template, such as operators' accounts.
    """
    return [*fencing(), *_identity(trusted), *_admission()]


def _policy(name: str, spec: dict[str, Any], *, mutating: bool = False) -> dict[str, Any]:
    kind = "MutatingAdmissionPolicy" if mutating else "ValidatingAdmissionPolicy"
    return {"apiVersion": _REGISTRATION, "kind": kind, "metadata": {"name": name}, "spec": {"failurePolicy": "Fail", **spec}}


def _binding(name: str, spec: dict[str, Any] | None = None, *, mutating: bool = False) -> dict[str, Any]:
    kind = "MutatingAdmissionPolicyBinding" if mutating else "ValidatingAdmissionPolicyBinding"
    denies = {} if mutating else {"validationActions": ["Deny"]}
    given = {"policyName": name, **(spec or {}), **denies}
    return {"apiVersion": _REGISTRATION, "kind": kind, "metadata": {"name": name}, "spec": given}


def _rules(resources: list[tuple[str, list[str]]], *operations: str) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [group], "apiVersions": ["*"], "operations": list(operations), "resources": plurals}
        for group, plurals in resources
    ]


# -- fencing -----------------------------------------------------------------------------------


def fencing() -> list[dict[str, Any]]:
    """A binding that carries our epoch annotation is refused when its epoch is older than the Lease's `leaseTransitions`.

    Bindings of other schedulers carry none and are not touched.
    """
    epoch = f"object.metadata.annotations['{names.EPOCH_ANNOTATION}']"
    policy = _policy(
        "fairlead-fencing",
        {
            "paramKind": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
                ]
            },
            "matchConditions": [
                {
                    "name": "ours",
                    "expression": "has(object.metadata.annotations) && "
                    f"'{names.EPOCH_ANNOTATION}' in object.metadata.annotations",
                }
            ],
            "validations": [
                {
                    "expression": f"int({epoch}) >= params.spec.leaseTransitions",
                    "messageExpression": f"'stale scheduler: binding of epoch ' + {epoch} + ' after the lease moved on'",
                    "reason": "Forbidden",
                }
            ],
        },
    )
    lease = {"name": "fairlead-scheduler", "namespace": "kube-system", "parameterNotFoundAction": "Allow"}
    return [policy, _binding("fairlead-fencing", {"paramRef": lease})]


# -- identity ----------------------------------------------------------------------------------


def _identity(trusted: Sequence[str]) -> list[dict[str, Any]]:
    passes_on = _passes_on(trusted)
    on_root = {"name": "by-its-user", "expression": f"!({passes_on})"}
    stamped = f"has(object.metadata.annotations) && '{_STAMP}' in object.metadata.annotations"
    was_stamped = f"has(oldObject.metadata.annotations) && '{_STAMP}' in oldObject.metadata.annotations"
    stamp = f"Object.metadata{{annotations: {{'{_STAMP}': request.userInfo.username}}}}"
    # Whoever edits a workload does not become its user: the pods that it makes stay those of who created it.
    owner = f"(request.operation == 'CREATE' ? request.userInfo.username : oldObject.metadata.annotations['{_STAMP}'])"
    known = {"name": "known", "expression": f"request.operation == 'CREATE' || ({was_stamped})"}
    in_template = f"{{annotations: {{'{_STAMP}': {owner}}}}}"
    template = f"Object.spec.template{{metadata: Object.spec.template.metadata{in_template}}}"
    job = "Object.spec.jobTemplate"
    inner = f"{job}.spec.template{{metadata: {job}.spec.template.metadata{in_template}}}"
    cron = f"{job}{{metadata: {job}.metadata{in_template}, spec: {job}.spec{{template: {inner}}}}}"
    same = (
        f"(({stamped}) ? object.metadata.annotations['{_STAMP}'] : '') == "
        f"(({was_stamped}) ? oldObject.metadata.annotations['{_STAMP}'] : '')"
    )
    return [
        *_stamping("fairlead-user", f"Object{{metadata: {stamp}}}", _rules(_STAMPED, "CREATE"), [on_root]),
        *_stamping(
            "fairlead-user-templates",
            f"Object{{spec: Object.spec{{template: {template}}}}}",
            _rules(_WITH_TEMPLATE, "CREATE", "UPDATE"),
            [on_root, known],
        ),
        *_stamping(
            "fairlead-user-cronjobs",
            f"Object{{spec: Object.spec{{jobTemplate: {cron}}}}}",
            _rules([("batch", ["cronjobs"])], "CREATE", "UPDATE"),
            [on_root, known],
        ),
        _policy(
            "fairlead-user-immutable",
            {
                "matchConstraints": {"namespaceSelector": _ANYWHERE_ELSE, "resourceRules": _rules(_STAMPED, "UPDATE")},
                "matchConditions": [on_root],
                "validations": [
                    {
                        "expression": same,
                        "message": f"annotation {_STAMP} says who created the object and cannot be changed",
                        "reason": "Forbidden",
                    }
                ],
            },
        ),
        _binding("fairlead-user-immutable"),
    ]


def _stamping(name: str, expression: str, rules: list[dict[str, Any]], conditions: list[dict[str, str]]) -> list[dict[str, Any]]:
    spec = {
        "reinvocationPolicy": "Never",
        "matchConstraints": {"namespaceSelector": _ANYWHERE_ELSE, "resourceRules": rules},
        "matchConditions": conditions,
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }
    return [_policy(name, spec, mutating=True), _binding(name, mutating=True)]


def _passes_on(trusted: Sequence[str]) -> str:
    """Whether a request comes from a controller, which passes on what a template says."""
    known = ["request.userInfo.username == 'system:kube-controller-manager'"]
    known.append("request.userInfo.username.startsWith('system:serviceaccount:kube-system:')")
    known += [f"request.userInfo.username == {_quoted(name)}" for name in trusted]
    return " || ".join(known)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# -- who may use what --------------------------------------------------------------------------


def _admission() -> list[dict[str, Any]]:
    """One policy for queues, one for classes; each object of the kind is a parameter and judges whoever names it."""
    metadata = (
        "(has(object.spec.template) && has(object.spec.template.metadata) ? object.spec.template.metadata : object.metadata)"
    )
    variables = [
        {"name": "metadata", "expression": metadata},
        {"name": "labels", "expression": "has(variables.metadata.labels) ? variables.metadata.labels : {}"},
        {"name": "annotations", "expression": "has(variables.metadata.annotations) ? variables.metadata.annotations : {}"},
        {
            "name": "user",
            "expression": f"'{_STAMP}' in variables.annotations ? variables.annotations['{_STAMP}'] : request.namespace",
        },
        {"name": "around", "expression": "has(namespaceObject.metadata.labels) ? namespaceObject.metadata.labels : {}"},
        {"name": "selector", "expression": _SELECTOR},
        {"name": "users", "expression": "!has(params.spec.users) || variables.user in params.spec.users"},
    ]
    made = []
    for kind, field, label in (
        ("Queue", "queue", names.QUEUE_LABEL),
        ("ServiceClass", "serviceClass", names.SERVICE_CLASS_LABEL),
    ):
        named = (
            f"has(object.spec.{field}) ? object.spec.{field} : ('{label}' in variables.labels ? variables.labels['{label}'] : '')"
        )
        if kind == "Queue":
            default = (
                f"('{names.DEFAULT_QUEUE_LABEL}' in variables.around ? variables.around['{names.DEFAULT_QUEUE_LABEL}'] : '')"
            )
            ours = _OURS.format(", ".join(f"'{name}'" for name in names.SCHEDULERS))
            named = named.removesuffix("'')") + f"({ours} ? {default} : ''))"
        others = "variables.named != params.metadata.name"
        name = f"fairlead-{kind.lower()}-users"
        barred = f"may not use {'queue' if kind == 'Queue' else 'class of service'} ' + params.metadata.name"
        made += [
            _policy(
                name,
                {
                    "paramKind": {"apiVersion": names.API_VERSION, "kind": kind},
                    "matchConstraints": {"namespaceSelector": _ANYWHERE_ELSE, "resourceRules": _rules(_USING, "CREATE")},
                    "variables": [*variables, {"name": "named", "expression": named}],
                    "validations": [
                        {
                            "expression": f"{others} || variables.selector",
                            "messageExpression": f"'namespace ' + request.namespace + ' {barred}",
                            "reason": "Forbidden",
                        },
                        {
                            "expression": f"{others} || variables.users",
                            "messageExpression": f"'user ' + variables.user + ' {barred}",
                            "reason": "Forbidden",
                        },
                    ],
                },
            ),
            _binding(name, {"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}}),
        ]
    return made


_OURS = (
    "(has(object.spec.template) && has(object.spec.template.spec) && has(object.spec.template.spec.schedulerName) ? "
    "object.spec.template.spec.schedulerName : has(object.spec.schedulerName) ? object.spec.schedulerName : '') in [{}]"
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

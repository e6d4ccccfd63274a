"""Policies, bindings and rules as plain objects, and what all policies ask of a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fairlead.api import names

Manifest = dict[str, Any]
Resources = Sequence[tuple[str, Sequence[str]]]
"""API groups and the plurals in them."""

SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")
OUTSIDE_SYSTEM = {
    "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(SYSTEM_NAMESPACES)}],
}
INSIDE_SYSTEM = {
    "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(SYSTEM_NAMESPACES)}],
}
PODS = [("", ["pods"])]
TEMPLATED = [
    ("batch", ["jobs"]),
    ("apps", ["deployments", "replicasets", "statefulsets", "daemonsets"]),
    ("", ["replicationcontrollers"]),
]
"""Kinds whose pod template is `spec.template`."""
CRON_JOBS = [("batch", ["cronjobs"])]
POD_TEMPLATES = [("", ["podtemplates"])]
GANG_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/group-index",
    "training.kubeflow.org/job-name",
    "ray.io/cluster",
)
"""Labels of controllers by which pods are a gang where none is named (fairlead.cluster.grouping)."""
OURS = [(names.GROUP, ["aijobs", "podgroups"])]
OTHERS = (
    "apps.kruise.io",
    "argoproj.io",
    "batch.volcano.sh",
    "flink.apache.org",
    "jobset.x-k8s.io",
    "keda.sh",
    "kubeflow.org",
    "leaderworkerset.x-k8s.io",
    "ray.io",
    "serving.knative.dev",
    "serving.kserve.io",
    "sparkoperator.k8s.io",
    "tekton.dev",
    "trainer.kubeflow.org",
    "workload.codeflare.dev",
)
"""Groups of kinds that have pods made: matched whole, so that kinds installed later are covered."""

_REGISTRATION = "admissionregistration.k8s.io/v1"


def policy(name: str, spec: Manifest, *, mutating: bool = False) -> Manifest:
    """A policy that refuses what it cannot evaluate."""
    kind = "MutatingAdmissionPolicy" if mutating else "ValidatingAdmissionPolicy"
    return {"apiVersion": _REGISTRATION, "kind": kind, "metadata": {"name": name}, "spec": {"failurePolicy": "Fail", **spec}}


def binding(name: str, spec: Manifest | None = None, *, mutating: bool = False) -> Manifest:
    """The binding that puts a policy of that name in force everywhere."""
    kind = "MutatingAdmissionPolicyBinding" if mutating else "ValidatingAdmissionPolicyBinding"
    denies = {} if mutating else {"validationActions": ["Deny"]}
    given = {"policyName": name, **(spec or {}), **denies}
    return {"apiVersion": _REGISTRATION, "kind": kind, "metadata": {"name": name}, "spec": given}


def validating(
    name: str,
    rules: Sequence[Manifest],
    validations: Sequence[Manifest],
    *,
    conditions: Sequence[tuple[str, str]] = (),
    variables: Sequence[tuple[str, str]] = (),
    namespaces: Manifest | None = OUTSIDE_SYSTEM,
) -> list[Manifest]:
    """A validating policy and its binding. namespaces: a label selector; None: every namespace, cluster-scoped objects too."""
    matched: Manifest = {"resourceRules": list(rules)}
    if namespaces is not None:
        matched["namespaceSelector"] = namespaces
    spec: Manifest = {"matchConstraints": matched}
    if conditions:
        spec["matchConditions"] = [together(conditions)]
    if variables:
        spec["variables"] = [{"name": name, "expression": expression} for name, expression in variables]
    spec["validations"] = list(validations)
    return [policy(name, spec), binding(name)]


def mutating(
    name: str,
    mutation: Manifest,
    rules: Sequence[Manifest],
    conditions: Sequence[tuple[str, str]],
    *,
    namespaces: Manifest = OUTSIDE_SYSTEM,
) -> list[Manifest]:
    """A mutating policy and its binding."""
    spec = {
        "reinvocationPolicy": "Never",
        "matchConstraints": {"namespaceSelector": namespaces, "resourceRules": list(rules)},
        "matchConditions": [together(conditions)],
        "mutations": [mutation],
    }
    return [policy(name, spec, mutating=True), binding(name, mutating=True)]


def together(conditions: Sequence[tuple[str, str]]) -> Manifest:
    """One match condition of several, of (name, CEL) each.

    The API server evaluates all match conditions of a policy, whatever the first yields; within one, a cheap part saves the rest.
    """
    return {
        "name": "-and-".join(name for name, _ in conditions)[:63].rstrip("-"),
        "expression": " && ".join(f"({expression})" for _, expression in conditions),
    }


def refusal(expression: str, message: str, *, computed: bool = False) -> Manifest:
    """A validation that refuses, as forbidden, what the expression is false for. computed: the message is CEL."""
    return {"expression": expression, "messageExpression" if computed else "message": message, "reason": "Forbidden"}


def rules(resources: Resources, *operations: str) -> list[Manifest]:
    """Resource rules of all versions."""
    return [
        {"apiGroups": [group], "apiVersions": ["*"], "operations": list(operations), "resources": list(plurals)}
        for group, plurals in resources
    ]


def whole(groups: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Every kind of these groups, without subresources."""
    return [(group, ["*"]) for group in groups]


def passes_on(trusted: Sequence[str]) -> str:
    """CEL: the request comes from a controller, which passes on the content of a template."""
    known = ["request.userInfo.username == 'system:kube-controller-manager'"]
    known.append("request.userInfo.username.startsWith('system:serviceaccount:kube-system:')")
    known += [f"request.userInfo.username == {quoted(name)}" for name in trusted]
    return " || ".join(known)


def listed(texts: Iterable[str]) -> str:
    """CEL: a list of strings."""
    return f"[{', '.join(quoted(text) for text in texts)}]"


def quoted(text: str) -> str:
    """CEL: a string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def entry(metadata: str, field: str, key: str) -> str:
    """CEL: a label or annotation of some metadata; empty where it is absent."""
    found = f"{metadata}.{field}"
    return f"(has({metadata}.{field}) && {quoted(key)} in {found} ? {found}[{quoted(key)}] : '')"


def pod_metadata(what: str) -> str:
    """CEL: the metadata of an object that is a pod, or of its `spec.template`; without a template, the object's own."""
    template = f"{what}.spec.template"
    return f"(has({template}) && has({template}.metadata) ? {template}.metadata : {what}.metadata)"

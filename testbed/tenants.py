"""Ordinary tenants on the real API server: `edit` in a namespace, all verbs on AIJobs and PodGroups, policies in force."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.api import policies
from testbed import objects
from testbed.controlplane import ControlPlane

Manifest = dict[str, Any]

_LIMIT = 30.0
_CANARY = "fairlead-canary"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SPECS = {"AIJob": {"roles": [{"name": "w", "template": {}}]}}  # of kinds of which policies touch only what has something in it
# What the aggregated role `edit` comes to; the aggregation itself is a controller's, which need not run here.
_EDIT = ("system:aggregate-to-edit", "system:aggregate-to-view")
_TENANT = "fairlead-tenant"
_MADE = (
    "/apis/batch/v1/cronjobs",
    "/apis/batch/v1/jobs",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/api/v1/replicationcontrollers",
    "/apis/fairlead.dev/v1alpha1/aijobs",
    "/apis/fairlead.dev/v1alpha1/podgroups",
    "/api/v1/podtemplates",
    "/api/v1/pods",
)


@dataclass(frozen=True)
class Tenant:
    """One user and the namespace that requests go to unless they name another."""

    plane: ControlPlane
    name: str
    namespace: str
    kubeconfig: Path

    def kubectl(self, *arguments: str, manifest: Manifest | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl as this user; the result holds `returncode`, `stdout`, `stderr`."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace, *arguments]
        text = None if manifest is None else json.dumps(manifest)
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)

    def create(self, manifest: Manifest, *arguments: str) -> str:
        """What the API server says against an object; empty: it was created."""
        return _refusal(self.kubectl("create", "-f", "-", *arguments, manifest=manifest))

    def patch(self, kind: str, name: str, change: Manifest, *arguments: str) -> str:
        """What the API server says against a merge patch; empty: it was taken."""
        return _refusal(self.kubectl("patch", kind, name, "--type", "merge", "-p", json.dumps(change), *arguments))

    def get(self, kind: str, name: str) -> Manifest:
        """An object of the namespace, as this user reads it."""
        found: Manifest = json.loads(self.kubectl("get", kind, name, "-o", "json").stdout)
        return found


def _refusal(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr or "refused without a word") if done.returncode else ""


def tenant(plane: ControlPlane, name: str, *namespaces: str) -> Tenant:
    """A user with `edit` and all verbs on AIJobs and PodGroups in namespaces that exist; the first is the default one."""
    rights = {"apiGroups": ["fairlead.dev"], "resources": ["aijobs", "podgroups"], "verbs": ["*"]}
    plane.ensure({**_rbac("ClusterRole", _TENANT), "rules": [rights]})
    subject = {"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    for namespace in namespaces:
        for role in (*_EDIT, _TENANT):
            binding = _rbac("RoleBinding", f"{name}-{role}".replace(":", "-"))
            binding["metadata"]["namespace"] = namespace
            reference = {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}
            plane.ensure({**binding, "subjects": [subject], "roleRef": reference})
    return Tenant(plane, name, namespaces[0], plane.user(f"tenant-{name}", name))


def namespace(plane: ControlPlane, name: str, labels: Mapping[str, str] | None = None) -> None:
    """A namespace with labels, unless it is there."""
    plane.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}})


def clear(plane: ControlPlane, namespace: str) -> None:
    """Delete what tenants made in a namespace."""
    gone = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    for path in _MADE:
        group, _, plural = path.rpartition("/")
        plane.request("DELETE", f"{group}/namespaces/{namespace}/{plural}", gone)


@contextmanager
def in_force(plane: ControlPlane, trusted: Sequence[str] = (), **options: Any) -> Iterator[None]:
    """The policies, installed and active; removed at the end.

    trusted: users who pass on stamps. options: as of `policies.policies`.
    """
    manifests = policies.policies(trusted, **options)
    try:
        for manifest in manifests:
            plane.request("POST", objects.path(manifest), manifest)
        await_active(plane)
        yield
    finally:
        for manifest in reversed(manifests):
            _remove(plane, manifest)


def await_active(plane: ControlPlane) -> None:
    """Return when the API server enforces every policy that was created before.

    Its policies of one kind become active in the order of their creation: the last one, a canary, tells that all are.
    """
    canaries = [*_canary(), *_canary(mutating=True)]
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _CANARY}}
    for manifest in canaries:
        plane.request("POST", objects.path(manifest), manifest)
    try:
        deadline = time.monotonic() + _LIMIT
        while not (_refused(plane, probe) and _mutated(plane, probe) and _known(plane)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"admission policies are not active after {_LIMIT:g} s")
            time.sleep(0.1)
    finally:
        for manifest in reversed(canaries):
            _remove(plane, manifest)


def _canary(*, mutating: bool = False) -> list[Manifest]:
    kind = "MutatingAdmissionPolicy" if mutating else "ValidatingAdmissionPolicy"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    wanted = f"object.metadata.name == '{_CANARY}-{'marked' if mutating else 'refused'}'"
    spec: Manifest = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "canary", "expression": wanted}],
    }
    if mutating:
        marked = "Object{metadata: Object.metadata{labels: {'canary': 'seen'}}}"
        spec["reinvocationPolicy"] = "Never"
        spec["mutations"] = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": marked}}]
    else:
        spec["validations"] = [{"expression": "false"}]
    binding: Manifest = {"policyName": _CANARY, **({} if mutating else {"validationActions": ["Deny"]})}
    version = "admissionregistration.k8s.io/v1"
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": _CANARY}, "spec": spec},
        {"apiVersion": version, "kind": f"{kind}Binding", "metadata": {"name": _CANARY}, "spec": binding},
    ]


def _refused(plane: ControlPlane, probe: Manifest) -> bool:
    try:
        _try_out(plane, probe, "refused")
    except urllib.error.HTTPError as error:
        if error.code == 422:
            return True
        raise
    return False


def _mutated(plane: ControlPlane, probe: Manifest) -> bool:
    return "canary" in (_try_out(plane, probe, "marked")["metadata"].get("labels") or {})


def _known(plane: ControlPlane) -> bool:
    """Whether mutating policies know all kinds yet: they ask for a kind's schema some seconds after it is served."""
    for each in plane.request("GET", _DEFINITIONS)["items"]:
        spec = each["spec"]
        where = "" if spec["scope"] == "Cluster" else "/namespaces/default"
        for version in (one["name"] for one in spec["versions"] if one["served"]):
            of, plural = f"{spec['group']}/{version}", spec["names"]["plural"]
            manifest = {"apiVersion": of, "kind": spec["names"]["kind"], "metadata": {"name": _CANARY}}
            try:
                plane.request(
                    "POST", f"/apis/{of}{where}/{plural}?dryRun=All", manifest | {"spec": _SPECS.get(manifest["kind"], {})}
                )
            except urllib.error.HTTPError as error:
                if error.code == 503:
                    return False
                if error.code not in (403, 404, 405, 422):
                    raise
    return True


def _try_out(plane: ControlPlane, probe: Manifest, what: str) -> Manifest:
    named = {**probe, "metadata": {"name": f"{_CANARY}-{what}"}}
    answer: Manifest = plane.request("POST", f"{objects.path(named)}?dryRun=All", named)
    return answer


def _rbac(kind: str, name: str) -> Manifest:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}}


def _remove(plane: ControlPlane, manifest: Manifest) -> None:
    try:
        plane.request("DELETE", f"{objects.path(manifest)}/{manifest['metadata']['name']}")
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise

"""Fencing: a binding of a scheduler that lost its lease is refused (docs/architecture.md)."""

from __future__ import annotations

from fairlead.api import names
from fairlead.api.policies.objects import Manifest, binding, entry, policy, quoted


def fencing(release: str = names.FIRST_RELEASE) -> list[Manifest]:
    """A binding that carries our epoch annotation is refused when its epoch is older than the Lease's `leaseTransitions`.

    Bindings of other schedulers carry none and are not touched, nor are those of another release, which name its Lease.
    """
    name = names.lease(release, "scheduler")
    epoch = f"object.metadata.annotations['{names.EPOCH_ANNOTATION}']"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    of_lease = f"{entry('object.metadata', 'annotations', names.LEASE_ANNOTATION)} == {quoted(name)}"
    if release == names.FIRST_RELEASE:  # which names none
        of_lease = f"!({quoted(names.LEASE_ANNOTATION)} in object.metadata.annotations) || {of_lease}"
    ours = f"has(object.metadata.annotations) && '{names.EPOCH_ANNOTATION}' in object.metadata.annotations && ({of_lease})"
    stale = {
        "expression": f"int({epoch}) >= params.spec.leaseTransitions",
        "messageExpression": f"'stale scheduler: binding of epoch ' + {epoch} + ' after the lease moved on'",
        "reason": "Forbidden",
    }
    spec = {
        "paramKind": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"},
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "ours", "expression": ours}],
        "validations": [stale],
    }
    lease = {"name": name, "namespace": "kube-system", "parameterNotFoundAction": "Allow"}
    return [policy(f"{release}-fencing", spec), binding(f"{release}-fencing", {"paramRef": lease})]

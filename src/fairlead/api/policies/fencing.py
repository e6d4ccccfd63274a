"""Fencing: a binding of a scheduler that lost its lease is refused (docs/architecture.md)."""

from __future__ import annotations

from fairlead.api import names
from fairlead.api.policies.objects import Manifest, binding, policy


def fencing() -> list[Manifest]:
    """A binding that carries our epoch annotation is refused when its epoch is older than the Lease's `leaseTransitions`.

    Bindings of other schedulers carry none and are not touched.
    """
    epoch = f"object.metadata.annotations['{names.EPOCH_ANNOTATION}']"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    ours = f"has(object.metadata.annotations) && '{names.EPOCH_ANNOTATION}' in object.metadata.annotations"
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
    lease = {"name": "fairlead-scheduler", "namespace": "kube-system", "parameterNotFoundAction": "Allow"}
    return [policy("fairlead-fencing", spec), binding("fairlead-fencing", {"paramRef": lease})]

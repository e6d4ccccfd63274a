"""Bounds: tenants order nodes only from an administrator's list, and nothing of theirs lies in the system namespaces."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api import names
from fairlead.api.policies.objects import (
    INSIDE_SYSTEM,
    OTHERS,
    OURS,
    Manifest,
    entry,
    listed,
    passes_on,
    rules,
    validating,
    whole,
)

_CLASS = names.PROVISIONING_CLASS_ANNOTATION


def bounds(trusted: Sequence[str], provisioning_classes: Sequence[str]) -> list[Manifest]:
    """provisioning_classes: those that tenants may name; none: no tenant orders nodes."""
    now, before = entry("object.metadata", "annotations", _CLASS), entry("oldObject.metadata", "annotations", _CLASS)
    anew = f"{now} != '' && (request.operation == 'CREATE' || {now} != {before})"
    allowed = ", ".join(provisioning_classes) or "none"
    message = f"'annotation {_CLASS}: ' + {now} + ' is not a class that tenants may name: {allowed}'"
    return [
        *validating(
            "fairlead-provisioning",
            rules([*OURS, ("batch", ["jobs"]), *whole(OTHERS)], "CREATE", "UPDATE"),
            [
                {
                    "expression": f"{now} in {listed(provisioning_classes)}",
                    "messageExpression": message.replace("\\", "\\\\"),
                    "reason": "Forbidden",
                }
            ],
            conditions=[("names-a-class", anew)],
        ),
        *validating(
            "fairlead-system-namespaces",
            rules(OURS, "CREATE"),
            [
                {
                    "expression": "false",
                    "messageExpression": "'AIJobs and PodGroups are not for namespace ' + request.namespace",
                    "reason": "Forbidden",
                }
            ],
            conditions=[("by-a-user", f"!({passes_on(trusted)})")],
            namespaces=INSIDE_SYSTEM,
        ),
    ]

"""Admission policies in CEL, which the API server enforces without a webhook; one module for each idea.

- fencing: a binding of a scheduler that lost its lease is refused;
- identity: who creates a workload is stamped on it and on the pods it makes, and that stamp cannot be forged;
- admission: a queue or a class of service refuses what it does not admit;
- spelling: annotations of ours are refused where the scheduler could not read them;
- belonging: what a unit was admitted with stays once it has a place;
- placement: GPU pods are placed by schedulers, with priorities that are for tenants;
- defaults: pods that name no scheduler get that of their namespace's label, where an administrator chooses so;
- bounds: nodes are ordered only from an administrator's list; nothing in the system namespaces.

Who is trusted with what, and what policies cannot see: docs/security.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.api import names
from fairlead.api.policies.admission import admission, default_queues
from fairlead.api.policies.belonging import belonging
from fairlead.api.policies.bounds import bounds
from fairlead.api.policies.defaults import defaults
from fairlead.api.policies.fencing import fencing
from fairlead.api.policies.identity import identity
from fairlead.api.policies.placement import placement, priorities
from fairlead.api.policies.spelling import spelling

__all__ = ["fencing", "of_release", "policies"]


def policies(
    trusted: Sequence[str] = (),
    *,
    provisioning_classes: Sequence[str] = (),
    require_scheduler: bool = False,
    schedulers: Sequence[str] = (),
    other_schedulers: Sequence[str] = (),
    namespace_defaults: bool = False,
) -> list[dict[str, Any]]:
    """All policies of the first release and their bindings: its own, and those of the cluster, which other releases need, too.

    trusted: users who make pods for others, such as operators' accounts. provisioning_classes: those that tenants may name.
    require_scheduler: pods that ask for GPUs must name one of `schedulers`, the names that ours answer to (empty: those of
    this process), or of other_schedulers, those of other releases. namespace_defaults: labels of namespaces name the scheduler
    of pods that name none.
    """
    schedulers = schedulers or tuple(names.SCHEDULERS)
    return [
        *fencing(),
        *identity(trusted),
        *admission(schedulers),
        *spelling(),
        *belonging(trusted),
        *placement(schedulers, other_schedulers, require_scheduler=require_scheduler),
        *bounds(trusted, provisioning_classes),
        *(defaults() if namespace_defaults else ()),
    ]


def of_release(release: str, schedulers: Sequence[str]) -> list[dict[str, Any]]:
    """The policies that each further release has of its own, under its name: of its Lease, and of pods of its schedulers."""
    return [*fencing(release), *default_queues(release, schedulers), *priorities(schedulers, release)]

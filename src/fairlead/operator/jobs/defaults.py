"""The defaults of a job's fields: by its workload type, and by its class of service.

The object stays as its user wrote it; what is filled in here is what the operator acts on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fairlead.api import spans
from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.service_class import ServiceClass, TimeLimit

ENDLESS = 2**31 - 1

RESTARTS: Mapping[str, int] = {"Training": 3, "Inference": ENDLESS, "Interactive": 0}
"""How often a job starts again for its own faults. Who sits before a session would rather know that it died."""


def restarts(job: AIJob) -> int:
    """How often it starts again for its own faults."""
    given = job.spec.restart.limit
    return RESTARTS[job.spec.workload_type] if given is None else given


def filled(job: AIJob, classes: Mapping[str, ServiceClass]) -> AIJob:
    """The job with everything that it leaves to its type and its class. classes: by name."""
    spec = job.spec
    name = spec.service_class or default_class(spec.workload_type, classes.values())
    found = classes.get(name or "")
    limit = found.spec.time_limit if found is not None else None
    return msgspec.structs.replace(
        job,
        spec=msgspec.structs.replace(
            spec,
            service_class=name,
            time_limit=_limited(spec.time_limit, limit),
            start_timeout=spec.start_timeout or (found.spec.start_timeout if found is not None else None),
            idle_duration=spec.idle_duration or (found.spec.idle_duration if found is not None else None),
            utilization_policy=spec.utilization_policy or (found.spec.utilization_policy if found is not None else None),
        ),
    )


def _limited(given: str | None, rule: TimeLimit | None) -> str | None:
    """The time limit in force: what was given, else the class's default, and never more than the class's maximum."""
    if rule is None:
        return given
    found = given or rule.default or rule.max
    return rule.max if found and rule.max and spans.seconds(found) > spans.seconds(rule.max) else found


def default_class(workload_type: str, classes: Iterable[ServiceClass]) -> str | None:
    """The class of jobs of a type that name none: the first by name that is a default for it and open to all users."""
    names = [
        each.metadata.name
        for each in classes
        if workload_type in each.spec.default_for and each.spec.users is None and each.spec.namespace_selector is None
    ]
    return min(names, default=None)

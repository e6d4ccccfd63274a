"""Kinds that an administrator describes (`fairlead.cluster.rules`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.cluster.rules import Rule, steps, values
from fairlead.operator.workloads.base import Manifest, Workload


def workload(rule: Rule) -> Workload:
    """A rule as the operator acts on it."""

    def gangs(manifest: Manifest) -> Mapping[str, int]:
        needed = rule.needed(manifest)
        return {rule.group(manifest["metadata"]["name"]): needed} if needed else {}

    def templates(manifest: Manifest) -> Iterable[Manifest]:
        return [{"spec": {"schedulerName": name}} for path in rule.scheduler_names for name in values(manifest, steps(path))]

    return Workload(
        rule.api_version,
        rule.kind,
        rule.plural,
        suspend_at=tuple(steps(rule.suspend.path)) if rule.suspend is not None else (),
        suspended=rule.suspend.suspended if rule.suspend is not None else True,
        resumed=rule.suspend.resumed if rule.suspend is not None else False,
        gangs=gangs if rule.gang is not None else None,
        templates=templates,
        all_ours=not rule.scheduler_names,
    )

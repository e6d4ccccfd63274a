"""Priority tiers: PriorityClasses, and a quota for each tier that only its own pods count against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_kubernetes as kubernetes
import yaml

from fairlead.pulumi import checks
from fairlead.pulumi.checks import InvalidArgument

_LOWEST, _HIGHEST = -(2**31), 10**9  # what lies above is the system's


@dataclass(frozen=True)
class Tier:
    """One PriorityClass.

    value: whole number from -2147483648 to 1000000000; the greater goes first. preempts: whether its pods may evict those
    of lower tiers. is_default: whether pods that name no class are of this one; at most one tier may be that.
    """

    name: str
    value: int
    description: str = ""
    preempts: bool = True
    is_default: bool = False


@dataclass(frozen=True)
class Quota:
    """What the pods of one tier may ask for together, in one namespace.

    cpu: cores (20, "500m"). memory: bytes ("100Gi"). gpus: whole devices. pods: how many. more: other resources of a
    ResourceQuota by name, such as `{"requests.ephemeral-storage": "1Ti"}`. gpu_resource: how the devices are called.
    """

    cpu: str | int | None = None
    memory: str | int | None = None
    gpus: int | None = None
    pods: int | None = None
    more: Mapping[str, str | int] = field(default_factory=dict)
    gpu_resource: str = "nvidia.com/gpu"

    def hard(self, tier: str) -> dict[str, str]:
        """As `ResourceQuota.spec.hard`. Raises InvalidArgument."""
        for what, count in (("gpus", self.gpus), ("pods", self.pods)):
            if count is not None:
                checks.whole(count, f"quota of {tier!r}: {what}", 0)
        given = {
            "cpu": self.cpu,
            "memory": self.memory,
            f"requests.{self.gpu_resource}": self.gpus,
            "pods": self.pods,
            **self.more,
        }
        hard = checks.amounts({key: value for key, value in given.items() if value is not None}, f"quota of {tier!r}: ")
        if not hard:
            raise InvalidArgument(f"the quota of {tier!r} limits nothing; give cpu, memory, gpus or pods, or leave the quota out")
        return hard


DEFAULT_TIERS = (
    Tier("high-priority", 1_000_000, "Production and deadlines: scheduled first."),
    Tier("medium-priority", 100_000, "Ordinary training."),
    Tier("low-priority", 10_000, "Work that can wait: uses free capacity and is preempted first."),
)
DEFAULT_QUOTAS: Mapping[str, Quota] = {"high-priority": Quota(cpu=20, memory="100Gi")}


class PriorityTiers(pulumi.ComponentResource):
    """A PriorityClass for each tier, and a ResourceQuota for each tier that has one.

    tiers: as such, or values by name; absent, high-priority (1000000), medium-priority (100000) and low-priority (10000), none
    of them the default of the cluster. quotas: by tier; absent with the tiers absent, 20 CPU and 100Gi for high-priority; absent
    with tiers given, none. namespace: where the quotas hold. create_namespace: False where it is there already. existing: names
    of PriorityClasses that are there already and that quotas may be for.

    A quota counts pods of its tier only, and does not keep a namespace without any quota from that tier: for this the API
    server must be configured (`admission_configuration`).

    Raises InvalidArgument: two tiers of one name or value, a value out of bounds, a quota for a class that is not there.
    """

    priority_class_names: pulumi.Output[dict[str, str]]
    """Tier -> name of its PriorityClass, once it exists."""
    quota_names: pulumi.Output[dict[str, str]]
    """Tier -> name of its ResourceQuota."""
    namespace: pulumi.Output[str]
    """Where the quotas hold."""

    def __init__(
        self,
        name: str = "priority-tiers",
        tiers: Sequence[Tier] | Mapping[str, int] | None = None,
        quotas: Mapping[str, Quota] | None = None,
        namespace: str = "ai-workloads",
        *,
        create_namespace: bool = True,
        existing: Sequence[str] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        if quotas is None:
            quotas = DEFAULT_QUOTAS if tiers is None else {}
        self.tiers = _as_tiers(DEFAULT_TIERS if tiers is None else tiers)
        _check(self.tiers, quotas, existing)
        checks.name(namespace, "namespace", 63)
        hard = {tier: quota.hard(tier) for tier, quota in quotas.items()}
        super().__init__("fairlead:index:PriorityTiers", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        classes = {tier.name: self._class(name, tier, inside) for tier in self.tiers}
        where: pulumi.Input[str] = namespace
        if hard and create_namespace:
            made = kubernetes.core.v1.Namespace(f"{name}-{namespace}", metadata={"name": namespace}, opts=inside)
            where = made.metadata.name
        made_quotas = {tier: self._quota(name, tier, each, where, classes.get(tier)) for tier, each in hard.items()}
        self.namespace = pulumi.Output.from_input(where)
        self.priority_class_names = pulumi.Output.all(**{tier: each.metadata.name for tier, each in classes.items()})
        self.quota_names = pulumi.Output.all(**{tier: each.metadata.name for tier, each in made_quotas.items()})
        self.register_outputs(
            {
                "priority_class_names": self.priority_class_names,
                "quota_names": self.quota_names,
                "namespace": self.namespace,
            }
        )

    def _class(self, name: str, tier: Tier, opts: pulumi.ResourceOptions) -> kubernetes.scheduling.v1.PriorityClass:
        return kubernetes.scheduling.v1.PriorityClass(
            f"{name}-{tier.name}",
            metadata={"name": tier.name},
            value=tier.value,
            global_default=tier.is_default,
            description=tier.description,
            preemption_policy="PreemptLowerPriority" if tier.preempts else "Never",
            opts=opts,
        )

    def _quota(
        self,
        name: str,
        tier: str,
        hard: dict[str, str],
        namespace: pulumi.Input[str],
        scope: kubernetes.scheduling.v1.PriorityClass | None,
    ) -> kubernetes.core.v1.ResourceQuota:
        return kubernetes.core.v1.ResourceQuota(
            f"{name}-{tier}-quota",
            metadata={"name": f"{tier}-quota", "namespace": namespace},
            spec={
                "hard": hard,
                "scope_selector": {
                    "match_expressions": [{"scope_name": "PriorityClass", "operator": "In", "values": [tier]}],
                },
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[scope] if scope is not None else None),
        )

    def admission_configuration(self, *tiers: str) -> str:
        """What `admission_configuration` gives for these tiers, by default for that with the highest value."""
        known = {tier.name for tier in self.tiers}
        for tier in tiers:
            if tier not in known:
                raise InvalidArgument(f"tier {tier!r} does not exist; tiers: {', '.join(sorted(known))}")
        return admission_configuration(*(tiers or [max(self.tiers, key=lambda tier: tier.value).name]))


def admission_configuration(*tiers: str) -> str:
    """YAML for kube-apiserver's `--admission-control-config-file`: pods of these classes need a quota that covers them.

    Without it a namespace that has no quota for a class uses that class as it likes: a quota only limits where there is one.
    """
    limited = {
        "resource": "pods",
        "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": list(tiers)}],
    }
    quota = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration", "limitedResources": [limited]}
    whole = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": "ResourceQuota", "configuration": quota}],
    }
    text: str = yaml.safe_dump(whole, sort_keys=False)
    return text


def _as_tiers(given: Sequence[Tier] | Mapping[str, int]) -> tuple[Tier, ...]:
    if isinstance(given, Mapping):
        return tuple(Tier(name, value) for name, value in given.items())
    for each in given:
        if not isinstance(each, Tier):
            raise InvalidArgument(f"tier {each!r} is not a tier; give Tier(name, value), or all of them as {{name: value}}")
    return tuple(given)


def _check(tiers: Sequence[Tier], quotas: Mapping[str, Quota], existing: Sequence[str]) -> None:
    if not tiers and not existing:
        raise InvalidArgument("there are no tiers; give at least one, or leave `tiers` out for the usual three")
    for tier in tiers:
        checks.name(tier.name, "tier")
        if tier.name.startswith("system-"):
            raise InvalidArgument(f"tier {tier.name!r}: names that begin with 'system-' are Kubernetes' own; choose another")
        checks.whole(tier.value, f"value of tier {tier.name!r}", _LOWEST, _HIGHEST)
    checks.unique((tier.name for tier in tiers), "tier")
    checks.unique((tier.value for tier in tiers), "value of two tiers")
    defaults = [tier.name for tier in tiers if tier.is_default]
    if len(defaults) > 1:
        raise InvalidArgument(f"{', '.join(defaults)} are all defaults of the cluster; only one tier can be")
    known = {*(tier.name for tier in tiers), *existing}
    for named in quotas:
        if named not in known:
            raise InvalidArgument(
                f"a quota is for {named!r}, which is not a tier ({', '.join(sorted(known))}); "
                "give the tier, or name the class in `existing`"
            )

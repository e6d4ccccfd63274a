"""The scheduler's configuration file: which names it answers to, by which profile, and how it runs.

One YAML document. Everything has a default, so the smallest file is its first two lines; what is not known is an error
that names its place. `fairlead scheduler --config-schema` prints the JSON Schema for editors.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

from fairlead.api import names
from fairlead.core.model.policy import Defragment, Policy
from fairlead.core.pods.scores import STRATEGIES
from fairlead.observability.addresses import wrong_address
from fairlead.scheduler.options import Options

API_VERSION = "config.fairlead.dev/v1alpha1"
KIND = "SchedulerConfiguration"

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]


def _is(description: str, **rules: Any) -> msgspec.Meta:
    """What a field means, as the schema and the reference have it."""
    return msgspec.Meta(description=description, **rules)


class ConfigurationError(ValueError):
    """A file that cannot be used: where, and what to do."""


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class Profile(_Section, frozen=True):
    """One scheduler name."""

    scheduler_name: Annotated[
        str,
        _is(
            "Pods with this `schedulerName` are scheduled by the profile.",
            pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_./]{0,251}[A-Za-z0-9])?$",
        ),
    ]
    profile: Annotated[
        Literal["ai", "kubernetes"], _is("Fairlead's scores and rules, or kube-scheduler's scores and preemption.")
    ]


class PerFreeGpu(_Section, frozen=True):
    """What pods without devices leave on a node for each of its free GPUs."""

    pods: Annotated[int, _is("Pod slots. 0: none.", ge=0, le=100)] = 1
    milli_cpu: Annotated[
        int, _is("Thousandths of a CPU, at most a quarter of the node's CPU per GPU. 0: none.", ge=0, le=1_000_000)
    ] = 1000


class Placement(_Section, frozen=True):
    """How profile `ai` places."""

    strategy: Annotated[str, _is("Placement strategy: `ai`, `binpack`, `spread` or `fgd`.")] = "ai"
    strategy_options: Annotated[dict[str, Any], _is("Options of the strategy.")] = {}
    head_blocks: Annotated[bool, _is("The first job of a queue that does not fit blocks all later jobs of the queue.")] = False
    preferred_topology_wait_seconds: Annotated[
        _NotNegative,
        _is(
            "How long a gang waits at most for as few domains of its preferred topology level as it needs, "
            "while other jobs go first. 0: it starts in more domains at once."
        ),
    ] = 0.0
    keep_per_free_gpu: PerFreeGpu = PerFreeGpu()


class Preemption(_Section, frozen=True):
    """Evictions for other pods."""

    enabled: Annotated[bool, _is("Whether pods are preempted at all. `preemption: false` is the same.")] = True
    budget_override_seconds: Annotated[
        _NotNegative,
        _is("After this wait work within its quota reclaims borrowed capacity against a PodDisruptionBudget. 0: never."),
    ] = 600.0
    victim_timeout_seconds: Annotated[_Positive, _is("How long victims are waited for beyond their grace period.")] = 120.0
    max_grace_seconds: Annotated[int, _is("No eviction gives a pod longer to end.", ge=1, le=86_400)] = 3600


class Retries(_Section, frozen=True):
    """When something is tried again."""

    backoff_seconds: Annotated[_Positive, _is("First wait after a refused write; it doubles.")] = 1.0
    backoff_limit_seconds: Annotated[_Positive, _is("Longest wait after a refused write.")] = 60.0
    search_backoff_limit_seconds: Annotated[
        _NotNegative, _is("Longest pause between two searches for victims that find none.")
    ] = 10.0
    gang_grace_seconds: Annotated[
        _NotNegative, _is("How long after its last fault a gang that is bound in part is completed before it is evicted.")
    ] = 60.0
    recheck_seconds: Annotated[
        _NotNegative,
        _is("Jobs whose constraints refer to other pods, or that others' fair shares hold back, are retried after it. 0: never."),
    ] = 300.0


class FairShare(_Section, frozen=True):
    """Shares among queues and users."""

    reclaim: Annotated[bool, _is("Queues below their fair share reclaim from queues above theirs.")] = True
    users: Annotated[bool, _is("Among equal jobs of a queue those of the user who holds least of it go first.")] = True
    share_wait_seconds: Annotated[
        _NotNegative,
        _is(
            "After this wait a job within the share of its queue is served although a queue that it reclaims from is left with "
            "less than its own, and no other job may pass the first job of a queue. 0: never."
        ),
    ] = 3600.0
    usage_half_life_seconds: Annotated[_NotNegative, _is("Half-life of past usage. 0: past usage does not count.")] = 0.0
    usage_weight: Annotated[_NotNegative, _is("How much past usage counts beside what is held now.")] = 1.0


class Backfill(_Section, frozen=True):
    """Nodes reserved for the first pending jobs."""

    reservations: Annotated[int, _is("For how many jobs nodes are reserved. 0: none.", ge=0, le=1000)] = 1
    patience_seconds: Annotated[_NotNegative, _is("How long a job waits before nodes are reserved for it.")] = 300.0


class Defragmentation(_Section, frozen=True):
    """Nodes with few pods are emptied although no job waits for it."""

    every_seconds: Annotated[_NotNegative, _is("Time from one to the next. 0: never.")] = 0.0
    between: Annotated[
        str,
        _is(
            "Hours of the UTC day, such as `02:00-05:00`. Empty: always.",
            pattern=r"^(([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d)?$",
        ),
    ] = ""
    moves: Annotated[int, _is("Maximum number of pods that are moved at a time.", ge=1, le=10_000)] = 20
    threshold: Annotated[float, _is("Only while at least this part of the free capacity is fragmented.", ge=0, le=1)] = 0.5

    def policy(self) -> Defragment | None:
        """As the core takes it."""
        if not self.every_seconds:
            return None
        begins, ends = (
            (60.0 * (int(text[:2]) * 60 + int(text[3:])) for text in self.between.split("-")) if self.between else (0.0, 0.0)
        )
        return Defragment(every=self.every_seconds, moves=self.moves, threshold=self.threshold, begins=begins, ends=ends)


class Consolidation(_Section, frozen=True):
    """Pods that are evicted only to run elsewhere, so that a waiting job fits."""

    moves_per_minute: Annotated[_NotNegative, _is("Maximum number of moved pods. 0: none.")] = 20.0
    patience_seconds: Annotated[_NotNegative, _is("How long a job waits before pods are moved for it.")] = 60.0
    defragmentation: Defragmentation = Defragmentation()


class GpuPart(_Section, frozen=True, kw_only=True):
    """A resource that counts as a part of a GPU, where its name and the node's labels do not show which."""

    resource: Annotated[
        str, _is("Resource of a device plugin, such as `nvidia.com/mig-1g.24gb`.", pattern=r"^nvidia\.com/[-A-Za-z0-9_.]{1,63}$")
    ]
    product: Annotated[str, _is("Only on nodes with this label `nvidia.com/gpu.product`. Empty: on all.", max_length=63)] = ""
    part: Annotated[
        str,
        _is(
            "Part of a GPU that one of it is: a fraction such as `1/7`, or a decimal number such as `0.25`; above 0, at most 1.",
            pattern=r"^([0-9]{1,3}/[0-9]{1,4}|[01](\.[0-9]{1,6})?)$",
        ),
    ]

    def milli(self) -> int:
        """In thousandths, rounded down; at least 1. Raises `ZeroDivisionError`."""
        return max(1, int(Fraction(self.part) * 1000))


class GpuSharing(_Section, frozen=True):
    """Fractions of GPUs, and what counts as one."""

    agents: Annotated[
        list[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")]],
        _is(
            "What nodes may name in their label `fairlead.dev/gpu-sharing`: agents that run there and give pods their part of a "
            "device. Default: `fairlead-agent`, which is `fairlead agent`."
        ),
    ] = msgspec.field(default_factory=lambda: sorted(names.DEFAULT_SHARING_AGENTS))
    parts: Annotated[
        list[GpuPart],
        _is(
            "Resources that count as parts of a GPU in quotas, shares and costs, beside those whose names and nodes' labels show "
            "it: partitions (MIG) of known models, and replicas."
        ),
    ] = []

    def table(self) -> tuple[tuple[str, str, int], ...]:
        """The parts as the core has them: (resource, product or empty, thousandths)."""
        return tuple(sorted((each.resource, each.product, each.milli()) for each in self.parts))


class LeaderElection(_Section, frozen=True):
    """The Lease by which one of several schedulers leads."""

    enabled: Annotated[bool, _is("Whether a Lease is needed.")] = True
    duration_seconds: Annotated[_Positive, _is("After this time without a renewal another process may take the Lease.")] = 15.0
    renew_seconds: Annotated[_Positive, _is("A leader that could not renew the Lease for this long ends.")] = 10.0
    retry_seconds: Annotated[_Positive, _is("Time from one attempt to the next.")] = 2.0


class Configuration(_Section, frozen=True):
    """The whole file."""

    api_version: Literal["config.fairlead.dev/v1alpha1"]
    kind: Literal["SchedulerConfiguration"]
    name: Annotated[
        str,
        _is(
            "Name of the release of Fairlead, where several run in one cluster: of its Leases `NAME-scheduler` and "
            "`NAME-operator`. Only the release `fairlead` serves queues that name no scheduler.",
            pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$",
        ),
    ] = names.FIRST_RELEASE
    profiles: Annotated[
        list[Profile], _is("Scheduler names and their profiles. Default: `fairlead` and `fairlead-kubernetes`.", min_length=1)
    ] = msgspec.field(
        default_factory=lambda: [
            Profile(scheduler_name=name, profile=profile)  # type: ignore[arg-type]
            for name, profile in names.DEFAULT_SCHEDULERS.items()
        ]
    )
    placement: Placement = Placement()
    preemption: bool | Preemption = Preemption()
    fair_share: FairShare = FairShare()
    backfill: Backfill = Backfill()
    consolidation: Consolidation = Consolidation()
    retries: Retries = Retries()
    leader_election: LeaderElection = LeaderElection()
    gpu_sharing: GpuSharing = GpuSharing()
    charge_foreign_pods: Annotated[bool, _is("Pods of other schedulers are charged to the default queue of their namespace.")] = (
        False
    )
    events: Annotated[bool, _is("Whether Kubernetes events are written.")] = True
    address: Annotated[str, _is("Where metrics and health are served.")] = "127.0.0.1:10259"
    visibility_address: Annotated[str, _is("Where `visibility.fairlead.dev` is served. Empty: nowhere.")] = ""
    external_metrics_address: Annotated[str, _is("Where `external.metrics.k8s.io` is served. Empty: nowhere.")] = ""
    writers: Annotated[int, _is("Maximum number of write requests at a time.", ge=1, le=4096)] = 256

    def options(self) -> Options:
        """How to run, as the scheduler takes it."""
        preemption = self.preemption if isinstance(self.preemption, Preemption) else Preemption(enabled=self.preemption)
        policy = Policy(
            strategy=self.placement.strategy,
            strategy_options=self.placement.strategy_options,
            gpu_parts=self.gpu_sharing.table(),
            head_blocks=self.placement.head_blocks,
            preferred_wait=self.placement.preferred_topology_wait_seconds,
            pods_per_free_gpu=self.placement.keep_per_free_gpu.pods,
            cpu_per_free_gpu=self.placement.keep_per_free_gpu.milli_cpu,
            charge_foreign=self.charge_foreign_pods,
            preempt=preemption.enabled,
            budget_override=preemption.budget_override_seconds,
            victim_timeout=preemption.victim_timeout_seconds,
            max_grace=preemption.max_grace_seconds,
            reclaim=self.fair_share.reclaim,
            fair_users=self.fair_share.users,
            share_wait=self.fair_share.share_wait_seconds,
            usage_half_life=self.fair_share.usage_half_life_seconds,
            usage_weight=self.fair_share.usage_weight,
            reservations=self.backfill.reservations,
            patience=self.backfill.patience_seconds,
            moves_per_minute=self.consolidation.moves_per_minute,
            move_patience=self.consolidation.patience_seconds,
            defragment=self.consolidation.defragmentation.policy(),
            gang_grace=self.retries.gang_grace_seconds,
            backoff=self.retries.backoff_seconds,
            backoff_limit=self.retries.backoff_limit_seconds,
            search_backoff_limit=self.retries.search_backoff_limit_seconds,
            recheck=self.retries.recheck_seconds,
        )
        election = self.leader_election
        return Options(
            policy=policy,
            schedulers={each.scheduler_name: each.profile for each in self.profiles},
            release=self.name,
            leader_elect=election.enabled,
            lease_duration=election.duration_seconds,
            lease_renew=election.renew_seconds,
            lease_retry=election.retry_seconds,
            events=self.events,
            address=self.address,
            visibility=self.visibility_address,
            external_metrics=self.external_metrics_address,
            writers=self.writers,
        )


def adopt(configuration: Configuration) -> None:
    """What all parts of a process know of it from now on: the scheduler names, the release, how GPUs are shared."""
    names.answer_to({each.scheduler_name: each.profile for each in configuration.profiles}, configuration.name)
    names.share_by(configuration.gpu_sharing.agents)
    names.count_parts(configuration.gpu_sharing.table())


def default() -> Configuration:
    """The configuration without a file."""
    return Configuration(api_version="config.fairlead.dev/v1alpha1", kind="SchedulerConfiguration")


def schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    return msgspec.json.schema(Configuration)


class _Loader(yaml.SafeLoader):
    """YAML in which no mapping has a key twice: of two, PyYAML takes the last without a word."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.composer.ComposerError(None, None, f"key {key.value!r} is there twice", key.start_mark)
                seen.add(key.value)
        return node


def load(text: str) -> Any:
    """The one document of a YAML file in which nothing is given twice. Raises `yaml.YAMLError`."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader


def read(path: Path) -> Configuration:
    """The configuration in a file. Raises `ConfigurationError`."""
    try:
        document = load(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not YAML: {error}") from error
    return parse(document, str(path))


def parse(document: Any, path: str) -> Configuration:
    """The configuration in a document. path: where it is from, for messages. Raises `ConfigurationError`."""
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: begin with `apiVersion: {API_VERSION}` and `kind: {KIND}`")
    try:
        configuration = msgspec.convert(document, Configuration)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path}: {error} (`fairlead scheduler --config-schema` shows what is allowed)") from error
    wrong = _mistake(configuration)
    if wrong:
        raise ConfigurationError(f"{path}: {wrong}")
    return configuration


def _mistake(given: Configuration) -> str:
    """What is wrong that a schema cannot express."""
    twice = [name for name, count in Counter(each.scheduler_name for each in given.profiles).items() if count > 1]
    if twice:
        return f"profiles: schedulerName {twice[0]!r} is listed twice"
    if "enabled" in given.gpu_sharing.agents:
        return "gpuSharing.agents: 'enabled' is not an agent; give the name of the agent on the nodes, such as 'fairlead-agent'"
    for field, address in (
        ("address", given.address),
        ("visibilityAddress", given.visibility_address),
        ("externalMetricsAddress", given.external_metrics_address),
    ):
        if wrong := wrong_address(address):
            return f"{field}: {wrong}"
    if given.retries.backoff_limit_seconds < given.retries.backoff_seconds:
        return "retries: backoffLimitSeconds is less than backoffSeconds"
    election = given.leader_election
    if not election.retry_seconds < election.renew_seconds < election.duration_seconds:
        return "leaderElection: retrySeconds must be less than renewSeconds, and renewSeconds less than durationSeconds"
    return _wrong_strategy(given.placement) or _wrong_part(given.gpu_sharing.parts) or _taken_by_another(given)


def _wrong_strategy(given: Placement) -> str:
    """Which strategy there is not, or which option of it."""
    strategy = STRATEGIES.get(given.strategy)
    if strategy is None:
        return f"placement.strategy: {given.strategy!r} is not one of {', '.join(sorted(STRATEGIES))}"
    unknown = sorted(set(given.strategy_options) - strategy.takes)
    return f"placement.strategyOptions: strategy {given.strategy!r} has no option {unknown[0]!r}" if unknown else ""


def _wrong_part(parts: list[GpuPart]) -> str:
    """Which resource cannot count as such a part, and why."""
    twice = [key for key, count in Counter((each.resource, each.product) for each in parts).items() if count > 1]
    if twice:
        return f"gpuSharing.parts: {twice[0][0]} of product {twice[0][1]!r} is listed twice"
    for each in parts:
        denominator = each.part.partition("/")[2]
        if denominator and not int(denominator):
            return f"gpuSharing.parts: part {each.part!r} of {each.resource} divides by zero"
        value = Fraction(each.part)
        if not 0 < value <= 1:
            return f"gpuSharing.parts: part {each.part!r} of {each.resource} is not above 0 and at most 1"
        if each.resource in names.GPU_RESOURCES and not each.product:
            return f"gpuSharing.parts: {each.resource} without a product is a whole GPU: give the product where it is not"
    return ""


def _taken_by_another(given: Configuration) -> str:
    """Whether a release has scheduler names of the first one."""
    taken = {each.scheduler_name for each in given.profiles} & names.DEFAULT_SCHEDULERS.keys()
    if given.name == names.FIRST_RELEASE or not taken:
        return ""
    return f"profiles: schedulerName {min(taken)!r} is the release {names.FIRST_RELEASE}'s: give {given.name} names of its own"

"""The scheduler's configuration file: which names it answers to, by which profile, and how it runs.

One YAML document. Everything has a default, so the smallest file is its first two lines; what is not known is an error
that names its place. `fairlead scheduler --config-schema` prints the JSON Schema for editors.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

from fairlead.api import names
from fairlead.core.model.policy import Defragment, Policy
from fairlead.core.pods.scores import STRATEGIES
from fairlead.scheduler.app import Options

API_VERSION = "config.fairlead.dev/v1alpha1"
KIND = "SchedulerConfiguration"

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class ConfigurationError(ValueError):
    """A file that cannot be used: where, and what to do."""


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class Profile(_Section, frozen=True):
    """One scheduler name. profile: `ai`, our scores and rules; `kubernetes`, kube-scheduler's scores and preemption."""

    scheduler_name: Annotated[str, msgspec.Meta(min_length=1)]
    profile: Literal["ai", "kubernetes"]


class PerFreeGpu(_Section, frozen=True):
    """What pods without devices leave on a node for each of its free GPUs. pods: slots; milliCpu: at most a quarter of the
    node's CPU per GPU. 0: none.
    """

    pods: Annotated[int, msgspec.Meta(ge=0, le=100)] = 1
    milli_cpu: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1000


class Placement(_Section, frozen=True):
    """How profile `ai` places. strategyOptions: for the strategy, see docs/traces.md."""

    strategy: str = "ai"
    strategy_options: dict[str, Any] = {}
    head_blocks: bool = False
    keep_per_free_gpu: PerFreeGpu = PerFreeGpu()


class Preemption(_Section, frozen=True):
    """Evictions for others. budgetOverrideSeconds: after these, work within its quota takes what others borrow though a
    PodDisruptionBudget forbids it, 0: never. victimTimeoutSeconds: beyond their grace victims are waited for so long;
    maxGraceSeconds: no eviction gives a pod longer to end.
    """

    enabled: bool = True
    budget_override_seconds: _NotNegative = 600.0
    victim_timeout_seconds: _Positive = 120.0
    max_grace_seconds: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 3600


class Retries(_Section, frozen=True):
    """Seconds: first and longest wait after a refused write; longest rest between searches in vain; grace of half-bound gangs.

    recheckSeconds: jobs whose constraints refer to other pods are requeued after so long, whatever has changed; 0: never.
    """

    backoff_seconds: _Positive = 1.0
    backoff_limit_seconds: _Positive = 60.0
    search_backoff_limit_seconds: _NotNegative = 10.0
    gang_grace_seconds: _NotNegative = 60.0
    recheck_seconds: _NotNegative = 300.0


class FairShare(_Section, frozen=True):
    """Shares among queues. reclaim: queues below theirs take back. usageHalfLifeSeconds: 0, past use does not count.

    users: among equal jobs in a queue, those of the user that holds least of it go first. shareWaitSeconds: after so long a job
    with which its queue stays within its share is served though a lender is left with less than its own, and no other job may
    pass the first job of a queue; 0: never.
    """

    reclaim: bool = True
    users: bool = True
    share_wait_seconds: _NotNegative = 3600.0
    usage_half_life_seconds: _NotNegative = 0.0
    usage_weight: _NotNegative = 1.0


class Backfill(_Section, frozen=True):
    """Nodes reserved for the first pending jobs. reservations: for how many, 0: none; patienceSeconds: after how long."""

    reservations: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    patience_seconds: _NotNegative = 300.0


class Defragmentation(_Section, frozen=True):
    """Nodes with few pods are emptied though no job waits for it. everySeconds: 0, never; between: hours of the UTC day such as
    `02:00-05:00`, empty: always; moves: pods at most at a time; threshold: only while that part of what is free is fragmented.
    """

    every_seconds: _NotNegative = 0.0
    between: Annotated[str, msgspec.Meta(pattern=r"^(([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d)?$")] = ""
    moves: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 20
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5

    def policy(self) -> Defragment | None:
        """As the core takes it."""
        if not self.every_seconds:
            return None
        begins, ends = (
            (60.0 * (int(text[:2]) * 60 + int(text[3:])) for text in self.between.split("-")) if self.between else (0.0, 0.0)
        )
        return Defragment(every=self.every_seconds, moves=self.moves, threshold=self.threshold, begins=begins, ends=ends)


class Consolidation(_Section, frozen=True):
    """Pods that are evicted only to run elsewhere, so that what waits fits. movesPerMinute: so many at most, 0: none;
    patienceSeconds: for what has waited so long. defragmentation: besides, while no job waits for it.
    """

    moves_per_minute: _NotNegative = 20.0
    patience_seconds: _NotNegative = 60.0
    defragmentation: Defragmentation = Defragmentation()


class GpuSharing(_Section, frozen=True):
    """Fractions of GPUs. agents: what nodes may name in their label `fairlead.dev/gpu-sharing`: each an agent that runs there and
    gives pods their part of a device. `fairlead agent` is `fairlead-agent`.
    """

    agents: list[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")]] = msgspec.field(
        default_factory=lambda: sorted(names.DEFAULT_SHARING_AGENTS)
    )


class LeaderElection(_Section, frozen=True):
    """The Lease. A request must end before renewSeconds have passed."""

    enabled: bool = True
    duration_seconds: _Positive = 15.0
    renew_seconds: _Positive = 10.0
    retry_seconds: _Positive = 2.0


class Configuration(_Section, frozen=True):
    """The whole file. chargeForeignPods: other schedulers' pods count as held by the default queue of their namespace."""

    api_version: Literal["config.fairlead.dev/v1alpha1"]
    kind: Literal["SchedulerConfiguration"]
    profiles: Annotated[list[Profile], msgspec.Meta(min_length=1)] = msgspec.field(
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
    charge_foreign_pods: bool = False
    events: bool = True
    address: str = "127.0.0.1:10259"
    visibility_address: str = ""
    external_metrics_address: str = ""
    writers: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 256

    def options(self) -> Options:
        """How to run, as the scheduler takes it."""
        preemption = self.preemption if isinstance(self.preemption, Preemption) else Preemption(enabled=self.preemption)
        policy = Policy(
            strategy=self.placement.strategy,
            strategy_options=self.placement.strategy_options,
            head_blocks=self.placement.head_blocks,
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
    """What all parts of a process know of it from now on: the scheduler names and the agents that share GPUs."""
    names.answer_to({each.scheduler_name: each.profile for each in configuration.profiles})
    names.share_by(configuration.gpu_sharing.agents)


def default() -> Configuration:
    """The configuration without a file."""
    return Configuration(api_version="config.fairlead.dev/v1alpha1", kind="SchedulerConfiguration")


def schema() -> dict[str, Any]:
    """The JSON Schema of the file."""
    return msgspec.json.schema(Configuration)


def read(path: Path) -> Configuration:
    """The configuration in a file. Raises `ConfigurationError`."""
    try:
        document = yaml.safe_load(path.read_text())
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
    if given.placement.strategy not in STRATEGIES:
        return f"placement.strategy: {given.placement.strategy!r} is not one of {', '.join(sorted(STRATEGIES))}"
    if given.retries.backoff_limit_seconds < given.retries.backoff_seconds:
        return "retries: backoffLimitSeconds is less than backoffSeconds"
    election = given.leader_election
    if not election.retry_seconds < election.renew_seconds < election.duration_seconds:
        return "leaderElection: retrySeconds must be less than renewSeconds, and renewSeconds less than durationSeconds"
    return ""

"""How to decide: the settings of a scheduler."""

from __future__ import annotations

import msgspec

from fairlead.api.names import GPU_RESOURCES
from fairlead.core.model.backoff import backoff


class Defragment(msgspec.Struct, frozen=True, kw_only=True):
    """When nodes are emptied though no job waits: every so many seconds, between two times of the day.

    moves: pods at most at a time. threshold: only while at least that part of what is free is fragmented. begins, ends:
    seconds of the UTC day; equal: always.
    """

    every: float
    moves: int = 20
    threshold: float = 0.5
    begins: float = 0.0
    ends: float = 0.0


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How to decide.

    preempt: whether work of the same queue may be preempted, reclaim: whether that of others may, for shares.
    strategy: name of a placement strategy. gpu_resources: which extended resources are devices. gpu_parts: which resources are
    parts of a GPU of NVIDIA beside those whose names show it: (resource, product or empty, thousandths).
    gang_grace: seconds after the last fault before a half-bound gang is taken down.
    backoff, backoff_limit: first and longest wait in seconds after a refused write.
    searches, search_backoff, search_backoff_limit: so many searches for victims in a row may be in vain before there is
    a rest before the next; the first and the longest in seconds, doubling between.
    recheck: seconds after which a pod with terms about other pods, or one that is held back for another job, is tried again,
        whatever was observed; 0: never.
    fair_users: whether among equals in a queue the user who holds least of it goes first.
    share_wait: seconds after which a queue is given its share though a lender is left with less than its own, and for which
    its first job is passed by others that fit where it does not, 0: never.
    usage_half_life: seconds in which past use of devices counts half, 0: not at all; usage_weight: how much it counts.
    reservations: for how many units that wait in vain nodes are kept, after `patience` seconds.
    moves_per_minute: how many pods may be evicted a minute only to run elsewhere, so that what waits fits, 0: none;
    move_patience: for what has waited so many seconds. defragment: when nodes are emptied besides, None: never.
    budget_override: seconds after which work within its quota takes what others borrow although a disruption budget forbids it,
    0: never. victim_timeout: seconds beyond their grace that victims are waited for. max_grace: the longest time to end, in
    seconds, that an eviction gives a pod.
    pods_per_free_gpu, cpu_per_free_gpu: pod slots and milli-CPU that pods without devices leave on a node for each of its
    free GPUs, once a queue has a quota of GPUs.
    preferred_wait: seconds that a gang waits at most for as few domains of its preferred level as it would need were they empty,
    0: it starts at once.
    head_blocks: whether the first job of a queue that cannot start keeps all behind it waiting.
    charge_foreign: whether pods that another scheduler placed count as held by the default queue of their namespace.
    strategy_options: passed to the strategy, e.g. the target workload of `fgd`.
    """

    strategy: str = "ai"
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    gpu_parts: tuple[tuple[str, str, int], ...] = ()
    preempt: bool = True
    reclaim: bool = True
    fair_users: bool = True
    share_wait: float = 3600.0
    usage_half_life: float = 0.0
    usage_weight: float = 1.0
    reservations: int = 1
    patience: float = 300.0
    moves_per_minute: float = 20.0
    move_patience: float = 60.0
    defragment: Defragment | None = None
    budget_override: float = 600.0
    victim_timeout: float = 120.0
    max_grace: int = 3600
    pods_per_free_gpu: int = 1
    cpu_per_free_gpu: int = 1000
    preferred_wait: float = 0.0
    head_blocks: bool = False
    charge_foreign: bool = False
    gang_grace: float = 60.0
    backoff: float = 1.0
    backoff_limit: float = 60.0
    searches: int = 3
    search_backoff: float = 0.1
    search_backoff_limit: float = 10.0
    recheck: float = 300.0
    strategy_options: dict[str, object] = {}

    def write_rest(self, faults: int) -> float:
        """Seconds before a write that was refused so many times is tried again."""
        return backoff(self.backoff, faults, self.backoff_limit)

    def search_rest(self, vain: int) -> float:
        """Seconds before victims are searched for again after so many searches in vain."""
        if vain < self.searches:
            return 0.0
        return backoff(self.search_backoff, vain - self.searches + 1, self.search_backoff_limit)

    def move_rest(self, vain: int) -> float:
        """Seconds before pods to be moved are searched for again after so many searches in vain."""
        return backoff(_MOVE_REST, vain, _LONGEST_MOVE_REST) if vain else 0.0


_MOVE_REST, _LONGEST_MOVE_REST = 60.0, 1800.0  # seconds

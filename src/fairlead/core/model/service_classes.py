"""Classes of service as the core sees them."""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from fairlead.core.model.selectors import Selector


class ServiceClass(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A class of service: who may take whose devices, and at what price.

    mode: `Requeue` or `Suspend` when it is preempted, or `Never`. scope: whose lower-ranking work it may preempt: its `Queue`'s,
    that of its `Parent` queue, the `Cluster`'s. min_runtime: seconds that a pod runs before it is preemptible; grace: that it has
    to end when it is preempted, 0: its own.
    checkpoint_interval: seconds of work between two checkpoints, 0 if there are none.
    max_wait: seconds that its work should wait at most, 0: no such aim. time_limit, longest: seconds that its work may run
    where it gives no limit itself, and at most; 0: not limited.
    levels: device-seconds of attained service, rising: work that attained less goes first and may take the devices of work
    that attained more. express: so many of the lowest levels take from any queue, whatever the shares. max_loss: seconds of
    work since a checkpoint that are lost at most when a time slice ends, 0: any.
    namespaces: by their labels, those whose pods may use it; users: who may, None for all. movable: whether its pods, beyond
    what their gangs need, may be evicted only to run elsewhere; moves_whole: and whole gangs, stopped and started as one.
    borrows: whether its pods, where they are non-preemptible, get what other queues are guaranteed.
    sharing: `None`, or `Pairs`: its pods that ask for one GPU may share it with one other such pod.
    isolation: `None`; `GPU`: no GPU of its pods is shared; `Node`: its jobs share no node with others' pods that have GPUs.
    start_timeout: seconds in which its gangs start that have their nodes, where they give none themselves; 0: nor does it.
    default_for: types of jobs that it is the default of; pools: NodePools that alternatives of its jobs may use.
    """

    name: str
    mode: str = "Requeue"
    scope: str = "Queue"
    min_runtime: float = 0.0
    grace: float = 0.0
    checkpoint_interval: float = 0.0
    max_wait: float = 0.0
    time_limit: float = 0.0
    longest: float = 0.0
    levels: tuple[float, ...] = ()
    express: int = 0
    namespaces: Selector = ()
    users: tuple[str, ...] | None = None
    movable: bool = True
    moves_whole: bool = False
    max_loss: float = 0.0
    borrows: bool = True
    start_timeout: float = 0.0
    isolation: str = "None"
    sharing: str = "None"
    default_for: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()

    @property
    def time_slice(self) -> float:
        """Seconds of work between two checkpoints, at which time slices end; 0: they end at any time."""
        return self.checkpoint_interval if self.max_loss else 0.0

    def ends_time_slice(self, worked: float, slack: float = 0.0) -> bool:
        """Whether a time slice may end after so many seconds of work: after one interval at least, just after a checkpoint."""
        interval = self.time_slice
        return not interval or (worked >= interval and worked % interval <= self.max_loss + slack)

    def level(self, attained: float) -> int:
        """On which level so much attained service is."""
        return bisect_right(self.levels, attained)

    def preempts_by_service(self, level: int, other: int, *, near: bool) -> bool:
        """Whether its work on a level takes the place of work on another that runs, is of no higher priority, and may be evicted.

        near: whether its scope reaches that work's queue. Express work takes from any queue what is not express any more.
        """
        return bool(self.levels) and level < other and (near or level < self.express <= other)

"""Reclaim: what is guaranteed to a queue against others, and which of two queues deserves something before the other.

That is the answer as far as accounts, shares and guarantees go; who may be evicted for it `preemption` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.core.model.charges import Charge
from fairlead.core.queues.entitlement import against, beyond_quota, within_share
from fairlead.core.queues.guarantees import Guarantees
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.shares import FairShares


class Reclaim:
    """Compares queues by their quotas, shares and guarantees."""

    def __init__(self, fair: FairShares, guarantees: Guarantees) -> None:
        self.fair = fair
        self.guarantees = guarantees

    def guaranteed(
        self, queue: QueueNode, top: QueueNode, wanted: Sequence[tuple[str, int]], held: Callable[[QueueNode, str], int]
    ) -> bool:
        """Whether what a queue holds, with so much more, is guaranteed to it against siblings of `top`, itself or one above.

        Either `top` stays within its quota, or the queue does, and only non-preemptible work brings those above it beyond theirs.
        """
        if all(held(top, name) + amount <= top.quota.get(name, 0) for name, amount in wanted):
            return True
        return (
            bool(self.guarantees.classes)
            and queue is not top
            and all(held(queue, name) + amount <= queue.quota.get(name, 0) for name, amount in wanted)
            and all(
                held(node, name) + amount <= self.guarantees.guaranteed_to(node, name)
                for node in queue.up_to(top)[1:]
                for name, amount in wanted
            )
        )

    def is_due_before(self, queue: QueueNode, demand: Charge, other: QueueNode, others: Charge) -> bool:
        """Whether a queue would stay within its deserved share with so much more, and another queue would exceed its own."""
        claim, fair = against(queue, other), self.fair
        if claim is None:
            return False
        mine, theirs = claim.mine, claim.theirs
        names = fair.contested(mine, enforce_quota=True)
        wanted = [(name, amount) for name, amount in demand if name in names]
        with_it = dict(others)
        theirs_then = {name: theirs.used.get(name, 0) + with_it.get(name, 0) for name, _ in wanted}
        beyond = beyond_quota([theirs], theirs_then, lambda _, name: theirs_then[name])
        may = fair.entitled.get(theirs.name, {})
        over = any(held > may[name] for name, held in theirs_then.items() if name in may)
        if not beyond and not over:
            return False  # whatever the queue may hold itself
        # Within its own quota it is guaranteed that, too: siblings of its that hold what those above are guaranteed give way.
        own = all(
            queue.used.get(name, 0) + amount <= queue.quota.get(name, 0) <= node.quota.get(name, 0)
            for node in claim.claimants
            for name, amount in wanted
        )
        if own or self.guaranteed(queue, mine, wanted, QueueNode.holds_of):
            return beyond
        return over and mine.name in fair.share and within_share(fair, claim.claimants, demand)

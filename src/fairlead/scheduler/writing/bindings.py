"""Bindings: of pods that were placed, their devices and volumes first, and of suspended jobs that may run again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from fairlead.cluster.port import BindFailed, Bound, Outcome
from fairlead.core.model.allocations import FailedDevice
from fairlead.core.model.transactions import Binding, Deallocate, Place, Resume
from fairlead.scheduler.writing.context import Context
from fairlead.scheduler.writing.lines import URGENT
from fairlead.scheduler.writing.outcomes import answer

log = structlog.get_logger("applier")


class Bindings:
    """epoch: of the lease; a binding that carries an older one is refused."""

    def __init__(self, context: Context, epoch: Callable[[], int | None]) -> None:
        self._context = context
        self._epoch = epoch
        self._prepared: set[asyncio.Task[None]] = set()  # devices and volumes on their way: slow, and no writer's business

    @property
    def idle(self) -> bool:
        """Whether no devices are being allocated, and no volumes bound."""
        return not self._prepared

    def cancel(self) -> None:
        """Give up devices and volumes that are on their way."""
        for task in self._prepared:
            task.cancel()

    def place(self, decision: Place) -> None:
        """Bind pods to their nodes."""
        for binding in decision.bindings:
            self._context.statuses.refusals.drop(binding.pod.uid)
            if binding.volumes or binding.claims:
                self._prepare(binding)
            else:
                self._bind(binding)

    def deallocate(self, decision: Deallocate) -> None:
        """Take devices back that claims hold where their pods cannot run; the watch shows whether that was done."""
        for binding in decision.bindings:
            self._context.lines.enter(URGENT, partial(self._context.cluster.release_claims, binding))

    def resume(self, decision: Resume) -> None:
        """Let a suspended job run again."""
        context = self._context

        async def write() -> None:
            outcome, message = await answer(context.cluster.resume(decision))
            if outcome is Outcome.REFUSED:
                log.warning("not resumed", group=decision.group, error=message)
                for pod in decision.pods:
                    context.outcomes.add(BindFailed(pod.uid, message))
            elif decision.pods:
                context.counters.resumed += 1
                note = f"Capacity is free again on {len(set(decision.nodes))} nodes: {', '.join(sorted(set(decision.nodes))[:8])}"
                context.events.put(decision.group, "Resumed", note, action="Resuming")

        context.lines.enter(URGENT, write)

    def _bind(self, binding: Binding) -> None:
        self._context.lines.enter(URGENT, _Bind(self._context, binding, self._epoch))

    def _prepare(self, binding: Binding) -> None:
        """What must be there before a pod can be bound: its devices, then its volumes."""
        context = self._context
        # A pod is bound as soon as its claims are written: events that were written meanwhile would be in the way of both.
        written = context.lines.hold() if binding.claims else _nothing

        async def work() -> None:
            try:
                await prepared()
            finally:
                written()

        async def prepared() -> None:
            outcome, message, what = Outcome.DONE, "", ""
            failed: tuple[FailedDevice, ...] = ()

            async def allocate() -> tuple[Outcome, str]:
                nonlocal failed
                allocated = await context.cluster.allocate_claims(binding, written)
                failed = allocated.failed
                return allocated.outcome, allocated.message

            if binding.claims:
                outcome, message = await answer(allocate())
                what = f"devices on {binding.node} were not allocated"
            if outcome is Outcome.DONE and binding.volumes:
                outcome, message = await answer(context.cluster.bind_volumes(binding))
                what = f"volumes for {binding.node} were not bound"
                if outcome is not Outcome.DONE and binding.claims:
                    await context.cluster.release_claims(binding)
            if outcome is Outcome.DONE:
                self._bind(binding)
                return
            context.counters.bind_failed += 1
            context.outcomes.add(BindFailed(binding.pod.uid, message, failed))
            context.events.put(binding.pod, "FailedScheduling", f"{what}: {message}", warning=True)

        task = asyncio.ensure_future(work())
        self._prepared.add(task)
        task.add_done_callback(self._prepared.discard)


def _nothing() -> None:
    """Nothing was held."""


class _Bind:
    """Write one binding."""

    __slots__ = ("binding", "context", "epoch", "since")

    def __init__(self, context: Context, binding: Binding, epoch: Callable[[], int | None]) -> None:
        self.context = context
        self.epoch = epoch
        self.binding = binding
        self.since = context.lines.now()

    async def __call__(self) -> None:
        context, binding = self.context, self.binding
        outcome, message = await answer(context.cluster.bind(binding, self.epoch()))
        context.counters.latencies.observe(context.lines.now() - self.since)
        if outcome is Outcome.DONE:
            context.counters.bound += 1
            context.outcomes.add(Bound(binding.pod.uid))
            context.events.put(binding.pod, "Scheduled", f"Successfully assigned {binding.pod.key} to {binding.node}")
            return
        context.counters.bind_failed += 1
        if binding.claims and outcome is not Outcome.GONE:
            await context.cluster.release_claims(binding)  # of a pod that is gone the controller of claims does it
        context.outcomes.add(BindFailed(binding.pod.uid, message))
        if outcome is Outcome.REFUSED:
            log.warning("binding refused", pod=binding.pod.key, node=binding.node, error=message)
            context.events.put(binding.pod, "FailedScheduling", f"binding to {binding.node} was refused: {message}", warning=True)

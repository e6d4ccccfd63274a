"""Evictions: of a preemption's victims, all or none, and of pods that are taken down for another reason."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from fairlead.api import names
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster.grouping import is_upstream
from fairlead.cluster.port import EvictFailed, Outcome
from fairlead.core.model.transactions import Binding, Evict, PodRef, Preempt, Suspension
from fairlead.scheduler.writing.context import Context
from fairlead.scheduler.writing.lines import URGENT
from fairlead.scheduler.writing.outcomes import answer

log = structlog.get_logger("applier")

_EVENTS = {ReasonCode.SUSPENDED: "SuspendTimedOut", ReasonCode.WAITING_FOR_VICTIMS: "GraceShortened"}
"""Events of evictions that are not named like their reasons: these codes are of jobs that wait."""


class Evictions:
    """Puts them in line."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def preempt(self, plan: Preempt) -> None:
        """Evict the victims of a preemption."""
        self._context.lines.enter(URGENT, _EvictAll(self._context, plan))

    def take_down(self, decision: Evict) -> None:
        """Evict pods one by one."""
        context = self._context
        code = decision.reason.code
        what = _EVENTS.get(code, str(code))
        if decision.group:
            context.events.put(decision.group, what, decision.reason.message, warning=True, action="Evicting")
        graces = dict(decision.graces)
        for victim in decision.victims:
            if not decision.group:
                context.events.put(victim.pod, what, decision.reason.message, warning=True, action="Evicting")

            async def write(pod: PodRef = victim.pod) -> None:
                outcome, message = await answer(context.cluster.evict(pod, dry_run=False, grace=graces.get(pod.uid)))
                if outcome is Outcome.REFUSED:
                    context.counters.evict_failed += 1
                    log.warning("not evicted", reason=what, pod=pod.key, error=message)
                else:
                    context.counters.evicted += 1

            context.lines.enter(URGENT, write)


class _EvictAll:
    """Evict a plan's victims: all are tried dry first, and only if all may go, they go."""

    __slots__ = ("context", "plan")

    def __init__(self, context: Context, plan: Preempt) -> None:
        self.context = context
        self.plan = plan

    async def __call__(self) -> None:
        victims = [victim.pod for victim in self.plan.victims]
        if self.plan.outright:
            await self._outright(victims)
        else:
            await self._asking_budgets(victims)

    async def _outright(self, victims: list[PodRef]) -> None:
        """As kube-scheduler does: nominate the node, then delete, whatever the budgets allow."""
        cluster = self.context.cluster
        note = f"{len(victims)} pods are preempted for it"
        for binding in self.plan.beneficiaries:
            await cluster.nominate(binding.pod, binding.node, Reason(ReasonCode.RESOURCES, note))
        done = await asyncio.gather(*(answer(cluster.preempt(pod)) for pod in victims))
        self._count(victims, done)

    async def _asking_budgets(self, victims: list[PodRef]) -> None:
        cluster, overrides = self.context.cluster, set(self.plan.overrides)
        asked = [pod for pod in victims if pod.uid not in overrides]
        tried = await asyncio.gather(*(answer(cluster.evict(pod, dry_run=True)) for pod in asked))
        if any(outcome is Outcome.REFUSED for outcome, _ in tried):
            self._give_up(asked, tried)
            return
        await asyncio.gather(*(self._nominate(each) for each in self.plan.beneficiaries if not each.pod.placeholder))
        places = dict(zip(self.plan.moved, self.plan.moved_to, strict=False))
        await asyncio.gather(*(self._note_place(pod, places[pod.uid]) for pod in victims if pod.uid in places))
        suspended = {uid for job in self.plan.suspends for uid in job.pods}
        evicted = [pod for pod in victims if pod.uid not in suspended]
        graces = dict(self.plan.graces)
        writes = (
            cluster.preempt(pod, grace=graces.get(pod.uid))
            if pod.uid in overrides
            else cluster.evict(pod, dry_run=False, grace=graces.get(pod.uid))
            for pod in evicted
        )
        done = await asyncio.gather(*(answer(write) for write in writes))
        self._count(evicted, done)
        if all(outcome is not Outcome.REFUSED for outcome, _ in done):
            await asyncio.gather(*(self._suspend(job, victims) for job in self.plan.suspends))

    async def _nominate(self, beneficiary: Binding) -> None:
        """So that a scheduler that is started meanwhile holds the place again (`core.actions.nominated`); it may fail."""
        self.context.statuses.refusals.drop(beneficiary.pod.uid)  # it would withdraw that again
        try:
            await self.context.cluster.nominate(beneficiary.pod, beneficiary.node)
        except Exception:
            log.exception("not nominated", pod=beneficiary.pod.key, node=beneficiary.node)

    async def _note_place(self, victim: PodRef, node: str) -> None:
        """So that a scheduler that is started meanwhile reserves the place again for the replacement; it may fail."""
        try:
            await self.context.cluster.condition(victim, names.MOVES_TO, "Rescheduled", node)
        except Exception:
            log.exception("new place not noted", pod=victim.key, node=node)

    async def _suspend(self, job: Suspension, victims: Sequence[PodRef]) -> None:
        outcome, message = await answer(self.context.cluster.suspend(job))
        pods = [pod for pod in victims if pod.uid in job.pods]
        if outcome is Outcome.REFUSED:
            self._give_up(pods, [(outcome, message)] * len(pods))
            return
        self.context.counters.suspended += 1
        suspended: list[PodRef | str] = [*pods, job.group]
        for about in suspended:
            self.context.events.put(about, "Suspended", self._note(done="Suspended"), action="Preempting")

    def _count(self, victims: list[PodRef], done: Sequence[tuple[Outcome, str]]) -> None:
        for pod, (outcome, _) in zip(victims, done, strict=True):
            if outcome is not Outcome.REFUSED:
                self.context.counters.evicted += 1
                moved = pod.uid in self.plan.moved
                reason, action = ("Rescheduled", "Consolidating") if moved else ("Preempted", "Preempting")
                self.context.events.put(pod, reason, self._note(moved=moved), action=action)
        if any(outcome is not Outcome.REFUSED for outcome, _ in done):
            for group in self.plan.groups:
                self.context.events.put(group, "Preempted", self._note(), action="Preempting")
                if is_upstream(group):
                    kind, reason = "DisruptionTarget", "PreemptionByScheduler"
                    self.context.statuses.conditions.put(f"{kind} {group}", (group, kind, reason, self._note()))
        self._give_up(victims, done)

    def _give_up(self, victims: list[PodRef], outcomes: Sequence[tuple[Outcome, str]]) -> None:
        """Report to the core the victims that could not be evicted."""
        context = self.context
        refused = [
            (pod, message) for pod, (outcome, message) in zip(victims, outcomes, strict=True) if outcome is Outcome.REFUSED
        ]
        if refused:
            context.counters.plans_released += 1
            context.counters.evict_failed += len(refused)
            for pod, message in refused:
                context.outcomes.add(EvictFailed(pod.uid, message))
            log.warning("preemption given up", victims=[pod.key for pod, _ in refused], error=refused[0][1])

    def _note(self, *, moved: bool = False, done: str = "Preempted") -> str:
        if not self.plan.beneficiaries:
            return f"Rescheduled: {self.plan.why}"
        first = self.plan.beneficiaries[0]
        if moved:
            return f"Rescheduled so that {self.plan.group or first.pod.key} fits on node {first.node}"
        why = str(self.plan.why)
        why = f": {why}" if why else ""
        return f"{done} by {self.plan.group or first.pod.key} on node {first.node}{why}"

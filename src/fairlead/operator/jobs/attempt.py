"""The attempt of a job that is under way: its members, their pods, and which of them have ended, work, or are lost.

An attempt is one start of the job as a whole. Nothing is decided here; `plan` does that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec

from fairlead.api import spans
from fairlead.api.kinds.ai_job import AIJob, AIJobStatus, AlternativeStatus, RoleIndexes
from fairlead.cluster.starting import RETRIED
from fairlead.cluster.times import seconds
from fairlead.operator.jobs.dependencies import READY, Verdict
from fairlead.operator.jobs.indexes import as_set, shown
from fairlead.operator.jobs.members import Member, bounds, members, name_of
from fairlead.operator.jobs.pods import CHECKPOINTED, OF_THE_NODE, PodSeen
from fairlead.operator.jobs.starting import Verdict as StartVerdict
from fairlead.operator.jobs.starting import judge

STARTED = "Started"
"""Condition: False once a start of the job failed, until one succeeds; a job that starts at once has none."""
_CLOCKS_DIFFER = 2.0  # seconds
_PENDING, _RUNNING, _SUCCEEDED, _FAILED = "Pending", "Running", "Succeeded", "Failed"


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What counts beside a job and its pods. now: seconds since the epoch.

    suspended: by the scheduler. first: the verdict of its dependencies. element: of an array, with the job's status being
    that element's. idle: why it is shut down, if it does not use what it holds. ended: pods that succeeded and are gone.
    form: the one that the scheduler chose for its next attempt.
    """

    now: float
    suspended: bool = False
    first: Verdict = READY
    element: int = -1
    idle: str = ""
    ended: frozenset[str] = frozenset()
    form: AlternativeStatus | None = None


def action_on(job: AIJob, exit_code: int | None) -> str:
    """The action of a job's rules for an exit code: Ignore, Restart, Fail; empty: none."""
    action = next((rule.action for rule in job.spec.restart.exit_codes if exit_code in rule.codes), "")
    return action or ("Restart" if exit_code == CHECKPOINTED and job.spec.checkpoint is not None else "")


class Attempt:
    """number: of the attempt; stale: pods of others, which are on their way out; since: when it began to run."""

    def __init__(self, job: AIJob, pods: Sequence[PodSeen], given: Given) -> None:
        self.job = job
        self.old = job.status or AIJobStatus()
        self.number = self.old.attempt
        self.members = members(job, given.element)
        self.least = {role.name: bounds(role)[0] for role in job.spec.roles}
        self.elastic = {role.name for role in job.spec.roles if bounds(role)[0] < bounds(role)[1]}
        self.stale = [pod for pod in pods if pod.attempt != self.number]
        self.pods: Mapping[str, PodSeen] = {pod.name: pod for pod in pods if pod.attempt == self.number}
        started = min((pod.started for pod in self.pods.values() if pod.started), default=None)
        self.since = min(filter(None, (started, self.old.running_since)), default=None)
        self._given = given

    @cached_property
    def named(self) -> dict[str, Member]:
        """All members by their pods' names."""
        return {name_of(self.job, each, self.number): each for each in self.members}

    @cached_property
    def failed(self) -> list[PodSeen]:
        """Pods that failed, for whatever reason."""
        return [pod for pod in self.pods.values() if pod.phase == _FAILED]

    @cached_property
    def done(self) -> set[str]:
        """Members of this attempt that have run to their end, also those whose pods are gone."""
        named = self.named
        recorded = {each.role: as_set(each.indexes) for each in self.old.succeeded_members}
        done = {name for name, each in named.items() if each.index in recorded.get(each.role, ()) and self._stays_done(name)}
        done |= {name for name in self._given.ended if name in named and name not in self.pods}
        done |= {pod.name for pod in self.pods.values() if pod.phase == _SUCCEEDED and (pod.done or not self.excused(pod))}
        return done | {pod.name for pod in self.failed if not self.excused(pod) and self.action(pod) == "Ignore"}

    def _stays_done(self, name: str) -> bool:
        """Whether a member that was seen to succeed has no pod any more, or the one that did so."""
        return name not in self.pods or self.pods[name].phase == _SUCCEEDED

    def succeeded_members(self) -> list[RoleIndexes]:
        """Those that have run to their end, by role."""
        found: dict[str, list[int]] = {}
        for name in self.done & self.named.keys():
            found.setdefault(self.named[name].role, []).append(self.named[name].index)
        return [RoleIndexes(role=role, indexes=shown(indexes)) for role, indexes in sorted(found.items())]

    def succeeded(self) -> bool:
        """Whether all have that count. Of a role without a fixed size these are all that ran to the end, its minimum at least."""
        named, done = self.named, self.done
        policy = self.job.spec.success_policy
        counts = policy.roles if policy is not None else list(self.least)
        for role in counts:
            theirs = [name for name, each in named.items() if each.role == role]
            if role not in self.elastic:
                if any(name not in done for name in theirs):
                    return False
            elif sum(name in done for name in theirs) < self.least[role] or any(map(self._on_a_node, set(theirs) - done)):
                return False
        return True

    def _on_a_node(self, name: str) -> bool:
        pod = self.pods.get(name)
        return pod is not None and bool(pod.node) and pod.phase in (_PENDING, _RUNNING) and not pod.terminating

    def works(self, name: str) -> bool:
        """Whether a member runs."""
        pod = self.pods.get(name)
        return pod is not None and pod.phase == _RUNNING and not pod.terminating

    def lost(self) -> tuple[str, list[PodSeen]]:
        """Why the attempt cannot go on through no fault of the job, empty if it can; and lost members that it can do without."""
        named, done = self.named, self.done
        leaving: list[PodSeen] = []
        staying = Counter(named[name].role for name in self.pods if name in named and (name in done or self.works(name)))
        for name, each in named.items():
            pod = self.pods.get(name)
            if name in done:
                continue
            # Where the size may change, it does; but the first of the first role is where all meet.
            replaced = each.role in self.elastic and not (each.index == 0 and each.role == self.job.spec.roles[0].name)
            expendable = each.elastic or (replaced and staying[each.role] >= self.least[each.role])
            if pod is None:
                if self.old.complete_attempt == self.number and not expendable:
                    return f"{name} is gone", []
            elif pod.phase in (_FAILED, _SUCCEEDED) or pod.terminating:
                if expendable:
                    leaving.append(pod)
                elif pod.phase == _FAILED:
                    return f"{name} was ended: {pod.reason or 'by its node or the scheduler'}", []
                else:
                    return f"{name} is being removed", []
        return "", leaving

    def judge_start(self) -> StartVerdict:
        """What is to be done of members that have nodes and do not start."""
        named, done = self.named, self.done
        theirs = {name: pod for name, pod in self.pods.items() if name in named and not pod.terminating and name not in done}
        starting = {name: pod.starting for name, pod in theirs.items() if pod.starting is not None and pod.phase == _PENDING}
        if not starting:
            return StartVerdict()
        placed = {name: pod.bound for name, pod in theirs.items() if pod.node} | dict.fromkeys(done, 0.0)
        before = next((each.reason for each in self.old.conditions if each.type == STARTED and each.status == "False"), "")
        if self._given.element >= 0 and self.old.restarts:  # the causes of failed starts are not stored by element
            before = next((each.trouble.reason for each in starting.values() if each.trouble.reason in RETRIED), "")
        working = Counter(each.role for name, each in named.items() if name in done or self.works(name))
        enough = {role for role, least in self.least.items() if working[role] >= least}
        return judge(self.job, named, starting, placed, self._given.now, enough=enough, before=before)

    def over_limit(self) -> bool:
        """Whether its time is over: the scheduler has taken it down for that, then."""
        limit = self.limit()
        return bool(limit and self.since) and self._given.now - seconds(self.since) >= spans.seconds(limit or "") - _CLOCKS_DIFFER

    def limit(self) -> str | None:
        """The time limit in force: the one that its pods were made with, whatever its spec has become."""
        made_with = [pod.limit for pod in self.pods.values() if pod.limit]
        return min(made_with, key=spans.seconds) if made_with else self.job.spec.time_limit

    def excused(self, pod: PodSeen) -> bool:
        """Whether a failed pod is its node's or the scheduler's doing."""
        rejected = pod.reason in OF_THE_NODE or pod.reason.startswith("OutOf")
        return pod.disrupted or pod.terminating or (pod.exit_code is None and rejected)

    def action(self, pod: PodSeen) -> str:
        """The action of the job's rules for an exit code; empty: none."""
        return action_on(self.job, pod.exit_code)

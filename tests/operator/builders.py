"""AIJobs as the API server gives them, and their pods as a kubelet plays them."""

from __future__ import annotations

import msgspec

from fairlead.api.kinds.ai_job import AIJob
from fairlead.operator.jobs.attempt import Given
from fairlead.operator.jobs.members import name_of
from fairlead.operator.jobs.phases import Phase, step
from fairlead.operator.jobs.plan import plan
from fairlead.operator.jobs.pods import PodSeen

CONTAINER = {"name": "main", "image": "train", "env": [{"name": "RANK", "value": "mine"}]}
T0 = 1_767_225_600.0


def worker(replicas=1, container=CONTAINER):
    """A role `worker` of so many members."""
    return {"name": "worker", "replicas": replicas, "template": {"spec": {"containers": [container]}}}


def job(workers=2, *, name="bert", uid="u1", labels=None, annotations=None, created=None, phase="", **spec):
    """An AIJob of namespace `vision`; spec: fields of its spec, `roles` instead of workers."""
    metadata = {"name": name, "namespace": "vision", "uid": uid, "labels": labels or {}, "annotations": annotations or {}}
    made = {"metadata": metadata, "spec": {"roles": [worker(workers)], **spec}}
    if created is not None:
        metadata["creationTimestamp"] = created
    if phase:
        made["status"] = {"phase": phase}
    return msgspec.convert(made, AIJob)


class Story:
    """A job, its pods as a kubelet plays them, and a clock."""

    def __init__(self, made):
        self.job = made
        self.pods = {}
        self.now = T0
        self.policy = False
        self.deleted_job = False

    def look(self, seconds=0.0):
        self.now += seconds
        before = Phase(self.job.status.phase) if self.job.status else Phase.PENDING
        decided = plan(self.job, list(self.pods.values()), Given(now=self.now, suspended=self.policy))
        assert step(before, Phase(decided.status.phase))
        self.job.status = decided.status
        for member in decided.create:
            name = name_of(self.job, member, decided.status.attempt)
            self.pods.setdefault(name, PodSeen(name, decided.status.attempt, "Pending"))
        for name in decided.delete:
            self.pods.pop(name, None)
        self.deleted_job = self.deleted_job or decided.delete_job
        return decided

    def set(self, which=None, **fields):
        for name, seen in list(self.pods.items()):
            if which is None or f"-{which}-" in name:
                self.pods[name] = msgspec.structs.replace(seen, **fields)

    @property
    def phase(self):
        return self.job.status.phase

    def run(self):
        self.look()
        self.set(phase="Running", node="n")
        self.look()
        assert self.phase == "Running"
        return self

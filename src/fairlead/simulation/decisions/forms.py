"""A small random cluster whose gangs name several forms: where another one is chosen, their pods are made anew in that form."""

from __future__ import annotations

import msgspec

from fairlead.api.names import INDEX_LABEL
from fairlead.cluster.port import Gone, Upsert
from fairlead.core.model.groups import Choice, Chosen, Group
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.model.transactions import Choose
from fairlead.scheduler.outputs import Output
from fairlead.simulation.decisions.cluster import GPU, Cluster, Job, Theme

_POOL = "pool"
_POOLS = ("a", "b")
_SMALLER = ((2, 4), (4, 2), (2, 2), (3, 1))
"""(Members, GPUs of each) of forms that a job takes rather than wait."""

FORMS = Theme(
    gpus=(8, 8, 4, 4, 4, 2),
    queues=(("red", "", 8, 1, None), ("green", "", 16, 1, 20)),
    sizes=((1, 1), (4, 1), (4, 2), (8, 2), (4, 3)),
    load=1.5,
    hours=6.0,
)


class FormsCluster(Cluster):
    """Nodes in two pools. A gang is written for any node, and accepts smaller forms, each in one pool."""

    forms: dict[str, tuple[Choice, ...]]  # by job
    current: dict[str, tuple[Choice, int]]  # job -> its form, and how often its pods were made anew in another one

    def _set_up(self) -> None:
        self.forms, self.current = {}, {}
        super()._set_up()

    def _node(self, number: int, gpus: int) -> Node:
        node = super()._node(number, gpus)
        return msgspec.structs.replace(node, labels={**node.labels, _POOL: _POOLS[number % len(_POOLS)]})

    def _submit(self, job: Job) -> None:
        if job.members > 1:
            forms = [Choice(0, "", job.members, GPU, job.spec.gpus)]
            for index in range(1, self.rnd.randint(2, 3)):
                pool = self.rnd.choice(_POOLS)
                members, gpus = self.rnd.choice(_SMALLER)
                forms.append(Choice(index, pool, members, GPU, gpus, (Requirement(_POOL, "In", (pool,)),)))
            self.forms[job.name], self.current[job.name] = tuple(forms), (forms[0], 0)
        super()._submit(job)

    def _group(self, job: Job) -> Group:
        form, _ = self.current[job.name]
        forms = self.forms[job.name]
        return msgspec.structs.replace(super()._group(job), choices=forms, current=(form.index, form.pool))

    def _pod(self, job: Job, index: int, uid: str) -> Pod:
        pod = super()._pod(job, index, uid)
        if job.name not in self.forms:
            return pod
        return msgspec.structs.replace(pod, attempt=self.current[job.name][1], labels=(*pod.labels, (INDEX_LABEL, str(index))))

    def _take(self, outputs: list[Output]) -> None:
        super()._take(outputs)
        for each in outputs:
            if isinstance(each, Choose):
                self.queue.push(self.now + 1.0, lambda each=each: self._change(each.group.partition("/")[2], each.chosen))  # type: ignore[misc]

    def _change(self, name: str, chosen: Chosen) -> None:
        """As the operator does: the pods of a job that has not begun are made anew in the form that was chosen."""
        mates = [uid for uid, pod in self.pods.items() if pod.group == name]
        if not mates or any(self.pods[uid].node for uid in mates) or self.current[name][1] != chosen.attempt:
            return
        form = next(each for each in self.forms[name] if (each.index, each.pool) == (chosen.index, chosen.pool))
        self.current[name] = form, chosen.attempt + 1
        job = _in_form(self.jobs[mates[0]], form)
        for uid in mates:
            del self.pods[uid], self.jobs[uid]
            self._observe(Gone("pod", uid))
        self._observe(Upsert(msgspec.structs.replace(self._group(job), chosen=chosen)))
        for index in range(job.members):
            self._make(job, index)


def _in_form(job: Job, form: Choice) -> Job:
    requests = {**dict(job.spec.requests), form.resource: form.amount}
    affinity = (SelectorTerm(form.nodes),) if form.nodes else None
    spec = PodSpec(tuple(sorted(requests.items())), gpus=form.amount, affinity=affinity)
    return job._replace(spec=spec, members=form.replicas, least=form.replicas)

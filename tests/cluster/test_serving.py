"""Which PodGroup a pod is in that names none, whatever comes first: pods, PodGroups, those of other objects."""

import random

import msgspec
import pytest

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.port import Gone, Upsert
from fairlead.cluster.translate import Change, Translator
from fairlead.core.model.pods import Pod

JOBSET = {"kind": "JobSet", "name": "x", "uid": "js", "controller": True}
AI_JOB = {"kind": "AIJob", "name": "jobset-x", "uid": "ai", "controller": True}


def group(name, owner=None, serves=""):
    metadata = {"name": name, "namespace": "ns", "uid": name, "ownerReferences": [owner] if owner else []}
    metadata["annotations"] = {names.SERVES_ANNOTATION: serves} if serves else {}
    return msgspec.convert({"metadata": metadata, "spec": {"minMember": 1}}, views.PodGroup)


def waiting(name, part, *, named="", node=""):
    labels = {"jobset.sigs.k8s.io/jobset-name": "x", "jobset.sigs.k8s.io/replicatedjob-name": part}
    labels |= {names.POD_GROUP_LABEL: named} if named else {}
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": labels}
    spec = {"schedulerName": "fairlead", "nodeName": node, "containers": []}
    return msgspec.convert({"metadata": metadata, "spec": spec}, views.Pod)


class Heard:
    """What a core would know."""

    def __init__(self):
        self.translator = Translator()
        self.pods = {}

    def tell(self, found):
        change = Change(f"ns/{found.metadata.name}" if isinstance(found, views.PodGroup) else found.metadata.uid, found)
        self._take(self.translator.groups([change]) if isinstance(found, views.PodGroup) else self.translator.pods([change]))

    def gone(self, found):
        if isinstance(found, views.PodGroup):
            self._take(self.translator.groups([Change(f"ns/{found.metadata.name}", None)]))
        else:
            self._take(self.translator.pods([Change(found.metadata.uid, None)]))

    def _take(self, events):
        for event in events:
            if isinstance(event, Upsert) and isinstance(event.object, Pod):
                self.pods[event.object.name] = event.object.group
            elif isinstance(event, Gone) and event.kind == "pod":
                self.pods.pop(event.key, None)


def expected(pod, groups):
    labels = pod.metadata.labels
    if named := labels.get(names.POD_GROUP_LABEL):
        return named
    there = {each.metadata.name for each in groups}
    if labels["jobset.sigs.k8s.io/replicatedjob-name"] in ("driver", "worker") and "jobsetstage.x.driver" in there:
        return "jobsetstage.x.driver"
    earlier = any(each.metadata.name == "jobset-x" and each.metadata.owner_references[0].kind == "JobSet" for each in groups)
    return "jobset-x" if earlier else "jobset.x"


@pytest.mark.parametrize("earlier", [AI_JOB, JOBSET], ids=["another's of its former name", "an earlier version's"])
@pytest.mark.parametrize("seed", range(10))
def test_in_any_order(seed, earlier):
    draw = random.Random(seed)
    objects = [
        group("jobset-x", earlier),
        group("jobset.x", JOBSET),
        group("jobsetstage.x.driver", JOBSET, "jobset.x/driver jobset.x/worker"),
        *(waiting(f"{part}-{number}", part) for part in ("init", "driver", "worker") for number in range(2)),
        waiting("own", "worker", named="jobset.x"),
        waiting("other", "init", named="mine"),
        waiting("bound", "driver", node="n"),
    ]
    heard, there = Heard(), []
    for _ in range(60):
        each = draw.choice(objects)
        if each in there:
            there.remove(each)
            heard.gone(each)
        else:
            there.append(each)
            heard.tell(each)
        groups = [found for found in there if isinstance(found, views.PodGroup)]
        assert heard.pods == {pod.metadata.name: expected(pod, groups) for pod in there if isinstance(pod, views.Pod)}

"""Identity: pods that say somebody else made them, through every kind that makes pods."""

from __future__ import annotations

from typing import Any

from fairlead.api import names
from testbed.attacks.checks import answered, exists, runs, runs_in, says_ann
from testbed.attacks.lab import Range, stamp
from testbed.attacks.manifests import FORGED, GOLD, ai_job, pod, template, workload
from testbed.attacks.model import Catalogue
from testbed.attacks.people import APPLY, where

SUBJECT = Catalogue("identity")
attack = SUBJECT.attack
_TOGETHER = "identity"


def _anns(name: str) -> dict[str, Any]:
    """A template that says it is ann's, for her queue and class."""
    return template(name, gpus=0, queue="anns", labels=GOLD, annotations=FORGED)


def _made(kind: str, name: str) -> dict[str, Any]:
    return workload(kind, name, _anns(name))


@attack("C1", "a pod created with the stamp of another user", group=_TOGETHER, check=says_ann("c1-"), quick=True)
def _(lab: Range) -> None:
    lab.mallory.creates(pod("c1-x", gpus=0, annotations=FORGED), "mal")


@attack("C1b", "the same by server-side apply", group=_TOGETHER, check=says_ann("c1b-"))
def _(lab: Range) -> None:
    made = pod("c1b-x", gpus=0, annotations=FORGED)
    lab.mallory.tries("PATCH", f"{where('pods', 'mal', 'c1b-x')}?fieldManager=m&force=true", made, APPLY)


@attack("C1c", "the same with generateName", group=_TOGETHER, check=says_ann("c1c-"))
def _(lab: Range) -> None:
    made = pod("c1c-", gpus=0, annotations=FORGED)
    made["metadata"]["generateName"] = made["metadata"].pop("name")
    lab.mallory.creates(made, "mal")


@attack(
    "C1d",
    "a pod with the stamp of another user and an owner reference to that user's Job",
    group=_TOGETHER,
    check=says_ann("c1d-"),
)
def _(lab: Range) -> None:
    made = pod("c1d-x", gpus=0, queue="anns", annotations=FORGED)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "7d1c", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    lab.mallory.creates(made, "mal")


@attack("C2", "the stamp changed by server-side apply with --force-conflicts", group=_TOGETHER, check=says_ann("c2-"))
def _(lab: Range) -> None:
    lab.mallory.makes(pod("c2-x", gpus=0), "mal")
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c2-x", "annotations": FORGED}}
    lab.mallory.tries("PATCH", f"{where('pods', 'mal', 'c2-x')}?fieldManager=m&force=true", made, APPLY)


def _unstamped(lab: Range) -> str:
    found = lab.get("pods", "mal", "c2b-x") or {}
    return "" if stamp(found) == "mallory" else f"its stamp is {stamp(found)!r}"


@attack("C2b", "the stamp taken away", group=_TOGETHER, check=_unstamped)
def _(lab: Range) -> None:
    lab.mallory.makes(pod("c2b-x", gpus=0), "mal")
    lab.mallory.annotates("pods", "mal", "c2b-x", user=None)


@attack("C3", "the stamp changed through status, resize and ephemeralcontainers", group=_TOGETHER, check=says_ann("c3-"))
def _(lab: Range) -> None:
    lab.mallory.makes(pod("c3-x", gpus=0), "mal")
    for inner in ("status", "resize", "ephemeralcontainers"):
        body = {"metadata": {"annotations": FORGED}}
        lab.mallory.tries("PATCH", f"{where('pods', 'mal', 'c3-x')}/{inner}", body, "application/merge-patch+json")


@attack(
    "C4", "a ReplicationController's template with the stamp of another user", group=_TOGETHER, check=says_ann("c4"), quick=True
)
def _(lab: Range) -> None:
    lab.mallory.creates(_made("ReplicationController", "c4"), "mal")


for _letter, _kind in (("a", "StatefulSet"), ("b", "ReplicaSet"), ("c", "DaemonSet"), ("d", "Deployment"), ("e", "Job")):

    @attack(
        f"C6{_letter}", f"a {_kind}'s template with the stamp of another user", group=_TOGETHER, check=says_ann(f"c6{_letter}")
    )
    def _(lab: Range, kind: str = _kind, name: str = f"c6{_letter}") -> None:
        made = _made(kind, name)
        made["spec"]["template"]["metadata"]["labels"].pop(names.QUEUE_LABEL)
        made["spec"]["template"]["metadata"]["labels"].pop(names.SERVICE_CLASS_LABEL)
        lab.mallory.creates(made, "mal")


def _cron(lab: Range) -> str:
    found = lab.get("cronjobs", "mal", "c6f")
    if found is None:
        return ""
    inner = found["spec"]["jobTemplate"]
    said = {stamp(inner), stamp(inner["spec"]["template"])}
    return f"its templates say {sorted(said)}" if "ann" in said else ""


@attack("C6f", "a CronJob's templates with the stamp of another user, at creation and by patch", group=_TOGETHER, check=_cron)
def _(lab: Range) -> None:
    lab.mallory.creates(_made("CronJob", "c6f"), "mal")
    inner = {"metadata": {"annotations": FORGED}, "spec": {"template": {"metadata": {"annotations": FORGED}}}}
    lab.mallory.patches("cronjobs", "mal", "c6f", {"spec": {"jobTemplate": inner}})


@attack("C7", "an AIJob with the stamp of another user on itself and in its template", group=_TOGETHER, check=says_ann("c7"))
def _(lab: Range) -> None:
    made = ai_job("c7", gpus=0)
    made["metadata"]["annotations"] = dict(FORGED)
    made["spec"]["roles"][0]["template"]["metadata"] = {"annotations": dict(FORGED)}
    lab.mallory.creates(made, "mal")


@attack("C9", "a suspended Job whose template is stamped by patch before it starts", group=_TOGETHER, check=says_ann("c9"))
def _(lab: Range) -> None:
    made = workload("Job", "c9", template("c9", gpus=0), suspend=True)
    made["metadata"].pop("annotations")
    lab.mallory.makes(made, "mal")
    lab.mallory.patches("jobs", "mal", "c9", {"spec": {"template": {"metadata": {"annotations": FORGED}}}})
    lab.mallory.patches("jobs", "mal", "c9", {"spec": {"suspend": False}})


@attack(
    "C10", "a Deployment whose own stamp is taken away, and another put into its template", group=_TOGETHER, check=says_ann("c10")
)
def _(lab: Range) -> None:
    made = workload("Deployment", "c10", template("c10", gpus=0), replicas=0)
    made["metadata"].pop("annotations")
    lab.mallory.makes(made, "mal")
    lab.mallory.annotates("deployments", "mal", "c10", user=None)
    patch = {"spec": {"replicas": 1, "template": {"metadata": {"annotations": FORGED}}}}
    lab.mallory.patches("deployments", "mal", "c10", patch)


@attack("C5", "a Deployment older than the policies, its template stamped by patch", check=says_ann("older"), group=_TOGETHER)
def _(lab: Range) -> None:
    labels = {**GOLD, names.QUEUE_LABEL: "anns"}
    patch = {"spec": {"replicas": 1, "template": {"metadata": {"labels": labels, "annotations": FORGED}}}}
    lab.mallory.patches("deployments", "mal", "older", patch)


def _passed_on(lab: Range, name: str, owner: dict[str, Any], said: dict[str, Any]) -> None:
    """A trusted operator makes a pod of what the owner's template says, as operators do."""
    made = pod(name, gpus=0, queue="anns", annotations=dict((said.get("metadata") or {}).get("annotations") or {}))
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    answer = lab.trusted.ask("POST", where("pods", "mal"), made)
    if answer.refused:
        lab.refusals.append(f"{answer.code} {answer.message}")


@attack("C5b", "a JobSet whose template is stamped, its pods made by a trusted operator", group=_TOGETHER, check=says_ann("c5b-"))
def _(lab: Range) -> None:
    inner = {"spec": {"template": _anns("c5b")}, "metadata": {"annotations": FORGED}}
    spec = {"replicatedJobs": [{"name": "w", "template": inner}]}
    made = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "c5b"}, "spec": spec}
    made["metadata"] = {"name": "c5b", "annotations": FORGED}
    answer = lab.mallory.creates(made, "mal")
    if answer.refused:
        return
    kept = answer.body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "c5b", "uid": answer.body["metadata"]["uid"]}
    _passed_on(lab, "c5b-x", owner, kept)


@attack("C5c", "a pod of a trusted operator whose owner is of a kind that nobody stamps", group=_TOGETHER, check=says_ann("c5c-"))
def _(lab: Range) -> None:
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c5c", "annotations": FORGED}}
    answer = lab.mallory.creates(made, "mal")
    if not answer.refused:
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c5c", "uid": answer.body["metadata"]["uid"]}
        _passed_on(lab, "c5c-x", owner, {"metadata": {"annotations": FORGED}})


@attack(
    "C8", "the namespace's ServiceAccounts as more users: token, impersonation, RoleBinding", group=_TOGETHER, check=runs("c8-")
)
def _(lab: Range) -> None:
    account = "system:serviceaccount:mal:default"
    lab.mallory.tries("POST", where("pods", "mal"), pod("c8-x", gpus=0), **{"Impersonate-User": account})
    lab.mallory.tries("POST", where("pods", "mal"), pod("c8-y", gpus=0), **{"Impersonate-User": "ann"})
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/mal/rolebindings"
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "mal"}
    role = {"kind": "ClusterRole", "name": "edit", "apiGroup": "rbac.authorization.k8s.io"}
    lab.mallory.tries("POST", rbac, {"metadata": {"name": "c8"}, "subjects": [subject], "roleRef": role})


@attack(
    "C11",
    "a PodTemplate of one's own that is stamped, for controllers that copy it",
    group=_TOGETHER,
    check=runs_in("anns", "c11"),
)
def _(lab: Range) -> None:
    made = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "c11"}, "template": _anns("c11")}
    lab.mallory.creates(made, "mal")


@attack(
    "C12", "a stamped pod created by dry run, its answer taken for a pod", group=_TOGETHER, check=exists("pods", "mal", "c12-x")
)
def _(lab: Range) -> None:
    lab.mallory.tries("POST", f"{where('pods', 'mal')}?dryRun=All", pod("c12-x", gpus=0, annotations=FORGED))


@attack(
    "C13",
    "the annotation in another spelling, through a Deployment into a queue of another's",
    group=_TOGETHER,
    check=runs("c13"),
)
def _(lab: Range) -> None:
    odd = {"Fairlead.dev/user": "ann", "fairlead.dev/User": "ann"}
    lab.mallory.creates(workload("Deployment", "c13", template("c13", gpus=0, queue="anns", annotations=odd)), "mal")


@attack("C14", "a ReplicaSet released and adopted: a pod without a stamp of its own", group=_TOGETHER, check=says_ann("c14"))
def _(lab: Range) -> None:
    lab.mallory.creates(workload("ReplicaSet", "c14", template("c14", gpus=0), replicas=0), "mal")
    lab.mallory.creates(pod("c14-orphan", gpus=0, annotations=FORGED, labels={"app": "c14"}), "mal")
    patch = {"spec": {"replicas": 1, "template": {"metadata": {"annotations": FORGED}}}}
    lab.mallory.patches("replicasets", "mal", "c14", patch)


@attack("O2", "a pod with an owner reference to another tenant's Job, in one namespace", check=answered("o2"), group="")
def _(lab: Range) -> None:
    job = workload("Job", "o2", template("o2", gpus=0, queue="vision"))
    job["metadata"].pop("annotations")
    job["spec"]["template"]["metadata"]["labels"].pop(names.QUEUE_LABEL)
    uid = lab.ann.makes(job, "shared")["metadata"]["uid"]
    made = pod("o2-extra", gpus=0, queue="anns")
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "o2", "uid": uid, "controller": True}
    ]
    lab.mallory.creates(made, "shared")
    if lab.settled("shared", "o2-extra"):
        lab.kept["o2"] = "mallory's pod runs in queue anns as a child of ann's Job"

"""The operator: AIJobs that reach beyond their tenant, or over what is there."""

from __future__ import annotations

from typing import Any

from fairlead.api import names
from testbed.attacks.checks import answered, runs, starves
from testbed.attacks.lab import Range, is_bound
from testbed.attacks.manifests import ai_job, group, pod
from testbed.attacks.model import Catalogue

SUBJECT = Catalogue("operator")
attack = SUBJECT.attack


def _job(lab: Range, name: str, namespace: str = "mal") -> dict[str, Any]:
    return (lab.get("aijobs", namespace, name) or {}).get("status") or {}


def _unsaid(name: str, words: tuple[str, ...]) -> Any:
    """Nothing names what the job waits for."""

    def check(lab: Range) -> str:
        def said() -> bool:
            events = (lab.admin.ask("GET", "/apis/events.k8s.io/v1/namespaces/mal/events").body or {}).get("items", [])
            notes = [str(each.get("note", "")) for each in events if each["regarding"].get("name") == name]
            text = " ".join([*notes, str(_job(lab, name).get("conditions", "")), str(_job(lab, name).get("reason", ""))])
            return any(word in text for word in words)

        return "" if lab.get("aijobs", "mal", name) is None or lab.soon(said, 8.0) else "nothing says what it waits for"

    return check


@attack("I1", "dependencies on jobs of another namespace", check=runs("i1-"))
def _(lab: Range) -> None:
    lab.ann.makes(ai_job("bert", gpus=0, queue="vision"), "vision")
    for number, name in enumerate(("vision/bert", "../vision/bert")):
        lab.mallory.creates(ai_job(f"i1-{number}", gpus=0, dependsOn=[{"job": name, "when": "afterok"}]), "mal")


@attack("I1c", "circles of dependencies", check=runs("i1c-"))
def _(lab: Range) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        lab.mallory.creates(ai_job(f"i1c-{one}", gpus=0, dependsOn=[{"job": f"i1c-{other}", "when": "afterok"}]), "mal")


@attack("I1d", "whether a dependency that is not there is told", check=_unsaid("i1d", ("nosuch",)))
def _(lab: Range) -> None:
    lab.mallory.creates(ai_job("i1d", gpus=0, dependsOn=[{"job": "nosuch", "when": "afterok"}]), "mal")


def _singleton(lab: Range) -> str:
    lab.soon(lambda: lab.bound("shared", "i1b-ann"))
    return "" if lab.bound("shared", "i1b-ann") else "ann's job waits for mallory's of the same singleton label"


@attack("I1b", "the singleton label of another user, in a shared namespace", check=_singleton)
def _(lab: Range) -> None:
    for person, name, queue in ((lab.mallory, "i1b-mallory", "mal"), (lab.ann, "i1b-ann", "borrow")):
        made = ai_job(name, gpus=0, queue=queue, dependsOn=[{"job": "nightly", "when": "singleton"}])
        made["metadata"]["labels"] = {names.SINGLETON_LABEL: "nightly"}
        person.creates(made, "shared")
        lab.soon(lambda name=name: lab.bound("shared", name), 5.0)  # type: ignore[misc]


@attack("O5", "an AIJob over a PodGroup of its name that another made", check=runs("o5", "shared"))
def _(lab: Range) -> None:
    lab.ann.makes(group("o5", 1, "anns", serviceClass="gold"), "shared")
    lab.mallory.creates(ai_job("o5", gpus=0, workers=2), "shared")


@attack(
    "O5b", "whether an existing PodGroup and Service of the job's name are told", check=_unsaid("o5b", ("PodGroup", "Service"))
)
def _(lab: Range) -> None:
    lab.mallory.makes(group("o5b", 1), "mal")
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "o5b"}, "spec": {"ports": [{"port": 1}]}}
    lab.mallory.makes(service, "mal")
    lab.mallory.creates(ai_job("o5b", gpus=0, workers=2), "mal")
    lab.admin.ask("DELETE", "/api/v1/namespaces/mal/services/o5b")


def _ordered(lab: Range) -> str:
    found = lab.soon(lambda: lab.all("provisioningrequests", "mal"), 6.0)
    return f"nodes were ordered of a class of the tenant's choice: {found[0]['spec']}" if found else ""


@attack("O3", "a provisioning class and parameters of the tenant's choice", check=_ordered)
def _(lab: Range) -> None:
    notes = {names.PROVISIONING_CLASS_ANNOTATION: "atomic-scale-up", f"{names.PROVISIONING_PARAMETER_PREFIX}nodes": "1000"}
    made = group("o3", 2)
    made["metadata"]["annotations"] = notes
    lab.mallory.creates(made, "mal")
    for number in range(2):
        lab.mallory.creates(pod(f"o3-{number}", gpus=0, queue="", group="o3", nodeSelector={"no": "such"}), "mal")
    job = ai_job("o3-job", gpus=0, workers=2)
    job["metadata"]["annotations"] = notes
    lab.mallory.creates(job, "mal")


@attack("O6", "status and target of one's own PodGroup and AIJob written", check=answered("o6"))
def _(lab: Range) -> None:
    lab.mallory.makes(group("o6", 1), "mal")
    lab.mallory.makes(ai_job("o6", gpus=0), "mal")
    for plural in ("podgroups", "aijobs"):
        status = {"status": {"phase": "Running", "target": {"state": "Running", "replicas": 100, "epoch": 99}}}
        at = f"/apis/{names.API_VERSION}/namespaces/mal/{plural}/o6/status"
        if not lab.mallory.tries("PATCH", at, status, "application/merge-patch+json").refused:
            lab.kept["o6"] = f"{plural}/status was written"


@attack("O7", "status given along at creation and by update of the object itself", check=answered("o7"))
def _(lab: Range) -> None:
    made = group("o7", 1)
    made["status"] = {"phase": "Running", "target": {"state": "Running", "epoch": 99}}
    lab.mallory.creates(made, "mal")
    lab.mallory.patches("podgroups", "mal", "o7", {"status": {"phase": "Succeeded"}})
    found = (lab.get("podgroups", "mal", "o7") or {}).get("status") or {}
    if found.get("phase") in ("Running", "Succeeded") or found.get("target", {}).get("epoch") == 99:
        lab.kept["o7"] = f"the status is what the tenant wrote: {found}"


@attack("O8", "an AIJob's template with host namespaces, privileges and a service account of others", check=answered("o8"))
def _(lab: Range) -> None:
    made = ai_job("o8", gpus=0)
    spec = made["spec"]["roles"][0]["template"]["spec"]
    spec |= {"serviceAccountName": "fairlead-operator", "automountServiceAccountToken": True}
    lab.mallory.creates(made, "mal")
    for each in lab.made("mal", "o8"):
        if is_bound(each) and each["metadata"]["namespace"] != "mal":
            lab.kept["o8"] = "its pod runs in another namespace"


@attack("O9", "an AIJob's template that names another namespace", check=runs("o9", "vision"))
def _(lab: Range) -> None:
    made = ai_job("o9", gpus=0)
    made["spec"]["roles"][0]["template"]["metadata"] = {"namespace": "vision", "name": "o9"}
    lab.mallory.creates(made, "mal")
    lab.soon(lambda: lab.bound("mal", "o9") or lab.bound("vision", "o9"), 6.0)


@attack("O10", "an AIJob's template that overrides the labels by which its members are known", check=starves("o10v"))
def _(lab: Range) -> None:
    labels = {names.POD_GROUP_LABEL: "bert", names.JOB_LABEL: "bert", names.INDEX_LABEL: "x", names.ATTEMPT_LABEL: "-1"}
    lab.mallory.creates(ai_job("o10", gpus=0, labels=labels), "mal")
    lab.soon(lambda: lab.bound("mal", "o10"), 5.0)


def _finalized(lab: Range) -> str:
    lab.ann.makes(ai_job("o11v", queue="vision"), "vision")
    return "" if lab.soon(lambda: lab.bound("vision", "o11v")) else "ann's AIJob does not start"


@attack("O11", "AIJobs with finalizers, deleted while they start", check=_finalized)
def _(lab: Range) -> None:
    for number in range(3):
        made = ai_job(f"o11-{number}", gpus=0)
        made["metadata"]["finalizers"] = ["mallory.example/x"]
        lab.mallory.creates(made, "mal")
        lab.mallory.removes("aijobs", "mal", f"o11-{number}")


@attack("O12", "a tenant's pod that poses as a member of its AIJob, to be counted as succeeded", check=answered("o12"))
def _(lab: Range) -> None:
    made = ai_job("o12", gpus=0, workers=2)
    uid = lab.mallory.makes(made, "mal")["metadata"]["uid"]
    owner = [{"apiVersion": names.API_VERSION, "kind": "AIJob", "name": "o12", "uid": uid, "controller": True}]
    posed = pod("o12-worker-7", gpus=0, queue="borrow", labels={names.JOB_LABEL: "o12", names.ROLE_LABEL: "worker"})
    posed["metadata"]["ownerReferences"] = owner
    lab.mallory.creates(posed, "mal")
    lab.until("its members run", lambda: len([n for n in lab.bound("mal", "o12") if n != "o12-worker-7"]) >= 1)


def _goes_on(lab: Range) -> str:
    lab.soon(lab.ended, 1.0)
    lab.ann.makes(ai_job("goes-on", queue="vision"), "vision")
    return "" if lab.soon(lambda: lab.bound("vision", "goes-on")) else "ann's AIJob does not start"


@attack("O13", "names of 253 characters, with dots, for AIJobs and PodGroups", check=_goes_on)
def _(lab: Range) -> None:
    for number, name in enumerate(("n" * 253, ".".join(["n" * 50] * 4), "1.2.3", "n" * 63)):
        lab.mallory.creates(ai_job(name, gpus=0, workers=2), "mal")
        lab.mallory.creates(group(f"{number}.{name[:200]}", 1), "mal")


@attack("O14", "roles of one name twice, a thousand roles, a template of 500 kB", check=_goes_on)
def _(lab: Range) -> None:
    twice = ai_job("o14-twice", gpus=0)
    twice["spec"]["roles"] *= 2
    lab.mallory.creates(twice, "mal")
    many = ai_job("o14-many", gpus=0)
    role = many["spec"]["roles"][0]
    many["spec"]["roles"] = [{**role, "name": f"r{number}"} for number in range(1000)]
    lab.mallory.creates(many, "mal")
    large = ai_job("o14-large", gpus=0, workers=20)
    large["spec"]["roles"][0]["template"]["metadata"] = {"annotations": {"x": "y" * 200_000}}
    lab.mallory.creates(large, "mal")


@attack("O15", "a job suspended and resumed without pause", check=_goes_on)
def _(lab: Range) -> None:
    lab.mallory.makes(ai_job("o15", gpus=0, workers=3), "mal")
    for number in range(60):
        lab.mallory.patches("aijobs", "mal", "o15", {"spec": {"suspend": number % 2 == 0}})


@attack("O16", "a running AIJob's roles, replicas and templates exchanged", check=_goes_on)
def _(lab: Range) -> None:
    lab.mallory.makes(ai_job("o16", gpus=0, workers=2), "mal")
    lab.until("o16 runs", lambda: len(lab.bound("mal", "o16")) == 2)
    other = ai_job("o16", gpus=4, workers=50)["spec"]["roles"]
    lab.mallory.patches("aijobs", "mal", "o16", {"spec": {"roles": [{**other[0], "name": "other"}]}})
    lab.mallory.patches("aijobs", "mal", "o16", {"spec": {"roles": []}})

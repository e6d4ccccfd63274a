"""Leaks and rights: what of others a tenant may read or write, through the API server and past it."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable
from typing import Any

from fairlead.api import names
from testbed.attacks.checks import answered
from testbed.attacks.lab import Range
from testbed.attacks.manifests import pod, template, workload
from testbed.attacks.model import Catalogue
from testbed.attacks.people import MERGE, where

SUBJECT = Catalogue("leaks")
attack = SUBJECT.attack
_RIGHTS = "rights"
_OURS = f"/apis/{names.API_VERSION}"
_METRIC = "/apis/external.metrics.k8s.io/v1beta1/namespaces"
_SEEN = "/apis/visibility.fairlead.dev/v1alpha1/namespaces"
_HISTORY = "/apis/history.fairlead.dev/v1alpha1/namespaces"

_WRITES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("H1a", "a queue's limit changed", "PATCH", f"{_OURS}/queues/mal", {"spec": {"resources": []}}),
    ("H1b", "a queue's status written", "PATCH", f"{_OURS}/queues/mal/status", {"status": {"conditions": []}}),
    ("H1c", "a queue of one's own made", "POST", f"{_OURS}/queues", {"metadata": {"name": "mine"}, "spec": {}}),
    ("H1d", "a class of service changed", "PATCH", f"{_OURS}/serviceclasses/gold", {"spec": {"users": ["mallory"]}}),
    (
        "H1e",
        "a reservation of all nodes made",
        "POST",
        f"{_OURS}/reservations",
        {
            "metadata": {"name": "r"},
            "spec": {"purpose": "Capacity", "start": "2026-01-01T00:00:00Z", "end": "2030-01-01T00:00:00Z", "queue": "mal"},
        },
    ),
    (
        "H1f",
        "a node labelled into another pool",
        "PATCH",
        "/api/v1/nodes/n1",
        {"metadata": {"labels": {"fairlead.dev/pool": "x"}}},
    ),
    (
        "H1g",
        "a pod's status written in another namespace",
        "PATCH",
        "/api/v1/namespaces/vision/pods/x/status",
        {"status": {"phase": "Failed"}},
    ),
    (
        "H1h",
        "the scheduler's lease taken",
        "PATCH",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fairlead-scheduler",
        {"spec": {"holderIdentity": "mallory"}},
    ),
    (
        "H1i",
        "a ClusterRole extended",
        "PATCH",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/fairlead-scheduler",
        {"rules": []},
    ),
    (
        "H1j",
        "a policy deleted",
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/fairlead-user-immutable",
        {},
    ),
    (
        "H1k",
        "the namespace labelled as another team's",
        "PATCH",
        "/api/v1/namespaces/mal",
        {"metadata": {"labels": {"team": "vision"}}},
    ),
    (
        "H1l",
        "a namespace of one's own made",
        "POST",
        "/api/v1/namespaces",
        {"metadata": {"name": "mine", "labels": {"team": "vision"}}},
    ),
    (
        "H1m",
        "an AIJob in kube-system",
        "POST",
        f"{_OURS}/namespaces/kube-system/aijobs",
        {
            "apiVersion": names.API_VERSION,
            "kind": "AIJob",
            "metadata": {"name": "x"},
            "spec": {"roles": [{"name": "w", "template": {}}]},
        },
    ),
    ("H1n", "another tenant's pods evicted", "POST", "/api/v1/namespaces/vision/pods/x/eviction", {"metadata": {"name": "x"}}),
    ("H1o", "a NodePool's price changed", "POST", f"{_OURS}/nodepools", {"metadata": {"name": "p"}, "spec": {}}),
    (
        "H1p",
        "the CustomResourceDefinition changed",
        "PATCH",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.fairlead.dev",
        {"spec": {}},
    ),
)

for _id, _title, _method, _path, _body in _WRITES:

    @attack(_id, _title, group=_RIGHTS, check=answered(_id), quick=_id == "H1a")
    def _(lab: Range, method: str = _method, path: str = _path, body: Any = _body, key: str = _id) -> None:
        kind = MERGE if method == "PATCH" else "application/json"
        if not lab.mallory.tries(method, path, body, kind).refused:
            lab.kept[key] = f"{method} {path} was done"


_READS = (
    ("H1q", "secrets of kube-system", "/api/v1/namespaces/kube-system/secrets"),
    ("H1r", "pods of another tenant", "/api/v1/namespaces/vision/pods"),
    ("H1s", "pending jobs of another tenant", f"{_SEEN}/vision/pendingjobs"),
    ("H1t", "the history of another tenant", f"{_HISTORY}/vision/jobs"),
    ("H1u", "explanations of another tenant's pods", f"{_SEEN}/vision/pods/x/explanation"),
    ("H1v", "a queue's metrics asked by hand", f"{_METRIC}/mal/fairlead_queue_pending_jobs?labelSelector=queue%3Dvision"),
    ("H2b", "the namespace hidden in the path", f"{_SEEN}/mal%2f..%2fvision/pendingjobs"),
    ("H2c", "the namespace in the query", f"{_HISTORY}/mal/jobs?namespace=vision&namespace=mal"),
    ("H2d", "SQL in the query", f"{_HISTORY}/mal/jobs?user=%27%20OR%201%3D1%20--&queue=%27%3BDROP%20TABLE%20jobs"),
    ("H2e", "dots in the path", f"{_SEEN}/mal/../vision/pendingjobs"),
    ("H2f", "another's pod named through one's own namespace", f"{_SEEN}/mal/pods/..%2f..%2fvision%2fpods%2fleak-v/explanation"),
)

for _id, _title, _path in _READS:

    @attack(_id, f"{_title}: read", group=_RIGHTS, check=answered(_id))
    def _(lab: Range, path: str = _path, key: str = _id) -> None:
        if not lab.get("pods", "vision", "leak-v"):
            # What must not be read: a pod of ann's that waits.
            lab.ann.makes(pod("leak-v", gpus=8, queue="vision", nodeSelector={"no": "such"}), "vision")
            lab.settled("vision", "leak-v")
        answer = lab.mallory.tries("GET", path)
        text = json.dumps(answer.body)
        if not answer.refused and ("leak-v" in text or '"vision"' in text):
            lab.kept[key] = f"{path} answered: {text[:120]}"


@attack("H3", "bindings of stale, negative and unreadable epochs", group=_RIGHTS, check=answered("H3"))
def _(lab: Range) -> None:
    lab.mallory.makes(pod("h3-x", gpus=0, scheduler="nobody"), "mal")
    for epoch in ("-1", "0", "abc"):
        body = {
            "metadata": {"name": "h3-x", "annotations": {names.EPOCH_ANNOTATION: epoch}},
            "target": {"kind": "Node", "name": "n1"},
        }
        if not lab.mallory.tries("POST", f"{where('pods', 'mal', 'h3-x')}/binding", body).refused:
            lab.kept["H3"] = f"a binding of epoch {epoch} was taken"


_SERVERS = (
    ("visibility", f"{_SEEN}/vision/pendingjobs"),
    ("history", f"{_HISTORY}/vision/jobs"),
    ("external-metrics", f"{_METRIC}/mal/fairlead_queue_pending_jobs"),
)


def _direct(lab: Range, port: int, path: str, *, certificate: bool, headers: dict[str, str]) -> int | None:
    """The status that a server of ours answers directly; None where TLS refuses."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate:
        folder = lab.mallory.kubeconfig.parent
        context.load_cert_chain(folder / "mallory.crt", folder / "mallory.key")
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


for _name, _path in _SERVERS:

    @attack(
        f"H2-{_name}",
        f"{_name} asked directly as system:masters, without and with a certificate",
        group=_RIGHTS,
        check=answered(f"H2-{_name}"),
    )
    def _(lab: Range, name: str = _name, path: str = _path) -> None:
        claims = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
        for certificate in (False, True):
            code = _direct(lab, lab.served[name], path, certificate=certificate, headers=claims)
            if code is not None and code < 400:
                lab.kept[f"H2-{name}"] = f"it answered {code}"
            lab.refusals.append("TLS refuses the certificate" if code is None else f"{code}")


def _alive(lab: Range) -> str:
    return str(lab.kept.get("H2g", "")) or (
        "" if not lab.admin.ask("GET", "/apis/visibility.fairlead.dev/v1alpha1").refused else "it no longer serves"
    )


@attack("H2g", "selectors and paths of megabytes to the aggregated APIs", group=_RIGHTS, check=_alive)
def _(lab: Range) -> None:
    long = "queue%3D" + "v" * 60_000
    for path in (
        f"{_METRIC}/mal/fairlead_queue_pending_jobs?labelSelector={long}",
        f"{_SEEN}/mal/pods/{'p' * 60_000}/explanation",
    ):
        lab.mallory.tries("GET", path)
    lab.mallory.tries("GET", f"{_METRIC}/mal/fairlead_queue_pending_jobs?labelSelector=queue+in+((((")
    lab.mallory.tries("POST", f"{_SEEN}/mal/pendingjobs", b"x" * 2_000_000)


def _follows(name: str) -> Callable[[Range], str]:
    """Whether the autoscaler of a name reads anything."""

    def check(lab: Range) -> str:
        def active() -> dict[str, Any]:
            status = (lab.get("horizontalpodautoscalers", "mal", name) or {}).get("status") or {}
            found: dict[str, Any] = {each["type"]: each for each in status.get("conditions", [])}.get("ScalingActive", {})
            return found

        lab.until("the autoscaler has looked", active, 30.0)
        if not lab.soon(lambda: active().get("status") == "True", 4.0):
            lab.refusals.append(str(active().get("message", ""))[:200])
            return ""
        current = (lab.get("horizontalpodautoscalers", "mal", name) or {})["status"].get("currentMetrics")
        return f"the autoscaler reads queue vision: {json.dumps(current)[:140]}"

    return check


def _autoscaler(lab: Range, name: str, selector: dict[str, Any]) -> None:
    if not lab.get("pods", "vision", "leak-v"):
        lab.ann.makes(pod("leak-v", gpus=8, queue="vision", nodeSelector={"no": "such"}), "vision")
    metric = {"name": "fairlead_queue_pending_jobs", "selector": selector}
    external = {"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": "1"}}}
    followed = workload("Deployment", name, template(name, gpus=0))
    followed["metadata"].pop("annotations")
    lab.mallory.makes(followed, "mal")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    made = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3, "metrics": [external]},
    }
    lab.mallory.creates(made, "mal")


@attack("K6", "a HorizontalPodAutoscaler that follows another tenant's queue", check=_follows("k6"), quick=True)
def _(lab: Range) -> None:
    _autoscaler(lab, "k6", {"matchLabels": {"queue": "vision"}})


@attack("K6b", "the same by an expression that names no queue of its own", check=_follows("k6b"))
def _(lab: Range) -> None:
    _autoscaler(lab, "k6b", {"matchExpressions": [{"key": "queue", "operator": "In", "values": ["vision", "anns"]}]})


def _agent(lab: Range) -> str:
    allowed = []
    for verb, resource, namespace in (("get", "secrets", "vision"), ("get", "secrets", "kube-system"), ("list", "secrets", "")):
        spec = {"user": "fairlead-agent", "resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace}}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = lab.admin.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        if answer.body["status"]["allowed"]:
            allowed.append(f"{verb} {resource} in {namespace or 'all namespaces'}")
    return f"whoever runs a job on an agent's node may, with its kubeconfig: {', '.join(allowed)}" if allowed else ""


@attack("Q4", "the agent's rights, from a job on its node: every secret of the cluster", check=_agent)
def _(lab: Range) -> None:
    """Nothing is tried but to ask what they are: a job on such a node can read the agent's kubeconfig."""


def _scraped(lab: Range) -> str:
    names_of = ("leak-name", "mallory", "mal/")
    found = [line for line in lab.metrics().splitlines() if any(each in line for each in names_of)]
    return f"names of tenants' objects in /metrics: {found[0][:120]}" if found else ""


@attack("K10", "names and users of tenants' objects in /metrics", check=_scraped)
def _(lab: Range) -> None:
    lab.ann.makes(pod("leak-name", gpus=8, queue="vision", nodeSelector={"no": "such"}), "vision")
    lab.settled("vision", "leak-name")

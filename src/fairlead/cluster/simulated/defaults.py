"""The API server's defaults for fields that objects of built-in kinds leave out. Kinds without an entry stay as they come."""

from __future__ import annotations

import base64
from collections.abc import Callable

from fairlead.cluster.simulated import device_defaults
from fairlead.cluster.simulated.resources import CLAIMS, SLICES, TEMPLATES
from fairlead.cluster.simulated.store import Object

NAME_LABEL = "kubernetes.io/metadata.name"


def default_pod(obj: Object, _now: str) -> None:
    """Fill in what the API server fills in; obj is the caller's own, nested parts are replaced."""
    spec = obj["spec"] = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        **(obj.get("spec") or {}),
    }
    if isinstance(spec["terminationGracePeriodSeconds"], int) and spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for field in ("containers", "initContainers"):
        if isinstance(spec.get(field), list):
            spec[field] = [_default_container(each) for each in spec[field]]
    if "metadata" in obj:  # else it is the template of pods
        _merge_label_keys(obj)
    obj["status"] = {"phase": "Pending", "qosClass": _quality(spec)}
    spec["tolerations"] = tolerating(spec)["tolerations"]


def tolerating(spec: Object) -> Object:
    """A pod's spec that tolerates a node's absence for a while, unless it has tolerations for it; updates need it, too."""
    tolerations = list(spec.get("tolerations") or ())
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(each.get("key") in (key, None, "") and each.get("effect") in ("NoExecute", None, "") for each in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    if len(tolerations) == len(spec.get("tolerations") or ()):
        return spec
    return {**spec, "tolerations": tolerations}


def _merge_label_keys(obj: Object) -> None:
    """Put the pod's own values of `matchLabelKeys` and `mismatchLabelKeys` into the selectors they belong to."""
    spec, labels = obj["spec"], obj["metadata"].get("labels") or {}
    affinity = spec.get("affinity")
    if isinstance(affinity, dict):
        affinity = spec["affinity"] = dict(affinity)
        for kind in ("podAffinity", "podAntiAffinity"):
            if isinstance(affinity.get(kind), dict):
                affinity[kind] = {when: [_with_keys(each, labels) for each in terms] for when, terms in affinity[kind].items()}
    if isinstance(spec.get("topologySpreadConstraints"), list):
        spec["topologySpreadConstraints"] = [_with_keys(each, labels) for each in spec["topologySpreadConstraints"]]


def _with_keys(term: Object, labels: dict[str, str]) -> Object:
    if isinstance(term.get("podAffinityTerm"), dict):
        return {**term, "podAffinityTerm": _with_keys(term["podAffinityTerm"], labels)}
    more = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(keys) or ()
        if key in labels
    ]
    selector = term.get("labelSelector")
    if not more or not isinstance(selector, dict):
        return term
    return {**term, "labelSelector": {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *more]}}


def _default_container(container: Object) -> Object:
    image = str(container.get("image", ""))
    latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    result = {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if latest else "IfNotPresent",
        **container,
    }
    resources = result["resources"]
    if resources.get("limits"):
        result["resources"] = {**resources, "requests": {**resources["limits"], **(resources.get("requests") or {})}}
    if container.get("ports"):
        result["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    return result


def _quality(spec: Object) -> str:
    """The quality of service class."""
    guaranteed, anything = True, False
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        anything |= any(name in requests or name in limits for name in ("cpu", "memory"))
        guaranteed &= all(name in limits and requests.get(name, limits[name]) == limits[name] for name in ("cpu", "memory"))
    return "Guaranteed" if guaranteed and anything else "Burstable" if anything else "BestEffort"


def default_node(obj: Object, _now: str) -> None:
    """A new node is not ready, whatever its spec (the admission plugin TaintNodesByCondition)."""
    spec = obj["spec"] = dict(obj.get("spec") or {})
    taints = list(spec.get("taints") or ())
    if not any(each.get("key") == "node.kubernetes.io/not-ready" for each in taints):
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    spec["taints"] = taints
    status = obj["status"] = dict(obj.get("status") or {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = status["capacity"]


def default_namespace(obj: Object, _now: str) -> None:
    """Active, finalised by `kubernetes`, labelled with its own name."""
    obj["spec"] = {"finalizers": ["kubernetes"]}
    obj["status"] = {"phase": "Active"}
    metadata = obj["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), NAME_LABEL: metadata["name"]}


def default_priority_class(obj: Object, _now: str) -> None:
    """It preempts unless it excludes that."""
    obj.setdefault("value", 0)
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def default_job(obj: Object, _now: str) -> None:
    """Completions, parallelism, back-off; the selector and the labels of its pods."""
    spec = obj["spec"] = dict(obj.get("spec") or {})
    spec.setdefault("parallelism", 1)
    if spec.get("completions") is None and spec["parallelism"] == 1:
        spec["completions"] = 1
    for name, value in (
        ("backoffLimit", 6),
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("podReplacementPolicy", "TerminatingOrFailed"),
    ):
        spec.setdefault(name, value)
    template = spec["template"] = dict(spec.get("template") or {})
    uid = obj["metadata"]["uid"]
    marked = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": obj["metadata"]["name"],
        "controller-uid": uid,
        "job-name": obj["metadata"]["name"],
    }
    metadata = template["metadata"] = dict(template.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **marked}
    spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
    spec["template"] = _default_template(template)
    obj["status"] = {}


def _default_template(template: Object) -> Object:
    whole: Object = {"spec": dict(template.get("spec") or {})}
    default_pod(whole, "")
    for name in ("enableServiceLinks", "preemptionPolicy", "priority", "tolerations"):
        if name not in (template.get("spec") or {}):
            whole["spec"].pop(name, None)
    return {**template, "spec": whole["spec"]}


def default_workload(obj: Object, _now: str) -> None:
    """Deployments, ReplicaSets, StatefulSets: one replica, defaulted template."""
    spec = obj["spec"] = dict(obj.get("spec") or {})
    spec.setdefault("replicas", 1)
    if spec.get("template"):
        spec["template"] = _default_template(spec["template"])
    if obj.get("kind") == "Deployment":
        spec.setdefault("progressDeadlineSeconds", 600)
        spec.setdefault("revisionHistoryLimit", 10)
        strategy = spec["strategy"] = dict(spec.get("strategy") or {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy["rollingUpdate"] = {"maxSurge": "25%", "maxUnavailable": "25%", **(strategy.get("rollingUpdate") or {})}
    obj["status"] = {} if obj.get("kind") == "Deployment" else {"replicas": 0}


def default_budget(obj: Object, _now: str) -> None:
    """No status until the controller counts."""
    obj["status"] = {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}


def default_definition(obj: Object, now: str) -> None:
    """Accepted names and conditions: this server establishes a definition at once."""
    spec = obj["spec"] = dict(obj.get("spec") or {})
    names = spec["names"] = dict(spec.get("names") or {})
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    spec.setdefault("conversion", {"strategy": "None"})
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in spec.get("versions") or () if version.get("storage")]
    obj["status"] = {"conditions": conditions, "acceptedNames": names, "storedVersions": stored}


def default_secret(obj: Object, _now: str) -> None:
    """Its type; what was given as text joins what was given in base64."""
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None) or {}
    if plain:
        coded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **coded}


def default_cron_job(obj: Object, _now: str) -> None:
    """What happens where runs overlap, and how many are kept."""
    spec = obj["spec"] = dict(obj.get("spec") or {})
    for name, value in (
        ("concurrencyPolicy", "Allow"),
        ("suspend", False),
        ("successfulJobsHistoryLimit", 3),
        ("failedJobsHistoryLimit", 1),
    ):
        spec.setdefault(name, value)
    obj["status"] = {}


def default_claim(obj: Object, _now: str) -> None:
    """A file system, pending until it is bound to a volume."""
    obj["spec"] = {"volumeMode": "Filesystem", **(obj.get("spec") or {})}
    obj["status"] = {"phase": "Pending"}


Default = Callable[[Object, str], None]

DEFAULTS: dict[str, Default] = {
    "pods": default_pod,
    "nodes": default_node,
    "namespaces": default_namespace,
    "scheduling.k8s.io/priorityclasses": default_priority_class,
    "batch/jobs": default_job,
    "batch/cronjobs": default_cron_job,
    "secrets": default_secret,
    "persistentvolumeclaims": default_claim,
    "policy/poddisruptionbudgets": default_budget,
    "apps/deployments": default_workload,
    "apps/replicasets": default_workload,
    "apps/statefulsets": default_workload,
    "apiextensions.k8s.io/customresourcedefinitions": default_definition,
    CLAIMS: device_defaults.default_claim,
    TEMPLATES: device_defaults.default_template,
    SLICES: device_defaults.default_slice,
}

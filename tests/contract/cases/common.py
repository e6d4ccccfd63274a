"""What all cases share: paths, forms, small objects. A case is a function of the API; its name states the rule."""

from __future__ import annotations

from tests.protobuf import field

JSON, YAML = "application/json", "application/yaml"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
NS = "contract"
PODS, CMS = f"/api/v1/namespaces/{NS}/pods", f"/api/v1/namespaces/{NS}/configmaps"
NODES, CLASSES = "/api/v1/nodes", "/apis/scheduling.k8s.io/v1/priorityclasses"
GROUPS, QUEUES = f"/apis/fairlead.dev/v1alpha1/namespaces/{NS}/podgroups", "/apis/fairlead.dev/v1alpha1/queues"
AI_JOBS = f"/apis/fairlead.dev/v1alpha1/namespaces/{NS}/aijobs"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NS}/leases"
BUDGETS = f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets"
EVENTS, NEW_EVENTS = f"/api/v1/namespaces/{NS}/events", f"/apis/events.k8s.io/v1/namespaces/{NS}/events"
JOBS, DEPLOYMENTS = f"/apis/batch/v1/namespaces/{NS}/jobs", f"/apis/apps/v1/namespaces/{NS}/deployments"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
NAMESPACES, SECRETS = "/api/v1/namespaces", f"/api/v1/namespaces/{NS}/secrets"
CRON_JOBS = f"/apis/batch/v1/namespaces/{NS}/cronjobs"

CASES = {}


def case(function):
    assert function.__name__ not in CASES, f"two cases are called {function.__name__}"
    CASES[function.__name__] = function
    return function


def pod(name, **spec):
    container = {"name": "main", "image": "pause:3.10", "resources": {"requests": {"cpu": "1"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def config(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def group(name, **spec):
    return {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 1, **spec},
    }


def node(name, **more):
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts},
        **more,
    }


def bind(api, name, to="n1", **metadata):
    return api.post(f"{PODS}/{name}/binding", {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": to}})


def metadata(name, *more):
    return field(1, field(1, name) + field(2, "") + field(8, b"") + b"".join(more))


def queue(name, **more):
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": {}, **more}


def deployment(name, replicas):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def names_of(listed):
    return [item["metadata"]["name"].rpartition("-")[2] for item in listed["items"]]


def selected(api, selector):
    return names_of(api.get(f"{CMS}?labelSelector={selector}").ok())


def several(api, count=5, **labels):
    for index in range(count):
        made = config(f"{api.name}-{index}")
        made["metadata"]["labels"] = {"case": api.name, "number": str(index), "half": "low" if index < 2 else "high", **labels}
        api.post(CMS, made).ok(201)

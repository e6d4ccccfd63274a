"""Whatever is sent to the simulated API server, it answers with a Status, and never fails itself."""

import json
import random

import pytest

from fairlead.api import crds
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.messages import Reply, Request
from fairlead.cluster.simulated.wire import Wire
from testbed import objects

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
VALUES = [None, 1, -1, 1.5, True, "x", "", [], {}, [1], ["x"], {"a": 1}, {"a": None}, [None], [{}], "1e1000", 2**70, "\0", [[]]]
OBJECTS = [
    {
        **objects.pod("p", group="g", annotations={"a": "b"}, tolerations=[{"key": "a", "operator": "Exists"}]),
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    },
    objects.pod_group("g", 2, "team"),
    objects.queue("q", quota=1, limit="5%"),
    objects.node("n", taints=[{"key": "a", "effect": "NoSchedule"}]),
    objects.priority_class("c", 5),
    {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "completions": 2,
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]},
            },
        },
    },
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "x"}]}},
        },
    },
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {}},
    },
    {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 1}},
    {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "regarding": {"name": "p"}, "note": "x"},
    crds.definitions()[0],
]


def mutated(source, obj):
    """The object with one place in it replaced by something that does not belong there."""
    copy = json.loads(json.dumps(obj))

    def places(value, path=()):
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, each in items:
            yield (*path, key)
            yield from places(each, (*path, key))

    *way, last = source.choice(list(places(copy)))
    here = copy
    for key in way:
        here = here[key]
    here[last] = source.choice(VALUES)
    return copy


@pytest.mark.parametrize("seed", range(8))
def test_nothing_that_is_sent_makes_it_fail(seed):
    source = random.Random(seed)
    api = ApiServer(Clock(start=1.7e9))
    for each in crds.definitions():
        api.create(api.served("apiextensions.k8s.io/v1", "customresourcedefinitions"), "", each)
    wire = Wire(api)
    statuses = set()

    def send(method, path, body=None, content_type="application/json", **query):
        headers = {"content-type": content_type, "accept": "application/json"}
        reply = wire.handle(Request(method, path, query, headers, b"" if body is None else json.dumps(body).encode()))
        if isinstance(reply, Reply):
            statuses.add(reply.status)
            assert b"Internal error" not in reply.body, (method, path, body, reply.body)
            if reply.status >= 400 and reply.content_type == "application/json":
                assert json.loads(reply.body)["kind"] == "Status"

    for _ in range(150):
        obj = source.choice(OBJECTS)
        path = objects.path(obj)
        one = f"{path}/{obj['metadata']['name']}"
        send("POST", path, source.choice((obj, mutated(source, obj))))
        send("PUT", source.choice((one, f"{one}/status")), mutated(source, obj))
        send("PATCH", one, mutated(source, obj), source.choice((MERGE, STRATEGIC)))
        send("PATCH", one, mutated(source, obj), "application/apply-patch+yaml", fieldManager=source.choice("ab"), force="true")
        where = source.choice(("/spec", "/metadata/labels", "/spec/containers/0", "bad", "/metadata/name"))
        step = {
            "op": source.choice(("add", "remove", "replace", "test", "move", "x")),
            "path": where,
            "value": source.choice(VALUES),
        }
        send("PATCH", one, [step], "application/json-patch+json")
        pod = "/api/v1/namespaces/default/pods/p"
        send("POST", f"{pod}/binding", mutated(source, {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}))
        options = {"gracePeriodSeconds": 1, "preconditions": {"uid": "x"}, "dryRun": ["All"]}
        send("POST", f"{pod}/eviction", mutated(source, {"metadata": {"name": "p"}, "deleteOptions": options}))
        send("PATCH", "/apis/apps/v1/namespaces/default/deployments/d/scale", mutated(source, {"spec": {"replicas": 1}}), MERGE)
        send("DELETE", one, mutated(source, {"propagationPolicy": "Foreground", **options}))
        send("GET", source.choice((path, one)), labelSelector=source.choice(("a=b", "a in (", "!", "a>x", ",")))
    assert {200, 201, 400, 422} <= statuses

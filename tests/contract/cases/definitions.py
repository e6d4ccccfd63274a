"""Definitions of kinds, and discovery."""

from __future__ import annotations

from tests.contract.cases.common import NS, case


def definition(api, kind, required=()):
    plural = f"{kind.lower()}s"
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": list(required),
                "properties": {"size": {"type": "integer", "default": 3}, "colour": {"type": "string", "enum": ["red", "blue"]}},
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.contract.example"},
        "spec": {
            "group": "contract.example",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@case
def a_definition_makes_a_kind(api):
    api.post(DEFINITIONS, definition(api, "Widget")).ok(201)
    path = f"/apis/contract.example/v1/namespaces/{NS}/widgets"
    api.until(lambda: api.get(path).status == 200)
    body = {"apiVersion": "contract.example/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"colour": "red"}}
    api.until(lambda: api.post(path, body).status in (201, 409))
    assert api.get(f"{path}/a").ok()["spec"] == {"colour": "red", "size": 3}
    api.post(path, {**body, "metadata": {"name": "b"}, "spec": {"colour": "green"}}).no(422, "Invalid", "Unsupported value")
    api.delete(f"{DEFINITIONS}/widgets.contract.example")
    api.until(lambda: api.get(path).status == 404)


@case
def a_definition_is_named_after_its_kind(api):
    bad = definition(api, "Gadget")
    bad["metadata"]["name"] = "wrong.contract.example"
    api.post(DEFINITIONS, bad).no(422, "Invalid", 'must be spec.names.plural+"."+spec.group')


@case
def a_definition_needs_a_schema(api):
    bad = definition(api, "Gizmo")
    del bad["spec"]["versions"][0]["schema"]
    api.post(DEFINITIONS, bad).no(422, "Invalid", "spec.versions[0].schema.openAPIV3Schema: Required value")


@case
def core_resources_are_listed(api):
    listed = api.get("/api/v1").ok()
    pods = next(each for each in listed["resources"] if each["name"] == "pods")
    assert (pods["kind"], pods["namespaced"], pods["shortNames"]) == ("Pod", True, ["po"])
    assert pods["verbs"] == ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    assert {"pods/binding", "pods/eviction", "pods/status", "pods/log"} <= {each["name"] for each in listed["resources"]}


@case
def groups_are_listed(api):
    groups = {each["name"]: each for each in api.get("/apis").ok()["groups"]}
    assert groups["batch"]["preferredVersion"] == {"groupVersion": "batch/v1", "version": "v1"}
    assert groups["fairlead.dev"]["versions"] == [{"groupVersion": "fairlead.dev/v1alpha1", "version": "v1alpha1"}]


@case
def a_group_is_described(api):
    found = api.get("/apis/fairlead.dev").ok()
    assert (found["kind"], found["name"]) == ("APIGroup", "fairlead.dev")


@case
def custom_resources_are_listed(api):
    listed = api.get("/apis/fairlead.dev/v1alpha1").ok()["resources"]
    queue = next(each for each in listed if each["name"] == "queues")
    assert (queue["singularName"], queue["namespaced"], queue["kind"], queue["shortNames"]) == ("queue", False, "Queue", ["fq"])
    assert "queues/status" in {each["name"] for each in listed}


@case
def the_version_is_told(api):
    assert api.get("/version").ok()["gitVersion"] == "v1.36.3"


@case
def health_is_told(api):
    for path in ("/healthz", "/livez", "/readyz"):
        answer = api.get(path)
        assert (answer.status, answer.text) == (200, "ok")


@case
def openapi_is_told(api):
    paths = api.get("/openapi/v3").ok()["paths"]
    assert {"api/v1", "apis/batch/v1"} <= set(paths)
    document = api.get(paths["apis/batch/v1"]["serverRelativeURL"]).ok()
    assert document["openapi"].startswith("3.0")
    assert any(name.endswith("batch.v1.Job") for name in document["components"]["schemas"])

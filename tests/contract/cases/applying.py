"""Server-side apply."""

from __future__ import annotations

import json

from tests.contract.cases.common import APPLY, CMS, GROUPS, MERGE, PODS, QUEUES, case, config, group, pod


def apply(api, path, body, manager="one", force=False, below=""):
    query = f"?fieldManager={manager}{'&force=true' if force else ''}"
    return api.patch(f"{path}/{body['metadata']['name']}{below}{query}", body, APPLY)


@case
def apply_creates(api):
    made = apply(api, CMS, config(api.name, a="1")).ok(201)
    entry = made["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("one", "Apply", "v1")
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}}}


@case
def apply_changes_and_removes_what_it_owned(api):
    apply(api, CMS, config(api.name, a="1", b="2")).ok(201)
    assert apply(api, CMS, config(api.name, a="3")).ok()["data"] == {"a": "3"}


@case
def apply_leaves_what_others_own(api):
    apply(api, CMS, config(api.name, a="1")).ok(201)
    done = apply(api, CMS, config(api.name, b="2"), manager="two").ok()
    assert done["data"] == {"a": "1", "b": "2"}


@case
def apply_conflicts_with_another_applier(api):
    apply(api, CMS, config(api.name, a="1")).ok(201)
    answer = apply(api, CMS, config(api.name, a="2"), manager="two")
    status = answer.no(409, "Conflict", 'Apply failed with 1 conflict: conflict with "one": .data.a')
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
    ]


@case
def apply_by_force_takes_over(api):
    apply(api, CMS, config(api.name, a="1")).ok(201)
    done = apply(api, CMS, config(api.name, a="2"), manager="two", force=True).ok()
    assert done["data"] == {"a": "2"}
    assert [entry["manager"] for entry in done["metadata"]["managedFields"]] == ["two"]


@case
def two_may_apply_the_same_value(api):
    apply(api, CMS, config(api.name, a="1")).ok(201)
    done = apply(api, CMS, config(api.name, a="1"), manager="two").ok()
    assert sorted(entry["manager"] for entry in done["metadata"]["managedFields"]) == ["one", "two"]


@case
def apply_conflicts_with_an_update(api):
    apply(api, CMS, config(api.name, a="1")).ok(201)
    api.patch(f"{CMS}/{api.name}?fieldManager=editor", {"data": {"a": "9"}}, MERGE).ok()
    apply(api, CMS, config(api.name, a="2")).no(409, "Conflict", 'conflict with "editor" using v1: .data.a')


@case
def apply_merges_containers_by_name(api):
    apply(api, PODS, pod(api.name)).ok(201)
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": api.name},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    answer = apply(api, PODS, body, manager="two")
    answer.no(409, "Conflict", '.spec.containers[name="main"].image')


@case
def apply_needs_a_manager(api):
    api.patch(f"{CMS}/{api.name}", config(api.name), APPLY).no(
        422, "Invalid", "fieldManager: Required value: is required for apply patch"
    )


@case
def apply_refuses_unknown_fields(api):
    answer = apply(api, PODS, pod(api.name, colour="red"))
    answer.no(500, None, ".spec.colour: field not declared in schema")


@case
def apply_to_custom_objects(api):
    apply(api, GROUPS, group(api.name, minMember=2, queue="a")).ok(201)
    body = group(api.name, minMember=2)
    done = apply(api, GROUPS, body).ok()
    assert done["spec"] == {"minMember": 2}


def conditioned(api, *kinds):
    told = {"status": "True", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Queue", "metadata": {"name": api.name}}
    return {**body, "status": {"conditions": [{"type": kind, **told} for kind in kinds]}}


@case
def each_applies_items_of_its_own_and_takes_them_back(api):
    api.post(QUEUES, {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Queue", "metadata": {"name": api.name}, "spec": {}}).ok(201)
    apply(api, QUEUES, conditioned(api, "A"), below="/status").ok()
    apply(api, QUEUES, conditioned(api, "B", "C"), manager="two", below="/status").ok()
    found = apply(api, QUEUES, conditioned(api, "C"), manager="two", below="/status").ok()
    assert [each["type"] for each in found["status"]["conditions"]] == ["A", "C"]
    found = apply(api, QUEUES, conditioned(api), manager="two", below="/status").ok()
    assert [each["type"] for each in found["status"]["conditions"]] == ["A"]


@case
def two_items_of_one_key_are_refused(api):
    api.post(QUEUES, {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Queue", "metadata": {"name": api.name}, "spec": {}}).ok(201)
    body = conditioned(api, "A", "A")
    answer = api.patch(f"{QUEUES}/{api.name}/status", {"status": body["status"]}, MERGE)
    answer.no(422, "Invalid", 'status.conditions[1]: Duplicate value: {"type":"A"}')


@case
def apply_of_the_same_changes_nothing(api):
    made = apply(api, CMS, config(api.name, a="1")).ok(201)
    again = apply(api, CMS, config(api.name, a="1")).ok()
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def applied(kind, name, version="v1", **more):
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}).encode()


@case
def what_is_applied_says_what_it_is(api):
    path = f"{CMS}/{api.name}?fieldManager=x"
    api.patch(path, b"", APPLY).no(400, "BadRequest", "invalid object type: /, Kind=")
    api.patch(path, b"apiVersion: v1", APPLY).no(400, "BadRequest", "invalid object type: /v1, Kind=")
    api.patch(path, applied("Pod", api.name), APPLY).no(400, "BadRequest", "invalid object type: /v1, Kind=Pod")
    told = "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value"
    api.patch(path, b"[]", APPLY).no(400, "BadRequest", told)
    told = "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content"
    api.patch(path, b"a: [", APPLY).no(400, "BadRequest", told)
    told = f"the name of the object ({api.name} based on URL) was undeterminable: name must be provided"
    api.patch(path, b"{apiVersion: v1, kind: ConfigMap, metadata: {}}", APPLY).no(400, "BadRequest", told)
    queue_path = f"{QUEUES}/{api.name}?fieldManager=x"
    api.patch(queue_path, applied("Queue", api.name), APPLY).no(400, "BadRequest", "invalid object type: /v1, Kind=Queue")


@case
def what_is_applied_fits_the_schema(api):
    path, where = f"{CMS}/{api.name}?fieldManager=x", "failed to create typed patch object (/{}; /v1, Kind=ConfigMap): "
    told = where.format(api.name) + ".data.a: expected string, got &value.valueUnstructured{Value:5}"
    api.patch(path, applied("ConfigMap", api.name, data={"a": 5}), APPLY).no(500, None, told)
    told = where.format(api.name) + ".nope: field not declared in schema"
    api.patch(path, applied("ConfigMap", api.name, nope={}), APPLY).no(500, None, told)
    told = f"(/{api.name}; fairlead.dev/v1alpha1, Kind=Queue): .spec.priority: expected numeric (int or float), got string"
    wrong = applied("Queue", api.name, "fairlead.dev/v1alpha1", spec={"priority": "x"})
    api.patch(f"{QUEUES}/{api.name}?fieldManager=x", wrong, APPLY).no(500, None, told)

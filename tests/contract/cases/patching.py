"""Patches of all forms."""

from __future__ import annotations

from tests.contract.cases.common import (
    CMS,
    DEPLOYMENTS,
    GROUPS,
    JSON_PATCH,
    MERGE,
    NODES,
    PODS,
    QUEUES,
    STRATEGIC,
    case,
    config,
    deployment,
    group,
    node,
    pod,
    queue,
)


@case
def merge_patch_sets_and_removes(api):
    api.post(CMS, config(api.name, a="1", b="2")).ok(201)
    assert api.patch(f"{CMS}/{api.name}", {"data": {"a": None, "c": "3"}}, MERGE).ok()["data"] == {"b": "2", "c": "3"}


@case
def json_patch_adds_replaces_and_removes(api):
    api.post(CMS, config(api.name, a="1", b="2")).ok(201)
    patch = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "9"},
        {"op": "add", "path": "/data/c", "value": "3"},
        {"op": "remove", "path": "/data/b"},
    ]
    assert api.patch(f"{CMS}/{api.name}", patch, JSON_PATCH).ok()["data"] == {"a": "9", "c": "3"}


@case
def a_json_patch_whose_test_fails_is_422(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    patch = [{"op": "test", "path": "/data/a", "value": "2"}]
    api.patch(f"{CMS}/{api.name}", patch, JSON_PATCH).no(
        422, "Invalid", "the server rejected our request due to an error in our request"
    )


@case
def a_json_patch_to_nowhere_is_422(api):
    api.post(CMS, config(api.name)).ok(201)
    api.patch(f"{CMS}/{api.name}", [{"op": "remove", "path": "/data/nothing"}], JSON_PATCH).no(422, "Invalid")


@case
def a_json_patch_that_is_none_is_400(api):
    api.post(CMS, config(api.name)).ok(201)
    api.patch(f"{CMS}/{api.name}", {"op": "remove"}, JSON_PATCH).no(400, "BadRequest")


@case
def strategic_merge_merges_containers_by_name(api):
    api.post(PODS, pod(api.name)).ok(201)
    patch = {"spec": {"containers": [{"name": "main", "image": "pause:3.11"}]}}
    done = api.patch(f"{PODS}/{api.name}", patch, STRATEGIC).ok()
    assert done["spec"]["containers"][0]["image"] == "pause:3.11"
    assert done["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}


@case
def strategic_merge_merges_conditions_by_type(api):
    api.post(PODS, pod(api.name)).ok(201)
    for kind, status in (("Ready", "True"), ("PodScheduled", "False"), ("Ready", "False")):
        api.patch(f"{PODS}/{api.name}/status", {"status": {"conditions": [{"type": kind, "status": status}]}}, STRATEGIC).ok()
    conditions = {each["type"]: each["status"] for each in api.get(f"{PODS}/{api.name}").ok()["status"]["conditions"]}
    assert conditions == {"Ready": "False", "PodScheduled": "False"}


@case
def strategic_merge_deletes_by_directive(api):
    made = deployment(api.name, 0)
    made["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "x"})
    api.post(DEPLOYMENTS, made).ok(201)
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}}
    done = api.patch(f"{DEPLOYMENTS}/{api.name}", patch, STRATEGIC).ok()
    assert [each["name"] for each in done["spec"]["template"]["spec"]["containers"]] == ["main"]


@case
def taints_are_replaced_as_a_whole(api):
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
    api.post(NODES, node(api.name, spec={"taints": taints})).ok(201)
    done = api.patch(f"{NODES}/{api.name}", {"spec": {"taints": [{"key": "c", "effect": "NoExecute"}]}}, STRATEGIC).ok()
    assert [taint["key"] for taint in done["spec"]["taints"]] == ["c"]


@case
def a_taint_needs_an_effect(api):
    status = api.post(NODES, node(api.name, spec={"taints": [{"key": "a"}]})).no(422, "Invalid", "Required value")
    assert status["details"]["causes"][0]["field"] == "metadata.taints[0].effect"


@case
def strategic_merge_replaces_by_directive(api):
    made = config(api.name, a="1", b="2")
    api.post(CMS, made).ok(201)
    assert api.patch(f"{CMS}/{api.name}", {"data": {"$patch": "replace", "c": "3"}}, STRATEGIC).ok()["data"] == {"c": "3"}


@case
def strategic_merge_adds_and_removes_finalizers(api):
    made = config(api.name)
    made["metadata"]["finalizers"] = ["example.com/a"]
    api.post(CMS, made).ok(201)
    done = api.patch(f"{CMS}/{api.name}", {"metadata": {"finalizers": ["example.com/b"]}}, STRATEGIC).ok()
    assert sorted(done["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/b"]}}
    assert "finalizers" not in api.patch(f"{CMS}/{api.name}", patch, STRATEGIC).ok()["metadata"]


@case
def strategic_merge_of_custom_objects_is_415(api):
    api.post(GROUPS, group(api.name)).ok(201)
    api.patch(f"{GROUPS}/{api.name}", {"spec": {"minMember": 2}}, STRATEGIC).no(415, "UnsupportedMediaType")


@case
def an_unknown_patch_form_is_415(api):
    api.post(CMS, config(api.name)).ok(201)
    api.patch(f"{CMS}/{api.name}", {"data": {}}, "text/plain").no(415, "UnsupportedMediaType")


@case
def a_patch_may_name_the_version_it_means(api):
    made = api.post(CMS, config(api.name, a="1")).ok(201)
    api.patch(f"{CMS}/{api.name}", {"data": {"a": "2"}}, MERGE).ok()
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    api.patch(f"{CMS}/{api.name}", old, MERGE).no(409, "Conflict")


@case
def a_patch_may_name_the_uid_it_means(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    api.patch(f"{CMS}/{api.name}", {"metadata": {"uid": "other"}, "data": {"a": "3"}}, MERGE).no(
        422, "Invalid", "field is immutable"
    )


@case
def patching_nothing_is_404(api):
    api.patch(f"{CMS}/{api.name}", {"data": {}}, MERGE).no(404, "NotFound")


@case
def a_patch_cannot_rename(api):
    api.post(CMS, config(api.name)).ok(201)
    assert api.patch(f"{CMS}/{api.name}", {"metadata": {"name": "other"}}, MERGE).status == 400


@case
def a_patch_of_another_uid_is_422(api):
    api.post(PODS, pod(api.name)).ok(201)
    meant = {"metadata": {"uid": "other"}, "status": {"conditions": [{"type": "A", "status": "True"}]}}
    api.patch(f"{PODS}/{api.name}/status", meant, STRATEGIC).no(422, "Invalid", "field is immutable")


@case
def a_merge_patch_is_an_object(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    told = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
    api.patch(f"{CMS}/{api.name}", [1], MERGE).no(400, "BadRequest", told)
    api.patch(f"{CMS}/{api.name}", b"null", MERGE).no(400, "BadRequest", "Invalid JSON Patch")
    api.patch(f"{CMS}/{api.name}", b"{", MERGE).no(400, "BadRequest", "error decoding patch: unexpected end of JSON input")
    told = "json: cannot unmarshal array into Go value of type map[string]interface {}"
    api.patch(f"{CMS}/{api.name}", [1], STRATEGIC).no(400, "BadRequest", told)
    assert api.patch(f"{CMS}/{api.name}", b"null", STRATEGIC).ok()["data"] == {"a": "1"}


@case
def a_patch_to_wrong_types_is_422(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    told = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    for patch, kind in (({"data": {"x": 1}}, MERGE), ([{"op": "add", "path": "/data/x", "value": 1}], JSON_PATCH)):
        refused = api.patch(f"{CMS}/{api.name}", patch, kind).no(422, "Invalid", told)
        assert refused["message"].startswith(' "" is invalid: patch: Invalid value: "{')
        assert [(cause["reason"], cause["field"]) for cause in refused["details"]["causes"]] == [("FieldValueInvalid", "patch")]
    told = ' "" is invalid: patch: Invalid value: "map[data:map[x:1]]": cannot convert int64 to string'
    api.patch(f"{CMS}/{api.name}", {"data": {"x": 1}}, STRATEGIC).no(422, "Invalid", told)
    told = 'Invalid value: "map[data:x]": cannot restore map from string'
    api.patch(f"{CMS}/{api.name}", {"data": "x"}, STRATEGIC).no(422, "Invalid", told)


@case
def a_patch_does_not_change_the_kind(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    api.patch(f"{CMS}/{api.name}", {"kind": "Secret"}, MERGE).no(422, "Invalid")
    told = 'no kind "ConfigMap" is registered for version "apps/v1"'
    api.patch(f"{CMS}/{api.name}", {"apiVersion": "apps/v1"}, MERGE).no(422, "Invalid", told)
    assert api.patch(f"{CMS}/{api.name}", {"kind": "Secret"}, STRATEGIC).ok()["kind"] == "ConfigMap"


@case
def a_patch_of_a_custom_object_is_held_against_its_schema(api):
    api.post(QUEUES, queue(api.name)).ok(201)
    told = 'spec.priority: Invalid value: "string": spec.priority in body must be of type integer: "string"'
    api.patch(f"{QUEUES}/{api.name}", {"spec": {"priority": "x"}}, MERGE).no(422, "Invalid", told)
    told = f'Other.fairlead.dev "{api.name}" is invalid: kind: Invalid value: "Other": must be Queue'
    api.patch(f"{QUEUES}/{api.name}", {"kind": "Other"}, MERGE).no(422, "Invalid", told)
    told = f'Queue "{api.name}" is invalid: apiVersion: Invalid value: "v1": must be fairlead.dev/v1alpha1'
    api.patch(f"{QUEUES}/{api.name}", {"apiVersion": "v1"}, MERGE).no(422, "Invalid", told)
    told = "accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    api.patch(f"{QUEUES}/{api.name}", {"spec": {}}, STRATEGIC).no(415, "UnsupportedMediaType", told)


@case
def a_directive_that_is_none_is_500(api):
    api.post(PODS, pod(api.name)).ok(201)
    told = "unknown patch type: frob in map: map[$patch:frob]"
    api.patch(f"{PODS}/{api.name}", {"$patch": "frob"}, STRATEGIC).no(500, None, told)
    told = "map: map[image:c] does not contain declared merge key: name"
    api.patch(f"{PODS}/{api.name}", {"spec": {"containers": [{"image": "c"}]}}, STRATEGIC).no(500, None, told)


@case
def a_json_patch_is_lax(api):
    """What is replaced need not be there, a value may be missing, a tilde may stand for itself, nothing is no steps."""
    path = f"{CMS}/{api.name}"
    api.post(CMS, config(api.name, a="1")).ok(201)
    assert api.patch(path, [{"op": "replace", "path": "/data/b", "value": "2"}], JSON_PATCH).ok()["data"] == {"a": "1", "b": "2"}
    assert api.patch(path, [{"op": "add", "path": "/data/c"}], JSON_PATCH).ok()["data"]["c"] == ""
    api.patch(path, [{"op": "add", "path": "/data/x~2", "value": "1"}], JSON_PATCH).no(422, "Invalid", "data[x~2]: Invalid value")
    for nothing in (b"null", b"[]"):
        assert len(api.patch(path, nothing, JSON_PATCH).ok()["data"]) == 3


@case
def a_json_patch_that_cannot_be_done_is_422(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    for step in (
        {"op": "frob", "path": "/data/a"},
        {"path": "/data/a", "value": "2"},
        {"op": "add", "value": "2"},
        {"op": "add", "path": "data", "value": "2"},
        {"op": "add", "path": "/nothing/below/it", "value": "2"},
        {"op": "remove", "path": "/data/nothing"},
        {"op": "move", "from": "/data/nothing", "path": "/data/b"},
        {"op": "copy", "path": "/data/b"},
        {"op": "test", "path": "/data/a", "value": "9"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "x/y"},
    ):
        told = "the server rejected our request due to an error in our request"
        assert api.patch(f"{CMS}/{api.name}", [step], JSON_PATCH).no(422, "Invalid", told)["details"] == {}


@case
def a_json_patch_is_a_list_of_objects(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    told = "error decoding patch: json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp"
    api.patch(f"{CMS}/{api.name}", b'"x"', JSON_PATCH).no(400, "BadRequest", told)
    told = "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"
    api.patch(f"{CMS}/{api.name}", [1], JSON_PATCH).no(400, "BadRequest", told)


@case
def tolerations_that_are_replaced_get_the_usual_ones_again(api):
    api.post(PODS, pod(api.name)).ok(201)
    more = {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}
    keys = [each["key"] for each in api.patch(f"{PODS}/{api.name}", more, STRATEGIC).ok()["spec"]["tolerations"]]
    assert keys == ["a", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


@case
def containers_of_a_pod_are_neither_added_nor_removed(api):
    api.post(PODS, pod(api.name)).ok(201)
    more = {"spec": {"containers": [{"name": "more", "image": "pause:3.10"}]}}
    told = "spec.containers: Forbidden: pod updates may not add or remove containers"
    api.patch(f"{PODS}/{api.name}", more, STRATEGIC).no(422, "Invalid", told)

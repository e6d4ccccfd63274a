"""What a Kubernetes API server answers. Every case runs against the real one and the simulated one."""

from __future__ import annotations

import json

JSON, YAML = "application/json", "application/yaml"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
NS = "contract"
PODS, CMS = f"/api/v1/namespaces/{NS}/pods", f"/api/v1/namespaces/{NS}/configmaps"
NODES, CLASSES = "/api/v1/nodes", "/apis/scheduling.k8s.io/v1/priorityclasses"
GROUPS, QUEUES = f"/apis/fairlead.dev/v1alpha1/namespaces/{NS}/podgroups", "/apis/fairlead.dev/v1alpha1/queues"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NS}/leases"
BUDGETS = f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets"
EVENTS, NEW_EVENTS = f"/api/v1/namespaces/{NS}/events", f"/apis/events.k8s.io/v1/namespaces/{NS}/events"
JOBS, DEPLOYMENTS = f"/apis/batch/v1/namespaces/{NS}/jobs", f"/apis/apps/v1/namespaces/{NS}/deployments"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

CASES = {}


def case(function):
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


# -- creating and reading ----------------------------------------------------------------------


@case
def create_gives_201_and_the_stored_object(api):
    made = api.post(CMS, config(api.name, a="1")).ok(201)
    assert made["metadata"]["namespace"] == NS
    assert made["metadata"]["uid"]
    assert int(made["metadata"]["resourceVersion"]) > 0
    assert made["metadata"]["creationTimestamp"].endswith("Z")
    assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")


@case
def what_was_created_can_be_read(api):
    made = api.post(CMS, config(api.name, a="1")).ok(201)
    assert api.get(f"{CMS}/{api.name}").ok() == made


@case
def a_missing_object_is_404(api):
    api.get(f"{PODS}/nobody").no(404, "NotFound", 'pods "nobody" not found')


@case
def a_missing_custom_object_is_404_with_its_group(api):
    status = api.get(f"{GROUPS}/nobody").no(404, "NotFound", 'podgroups.fairlead.dev "nobody" not found')
    assert status["details"] == {"name": "nobody", "group": "fairlead.dev", "kind": "podgroups"}


@case
def a_name_is_taken_once(api):
    api.post(CMS, config(api.name)).ok(201)
    api.post(CMS, config(api.name)).no(409, "AlreadyExists", f'configmaps "{api.name}" already exists')


@case
def generate_name_makes_a_name(api):
    made = api.post(CMS, {"metadata": {"generateName": "gen-"}}).ok(201)
    assert made["metadata"]["name"].startswith("gen-")
    assert len(made["metadata"]["name"]) == 9


@case
def a_name_is_required(api):
    status = api.post(CMS, {"metadata": {}}).no(422, "Invalid", "name or generateName is required")
    assert status["details"]["causes"][0]["field"] == "metadata.name"


@case
def names_are_checked(api):
    api.post(CMS, config("Not_A_Name")).no(422, "Invalid", "a lowercase RFC 1123 subdomain must consist of")


@case
def long_names_are_refused(api):
    api.post(CMS, config("x" * 254)).no(422, "Invalid", "must be no more than 253")


@case
def label_values_are_checked(api):
    bad = config(api.name)
    bad["metadata"]["labels"] = {"a": "not a value!"}
    status = api.post(CMS, bad).no(422, "Invalid", "a valid label must be an empty string or consist of")
    assert status["details"]["causes"][0]["field"] == "metadata.labels"


@case
def label_keys_are_checked(api):
    bad = config(api.name)
    bad["metadata"]["labels"] = {"bad key": "x"}
    api.post(CMS, bad).no(422, "Invalid", "name part must consist of")


@case
def long_label_values_are_refused(api):
    bad = config(api.name)
    bad["metadata"]["labels"] = {"a": "x" * 64}
    api.post(CMS, bad).no(422, "Invalid", "must be no more than 63")


@case
def annotations_have_a_limit(api):
    bad = config(api.name)
    bad["metadata"]["annotations"] = {"a": "x" * (257 << 10)}
    api.post(CMS, bad).no(422, "Invalid", "Too long: may not be more than 262144 bytes")


@case
def annotations_may_hold_anything(api):
    odd = config(api.name)
    odd["metadata"]["annotations"] = {"a": "\u202e right to left \x00 nul", "b": "x" * 100_000}
    assert api.post(CMS, odd).ok(201)["metadata"]["annotations"]["a"] == "\u202e right to left \x00 nul"


@case
def the_namespace_must_exist(api):
    api.post("/api/v1/namespaces/nowhere/configmaps", config(api.name)).no(404, "NotFound", 'namespaces "nowhere" not found')


@case
def the_namespace_must_match(api):
    bad = config(api.name)
    bad["metadata"]["namespace"] = "default"
    api.post(CMS, bad).no(
        400, "BadRequest", "the namespace of the provided object does not match the namespace sent on the request"
    )


@case
def a_new_object_has_no_version(api):
    bad = config(api.name)
    bad["metadata"]["resourceVersion"] = "1"
    api.post(CMS, bad).no(500, None, "resourceVersion should not be set on objects to be created")


@case
def the_servers_own_fields_are_not_taken_from_users(api):
    odd = config(api.name)
    odd["metadata"] |= {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z"}
    made = api.post(CMS, odd).ok(201)["metadata"]
    assert made["uid"] != "mine"
    assert not made["creationTimestamp"].startswith("2001")
    assert "deletionTimestamp" not in made


@case
def owners_must_be_complete(api):
    bad = config(api.name)
    bad["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": ""}]
    api.post(CMS, bad).no(422, "Invalid", "metadata.ownerReferences.name")


@case
def a_dry_run_changes_nothing(api):
    made = api.post(f"{CMS}?dryRun=All", config(api.name)).ok(201)
    assert made["metadata"]["uid"]
    api.get(f"{CMS}/{api.name}").no(404, "NotFound")


@case
def an_unknown_dry_run_is_refused(api):
    api.post(f"{CMS}?dryRun=Some", config(api.name)).no(422, "Invalid", 'Unsupported value: ["Some"]: supported values: "All"')


@case
def yaml_is_understood(api):
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {api.name}\ndata: {{when: '2026-01-01'}}\n"
    assert api.post(CMS, text.encode(), content_type=YAML).ok(201)["data"] == {"when": "2026-01-01"}


@case
def yaml_is_spoken(api):
    api.post(CMS, config(api.name, a="b")).ok(201)
    answer = api.get(f"{CMS}/{api.name}", accept=YAML)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith(YAML)
    assert "a: b" in answer.text


@case
def a_form_that_is_not_spoken_is_406(api):
    api.get(CMS, accept="text/html").no(406, "NotAcceptable", "Available representations: application/json")


# -- bad input ---------------------------------------------------------------------------------


@case
def malformed_json_is_400(api):
    api.post(CMS, b'{"metadata": {"name": "x"').no(400, "BadRequest")


@case
def an_empty_body_is_400(api):
    api.post(CMS, b"").no(400, "BadRequest")


@case
def a_list_for_an_object_is_400(api):
    api.post(CMS, b"[1, 2]").no(400, "BadRequest")


@case
def a_number_for_metadata_is_400(api):
    api.post(CMS, {"metadata": 7}).no(400, "BadRequest")


@case
def another_kind_is_400(api):
    api.post(PODS, config(api.name)).no(400, "BadRequest", "ConfigMap in version")


@case
def another_version_is_400(api):
    api.post(CMS, {**config(api.name), "apiVersion": "v2"}).no(400, "BadRequest")


@case
def another_groups_version_is_400(api):
    api.post(GROUPS, {**group(api.name), "apiVersion": "fairlead.dev/v9"}).no(400, "BadRequest")


@case
def a_wrong_type_is_400(api):
    api.post(PODS, pod(api.name, priority="high")).no(400, "BadRequest", "json: cannot unmarshal string into Go struct field")


@case
def a_wrong_type_in_a_list_is_400(api):
    bad = pod(api.name)
    bad["spec"]["containers"][0]["ports"] = [{"containerPort": "eighty"}]
    api.post(PODS, bad).no(400, "BadRequest", "json: cannot unmarshal string into Go struct field")


@case
def a_list_for_a_map_is_400(api):
    bad = config(api.name)
    bad["data"] = ["a"]
    api.post(CMS, bad).no(400, "BadRequest", "json: cannot unmarshal array into Go struct field")


@case
def an_unknown_field_is_dropped_with_a_warning(api):
    answer = api.post(PODS, pod(api.name, colour="red"))
    assert "colour" not in answer.ok(201)["spec"]
    assert 'unknown field \\"spec.colour\\"' in answer.headers["warning"]


@case
def an_unknown_field_is_dropped_silently_if_asked(api):
    answer = api.post(f"{PODS}?fieldValidation=Ignore", pod(api.name, colour="red"))
    assert "colour" not in answer.ok(201)["spec"]
    assert "warning" not in answer.headers


@case
def an_unknown_field_is_refused_if_asked(api):
    answer = api.post(f"{PODS}?fieldValidation=Strict", pod(api.name, colour="red"))
    answer.no(400, "BadRequest", 'strict decoding error: unknown field "spec.colour"')


@case
def unknown_fields_deep_inside_are_found(api):
    bad = pod(api.name)
    bad["spec"]["containers"][0]["imgae"] = "x"
    answer = api.post(f"{PODS}?fieldValidation=Strict", bad)
    answer.no(400, "BadRequest", 'strict decoding error: unknown field "spec.containers[0].imgae"')


@case
def unknown_fields_of_custom_objects_are_dropped(api):
    answer = api.post(GROUPS, group(api.name, colour="red"))
    assert "colour" not in answer.ok(201)["spec"]
    assert 'unknown field \\"spec.colour\\"' in answer.headers["warning"]


@case
def unknown_fields_of_custom_objects_are_refused_if_asked(api):
    answer = api.post(f"{GROUPS}?fieldValidation=Strict", group(api.name, colour="red"))
    answer.no(400, "BadRequest", 'strict decoding error: unknown field "spec.colour"')


@case
def an_unknown_field_validation_is_refused(api):
    api.post(f"{PODS}?fieldValidation=Maybe", pod(api.name)).no(422, "Invalid", 'Unsupported value: "Maybe"')


@case
def a_body_of_20_megabytes_is_413(api):
    big = config(api.name, a="x" * (20 << 20))
    answer = api.post(CMS, big)
    if answer.status:  # else the server hung up while we were still sending
        answer.no(413, "RequestEntityTooLarge", "limit is 3145728")
    api.get(f"{CMS}/{api.name}").no(404, "NotFound")


@case
def a_body_just_beyond_the_limit_is_413(api):
    api.post(CMS, config(api.name, a="x" * ((3 << 20) + 1))).no(413, "RequestEntityTooLarge", "limit is 3145728")


@case
def a_body_in_an_unknown_form_is_415(api):
    api.post(CMS, b"<xml/>", content_type="text/xml").no(
        415, "UnsupportedMediaType", "the body of the request was in an unknown format"
    )


@case
def json_nested_beyond_reason_is_400(api):
    api.post(CMS, b'{"metadata":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_001).no(400, "BadRequest")


@case
def yaml_that_unfolds_beyond_reason_is_400(api):
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"] + [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    api.post(CMS, "\n".join(lines).encode(), content_type=YAML).no(400, "BadRequest")


@case
def an_unknown_path_is_404(api):
    assert api.get("/apis/nobody.example/v1/things").status == 404


@case
def an_unknown_resource_is_404(api):
    assert api.get(f"/api/v1/namespaces/{NS}/things").status == 404


@case
def an_unknown_subresource_is_404(api):
    api.post(CMS, config(api.name)).ok(201)
    assert api.get(f"{CMS}/{api.name}/things").status == 404


@case
def dots_in_a_path_lead_nowhere(api):
    assert api.get(f"{CMS}/../../../../../etc/passwd").status in (301, 400, 403, 404)


@case
def encoded_slashes_in_a_name_lead_nowhere(api):
    assert api.get(f"{CMS}/a%2F..%2Fb").status in (400, 404)


@case
def a_method_without_meaning_is_405(api):
    api.call("PUT", CMS, config(api.name)).no(405, "MethodNotAllowed")


@case
def posting_to_an_object_is_405(api):
    api.post(f"{CMS}/x", config("x")).no(405, "MethodNotAllowed")


@case
def posting_across_namespaces_is_405(api):
    assert api.post("/api/v1/configmaps", config(api.name)).status == 405


@case
def null_fields_are_as_if_absent(api):
    odd = pod(api.name)
    odd["spec"] |= {"nodeSelector": None, "affinity": None}
    made = api.post(PODS, odd).ok(201)
    assert "affinity" not in made["spec"]


# -- lists -------------------------------------------------------------------------------------


def several(api, count=5, **labels):
    for index in range(count):
        made = config(f"{api.name}-{index}")
        made["metadata"]["labels"] = {"case": api.name, "number": str(index), "half": "low" if index < 2 else "high", **labels}
        api.post(CMS, made).ok(201)


def names_of(listed):
    return [item["metadata"]["name"].rpartition("-")[2] for item in listed["items"]]


@case
def a_list_has_kind_version_and_items_in_order(api):
    several(api)
    listed = api.get(f"{CMS}?labelSelector=case={api.name}").ok()
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert names_of(listed) == ["0", "1", "2", "3", "4"]
    assert "kind" not in listed["items"][0]
    assert int(listed["metadata"]["resourceVersion"]) > 0


@case
def an_empty_list_has_no_items(api):
    assert api.get(f"{CMS}?labelSelector=case=none").ok()["items"] == []


@case
def items_of_custom_lists_have_kinds(api):
    api.post(GROUPS, group(api.name)).ok(201)
    listed = api.get(GROUPS).ok()
    assert (listed["kind"], listed["items"][0]["kind"]) == ("PodGroupList", "PodGroup")


def selected(api, selector):
    return names_of(api.get(f"{CMS}?labelSelector={selector}").ok())


@case
def selectors_by_equality(api):
    several(api)
    assert selected(api, f"case={api.name},number=3") == ["3"]
    assert selected(api, f"case=={api.name},number!=3") == ["0", "1", "2", "4"]


@case
def selectors_by_sets(api):
    several(api)
    assert selected(api, f"case={api.name},number%20in%20(1,3)") == ["1", "3"]
    assert selected(api, f"case={api.name},number%20notin%20(1,3)") == ["0", "2", "4"]


@case
def selectors_by_presence(api):
    several(api, 2)
    assert selected(api, f"case={api.name},half") == ["0", "1"]
    assert selected(api, f"case={api.name},!half") == []


@case
def selectors_by_comparison(api):
    several(api)
    assert selected(api, f"case={api.name},number%3E2") == ["3", "4"]


@case
def a_bad_selector_is_400(api):
    api.get(f"{CMS}?labelSelector=a%20b%20c").no(400, "BadRequest", "unable to parse requirement")
    api.get(f"{CMS}?labelSelector=a%3Ex").no(400, "BadRequest", "unable to parse requirement")


@case
def fields_select_by_name(api):
    several(api, 3)
    assert names_of(api.get(f"{CMS}?fieldSelector=metadata.name={api.name}-1").ok()) == ["1"]


@case
def fields_select_pods_by_node_and_phase(api):
    for index in range(3):
        api.post(PODS, pod(f"{api.name}-{index}")).ok(201)
    bind(api, f"{api.name}-1", to=f"{api.name}-node").ok(201)
    listed = api.get(f"{PODS}?fieldSelector=spec.nodeName={api.name}-node,status.phase=Pending").ok()
    assert names_of(listed) == ["1"]
    unbound = api.get(f"{PODS}?fieldSelector=spec.nodeName!={api.name}-node").ok()
    assert f"{api.name}-1" not in [item["metadata"]["name"] for item in unbound["items"]]


@case
def fields_that_cannot_be_selected_by_are_400(api):
    api.get(f"{PODS}?fieldSelector=spec.colour=red").no(400, "BadRequest", "field label not supported: spec.colour")


@case
def lists_come_in_pages(api):
    several(api)
    first = api.get(f"{CMS}?labelSelector=case={api.name}&limit=2").ok()
    assert names_of(first) == ["0", "1"]
    token = first["metadata"]["continue"]
    second = api.get(f"{CMS}?labelSelector=case={api.name}&limit=2&continue={token}").ok()
    assert names_of(second) == ["2", "3"]
    last = api.get(f"{CMS}?labelSelector=case={api.name}&limit=2&continue={second['metadata']['continue']}").ok()
    assert names_of(last) == ["4"]
    assert not last["metadata"].get("continue")


@case
def pages_tell_how_much_is_left(api):
    for index in range(4):
        api.post(LEASES, {"metadata": {"name": f"{api.name}-{index}"}}).ok(201)
    metadata = api.get(f"{LEASES}?limit=1").ok()["metadata"]
    assert metadata["remainingItemCount"] >= 3


@case
def a_token_that_is_none_is_400(api):
    api.get(f"{CMS}?limit=1&continue=xyz").no(400, "BadRequest", "continue key is not valid")


@case
def a_version_that_is_none_is_refused(api):
    api.get(f"{CMS}?resourceVersion=abc").no(400, None, "Invalid value")


@case
def a_version_from_the_future_is_504(api):
    api.get(f"{CMS}?resourceVersion=999999999").no(504, "Timeout", "Too large resource version")


@case
def a_limit_that_is_none_is_400(api):
    api.get(f"{CMS}?limit=many").no(400, "BadRequest")


@case
def all_namespaces_can_be_listed(api):
    api.post(CMS, config(api.name)).ok(201)
    listed = api.get("/api/v1/configmaps").ok()
    assert (NS, api.name) in [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in listed["items"]]


# -- tables and partial metadata ---------------------------------------------------------------


@case
def pods_as_a_table(api):
    api.post(PODS, pod(api.name)).ok(201)
    table = api.get(f"{PODS}/{api.name}", accept=TABLE).ok()
    assert table["kind"] == "Table"
    shown = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert shown == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:4] == [api.name, "0/1", "Pending", "0"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


@case
def lists_as_a_table(api):
    several(api, 3)
    table = api.get(f"{CMS}?labelSelector=case={api.name}", accept=TABLE).ok()
    assert [row["cells"][0].rpartition("-")[2] for row in table["rows"]] == ["0", "1", "2"]
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]


@case
def nodes_as_a_table(api):
    api.post(NODES, node(api.name)).ok(201)
    table = api.get(f"{NODES}/{api.name}", accept=TABLE).ok()
    wanted = ["Name", "Status", "Roles", "Age", "Version"]
    assert [column["name"] for column in table["columnDefinitions"] if not column["priority"]] == wanted
    assert table["rows"][0]["cells"][:3] == [api.name, "Unknown", "<none>"]


@case
def custom_objects_as_a_table(api):
    api.post(GROUPS, group(api.name, minMember=4, queue="vision")).ok(201)
    table = api.get(f"{GROUPS}/{api.name}", accept=TABLE).ok()
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Queue",
        "Min",
        "Scheduled",
        "Phase",
        "Reason",
        "Expected",
        "Age",
    ]
    assert table["rows"][0]["cells"][:3] == [api.name, "vision", 4]


@case
def priority_classes_as_a_table(api):
    table = api.get(f"{CLASSES}/system-node-critical", accept=TABLE).ok()
    assert table["rows"][0]["cells"][:3] == ["system-node-critical", 2000001000, False]


@case
def only_metadata_can_be_asked_for(api):
    api.post(CMS, config(api.name, a="b")).ok(201)
    found = api.get(f"{CMS}/{api.name}", accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").ok()
    assert found["kind"] == "PartialObjectMetadata"
    assert "data" not in found


@case
def only_metadata_of_lists(api):
    several(api, 2)
    form = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    found = api.get(f"{CMS}?labelSelector=case={api.name}", accept=form).ok()
    assert found["kind"] == "PartialObjectMetadataList"
    assert names_of(found) == ["0", "1"]


# -- replacing ---------------------------------------------------------------------------------


@case
def put_replaces(api):
    made = api.post(CMS, config(api.name, a="1", b="2")).ok(201)
    done = api.put(f"{CMS}/{api.name}", {**made, "data": {"a": "3"}}).ok()
    assert done["data"] == {"a": "3"}
    assert int(done["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


@case
def put_with_an_old_version_is_409(api):
    made = api.post(CMS, config(api.name, a="1")).ok(201)
    api.put(f"{CMS}/{api.name}", {**made, "data": {"a": "2"}}).ok()
    answer = api.put(f"{CMS}/{api.name}", {**made, "data": {"a": "3"}})
    told = "the object has been modified; please apply your changes to the latest version and try again"
    answer.no(409, "Conflict", f'Operation cannot be fulfilled on configmaps "{api.name}": {told}')


@case
def put_without_a_version_replaces(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    assert api.put(f"{CMS}/{api.name}", config(api.name, a="2")).ok()["data"] == {"a": "2"}


@case
def put_of_a_custom_object_needs_a_version(api):
    api.post(GROUPS, group(api.name)).ok(201)
    api.put(f"{GROUPS}/{api.name}", group(api.name)).no(
        422, "Invalid", "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    )


@case
def put_of_another_name_is_400(api):
    api.post(CMS, config(api.name)).ok(201)
    api.put(f"{CMS}/{api.name}", config("other")).no(400, "BadRequest", "does not match the name on the URL")


@case
def put_of_another_uid_is_409(api):
    made = api.post(CMS, config(api.name)).ok(201)
    odd = {**made, "metadata": {**made["metadata"], "uid": "other", "resourceVersion": ""}}
    api.put(f"{CMS}/{api.name}", odd).no(409, "Conflict", "UID in precondition: other")


@case
def put_of_nothing_is_404(api):
    api.put(f"{CMS}/{api.name}", config(api.name)).no(404, "NotFound")


@case
def put_of_a_lease_may_create_it(api):
    assert api.put(f"{LEASES}/{api.name}", {"metadata": {"name": api.name}, "spec": {"leaseTransitions": 1}}).status == 201


@case
def a_put_that_changes_nothing_keeps_the_version(api):
    made = api.post(CMS, config(api.name, a="1")).ok(201)
    assert api.put(f"{CMS}/{api.name}", made).ok()["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


@case
def generation_follows_the_spec_alone(api):
    made = api.post(GROUPS, group(api.name)).ok(201)
    assert made["metadata"]["generation"] == 1
    labelled = api.patch(f"{GROUPS}/{api.name}", {"metadata": {"labels": {"a": "b"}}}, MERGE).ok()
    assert labelled["metadata"]["generation"] == 1
    grown = api.patch(f"{GROUPS}/{api.name}", {"spec": {"minMember": 2}}, MERGE).ok()
    assert grown["metadata"]["generation"] == 2


@case
def status_is_written_by_its_subresource_alone(api):
    made = api.post(GROUPS, {**group(api.name), "status": {"phase": "Running"}}).ok(201)
    assert "status" not in made
    changed = api.put(f"{GROUPS}/{api.name}/status", {**made, "spec": {"minMember": 9}, "status": {"phase": "Scheduled"}}).ok()
    assert changed["status"] == {"phase": "Scheduled"}
    assert changed["spec"]["minMember"] == 1
    again = api.put(f"{GROUPS}/{api.name}", {**changed, "status": {"phase": "Failed"}}).ok()
    assert again["status"]["phase"] == "Scheduled"


@case
def a_pods_status_is_not_taken_at_its_creation(api):
    made = api.post(PODS, {**pod(api.name), "status": {"phase": "Running"}}).ok(201)
    assert made["status"]["phase"] == "Pending"


# -- patching ----------------------------------------------------------------------------------


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


# -- server-side apply -------------------------------------------------------------------------


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


# -- deleting ----------------------------------------------------------------------------------


@case
def delete_removes_and_says_so(api):
    made = api.post(CMS, config(api.name)).ok(201)
    status = api.delete(f"{CMS}/{api.name}").ok()
    assert status["status"] == "Success"
    assert status["details"] == {"name": api.name, "kind": "configmaps", "uid": made["metadata"]["uid"]}
    api.get(f"{CMS}/{api.name}").no(404, "NotFound")


@case
def deleting_nothing_is_404(api):
    api.delete(f"{CMS}/{api.name}").no(404, "NotFound")


@case
def deletion_may_name_the_uid_it_means(api):
    api.post(CMS, config(api.name)).ok(201)
    api.delete(f"{CMS}/{api.name}", {"preconditions": {"uid": "other"}}).no(
        409, "Conflict", "the UID in the precondition (other) does not match"
    )


@case
def deletion_may_name_the_version_it_means(api):
    api.post(CMS, config(api.name)).ok(201)
    answer = api.delete(f"{CMS}/{api.name}", {"preconditions": {"resourceVersion": "1"}})
    answer.no(409, "Conflict", "the ResourceVersion in the precondition (1) does not match")


@case
def finalizers_hold_an_object(api):
    made = config(api.name)
    made["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(CMS, made).ok(201)
    held = api.delete(f"{CMS}/{api.name}").ok()
    assert held["metadata"]["deletionTimestamp"]
    api.patch(f"{CMS}/{api.name}", {"metadata": {"finalizers": None}}, MERGE).ok()
    api.get(f"{CMS}/{api.name}").no(404, "NotFound")


@case
def an_unbound_pod_goes_at_once(api):
    api.post(PODS, pod(api.name)).ok(201)
    api.delete(f"{PODS}/{api.name}").ok()
    api.get(f"{PODS}/{api.name}").no(404, "NotFound")


@case
def a_bound_pod_goes_with_grace(api):
    api.post(PODS, pod(api.name, terminationGracePeriodSeconds=30)).ok(201)
    bind(api, api.name).ok(201)
    going = api.delete(f"{PODS}/{api.name}").ok()
    assert going["metadata"]["deletionTimestamp"]
    assert going["metadata"]["deletionGracePeriodSeconds"] == 30
    shorter = api.delete(f"{PODS}/{api.name}", {"gracePeriodSeconds": 5}).ok()
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    api.delete(f"{PODS}/{api.name}", {"gracePeriodSeconds": 0}).ok()
    api.get(f"{PODS}/{api.name}").no(404, "NotFound")


@case
def a_finished_pod_goes_at_once(api):
    api.post(PODS, pod(api.name)).ok(201)
    bind(api, api.name).ok(201)
    api.patch(f"{PODS}/{api.name}/status", {"status": {"phase": "Succeeded"}}, STRATEGIC).ok()
    api.delete(f"{PODS}/{api.name}").ok()
    api.get(f"{PODS}/{api.name}").no(404, "NotFound")


@case
def a_dry_deletion_changes_nothing(api):
    api.post(CMS, config(api.name)).ok(201)
    api.delete(f"{CMS}/{api.name}?dryRun=All").ok()
    api.get(f"{CMS}/{api.name}").ok()


@case
def collections_can_be_deleted_by_selector(api):
    several(api)
    api.delete(f"{CMS}?labelSelector=case={api.name},half=low").ok()
    assert selected(api, f"case={api.name}") == ["2", "3", "4"]


@case
def dependents_go_with_their_owner(api):
    owner = api.post(CMS, config(f"{api.name}-owner")).ok(201)
    child = config(f"{api.name}-child")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    child["metadata"]["ownerReferences"] = [reference]
    api.post(CMS, child).ok(201)
    api.delete(f"{CMS}/{api.name}-owner").ok()
    api.until(lambda: api.get(f"{CMS}/{api.name}-child").status == 404)


@case
def orphans_stay(api):
    owner = api.post(CMS, config(f"{api.name}-owner")).ok(201)
    child = config(f"{api.name}-child")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    child["metadata"]["ownerReferences"] = [reference]
    api.post(CMS, child).ok(201)
    api.delete(f"{CMS}/{api.name}-owner", {"propagationPolicy": "Orphan"}).ok()
    api.until(lambda: api.get(f"{CMS}/{api.name}-owner").status == 404)
    assert "ownerReferences" not in api.get(f"{CMS}/{api.name}-child").ok()["metadata"]


@case
def foreground_deletion_ends_with_the_owner(api):
    owner = api.post(CMS, config(f"{api.name}-owner")).ok(201)
    child = config(f"{api.name}-child")
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    child["metadata"] |= {"ownerReferences": [reference], "finalizers": ["example.com/hold"]}
    api.post(CMS, child).ok(201)
    api.until(lambda: api.get(f"{CMS}/{api.name}-child").status == 200)
    api.delete(f"{CMS}/{api.name}-owner", {"propagationPolicy": "Foreground"}).ok()
    api.until(lambda: "deletionTimestamp" in (api.get(f"{CMS}/{api.name}-child").body["metadata"]))
    assert api.get(f"{CMS}/{api.name}-owner").ok()["metadata"]["deletionTimestamp"]
    api.patch(f"{CMS}/{api.name}-child", {"metadata": {"finalizers": None}}, MERGE).ok()
    api.until(lambda: api.get(f"{CMS}/{api.name}-owner").status == 404)


@case
def an_unknown_propagation_is_refused(api):
    api.post(CMS, config(api.name)).ok(201)
    api.delete(f"{CMS}/{api.name}", {"propagationPolicy": "Sideways"}).no(422, "Invalid", 'Unsupported value: "Sideways"')


@case
def a_namespace_takes_its_content_along(api):
    space = f"{api.name}-space"
    made = api.post("/api/v1/namespaces", {"metadata": {"name": space}}).ok(201)
    assert made["status"]["phase"] == "Active"
    assert made["metadata"]["labels"]["kubernetes.io/metadata.name"] == space
    api.post(f"/api/v1/namespaces/{space}/configmaps", config("inside")).ok(201)
    api.delete(f"/api/v1/namespaces/{space}")
    api.until(lambda: api.get(f"/api/v1/namespaces/{space}").status == 404)
    assert api.get(f"/api/v1/namespaces/{space}/configmaps/inside").status == 404


# -- pods --------------------------------------------------------------------------------------


@case
def a_pod_gets_its_defaults(api):
    spec = api.post(PODS, pod(api.name)).ok(201)["spec"]
    wanted = {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "enableServiceLinks": True,
    }
    assert {name: spec.get(name) for name in wanted} == wanted
    container = spec["containers"][0]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["terminationMessagePolicy"] == "File"
    assert [each["key"] for each in spec["tolerations"]] == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


@case
def limits_become_requests(api):
    made = pod(api.name)
    made["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}}
    resources = api.post(PODS, made).ok(201)["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "2", "nvidia.com/gpu": "1"}


@case
def the_quality_of_service_is_told(api):
    found = {}
    for kind, resources in (
        ("BestEffort", {}),
        ("Burstable", {"requests": {"cpu": "1"}}),
        ("Guaranteed", {"limits": {"cpu": "1", "memory": "1Gi"}}),
    ):
        made = pod(f"{api.name}-{kind.lower()}")
        made["spec"]["containers"][0]["resources"] = resources
        found[kind] = api.post(PODS, made).ok(201)["status"]["qosClass"]
    assert found == {kind: kind for kind in found}


@case
def a_pod_needs_containers(api):
    api.post(PODS, pod(api.name, containers=[])).no(422, "Invalid", "spec.containers: Required value")


@case
def a_container_needs_name_and_image(api):
    answer = api.post(PODS, pod(api.name, containers=[{"resources": {}}]))
    told = [cause["field"] for cause in answer.no(422, "Invalid")["details"]["causes"]]
    assert "spec.containers[0].name" in told
    assert "spec.containers[0].image" in told


@case
def container_names_are_unique(api):
    twice = [{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]
    api.post(PODS, pod(api.name, containers=twice)).no(422, "Invalid", 'spec.containers[1].name: Duplicate value: "a"')


def with_resources(name, **resources):
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = resources
    return made


@case
def negative_quantities_are_refused(api):
    api.post(PODS, with_resources(api.name, requests={"cpu": "-1"})).no(422, "Invalid", "must be greater than or equal to 0")


@case
def unreadable_quantities_are_400(api):
    api.post(PODS, with_resources(api.name, requests={"cpu": "lots"})).no(
        400, "BadRequest", "quantities must match the regular expression"
    )


@case
def requests_stay_below_limits(api):
    made = with_resources(api.name, requests={"cpu": "2"}, limits={"cpu": "1"})
    api.post(PODS, made).no(422, "Invalid", "must be less than or equal to cpu limit")


@case
def gpus_need_limits(api):
    made = with_resources(api.name, requests={"nvidia.com/gpu": "1"})
    api.post(PODS, made).no(422, "Invalid", "Limit must be set for non overcommitable resources")


@case
def gpus_are_whole(api):
    made = with_resources(api.name, limits={"nvidia.com/gpu": "500m"})
    api.post(PODS, made).no(422, "Invalid", "must be an integer")


@case
def a_restart_policy_is_one_of_three(api):
    api.post(PODS, pod(api.name, restartPolicy="Sometimes")).no(
        422, "Invalid", 'spec.restartPolicy: Unsupported value: "Sometimes"'
    )


@case
def priority_comes_from_the_class(api):
    api.post(CLASSES, {"metadata": {"name": api.name}, "value": 77, "preemptionPolicy": "Never"}).ok(201)
    api.until(lambda: api.post(PODS, pod(api.name, priorityClassName=api.name)).status == 201)
    spec = api.get(f"{PODS}/{api.name}").ok()["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (77, "Never")


@case
def an_unknown_priority_class_is_403(api):
    api.post(PODS, pod(api.name, priorityClassName="nobody")).no(403, "Forbidden", "no PriorityClass with name nobody was found")


@case
def a_priority_classes_value_stays(api):
    api.post(CLASSES, {"metadata": {"name": api.name}, "value": 1}).ok(201)
    api.patch(f"{CLASSES}/{api.name}", {"value": 2}, MERGE).no(422, "Invalid", "may not be changed in an update")


@case
def user_priorities_have_a_ceiling(api):
    answer = api.post(CLASSES, {"metadata": {"name": api.name}, "value": 1_000_000_001})
    answer.no(422, "Invalid", "maximum allowed value of a user defined priority is 1000000000")


@case
def a_pods_spec_stays(api):
    api.post(PODS, pod(api.name)).ok(201)
    answer = api.patch(f"{PODS}/{api.name}", {"spec": {"schedulerName": "other"}}, MERGE)
    answer.no(422, "Invalid", "pod updates may not change fields other than")


@case
def gates_can_be_removed_but_not_added(api):
    api.post(PODS, pod(api.name, schedulingGates=[{"name": "a"}, {"name": "b"}])).ok(201)
    api.patch(f"{PODS}/{api.name}", {"spec": {"schedulingGates": [{"name": "c"}]}}, MERGE).no(
        422, "Invalid", "only deletion is allowed"
    )
    left = api.patch(f"{PODS}/{api.name}", {"spec": {"schedulingGates": [{"name": "b"}]}}, MERGE).ok()
    assert left["spec"]["schedulingGates"] == [{"name": "b"}]


@case
def binding_sets_the_node_and_the_condition(api):
    api.post(PODS, pod(api.name)).ok(201)
    assert bind(api, api.name, annotations={"fairlead.dev/epoch": "7"}).ok(201)["status"] == "Success"
    found = api.get(f"{PODS}/{api.name}").ok()
    assert found["spec"]["nodeName"] == "n1"
    assert [(each["type"], each["status"]) for each in found["status"]["conditions"]] == [("PodScheduled", "True")]
    assert found["metadata"]["annotations"]["fairlead.dev/epoch"] == "7"


@case
def a_pod_is_bound_once(api):
    api.post(PODS, pod(api.name)).ok(201)
    bind(api, api.name).ok(201)
    bind(api, api.name, to="n2").no(409, "Conflict", f'pod {api.name} is already assigned to node "n1"')


@case
def binding_nobody_is_404(api):
    bind(api, api.name).no(404, "NotFound")


@case
def binding_another_uid_is_409(api):
    api.post(PODS, pod(api.name)).ok(201)
    bind(api, api.name, uid="other").no(409, "Conflict", "UID in precondition: other")


@case
def binding_an_old_version_is_409(api):
    made = api.post(PODS, pod(api.name)).ok(201)
    api.patch(f"{PODS}/{api.name}", {"metadata": {"labels": {"a": "b"}}}, MERGE).ok()
    bind(api, api.name, resourceVersion=made["metadata"]["resourceVersion"]).no(409, "Conflict")


@case
def binding_to_no_node_is_refused(api):
    api.post(PODS, pod(api.name)).ok(201)
    api.post(f"{PODS}/{api.name}/binding", {"metadata": {"name": api.name}, "target": {"kind": "Node"}}).no(
        500, None, "target.name: Required value"
    )


@case
def binding_a_gated_pod_is_409(api):
    api.post(PODS, pod(api.name, schedulingGates=[{"name": "a"}])).ok(201)
    bind(api, api.name).no(409, "Conflict", "has non-empty .spec.schedulingGates")


@case
def binding_a_leaving_pod_is_409(api):
    made = pod(api.name)
    made["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(PODS, made).ok(201)
    api.delete(f"{PODS}/{api.name}").ok()
    bind(api, api.name).no(409, "Conflict", "is being deleted, cannot be assigned to a host")
    api.patch(f"{PODS}/{api.name}", {"metadata": {"finalizers": None}}, MERGE).ok()


def evict(api, name, **options):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NS}}
    return api.post(f"{PODS}/{name}/eviction", {**body, "deleteOptions": options} if options else body)


@case
def eviction_deletes(api):
    api.post(PODS, pod(api.name)).ok(201)
    assert evict(api, api.name).ok(201)["status"] == "Success"
    api.get(f"{PODS}/{api.name}").no(404, "NotFound")


@case
def a_dry_eviction_changes_nothing(api):
    api.post(PODS, pod(api.name)).ok(201)
    evict(api, api.name, dryRun=["All"]).ok(201)
    api.get(f"{PODS}/{api.name}").ok()


@case
def evicting_nobody_is_404(api):
    evict(api, api.name).no(404, "NotFound")


@case
def evicting_another_uid_is_409(api):
    api.post(PODS, pod(api.name)).ok(201)
    evict(api, api.name, preconditions={"uid": "other"}).no(409, "Conflict")


@case
def a_budget_forbids_an_eviction(api):
    made = pod(api.name)
    made["metadata"]["labels"] = {"case": api.name}
    api.post(PODS, made).ok(201)
    bind(api, api.name).ok(201)
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    api.patch(f"{PODS}/{api.name}/status", running, STRATEGIC).ok()
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"case": api.name}}}
    api.post(BUDGETS, {"metadata": {"name": api.name}, "spec": spec}).ok(201)
    api.until(lambda: (api.get(f"{BUDGETS}/{api.name}").ok().get("status") or {}).get("currentHealthy") == 1)
    evict(api, api.name).no(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")


@case
def an_unbound_pod_has_no_log(api):
    api.post(PODS, pod(api.name)).ok(201)
    assert api.get(f"{PODS}/{api.name}/log").status == 204


@case
def a_log_needs_a_container_that_exists(api):
    api.post(PODS, pod(api.name)).ok(201)
    answer = api.get(f"{PODS}/{api.name}/log?container=other")
    answer.no(400, "BadRequest", f"container other is not valid for pod {api.name}")


# -- other kinds -------------------------------------------------------------------------------


@case
def a_new_node_is_not_ready(api):
    made = api.post(NODES, node(api.name)).ok(201)
    assert {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"} in made["spec"]["taints"]
    assert made["status"]["allocatable"]["cpu"] == "4"


@case
def a_nodes_status_has_a_subresource(api):
    api.post(NODES, node(api.name)).ok(201)
    done = api.patch(f"{NODES}/{api.name}/status", {"status": {"allocatable": {"cpu": "2"}}}, MERGE).ok()
    assert done["status"]["allocatable"]["cpu"] == "2"


@case
def custom_rules_are_enforced(api):
    status = api.post(GROUPS, group(api.name, minMember=0)).no(422, "Invalid", "should be greater than or equal to 1")
    assert status["details"]["causes"][0]["field"] == "spec.minMember"


@case
def custom_types_are_enforced(api):
    answer = api.post(GROUPS, group(api.name, minMember="two"))
    answer.no(422, "Invalid", 'spec.minMember in body must be of type integer: "string"')


@case
def custom_patterns_are_enforced(api):
    api.post(GROUPS, group(api.name, timeLimit="soon")).no(422, "Invalid", "spec.timeLimit in body should match")


@case
def custom_cel_rules_are_enforced(api):
    api.post(GROUPS, group(api.name, minMember=3, maxMember=2)).no(422, "Invalid", "maxMember must not be below minMember")


@case
def custom_objects_need_what_their_schema_requires(api):
    bad = group(api.name)
    del bad["spec"]
    api.post(GROUPS, bad).no(422, "Invalid", "spec: Required value")


@case
def a_budget_has_one_bound(api):
    spec = {"minAvailable": 1, "maxUnavailable": 1, "selector": {}}
    api.post(BUDGETS, {"metadata": {"name": api.name}, "spec": spec}).no(422, "Invalid", "cannot be both set")


@case
def leases_are_checked(api):
    bad = {"metadata": {"name": api.name}, "spec": {"leaseDurationSeconds": 0}}
    api.post(LEASES, bad).no(422, "Invalid", "must be greater than 0")


def event(api):
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": api.name, "namespace": NS},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "fairlead",
        "reportingInstance": "one",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {"kind": "Pod", "namespace": NS, "name": api.name},
        "note": "assigned",
        "type": "Normal",
    }


@case
def events_have_two_spellings(api):
    api.post(NEW_EVENTS, event(api)).ok(201)
    old = api.get(f"{EVENTS}/{api.name}").ok()
    assert (old["message"], old["involvedObject"]["name"], old["apiVersion"]) == ("assigned", api.name, "v1")
    new = api.get(f"{NEW_EVENTS}/{api.name}").ok()
    assert (new["note"], new["regarding"]["name"], new["apiVersion"]) == ("assigned", api.name, "events.k8s.io/v1")


@case
def events_are_found_by_what_they_are_about(api):
    api.post(NEW_EVENTS, event(api)).ok(201)
    found = api.get(f"{EVENTS}?fieldSelector=involvedObject.name={api.name},involvedObject.kind=Pod").ok()
    assert [item["metadata"]["name"] for item in found["items"]] == [api.name]


def job(name, **spec):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


@case
def a_job_gets_its_defaults(api):
    made = api.post(JOBS, job(api.name, suspend=True)).ok(201)
    spec = made["spec"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"], spec["completionMode"]) == (1, 1, 6, "NonIndexed")
    assert spec["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] == made["metadata"]["uid"]
    assert spec["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == api.name


@case
def a_jobs_pods_must_end(api):
    bad = job(api.name)
    bad["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    api.post(JOBS, bad).no(422, "Invalid", "spec.template.spec.restartPolicy")


def deployment(name, replicas):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


@case
def scale_reads_and_writes_replicas(api):
    api.post(DEPLOYMENTS, deployment(api.name, 0)).ok(201)
    scale = api.get(f"{DEPLOYMENTS}/{api.name}/scale").ok()
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {}, f"app={api.name}")
    api.patch(f"{DEPLOYMENTS}/{api.name}/scale", {"spec": {"replicas": 2}}, MERGE).ok()
    assert api.get(f"{DEPLOYMENTS}/{api.name}").ok()["spec"]["replicas"] == 2
    changed = api.get(f"{DEPLOYMENTS}/{api.name}/scale").ok()
    done = api.put(f"{DEPLOYMENTS}/{api.name}/scale", {**changed, "spec": {"replicas": 1}}).ok()
    assert done["spec"]["replicas"] == 1
    assert done["status"].get("replicas", 0) == 0


@case
def a_selector_must_match_its_template(api):
    bad = deployment(api.name, 0)
    bad["spec"]["selector"]["matchLabels"] = {"app": "other"}
    api.post(DEPLOYMENTS, bad).no(422, "Invalid", "`selector` does not match template `labels`")


# -- definitions and discovery -----------------------------------------------------------------


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


# -- watching ----------------------------------------------------------------------------------


def version(api):
    return api.get(CMS).ok()["metadata"]["resourceVersion"]


@case
def a_watch_tells_of_changes(api):
    since = version(api)
    api.post(CMS, config(api.name, a="1")).ok(201)
    api.patch(f"{CMS}/{api.name}", {"data": {"a": "2"}}, MERGE).ok()
    api.delete(f"{CMS}/{api.name}").ok()
    seen = api.watch(f"{CMS}?watch=true&resourceVersion={since}&fieldSelector=metadata.name={api.name}", 3)
    assert [each["type"] for each in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert [each["object"]["data"]["a"] for each in seen] == ["1", "2", "2"]
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in seen]
    assert versions == sorted(set(versions))


@case
def a_watch_without_a_version_begins_with_what_exists(api):
    several(api, 2)
    seen = api.watch(f"{CMS}?watch=true&labelSelector=case={api.name}", 2)
    assert sorted((each["type"], each["object"]["metadata"]["name"][-1]) for each in seen) == [("ADDED", "0"), ("ADDED", "1")]


@case
def objects_enter_and_leave_a_selective_watch(api):
    since = version(api)
    api.post(CMS, config(api.name)).ok(201)
    for labels in ({"watched": api.name}, {"watched": None}):
        api.patch(f"{CMS}/{api.name}", {"metadata": {"labels": labels}}, MERGE).ok()
    seen = api.watch(f"{CMS}?watch=true&resourceVersion={since}&labelSelector=watched={api.name}", 2)
    assert [each["type"] for each in seen] == ["ADDED", "DELETED"]


@case
def a_watch_ends_after_its_time(api):
    assert api.watch(f"{CMS}?watch=true&resourceVersion={version(api)}&timeoutSeconds=1&labelSelector=none=none", 1) == []


@case
def a_watch_list_ends_its_beginning_with_a_bookmark(api):
    several(api, 2)
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    seen = api.watch(f"{CMS}?{query}&labelSelector=case={api.name}", 3)
    assert [each["type"] for each in seen] == ["ADDED", "ADDED", "BOOKMARK"]
    assert seen[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@case
def a_watch_can_be_a_table(api):
    since = version(api)
    several(api, 2)
    seen = api.watch(f"{CMS}?watch=true&resourceVersion={since}&labelSelector=case={api.name}", 2, accept=TABLE)
    assert [each["object"]["kind"] for each in seen] == ["Table", "Table"]
    assert seen[0]["object"]["columnDefinitions"]
    assert not seen[1]["object"].get("columnDefinitions")


@case
def custom_objects_can_be_watched(api):
    since = api.get(GROUPS).ok()["metadata"]["resourceVersion"]
    api.post(GROUPS, group(api.name)).ok(201)
    seen = api.watch(f"{GROUPS}?watch=true&resourceVersion={since}&fieldSelector=metadata.name={api.name}", 1)
    assert (seen[0]["type"], seen[0]["object"]["kind"]) == ("ADDED", "PodGroup")


@case
def evictions_and_bindings_are_watched(api):
    since = api.get(PODS).ok()["metadata"]["resourceVersion"]
    api.post(PODS, pod(api.name)).ok(201)
    bind(api, api.name).ok(201)
    seen = api.watch(f"{PODS}?watch=true&resourceVersion={since}&fieldSelector=metadata.name={api.name}", 2)
    assert [each["object"]["spec"].get("nodeName") for each in seen] == [None, "n1"]


# -- fencing -----------------------------------------------------------------------------------


@case
def an_old_epoch_is_refused(api):
    lease = {"metadata": {"name": "fairlead-scheduler"}, "spec": {"holderIdentity": "new", "leaseTransitions": 5}}
    api.put("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fairlead-scheduler", lease)
    api.policies()

    def refused():
        name = api.fresh()
        api.post(PODS, pod(name)).ok(201)
        return bind(api, name, annotations={"fairlead.dev/epoch": "4"}).status == 403

    api.until(refused)
    name = api.fresh()
    api.post(PODS, pod(name)).ok(201)
    answer = bind(api, name, annotations={"fairlead.dev/epoch": "4"})
    answer.no(403, "Forbidden", "denied request: stale scheduler: binding of epoch 4 after the lease moved on")
    bind(api, name, annotations={"fairlead.dev/epoch": "5"}).ok(201)


def dump(body):
    return json.dumps(body).encode()


@case
def label_keys_are_merged_into_selectors(api):
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
    spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term, "matchLabelKeys": ["version"]}
    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, "matchLabelKeys": ["version", "none"]}]},
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {**term, "mismatchLabelKeys": ["version"]}}
            ]
        },
    }
    wanted = pod(api.name, affinity=affinity, topologySpreadConstraints=[spread])
    wanted["metadata"]["labels"] = {"app": "a", "version": "2"}
    spec = api.post(PODS, wanted).ok(201)["spec"]
    near = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    away = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]
    only = {"key": "version", "operator": "In", "values": ["2"]}
    assert near["labelSelector"] == {"matchLabels": {"app": "a"}, "matchExpressions": [only]}
    assert away["labelSelector"]["matchExpressions"] == [{**only, "operator": "NotIn"}]
    assert spec["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] == [only]


@case
def amounts_of_queues_that_are_none_are_refused(api):
    def made(*resources):
        api.delete(f"{QUEUES}/{api.name}")
        metadata = {"name": api.name}
        body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Queue", "metadata": metadata, "spec": {"resources": resources}}
        return api.post(QUEUES, body)

    place = "spec.resources[0]"
    made({"name": "cpu", "quota": -1}).no(422, "Invalid", f"{place}.quota: Invalid value: -1: {place}.quota in body should be")
    made({"name": "cpu", "limit": "-1"}).no(
        422, "Invalid", f'{place}.limit: Invalid value: "-1": {place}.limit in body should match'
    )
    made({"name": "cpu", "quota": "many"}).no(422, "Invalid", f'{place}.quota: Invalid value: "many"')
    made({"name": "cpu", "quota": "1" * 65}).no(422, "Invalid", f"{place}.quota: Too long: may not be more than 64 bytes")
    made({"name": "cpu", "weight": "101%"}).no(422, "Invalid", f'{place}.weight: Invalid value: "101%"')
    made({"name": "cpu", "weight": "5"}).no(422, "Invalid", f'{place}.weight: Invalid value: "5"')
    made({"name": "cpu", "weight": True}).no(422, "Invalid", f"{place}.weight: Invalid value: ")
    made({"name": "cpu", "quota": 1}, {"name": "cpu", "limit": 2}).no(422, "Invalid", "each resource may appear only once")
    made({"name": "cpu", "quota": 1}, {"name": "cpu", "pool": "x", "limit": "2k", "weight": "12.5%"}).ok(201)


@case
def no_more_levels_are_express_than_there_are(api):
    spec = {"timeSlicing": {"levels": [1], "express": 2}}
    body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "ServiceClass", "metadata": {"name": api.name}, "spec": spec}
    api.post("/apis/fairlead.dev/v1alpha1/serviceclasses", body).no(422, "Invalid", "timeSlicing.express must not exceed")

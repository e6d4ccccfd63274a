"""Creating and reading: names, versions, owners, forms."""

from __future__ import annotations

from tests.contract.cases.common import CMS, GROUPS, JSON_PATCH, MERGE, NAMESPACES, NS, PODS, STRATEGIC, YAML, case, config


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


@case
def put_without_a_name_is_400(api):
    api.post(CMS, config(api.name)).ok(201)
    told = f"the name of the object ({api.name} based on URL) was undeterminable: name must be provided"
    api.put(f"{CMS}/{api.name}", {}).no(400, "BadRequest", told)
    api.patch(f"{CMS}/{api.name}", {"metadata": None}, MERGE).no(400, "BadRequest", told)
    api.patch(f"{CMS}/{api.name}", [{"op": "remove", "path": "/metadata/name"}], JSON_PATCH).no(400, "BadRequest", told)
    api.patch(f"{CMS}/{api.name}", {"$patch": "delete"}, STRATEGIC).no(400, "BadRequest", told)


@case
def another_namespace_in_the_body_is_400(api):
    api.post(CMS, config(api.name)).ok(201)
    told = "the namespace of the provided object does not match the namespace sent on the request"
    elsewhere = {"metadata": {"name": api.name, "namespace": "other"}}
    api.put(f"{CMS}/{api.name}", elsewhere).no(400, "BadRequest", told)
    api.patch(f"{CMS}/{api.name}", elsewhere, MERGE).no(400, "BadRequest", told)


@case
def a_version_that_is_no_number_is_500(api):
    api.post(CMS, config(api.name)).ok(201)
    told = 'strconv.ParseUint: parsing "x": invalid syntax'
    api.put(f"{CMS}/{api.name}", {"metadata": {"name": api.name, "resourceVersion": "x"}}).no(500, None, told)
    api.patch(f"{CMS}/{api.name}", {"metadata": {"resourceVersion": "x"}}, MERGE).no(500, None, told)


@case
def a_namespace_keeps_its_label_and_its_finalizers(api):
    api.post(NAMESPACES, {"metadata": {"name": api.name}}).ok(201)
    put = api.put(
        f"{NAMESPACES}/{api.name}", {"metadata": {"name": api.name, "labels": {"a": "b"}}, "spec": {"finalizers": []}}
    ).ok()
    assert put["spec"] == {"finalizers": ["kubernetes"]}
    assert put["metadata"]["labels"] == {"a": "b", "kubernetes.io/metadata.name": api.name}

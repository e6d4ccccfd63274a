"""Bodies, kinds, types, paths and methods that make no sense."""

from __future__ import annotations

from tests.contract.cases.common import AI_JOBS, CMS, GROUPS, MERGE, NS, PODS, QUEUES, YAML, case, config, group, pod, queue


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


@case
def a_kind_of_another_group_is_400(api):
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": api.name}}
    told = "converting (v1.Deployment) to (core.ConfigMap): unknown conversion"
    api.post(CMS, other).no(400, "BadRequest", told)
    api.post(CMS, queue(api.name)).no(
        400, "BadRequest", 'no kind "Queue" is registered for version "fairlead.dev/v1alpha1" in scheme'
    )
    api.post(CMS, {**config(api.name), "kind": "Nothing"}).no(
        400, "BadRequest", 'no kind "Nothing" is registered for version "v1"'
    )


@case
def durations_and_budgets_beyond_their_bounds_are_422(api):
    for span in ("0s", "0d0h", "36501d", "365000000d", "36500d1s"):
        told = "spec: Invalid value: timeLimit must be longer than 0s, and at most 36500d (a century)"
        api.post(GROUPS, group(api.name, timeLimit=span)).no(422, "Invalid", told)
    api.post(GROUPS, group(api.name, timeLimit="1.5h30m")).ok(201)
    api.post(GROUPS, group(f"{api.name}-b", timeLimit="36500d", expectedDuration="1ms")).ok(201)
    job = {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "AIJob",
        "metadata": {"name": api.name},
        "spec": {"roles": [{"name": "w", "template": {}}], "ttlAfterFinished": "0s", "checkpoint": {"path": "/c"}},
    }
    api.post(AI_JOBS, {**job, "spec": {**job["spec"], "ttlAfterFinished": "40000d"}}).no(
        422, "Invalid", "ttlAfterFinished must be at most 36500d (a century)"
    )
    api.post(AI_JOBS, job).ok(201)
    for budget, told in (
        ({"amount": 0}, "budget.amount must be above 0"),
        ({"amount": 1, "period": "0s"}, "budget.period must be longer than 0s"),
    ):
        made = queue(api.name)
        made["spec"] = {**made.get("spec", {}), "budget": budget}
        api.post(QUEUES, made).no(422, "Invalid", told)


@case
def numbers_beyond_64_bits_are_no_integers(api):
    most, huge = 2**63 - 1, 10**20
    about = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "AIJob", "metadata": {"name": api.name}}

    def posted(template, **role):
        return api.post(AI_JOBS, {**about, "spec": {"roles": [{"name": "w", "template": template, **role}]}})

    for amount in (huge, -huge):
        told = 'sharedResources.a in body must be of type integer,string: "number"'
        posted({}, sharedResources={"a": amount}).no(422, "Invalid", told)
        made = queue(api.name)
        made["spec"] = {"resources": [{"name": "a", "quota": amount}]}
        api.post(QUEUES, made).no(422, "Invalid", 'quota in body must be of type integer,string: "number"')
    limits = {"nvidia.com/gpu": huge, "cpu": most}
    posted({"spec": {"containers": [{"name": "m", "resources": {"limits": limits}}]}}).ok(201)


@case
def another_kind_of_custom_object_is_422(api):
    told = f'Pod.fairlead.dev "{api.name}" is invalid: kind: Invalid value: "Pod": must be Queue'
    refused = api.post(QUEUES, queue(api.name, kind="Pod")).no(422, "Invalid", told)
    assert refused["details"]["causes"][0]["field"] == "kind"
    told = "the API version in the data (v1) does not match the expected API version (fairlead.dev/v1alpha1)"
    api.post(QUEUES, queue(api.name, apiVersion="v1")).no(400, "BadRequest", told)


@case
def a_custom_object_without_its_kind_is_400(api):
    bare = {"apiVersion": "fairlead.dev/v1alpha1", "metadata": {"name": api.name}}
    api.post(QUEUES, bare).no(400, "BadRequest", "Object 'Kind' is missing in '{")
    told = "the API version in the data () does not match the expected API version"
    api.post(QUEUES, {"kind": "Queue", "metadata": {"name": api.name}}).no(400, "BadRequest", told)


@case
def kind_and_version_are_text(api):
    told = "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .apiVersion of type string"
    api.post(CMS, {**config(api.name), "apiVersion": 5}).no(400, "BadRequest", told)
    api.post(CMS, {**config(api.name), "kind": ["x"]}).no(400, "BadRequest", "into Go struct field .kind of type string")


@case
def null_is_an_empty_object(api):
    api.post(CMS, b"null").no(422, "Invalid", "metadata.name: Required value: name or generateName is required")
    api.post(CMS, b'"x"').no(400, "BadRequest", "json: cannot unmarshal string into Go value of type struct")


@case
def values_of_maps_are_text(api):
    told = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    api.post(CMS, config(api.name, a=1)).no(400, "BadRequest", told)
    for name, value, what in (("labels", 5, "number"), ("annotations", True, "bool")):
        bad = {"metadata": {"name": api.name, name: {"a": value}}}
        told = f"json: cannot unmarshal {what} into Go struct field ObjectMeta.metadata.{name} of type string"
        api.post(CMS, bad).no(400, "BadRequest", told)
    told = "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"
    api.post(QUEUES, queue(api.name, metadata={"name": api.name, "labels": {"a": 5}})).no(400, "BadRequest", told)
    assert api.post(CMS, config(api.name, a=None)).ok(201)["data"] == {"a": ""}


@case
def bytes_are_base64_and_times_are_times(api):
    told = "illegal base64 data at input byte 2"
    api.post(CMS, {"metadata": {"name": api.name}, "binaryData": {"a": "zz!"}}).no(400, "BadRequest", told)
    told = 'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"'
    api.post(CMS, {"metadata": {"name": api.name, "creationTimestamp": "yesterday"}}).no(400, "BadRequest", told)


@case
def keys_of_config_maps(api):
    told = 'data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters'
    api.post(CMS, config(api.name, **{"a b": "c"})).no(422, "Invalid", told)
    both = {**config(api.name, a="1"), "binaryData": {"a": "MQ=="}}
    api.post(CMS, both).no(422, "Invalid", 'data[a]: Invalid value: "a": duplicate of key present in binaryData')


@case
def immutable_config_maps_stay(api):
    api.post(CMS, {**config(api.name, a="1"), "immutable": True}).ok(201)
    told = "data: Forbidden: field is immutable when `immutable` is set"
    api.patch(f"{CMS}/{api.name}", {"data": {"a": "2"}}, MERGE).no(422, "Invalid", told)
    told = "immutable: Forbidden: field is immutable when `immutable` is set"
    api.patch(f"{CMS}/{api.name}", {"immutable": False}, MERGE).no(422, "Invalid", told)
    api.patch(f"{CMS}/{api.name}", {"metadata": {"labels": {"a": "b"}}}, MERGE).ok()


@case
def finalizers_are_qualified(api):
    told = 'metadata.finalizers[0]: Invalid value: "nope": name is neither a standard finalizer name nor is it fully qualified'
    api.post(CMS, {"metadata": {"name": api.name, "finalizers": ["nope"]}}).no(422, "Invalid", told)


@case
def a_deadline_of_a_pod_has_bounds(api):
    told = "spec.activeDeadlineSeconds: Invalid value: 99999999999: must be between 1 and 2147483647, inclusive"
    api.post(PODS, pod(api.name, activeDeadlineSeconds=99999999999)).no(422, "Invalid", told)


@case
def paths_that_lead_nowhere(api):
    found = "the server could not find the requested resource"
    for path in ("/api/v2", "/apis/apps/v9", f"{PODS}/x/nope", "/api/v1/nope"):
        api.get(path).no(404, "NotFound", found)
    api.get("/api/v1/namespaces/%2e%2e/pods").no(500, None, 'invalid key: "/pods/.."')
    api.get(f"{PODS}/..").no(400, "BadRequest", "Name parameter invalid: \"..\": may not be '..'")
    assert api.get("/api/v1/namespaces/default%2Fpods").ok()["kind"] == "PodList"


@case
def methods_that_are_none(api):
    for method in ("FROB", "TRACE"):
        api.call(method, PODS).no(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    assert api.call("HEAD", PODS).status == 405


@case
def bodies_of_subresources(api):
    api.post(PODS, pod(api.name)).ok(201)
    told = "name in URL does not match name in Binding object"
    api.post(f"{PODS}/{api.name}/binding", {"target": {"kind": "Node", "name": "x"}}).no(400, "BadRequest", told)
    told = 'Binding in version "v1" cannot be handled as a Binding: json: cannot unmarshal number into Go struct field Binding.target'
    api.post(f"{PODS}/{api.name}/binding", {"metadata": {"name": api.name}, "target": 5}).no(400, "BadRequest", told)
    told = "name in URL does not match name in Eviction object"
    api.post(f"{PODS}/{api.name}/eviction", {"metadata": {"name": "other"}}).no(400, "BadRequest", told)
    other = {"apiVersion": "policy/v1", "kind": "Nope", "metadata": {"name": api.name}}
    told = 'Nope in version "v1" cannot be handled as a Eviction: no kind "Nope" is registered for version "policy/v1"'
    api.post(f"{PODS}/{api.name}/eviction", other).no(400, "BadRequest", told)
    old = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": api.name}}
    assert api.post(f"{PODS}/{api.name}/eviction", {**old, "deleteOptions": {"dryRun": ["All"]}}).ok(201)["status"] == "Success"


@case
def text_that_is_no_utf_8_is_replaced(api):
    sent = b'{"metadata":{"name":"%s"},"data":{"a":"\xff"}}' % api.name.encode()
    assert api.post(CMS, sent).ok(201)["data"] == {"a": "\ufffd"}
    api.post(CMS, b'{"metadata":{}}x').no(400, "BadRequest", "invalid character 'x' after top-level value")


@case
def a_config_map_has_a_size(api):
    told = "[]: Too long: may not be more than 1048576 bytes"
    api.post(CMS, config(api.name, a="x" * 1_100_000)).no(422, "Invalid", told)

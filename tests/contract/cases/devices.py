"""Objects of `resource.k8s.io`: what is refused in slices, classes, claims and templates, what is filled in, what stays."""

from __future__ import annotations

from tests.contract.cases.common import APPLY, JSON_PATCH, MERGE, NAMESPACES, NS, PODS, TABLE, case, pod

GROUP = "/apis/resource.k8s.io/v1"
SLICES, CLASSES = f"{GROUP}/resourceslices", f"{GROUP}/deviceclasses"
CLAIMS, TEMPLATES = f"{GROUP}/namespaces/{NS}/resourceclaims", f"{GROUP}/namespaces/{NS}/resourceclaimtemplates"
DRIVER = "gpu.example.com"


def kind(name, called, **more):
    return {"apiVersion": "resource.k8s.io/v1", "kind": name, "metadata": {"name": called}, **more}


def exactly(**more):
    return {"deviceClassName": DRIVER, **more}


def claim(name, *requests, **more):
    found = requests or ({"name": "gpu", "exactly": exactly()},)
    return kind("ResourceClaim", name, spec={"devices": {"requests": list(found), **more}})


def asking(name, **more):
    return claim(name, {"name": "gpu", "exactly": exactly(**more)})


def template(name, **more):
    return kind("ResourceClaimTemplate", name, spec={"spec": claim("x", **more)["spec"]})


def slice_(name, *devices, **more):
    spec = {"driver": DRIVER, "nodeName": "n1", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}}
    return kind("ResourceSlice", name, spec={**spec, **({"devices": list(devices)} if devices else {}), **more})


def counters(count, name="gpu-0"):
    return {"name": name, "counters": {f"slice-{number}": {"value": "1"} for number in range(count)}}


def consuming(count, name="gpu-0"):
    return {"counterSet": name, "counters": counters(count)["counters"]}


def selected(expression):
    return [{"cel": {"expression": expression}}]


def result(device="gpu-0", **more):
    return {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device, **more}


def allocated(*results, **more):
    return {"devices": {"results": list(results or (result(),)), **more}}


def consumer(number=1):
    """None that a controller knows: it would remove one of a pod that is not there."""
    return {"apiGroup": "example.com", "resource": "things", "name": f"p{number}", "uid": f"uid-{number}"}


def status(api, name, **wanted):
    live = api.get(f"{CLAIMS}/{name}").ok()
    return api.put(f"{CLAIMS}/{name}/status", {**live, "status": wanted})


def refused(api, path, *bodies):
    """Each body is refused, with one cause: the one given with it."""
    for body, field, message in bodies:
        found = api.post(path, body).no(422, "Invalid", message)
        causes = found["details"]["causes"]
        assert [cause["field"] for cause in causes] == [field], (field, causes)


# -- claims and templates ----------------------------------------------------------------------


@case
def a_claim_gets_its_defaults(api):
    made = api.post(
        CLAIMS,
        claim(
            api.name,
            {"name": "one", "exactly": exactly(tolerations=[{"key": "a", "value": "b"}])},
            {"name": "all", "exactly": exactly(allocationMode="All")},
            {"name": "either", "firstAvailable": [{"name": "big", **exactly(count=2)}, {"name": "small", **exactly()}]},
        ),
    ).ok(201)
    one, every, either = made["spec"]["devices"]["requests"]
    assert (one["exactly"]["allocationMode"], one["exactly"]["count"]) == ("ExactCount", 1)
    assert one["exactly"]["tolerations"] == [{"key": "a", "operator": "Equal", "value": "b"}]
    assert (every["exactly"]["allocationMode"], "count" in every["exactly"]) == ("All", False)
    assert [each["count"] for each in either["firstAvailable"]] == [2, 1]
    assert (made["status"], "generation" in made["metadata"]) == ({}, False)


@case
def a_template_gets_the_defaults_of_claims(api):
    made = api.post(TEMPLATES, template(api.name)).ok(201)
    assert made["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert "status" not in made


@case
def a_new_claim_has_no_status(api):
    wanted = {**claim(api.name), "status": {"allocation": allocated(), "reservedFor": [consumer()]}}
    assert api.post(CLAIMS, wanted).ok(201)["status"] == {}


@case
def a_claim_has_so_many_requests_constraints_selectors_and_alternatives_at_most(api):
    def several(count):
        return [{"name": f"r{number}", "exactly": exactly()} for number in range(count)]

    match = {"matchAttribute": f"{DRIVER}/model"}
    options = [{"name": f"o{number}", **exactly()} for number in range(9)]
    spec = "spec.devices"
    refused(
        api,
        CLAIMS,
        (claim(api.name, *several(33)), f"{spec}.requests", "Too many: 33: must have at most 32 items"),
        (claim(api.name, constraints=[match] * 33), f"{spec}.constraints", "Too many: 33: must have at most 32 items"),
        (asking(api.name, selectors=selected("true") * 33), f"{spec}.requests[0].exactly.selectors", "Too many: 33"),
        (claim(api.name, {"name": "a", "firstAvailable": options}), f"{spec}.requests[0].firstAvailable", "Too many: 9"),
    )
    api.post(CLAIMS, claim(api.name, *several(32))).ok(201)


@case
def requests_of_a_claim_have_names_of_their_own_and_a_class(api):
    at = "spec.devices.requests"
    twice = [{"name": "gpu", "exactly": exactly()}] * 2
    refused(
        api,
        CLAIMS,
        (claim(api.name, {"name": "GPU", "exactly": exactly()}), f"{at}[0].name", "a lowercase RFC 1123 label must consist of"),
        (claim(api.name, *twice), f"{at}[1]", 'Duplicate value: "gpu"'),
        (claim(api.name, {"name": "gpu"}), f"{at}[0]", "exactly one of `exactly` or `firstAvailable` is required"),
        (asking(api.name, deviceClassName=""), f"{at}[0].exactly.deviceClassName", "Required value"),
        (asking(api.name, deviceClassName="A_b"), f"{at}[0].exactly.deviceClassName", "RFC 1123 subdomain"),
        (
            claim(api.name, {"name": "gpu", "exactly": exactly(), "firstAvailable": [{"name": "a", **exactly()}]}),
            f"{at}[0]",
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
    )


@case
def counts_of_a_claim_go_with_its_mode(api):
    at = "spec.devices.requests[0].exactly"
    refused(
        api,
        CLAIMS,
        (asking(api.name, allocationMode="All", count=2), f"{at}.count", "must not be specified when allocationMode is 'All'"),
        (asking(api.name, count=-1), f"{at}.count", "must be greater than zero"),
        (
            asking(api.name, allocationMode="Some"),
            f"{at}.allocationMode",
            'Unsupported value: "Some": supported values: "All", "ExactCount"',
        ),
    )


@case
def selectors_are_compiled_when_a_claim_is_made(api):
    at = "spec.devices.requests[0].exactly.selectors[0].cel"
    costly = "true"
    for depth in range(4):
        costly = f"device.attributes.all(a{depth}, {costly})"
    refused(
        api,
        CLAIMS,
        (asking(api.name, selectors=selected("device.driver ==")), f"{at}.expression", "compilation failed"),
        (asking(api.name, selectors=selected("device.drivers == 'a'")), f"{at}.expression", "compilation failed"),
        (asking(api.name, selectors=selected("device.driver")), f"{at}.expression", "must evaluate to bool"),
        (asking(api.name, selectors=[{}]), at, "Required value"),
        (
            asking(api.name, selectors=selected("true" + " " * 10240)),
            f"{at}.expression",
            "Too long: may not be more than 10240 bytes",
        ),
        (asking(api.name, selectors=selected(costly)), f"{at}.expression", "too complex, exceeds cost limit"),
    )
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].?model.orValue("") == "a"'
    api.post(CLAIMS, asking(api.name, selectors=selected(expression))).ok(201)


@case
def constraints_and_configurations_name_requests_of_their_claim(api):
    match = f"{DRIVER}/model"
    config = {"opaque": {"driver": DRIVER, "parameters": {"kind": "x"}}}
    either = {"name": "either", "firstAvailable": [{"name": "a", **exactly()}]}
    at = "spec.devices"
    unknown = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
    refused(
        api,
        CLAIMS,
        (
            claim(api.name, constraints=[{"requests": ["b"], "matchAttribute": match}]),
            f"{at}.constraints[0].requests[0]",
            unknown,
        ),
        (
            claim(api.name, either, constraints=[{"requests": ["either/b"], "matchAttribute": match}]),
            f"{at}.constraints[0].requests[0]",
            unknown,
        ),
        (claim(api.name, constraints=[{}]), f"{at}.constraints[0]", 'exactly one of "matchAttribute" or "distinctAttribute"'),
        (
            claim(api.name, constraints=[{"matchAttribute": "model"}]),
            f"{at}.constraints[0].matchAttribute",
            "a fully qualified name",
        ),
        (claim(api.name, config=[{"requests": ["b"], **config}]), f"{at}.config[0].requests[0]", unknown),
        (claim(api.name, config=[{}]), f"{at}.config[0].opaque", "Required value"),
        (
            claim(api.name, config=[{"opaque": {"driver": DRIVER, "parameters": "x"}}]),
            f"{at}.config[0].opaque.parameters",
            "must be a valid JSON object",
        ),
        (
            claim(api.name, config=[{"opaque": {"driver": DRIVER, "parameters": {"x": "y" * 10240}}}]),
            f"{at}.config[0].opaque.parameters",
            "Too long: may not be more than 10240 bytes",
        ),
    )
    constraint = {"requests": ["either/a", "either"], "distinctAttribute": match}
    api.post(CLAIMS, claim(api.name, either, constraints=[constraint], config=[config])).ok(201)


@case
def tolerations_of_devices_are_checked(api):
    at = "spec.devices.requests[0].exactly.tolerations[0]"
    refused(
        api,
        CLAIMS,
        (
            asking(api.name, tolerations=[{"operator": "Exists", "value": "a"}]),
            f"{at}.value",
            "must be empty for operator `Exists`",
        ),
        (asking(api.name, tolerations=[{"operator": "In"}]), f"{at}.operator", 'supported values: "Equal", "Exists"'),
        (
            asking(api.name, tolerations=[{"operator": "Exists", "effect": "Never"}]),
            f"{at}.effect",
            'supported values: "NoExecute", "NoSchedule", "None"',
        ),
    )


@case
def admin_access_needs_a_label_of_the_namespace(api):
    message = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
    refused(api, CLAIMS, (asking(api.name, adminAccess=True), "spec.devices.requests[0].adminAccess", message))
    labels = {"resource.kubernetes.io/admin-access": "true"}
    api.post(NAMESPACES, {"metadata": {"name": api.name, "labels": labels}}).ok(201)
    api.post(f"{GROUP}/namespaces/{api.name}/resourceclaims", asking("admin", adminAccess=True)).ok(201)


@case
def quantities_of_devices_are_read(api):
    bad = asking(api.name, capacity={"requests": {"memory": "much"}})
    api.post(CLAIMS, bad).no(400, "BadRequest", "quantities must match the regular expression")
    bad = slice_(api.name, {"name": "a", "capacity": {"memory": {"value": "much"}}})
    api.post(SLICES, bad).no(400, "BadRequest", "quantities must match the regular expression")


@case
def specs_of_claims_and_templates_stay(api):
    for path, made in ((CLAIMS, claim(api.name)), (TEMPLATES, template(api.name))):
        live = api.post(path, made).ok(201)
        patch = [{"op": "replace", "path": f"/spec{'/spec' if path is TEMPLATES else ''}/devices/requests/0/name", "value": "b"}]
        found = api.patch(f"{path}/{api.name}", patch, JSON_PATCH).no(422, "Invalid", "field is immutable")
        assert [cause["field"] for cause in found["details"]["causes"]] == ["spec"]
        live["metadata"]["labels"] = {"a": "b"}
        assert api.put(f"{path}/{api.name}", live).ok()["metadata"]["labels"] == {"a": "b"}


# -- the status of claims ----------------------------------------------------------------------


@case
def a_claim_is_allocated_reserved_and_released(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    done = status(api, api.name, allocation=allocated(), reservedFor=[consumer()]).ok()
    assert done["status"]["reservedFor"] == [consumer()]
    assert status(api, api.name, allocation=allocated(), reservedFor=[consumer(), consumer(2)]).ok()
    assert status(api, api.name).ok()["status"] == {}


@case
def an_allocation_stays_while_there_is_one(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    status(api, api.name, allocation=allocated()).ok()
    found = status(api, api.name, allocation=allocated(result("gpu-1"))).no(422, "Invalid", "field is immutable")
    assert [cause["field"] for cause in found["details"]["causes"]] == ["status.allocation"]


@case
def two_writers_of_a_status_do_not_both_win(api):
    live = api.post(CLAIMS, claim(api.name)).ok(201)
    status(api, api.name, allocation=allocated()).ok()
    late = api.put(f"{CLAIMS}/{api.name}/status", {**live, "status": {"allocation": allocated(result("gpu-1"))}})
    late.no(409, "Conflict", "the object has been modified")


@case
def a_status_of_a_claim_holds_together(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    many = [consumer(number) for number in range(257)]
    share = result(shareID="x")
    cases = (
        ({"reservedFor": [consumer()]}, "status.reservedFor", "may not be specified when `allocated` is not set"),
        ({"allocation": allocated(), "reservedFor": many}, "status.reservedFor", "Too many: 257: must have at most 256 items"),
        ({"allocation": allocated(), "reservedFor": [consumer()] * 2}, "status.reservedFor[1]", 'Duplicate value: "uid-1"'),
        (
            {"allocation": allocated(), "reservedFor": [{"resource": "pods", "name": "a"}]},
            "status.reservedFor[0].uid",
            "Required",
        ),
        (
            {"allocation": allocated(*[result()] * 33)},
            "status.allocation.devices.results",
            "Too many: 33: must have at most 32 items",
        ),
        (
            {"allocation": allocated(result(request="b"))},
            "status.allocation.devices.results[0].request",
            "must be the name of a request",
        ),
        ({"allocation": allocated(result("GPU"))}, "status.allocation.devices.results[0].device", "RFC 1123 label"),
        ({"allocation": allocated(result(pool="A"))}, "status.allocation.devices.results[0].pool", "RFC 1123 subdomain"),
        ({"allocation": allocated(share)}, "status.allocation.devices.results[0].shareID", "error validating uid"),
        (
            {"allocation": allocated(config=[{"source": "Elsewhere", "opaque": {"driver": DRIVER, "parameters": {}}}])},
            "status.allocation.devices.config[0].source",
            'supported values: "FromClaim", "FromClass"',
        ),
        (
            {"allocation": allocated(), "devices": [{"driver": DRIVER, "pool": "n1", "device": "gpu-7"}]},
            "status.devices[0]",
            "must be an allocated device in the claim",
        ),
    )
    for wanted, field, message in cases:
        found = status(api, api.name, **wanted).no(422, "Invalid", message)
        assert [cause["field"] for cause in found["details"]["causes"]] == [field], found


@case
def a_status_of_a_claim_changes_nothing_else(api):
    made = claim(api.name)
    made["metadata"]["labels"] = {"a": "b"}
    live = api.post(CLAIMS, made).ok(201)
    live["metadata"] |= {"labels": {"c": "d"}, "finalizers": ["example.com/one"]}
    live["spec"]["devices"]["requests"][0]["name"] = "other"
    done = api.put(f"{CLAIMS}/{api.name}/status", {**live, "status": {"allocation": allocated()}}).ok()
    assert (done["metadata"]["labels"], done["metadata"].get("finalizers")) == ({"a": "b"}, None)
    assert done["spec"]["devices"]["requests"][0]["name"] == "gpu"
    live = api.get(f"{CLAIMS}/{api.name}").ok()
    assert api.put(f"{CLAIMS}/{api.name}", {**live, "status": {}}).ok()["status"]["allocation"] == allocated()


@case
def what_drivers_report_of_devices_goes_with_their_allocation(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    device = {"driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Prepared",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    report = {**device, "conditions": [condition]}
    done = status(api, api.name, allocation=allocated(), devices=[report]).ok()
    assert done["status"]["devices"][0]["conditions"][0]["reason"] == "Prepared"
    found = status(
        api, api.name, allocation=allocated(), devices=[{**device, "conditions": [{**condition, "status": "Perhaps"}]}]
    )
    found.no(422, "Invalid", 'Unsupported value: "Perhaps"')
    assert status(api, api.name, devices=[report]).ok()["status"] == {}


@case
def a_status_of_a_claim_can_be_applied_and_patched(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    api.patch(f"{CLAIMS}/{api.name}/status", {"status": {"allocation": allocated(), "reservedFor": [consumer()]}}, MERGE).ok()
    applied = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": api.name}}
    reports = [{"driver": DRIVER, "pool": "n1", "device": "gpu-0", "data": {"index": 0}}]
    path = f"{CLAIMS}/{api.name}/status?fieldManager=driver&force=true"
    done = api.patch(path, {**applied, "status": {"devices": reports}}, APPLY).ok()
    [shown] = done["status"]["devices"]
    assert (done["status"]["reservedFor"], {**reports[0], "conditions": None}) == ([consumer()], {"conditions": None, **shown})


@case
def amounts_of_devices_may_be_numbers(api):
    capacity = {"memory": {"value": 5, "requestPolicy": {"default": 1, "validValues": [1, "2"]}}}
    api.post(SLICES, slice_(api.name, {"name": "a", "capacity": capacity, "allowMultipleAllocations": True})).ok(201)


@case
def devices_have_the_types_of_their_fields(api):
    for device, message in (
        ({"attributes": {"a": 5}}, "cannot unmarshal number into Go struct field"),
        ({"attributes": {"a": {"int": "x"}}}, "cannot unmarshal string into Go struct field"),
        ({"capacity": {"a": "5"}}, "cannot unmarshal string into Go struct field"),
        ({"consumesCounters": [{"counterSet": "a", "counters": {"b": []}}]}, "cannot unmarshal array into Go struct field"),
    ):
        api.post(SLICES, slice_(api.name, {"name": "a", **device})).no(400, "BadRequest", message)


@case
def a_claim_that_is_deleted_waits_for_its_finalizer_and_is_not_reserved_again(api):
    made = claim(api.name)
    made["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    api.post(CLAIMS, made).ok(201)
    status(api, api.name, allocation=allocated(), reservedFor=[consumer()]).ok()
    api.delete(f"{CLAIMS}/{api.name}").ok()
    live = api.get(f"{CLAIMS}/{api.name}").ok()
    assert live["metadata"]["deletionTimestamp"]
    more = [*live["status"]["reservedFor"], consumer(2)]
    found = api.put(f"{CLAIMS}/{api.name}/status", {**live, "status": {**live["status"], "reservedFor": more}})
    found.no(422, "Invalid", "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")
    api.patch(f"{CLAIMS}/{api.name}", {"metadata": {"finalizers": None}}, MERGE).ok()
    assert api.get(f"{CLAIMS}/{api.name}").status == 404


# -- slices and classes ------------------------------------------------------------------------


@case
def slices_and_classes_have_generations(api):
    made = api.post(SLICES, slice_(api.name, {"name": "gpu-0"})).ok(201)
    assert made["metadata"]["generation"] == 1
    made["spec"]["pool"]["generation"] = 2
    assert api.put(f"{SLICES}/{api.name}", made).ok()["metadata"]["generation"] == 2
    made = api.post(CLASSES, kind("DeviceClass", api.name, spec={})).ok(201)
    assert made["metadata"]["generation"] == 1
    spec = {"selectors": selected(f'device.driver == "{DRIVER}"')}
    assert api.patch(f"{CLASSES}/{api.name}", {"spec": spec}, MERGE).ok()["metadata"]["generation"] == 2


@case
def a_slice_has_so_many_devices_and_counters_at_most(api):
    def devices(count, **more):
        return [{"name": f"d{number}", **more} for number in range(count)]

    taint = {"key": "a", "effect": "NoSchedule"}
    use = {"consumesCounters": [consuming(1)]}
    sets = [counters(1, f"gpu-{number}") for number in range(9)]
    attributes = {f"a{number}": {"int": number} for number in range(33)}
    refused(
        api,
        SLICES,
        (slice_(api.name, *devices(129)), "spec.devices", "Too many: 129: must have at most 128 items"),
        (slice_(api.name, *devices(65, taints=[taint])), "spec.devices", "Too many: 65: must have at most 64 items"),
        (slice_(api.name, *devices(65, **use)), "spec.devices", "Too many: 65: must have at most 64 items"),
        (slice_(api.name, sharedCounters=sets), "spec.sharedCounters", "Too many: 9: must have at most 8 items"),
        (
            slice_(api.name, sharedCounters=[counters(33)]),
            "spec.sharedCounters[0].counters",
            "Too many: 33: must have at most 32 items",
        ),
        (
            slice_(api.name, *devices(1, consumesCounters=[consuming(1, f"gpu-{number}") for number in range(3)])),
            "spec.devices[0].consumesCounters",
            "Too many: 3: must have at most 2 items",
        ),
        (
            slice_(api.name, *devices(1, taints=[taint] * 17)),
            "spec.devices[0].taints",
            "Too many: 17: must have at most 16 items",
        ),
        (
            slice_(api.name, *devices(1, attributes=attributes)),
            "spec.devices[0]",
            "the total number of attributes and capacities must not exceed 32",
        ),
    )
    api.post(SLICES, slice_(api.name, *devices(128))).ok(201)


@case
def a_slice_is_of_one_kind_and_in_one_place(api):
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    place = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 2}
    nowhere = slice_(api.name)
    del nowhere["spec"]["nodeName"]
    refused(
        api,
        SLICES,
        (
            slice_(api.name, {"name": "a"}, sharedCounters=[counters(1)]),
            "spec",
            "only one of `sharedCounters` or `devices` is allowed",
        ),
        (nowhere, "spec", place),
        (slice_(api.name, allNodes=True), "spec", f"{place}, but multiple fields are set"),
        (slice_(api.name, nodeName=None, nodeSelector=selector), "spec.nodeSelector.nodeSelectorTerms", "must have exactly one"),
        (slice_(api.name, driver="a_b"), "spec.driver", "RFC 1123 subdomain"),
        (slice_(api.name, pool={**pool, "resourceSliceCount": 0}), "spec.pool.resourceSliceCount", "must be greater than zero"),
        (slice_(api.name, pool={**pool, "generation": -1}), "spec.pool.generation", "must be greater than or equal to zero"),
        (slice_(api.name, pool={**pool, "name": "A"}), "spec.pool.name", "RFC 1123 subdomain"),
    )
    api.post(SLICES, slice_(api.name, nodeName=None, allNodes=True, driver="GPU.example.com")).ok(201)


@case
def devices_of_a_slice_are_checked(api):
    def device(**more):
        return slice_(api.name, {"name": "gpu-0", **more})

    at = "spec.devices[0]"
    refused(
        api,
        SLICES,
        (slice_(api.name, {"name": "a"}, {"name": "a"}), "spec.devices[1]", 'Duplicate value: "a"'),
        (device(name="GPU"), f"{at}.name", "RFC 1123 label"),
        (device(attributes={"model": {}}), f"{at}.attributes[model]", "exactly one value must be specified"),
        (
            device(attributes={"model": {"int": 1, "bool": True}}),
            f"{at}.attributes[model]",
            "exactly one value must be specified",
        ),
        (
            device(attributes={"model": {"version": "1"}}),
            f"{at}.attributes[model].version",
            "compatible with semver.org spec 2.0.0",
        ),
        (
            device(attributes={"model": {"string": "x" * 65}}),
            f"{at}.attributes[model].string",
            "Too long: may not be more than 64 bytes",
        ),
        (device(attributes={"9": {"int": 1}}), f"{at}.attributes", "a valid C identifier must"),
        (device(attributes={"x" * 33: {"int": 1}}), f"{at}.attributes", "Too long: may not be more than 32 bytes"),
        (device(attributes={"/a": {"int": 1}}), f"{at}.attributes", "the domain must not be empty"),
        (
            device(taints=[{"key": "a", "effect": "Never"}]),
            f"{at}.taints[0].effect",
            'supported values: "NoExecute", "NoSchedule", "None"',
        ),
        (device(taints=[{"key": "a"}]), f"{at}.taints[0].effect", "Required value"),
        (device(nodeName="n1"), at, "can only be set if `perDeviceNodeSelection` is set to true"),
        (device(consumesCounters=[{"counterSet": "a", "counters": {}}]), f"{at}.consumesCounters[0].counters", "Required value"),
        (device(bindingConditions=["a"]), f"{at}.bindingFailureConditions", "bindingFailureConditions are required"),
        (
            device(bindingConditions=["a"], bindingFailureConditions=["a"]),
            f"{at}.bindingFailureConditions[0]",
            "must not overlap with bindingConditions",
        ),
    )
    made = api.post(SLICES, device(taints=[{"key": "a", "effect": "NoExecute"}])).ok(201)
    assert made["spec"]["devices"][0]["taints"][0]["timeAdded"]


@case
def devices_with_places_of_their_own_name_them(api):
    def device(**more):
        return slice_(api.name, {"name": "gpu-0", **more}, nodeName=None, perDeviceNodeSelection=True)

    wanted = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true"
    refused(
        api,
        SLICES,
        (device(), "spec.devices[0]", wanted),
        (device(nodeName="n1", allNodes=True), "spec.devices[0]", wanted),
    )
    api.post(SLICES, device(nodeName="n1")).ok(201)


@case
def request_policies_are_checked(api):
    def device(policy, multiple=True):
        capacity = {"memory": {"value": "10Gi", "requestPolicy": policy}}
        return slice_(api.name, {"name": "gpu-0", "capacity": capacity, "allowMultipleAllocations": multiple})

    at = "spec.devices[0].capacity[memory].requestPolicy"
    span = {"min": "1Gi", "step": "1Mi"}
    refused(
        api,
        SLICES,
        (device({"default": "1Gi", "validRange": span}, False), at, "allowMultipleAllocations must be true"),
        (device({"default": "1Gi", "validRange": span, "validValues": ["1Gi"]}), at, "exactly one policy can be specified"),
        (device({"validRange": span}), f"{at}.default", "required when validRange is defined"),
        (device({"validValues": ["1Gi"]}), f"{at}.default", "required when validValues is defined"),
        (device({"default": "512Mi", "validRange": span}), f"{at}.validRange.min", "default is less than min: 1Gi"),
        (
            device({"default": "2Gi", "validRange": {"step": "1Mi"}}),
            f"{at}.validRange.min",
            "required when validRange is defined",
        ),
        (
            device({"default": "2Gi", "validRange": {"min": "1Gi", "max": "20Gi"}}),
            f"{at}.validRange.max",
            "max is larger than capacity",
        ),
        (
            device({"default": "1.5Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}),
            f"{at}.validRange.step",
            "not a multiple of a given step",
        ),
        (device({"default": "3Gi", "validValues": ["1Gi", "2Gi"]}), f"{at}.validValues", "default value is not valid"),
        (
            device({"default": "1Gi", "validValues": ["1Gi", "20Gi"]}),
            f"{at}.validValues[1]",
            "option is larger than capacity value: 10Gi",
        ),
        (
            device({"default": "1Gi", "validValues": ["2Gi", "1Gi"]}),
            f"{at}.validValues[1]",
            "values must be sorted in ascending order",
        ),
    )
    api.post(SLICES, device({"default": "10Gi", "validRange": span})).ok(201)


@case
def a_slice_stays_in_its_pool_and_on_its_node(api):
    live = api.post(SLICES, slice_(api.name, {"name": "gpu-0"})).ok(201)
    for change in ({"driver": "other.example.com"}, {"nodeName": "n2"}, {"pool": {**live["spec"]["pool"], "name": "n2"}}):
        found = api.put(f"{SLICES}/{api.name}", {**live, "spec": {**live["spec"], **change}})
        found.no(422, "Invalid", "field is immutable")


@case
def defaults_hold_for_updates_too(api):
    live = api.post(SLICES, slice_(api.name, {"name": "gpu-0"})).ok(201)
    live["spec"]["devices"] = [{"name": "gpu-0", "taints": [{"key": "a", "effect": "NoExecute"}]}]
    assert api.put(f"{SLICES}/{api.name}", live).ok()["spec"]["devices"][0]["taints"][0]["timeAdded"]
    live = api.post(CLAIMS, claim(api.name)).ok(201)
    live["spec"]["devices"]["requests"] = claim(api.name)["spec"]["devices"]["requests"]
    assert api.put(f"{CLAIMS}/{api.name}", live).ok()["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    done = status(api, api.name, allocation=allocated(result(tolerations=[{"key": "a"}]))).ok()
    assert done["status"]["allocation"]["devices"]["results"][0]["tolerations"] == [{"key": "a", "operator": "Equal"}]


@case
def slices_are_found_by_node_and_driver(api):
    name = api.name
    for node, driver in (("a", DRIVER), ("a", "other.example.com"), ("b", DRIVER)):
        made = slice_(f"{name}-{node}-{driver}", {"name": "gpu-0"}, nodeName=f"{name}-{node}", driver=driver)
        api.post(SLICES, made).ok(201)
    found = api.get(f"{SLICES}?fieldSelector=spec.nodeName={name}-a").ok()["items"]
    assert {each["spec"]["driver"] for each in found} == {DRIVER, "other.example.com"}
    found = api.get(f"{SLICES}?fieldSelector=spec.nodeName={name}-a,spec.driver={DRIVER}").ok()["items"]
    assert [each["metadata"]["name"] for each in found] == [f"{name}-a-{DRIVER}"]


@case
def a_class_is_checked(api):
    def made(**spec):
        return kind("DeviceClass", api.name, spec=spec)

    refused(
        api,
        CLASSES,
        (made(selectors=selected("1 +")), "spec.selectors[0].cel.expression", "compilation failed"),
        (made(selectors=selected("true") * 33), "spec.selectors", "Too many: 33: must have at most 32 items"),
        (made(config=[{"opaque": {"driver": "", "parameters": {}}}]), "spec.config[0].opaque.driver", "Required value"),
        (made(extendedResourceName="cpu"), "spec.extendedResourceName", "must be a valid extended resource name"),
    )
    api.post(CLASSES, made(extendedResourceName="example.com/gpu")).ok(201)


@case
def claims_and_slices_have_tables(api):
    api.post(CLAIMS, claim(api.name)).ok(201)
    row = api.get(f"{CLAIMS}/{api.name}", accept=TABLE).ok()
    assert [each["name"] for each in row["columnDefinitions"]] == ["Name", "State", "Age"]
    assert row["rows"][0]["cells"][:2] == [api.name, "pending"]
    status(api, api.name, allocation=allocated(), reservedFor=[consumer()]).ok()
    assert api.get(f"{CLAIMS}/{api.name}", accept=TABLE).ok()["rows"][0]["cells"][1] == "allocated,reserved"
    api.post(SLICES, slice_(api.name, {"name": "gpu-0"})).ok(201)
    row = api.get(f"{SLICES}/{api.name}", accept=TABLE).ok()
    assert [each["name"] for each in row["columnDefinitions"]] == ["Name", "Node", "Driver", "Pool", "Age"]
    assert row["rows"][0]["cells"][:4] == [api.name, "n1", DRIVER, "n1"]


# -- pods --------------------------------------------------------------------------------------


@case
def claims_of_a_pod_are_checked(api):
    def made(*claims, used=()):
        found = pod(api.name, resourceClaims=list(claims))
        found["spec"]["containers"][0]["resources"]["claims"] = [{"name": each} for each in used]
        return found

    at = "spec.resourceClaims[0]"
    one = {"name": "gpu", "resourceClaimName": "a"}
    refused(
        api,
        PODS,
        (made({"name": "gpu"}), at, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
        (
            made({**one, "resourceClaimTemplateName": "b"}),
            at,
            "at most one of `resourceClaimName` or `resourceClaimTemplateName`",
        ),
        (made(one, one), "spec.resourceClaims[1].name", 'Duplicate value: "gpu"'),
        (made({**one, "name": "GPU"}), f"{at}.name", "RFC 1123 label"),
        (made({**one, "resourceClaimName": "A"}), f"{at}.resourceClaimName", "RFC 1123 subdomain"),
        (
            made(one, used=["other"]),
            "spec.containers[0].resources.claims[0]",
            "must be one of the names in pod.spec.resourceClaims: gpu",
        ),
        (made(used=["other"]), "spec.containers[0].resources.claims[0]", "pod.spec.resourceClaims which is empty"),
    )
    api.post(PODS, made(one, used=["gpu"])).ok(201)

"""Options of requests."""

from __future__ import annotations

from tests.contract.cases.common import CMS, MERGE, PODS, case, config


@case
def options_of_lists_go_together(api):
    for query, told in (
        ("resourceVersionMatch=Exact", "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ("resourceVersionMatch=x&resourceVersion=1", 'Unsupported value: "x": supported values: "Exact", "NotOlderThan", ""'),
        ("resourceVersionMatch=Exact&resourceVersion=0", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'),
        ("sendInitialEvents=true", "sendInitialEvents is forbidden for list"),
        ("watch=1&sendInitialEvents=true", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
    ):
        refused = api.get(f"{CMS}?timeoutSeconds=1&{query}").no(422, "Invalid", told)
        assert refused["message"].startswith('ListOptions.meta.k8s.io "" is invalid: ')


@case
def a_list_of_a_version_of_the_past(api):
    label = f"labelSelector=of%3D{api.name}"

    def names(query):
        return [each["metadata"]["name"] for each in api.get(f"{CMS}?{label}&{query}").ok()["items"]]

    made = {}
    for which in "abc":
        body = {**config(f"{api.name}-{which}", a="1"), "metadata": {"name": f"{api.name}-{which}", "labels": {"of": api.name}}}
        made[which] = api.post(CMS, body).ok(201)["metadata"]["resourceVersion"]
    first = api.get(f"{CMS}?{label}&limit=1").ok()
    api.delete(f"{CMS}/{api.name}-b").ok()
    changed = api.patch(f"{CMS}/{api.name}-c", {"data": {"a": "2"}}, MERGE).ok()["metadata"]["resourceVersion"]
    assert names(f"resourceVersion={made['b']}&resourceVersionMatch=Exact") == [f"{api.name}-a", f"{api.name}-b"]
    assert names(f"resourceVersion={changed}&resourceVersionMatch=Exact") == [f"{api.name}-a", f"{api.name}-c"]
    old = api.get(f"{CMS}?{label}&resourceVersion={made['c']}&resourceVersionMatch=Exact").ok()
    assert old["metadata"]["resourceVersion"] == made["c"]
    assert [each["data"] for each in old["items"]] == [{"a": "1"}] * 3
    rest = f"continue={first['metadata']['continue']}"
    assert names(f"limit=5&{rest}") == [f"{api.name}-b", f"{api.name}-c"], "the pages of a list are of one moment"


@case
def numbers_in_queries_are_numbers(api):
    for query in ("limit=x", "timeoutSeconds=x", "watch=1&limit=x"):
        api.get(f"{CMS}?{query}").no(400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax')
    api.get(f"{CMS}?limit=99999999999999999999").no(400, "BadRequest", "value out of range")
    assert api.get(f"{CMS}?limit=-1").ok()["kind"] == "ConfigMapList"
    api.get(f"{CMS}?continue=junk").no(400, "BadRequest", "invalid continue token: continue key is not valid: ")
    told = 'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax'
    api.get(f"{CMS}?watch=1&resourceVersion=x").no(500, None, told)
    api.get(f"{CMS}?resourceVersion=x").no(400, "BadRequest", f"invalid resource version: {told}")


@case
def a_field_that_cannot_be_selected_by_is_400(api):
    told = '"nope" is not a known field selector: only "metadata.name", "metadata.namespace"'
    api.get(f"{CMS}?fieldSelector=nope%3D1").no(400, "BadRequest", told)
    api.get(f"{PODS}?fieldSelector=nope%3D1").no(400, "BadRequest", "field label not supported: nope")


@case
def options_of_writes_and_deletions(api):
    told = 'CreateOptions.meta.k8s.io "" is invalid: fieldManager: Invalid value: "\\a": invalid character U+0007 (at position 0)'
    api.post(f"{CMS}?fieldManager=%07", config(api.name)).no(422, "Invalid", told)
    api.post(CMS, config(api.name)).ok(201)
    told = 'propagationPolicy: Unsupported value: "Nope": supported values: "Foreground", "Background", "Orphan", "nil"'
    api.delete(f"{CMS}/{api.name}", {"propagationPolicy": "Nope"}).no(422, "Invalid", told)
    told = 'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set'
    api.delete(f"{CMS}/{api.name}", {"propagationPolicy": "Orphan", "orphanDependents": True}).no(422, "Invalid", told)
    told = 'no kind "Nope" is registered for version "v1"'
    api.delete(f"{CMS}/{api.name}", {"kind": "Nope", "apiVersion": "v1"}).no(400, "BadRequest", told)
    told = "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
    api.delete(f"{CMS}/{api.name}", {"gracePeriodSeconds": "x"}).no(400, "BadRequest", told)

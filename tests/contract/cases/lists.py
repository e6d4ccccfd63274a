"""Lists: selectors, pages, versions."""

from __future__ import annotations

from tests.contract.cases.common import (
    AI_JOBS,
    CMS,
    GROUPS,
    LEASES,
    MERGE,
    NS,
    PODS,
    bind,
    case,
    config,
    group,
    names_of,
    pod,
    selected,
    several,
)


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
def fields_of_custom_objects_select_where_their_definition_lists_them(api):
    body = {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "AIJob",
        "spec": {"roles": [{"name": "w", "template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}]},
    }
    for index in range(3):
        metadata = {"name": f"{api.name}-{index}", "labels": {"case": api.name}}
        api.post(AI_JOBS, {**body, "metadata": metadata}).ok(201)
    api.patch(f"{AI_JOBS}/{api.name}-1/status", {"status": {"phase": "Running"}}, MERGE).ok()
    of_case = f"{AI_JOBS}?labelSelector=case={api.name}&fieldSelector="
    assert names_of(api.get(f"{of_case}status.phase=Running").ok()) == ["1"]
    assert names_of(api.get(f"{of_case}status.phase!=Running,status.phase!=Failed").ok()) == ["0", "2"]
    api.get(f"{of_case}spec.queue=a").no(400, "BadRequest", "field label not supported: spec.queue")


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

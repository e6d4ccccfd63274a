"""Deletion: preconditions, finalizers, grace, dependents."""

from __future__ import annotations

from tests.contract.cases.common import CMS, MERGE, PODS, STRATEGIC, bind, case, config, pod, selected, several


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

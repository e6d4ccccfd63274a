"""PUT: versions, generations, subresources."""

from __future__ import annotations

from tests.contract.cases.common import CMS, GROUPS, LEASES, MERGE, PODS, case, config, group, pod


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

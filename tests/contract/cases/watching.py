"""Watches."""

from __future__ import annotations

from tests.contract.cases.common import CMS, GROUPS, MERGE, PODS, TABLE, bind, case, config, group, pod, several


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

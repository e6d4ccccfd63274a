"""Nodes, custom objects, budgets, leases, events, workloads, reviews."""

from __future__ import annotations

import json

from tests.contract.cases.common import (
    BUDGETS,
    CRON_JOBS,
    DEPLOYMENTS,
    EVENTS,
    GROUPS,
    JOBS,
    LEASES,
    MERGE,
    NEW_EVENTS,
    NODES,
    NS,
    PODS,
    QUEUES,
    SECRETS,
    case,
    deployment,
    group,
    node,
    pod,
)


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
def topologies_that_contradict_themselves_are_refused(api):
    def refused(message, *slices, **more):
        topology = {**({"slices": list(slices)} if slices else {}), **more}
        api.post(GROUPS, group(api.name, topology=topology)).no(422, "Invalid", message)
        roles = [{"name": "worker", "topology": topology}]
        api.post(GROUPS, group(api.name, roles=roles)).no(422, "Invalid", message)

    refused("a slice has either size or sizes", {"level": "rack"})
    refused("a slice has either size or sizes", {"level": "rack", "size": 4, "sizes": [4]})
    refused("each of the sizes of a slice must divide the one before", {"level": "rack", "sizes": [8, 3]})
    refused("the size of slices must divide", {"level": "block", "sizes": [16, 8]}, {"level": "rack", "size": 3})
    refused("slices must have different levels", {"level": "rack", "size": 4}, {"level": "rack", "size": 2})
    refused("balanced needs a preferred level, or slices", balanced=True)
    right = {"slices": [{"level": "block", "sizes": [16, 8]}, {"level": "rack", "size": 4}], "balanced": True}
    api.post(GROUPS, group(api.name, topology=right, roles=[{"name": "worker", "topology": right}])).ok(201)


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


@case
def the_times_of_a_reservation_have_a_date_a_time_and_a_zone(api):
    path, end = "/apis/fairlead.dev/v1alpha1/reservations", "2027-02-01T08:00:00Z"
    wrong = ("2027-01-31", "2027-01-31T08:00:00", "2027-01-31 08:00:00Z", "2027-02-30T08:00:00Z", "2027-01-31T25:00:00Z", "soon")
    for start in wrong:
        spec = {"purpose": "Maintenance", "start": start, "end": end}
        body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Reservation", "metadata": {"name": api.name}, "spec": spec}
        said = f'spec.start: Invalid value: "{start}": spec.start in body must be of type date-time: "{start}"'
        api.post(path, body).no(422, "Invalid", said)


@case
def the_relative_speed_of_a_pool_is_above_0(api):
    for speed in (0, -2):
        body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": api.name}}
        refused = api.post("/apis/fairlead.dev/v1alpha1/nodepools", {**body, "spec": {"relativeSpeed": speed}})
        refused.no(422, "Invalid", "relativeSpeed must be above 0")


@case
def defaults_of_secrets(api):
    secret = {"metadata": {"name": api.name}, "data": {"a": "YQ=="}, "stringData": {"b": "b"}}
    made = api.post(SECRETS, secret).ok(201)
    assert (made["type"], made["data"], "stringData" in made) == ("Opaque", {"a": "YQ==", "b": "Yg=="}, False)


@case
def defaults_of_cron_jobs(api):
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}}}
    made = api.post(CRON_JOBS, {"metadata": {"name": api.name}, "spec": {"schedule": "@daily", "jobTemplate": template}}).ok(201)
    spec = made["spec"]
    assert (spec["concurrencyPolicy"], spec["suspend"]) == ("Allow", False)
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 1)


@case
def who_am_i_and_what_may_i_do(api):
    who = api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}).ok(201)["status"]["userInfo"]
    assert who["username"]
    assert "system:authenticated" in who["groups"]
    ask = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}
    assert api.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ask).ok(201)["status"] == {"allowed": True}
    rules = api.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": NS}}).ok(201)["status"]
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in rules["resourceRules"]
    token = api.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "nobody's"}}).ok(201)["status"]
    assert (token.get("authenticated", False), token["error"]) == (False, "invalid bearer token")

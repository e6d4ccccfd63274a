"""Pods: defaults, checks, binding, eviction, logs."""

from __future__ import annotations

from tests.contract.cases.common import BUDGETS, CLASSES, MERGE, NODES, NS, PODS, STRATEGIC, bind, case, pod


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


REQUIRED, PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
NO_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
BAD_PODS = [
    ({"nodeSelector": {"a b": "c"}}, f'spec.nodeSelector: Invalid value: "a b": {NO_KEY}'),
    (
        {"nodeSelector": {"a": "b c"}},
        'spec.nodeSelector: Invalid value: "b c": a valid label must be an empty string or consist of',
    ),
    ({"tolerations": [{"key": "a b"}]}, f'spec.tolerations[0].key: Invalid value: "a b": {NO_KEY}'),
    (
        {"tolerations": [{"operator": "Equal", "value": "x"}]},
        'spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means',
    ),
    ({"tolerations": [{"key": "a", "operator": "Is"}]}, 'operator: Unsupported value: "Is": supported values: "Equal", "Exists"'),
    (
        {"tolerations": [{"key": "a", "effect": "No"}]},
        'effect: Unsupported value: "No": supported values: "NoSchedule", "PreferNoSchedule", ',
    ),
    (
        {"tolerations": [{"key": "a", "tolerationSeconds": 5}]},
        "spec.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set",
    ),
    (
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms: Required value: must have at least one node selector term",
    ),
    (
        {
            "affinity": {
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}}
            }
        },
        "nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
    ),
    (
        {
            "affinity": {
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "No"}]}]}}
            }
        },
        'matchExpressions[0].operator: Invalid value: "No": not a valid selector operator',
    ),
    (
        {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}}},
        f"spec.affinity.nodeAffinity.{PREFERRED}[0].weight: Invalid value: 0: must be in the range 1-100",
    ),
    (
        {"affinity": {"podAffinity": {REQUIRED: [{"labelSelector": {}}]}}},
        f"{REQUIRED}[0].topologyKey: Required value: can not be empty",
    ),
    (
        {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "a"}}]}}},
        f"spec.affinity.podAntiAffinity.{PREFERRED}[0].weight: Invalid value: 101: must be in the range 1-100",
    ),
    (
        {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]},
        "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
    ),
    (
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "", "whenUnsatisfiable": "X"}]},
        'spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "X": supported values: "DoNotSchedule", ',
    ),
    ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, 'spec.schedulingGates[1]: Duplicate value: "a"'),
    ({"schedulingGates": [{"name": ""}]}, 'spec.schedulingGates[0]: Invalid value: "": name part must be non-empty'),
    ({"volumes": [{"name": "v"}, {"name": "v"}]}, 'spec.volumes[1].name: Duplicate value: "v"'),
    (
        {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
        "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
    ),
    (
        {"dnsPolicy": "No"},
        'spec.dnsPolicy: Unsupported value: "No": supported values: "ClusterFirstWithHostNet", "ClusterFirst", ',
    ),
    ({"hostname": "UP"}, 'spec.hostname: Invalid value: "UP": a lowercase RFC 1123 label must consist of'),
    ({"subdomain": "a.b"}, 'spec.subdomain: Invalid value: "a.b": must not contain dots'),
    ({"os": {"name": "plan9"}}, 'spec.os: Unsupported value: "plan9": supported values: "linux", "windows"'),
]
BAD_CONTAINERS = [
    (
        {"resources": {"requests": {"nope": "1"}}},
        '.resources.requests[nope]: Invalid value: "nope": must be a standard resource type or',
    ),
    (
        {"resources": {"requests": {"cpu": "-1"}}},
        '.resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ),
    ({"ports": [{"containerPort": 0}]}, ".ports[0].containerPort: Required value"),
    (
        {"ports": [{"containerPort": 70000}]},
        ".ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
    ),
    (
        {"ports": [{"containerPort": 80, "hostPort": 99999}]},
        ".ports[0].hostPort: Invalid value: 99999: must be between 1 and 65535",
    ),
    (
        {"ports": [{"containerPort": 80, "protocol": "X"}]},
        '.ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"',
    ),
    (
        {"ports": [{"containerPort": 80, "name": "UP"}]},
        '.ports[0].name: Invalid value: "UP": must contain only alpha-numeric characters',
    ),
    ({"env": [{"name": ""}]}, ".env[0].name: Required value"),
    (
        {"env": [{"name": "a=b"}]},
        '.env[0].name: Invalid value: "a=b": a valid environment variable name must consist only of printable',
    ),
    ({"env": [{"name": "A", "valueFrom": {}}]}, '.env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, '),
    ({"volumeMounts": [{"name": "nope", "mountPath": "/x"}]}, '.volumeMounts[0].name: Not found: "nope"'),
    ({"imagePullPolicy": "No"}, '.imagePullPolicy: Unsupported value: "No": supported values: "Always", "IfNotPresent", "Never"'),
    ({"livenessProbe": {}}, ".livenessProbe: Required value: must specify a handler type"),
    (
        {"livenessProbe": {"httpGet": {"path": "/", "port": 0}}},
        ".livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535",
    ),
]


@case
def pods_that_cannot_be(api):
    for spec, told in BAD_PODS:
        api.post(PODS, pod(api.name, **spec)).no(422, "Invalid", told)


@case
def containers_that_cannot_be(api):
    for container, told in BAD_CONTAINERS:
        body = pod(api.name)
        body["spec"]["containers"][0] |= container
        api.post(PODS, body).no(422, "Invalid", f"spec.containers[0]{told}")
    body = pod(api.name, hostNetwork=True)
    body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 81}]
    told = "ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"
    api.post(PODS, body).no(422, "Invalid", told)
    body = pod(api.name)
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "x"}}
    told = 'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression'
    api.post(PODS, body).no(400, "BadRequest", told)
    assert (
        api.post(PODS, pod(api.fresh(), terminationGracePeriodSeconds=-1)).ok(201)["spec"]["terminationGracePeriodSeconds"] == 1
    )


@case
def nodes_that_cannot_be(api):
    taint = {"key": "a", "effect": "NoSchedule"}
    for spec, told in (
        ([{**taint, "key": "a b"}], f'metadata.taints[0].key: Invalid value: "a b": {NO_KEY}'),
        ([{**taint, "effect": "No"}], 'metadata.taints[0].effect: Unsupported value: "No": supported values: "NoSchedule", '),
        (
            [taint, taint],
            'metadata.taints[1]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: taints must be',
        ),
    ):
        api.post(NODES, {"metadata": {"name": api.name}, "spec": {"taints": spec}}).no(422, "Invalid", told)
    told = 'status.allocatable.cpu: Invalid value: "-1": must be greater than or equal to 0'
    api.post(NODES, {"metadata": {"name": api.name}, "status": {"allocatable": {"cpu": "-1"}}}).no(422, "Invalid", told)

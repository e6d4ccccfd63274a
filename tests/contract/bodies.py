"""More of what a Kubernetes API server answers: bodies in protobuf, wrong kinds and types, patches that make no sense, defaults."""

from __future__ import annotations

import json

from contract_cases import (
    APPLY,
    CMS,
    DEPLOYMENTS,
    JSON_PATCH,
    MERGE,
    NODES,
    NS,
    PODS,
    QUEUES,
    STRATEGIC,
    TABLE,
    case,
    config,
    pod,
)

from tests.protobuf import envelope, field

PROTOBUF = "application/vnd.kubernetes.protobuf"
NAMESPACES, SECRETS = "/api/v1/namespaces", f"/api/v1/namespaces/{NS}/secrets"
CRON_JOBS = f"/apis/batch/v1/namespaces/{NS}/cronjobs"


def metadata(name, *more):
    return field(1, field(1, name) + field(2, "") + field(8, b"") + b"".join(more))


def queue(name, **more):
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": {}, **more}


# -- protobuf ----------------------------------------------------------------------------------


@case
def a_namespace_in_protobuf(api):
    made = api.post(
        NAMESPACES, envelope("v1", "Namespace", metadata(api.name), field(2, b""), field(3, b"")), content_type=PROTOBUF
    )
    assert made.ok(201)["metadata"]["labels"] == {"kubernetes.io/metadata.name": api.name}
    api.post(NAMESPACES, envelope("v1", "Namespace", metadata(api.name)), content_type=PROTOBUF).no(409, "AlreadyExists")


@case
def a_config_map_in_protobuf(api):
    entries = field(2, field(1, "a") + field(2, "b")), field(3, field(1, "raw") + field(2, b"\0\1\2"))
    labels = field(11, field(1, "k") + field(2, "v"))
    made = api.post(CMS, envelope("v1", "ConfigMap", metadata(api.name, labels), *entries), content_type=PROTOBUF).ok(201)
    assert (made["data"], made["binaryData"], made["metadata"]["labels"]) == ({"a": "b"}, {"raw": "AAEC"}, {"k": "v"})


@case
def a_deployment_in_protobuf(api):
    """Zeros of pointers count, zeros of all else are nothing; quantities, shares and inlined messages have forms of their own."""
    requests = field(2, field(1, "cpu") + field(2, field(1, "500m")))
    probe = field(1, field(2, field(1, "/ok") + field(2, field(1, 0) + field(2, 8080) + field(3, "")) + field(3, ""))) + field(
        2, 0
    )
    container = field(1, "main") + field(2, "pause:3.10") + field(8, requests) + field(10, probe)
    volume = field(1, "shared") + field(2, field(2, field(1, "")))
    spec = field(1, volume) + field(2, container) + field(3, "") + field(4, 0) + field(11, 0)
    template = field(1, field(11, field(1, "app") + field(2, "x"))) + field(2, spec)
    rolling = field(2, field(1, field(1, 1) + field(2, 0) + field(3, "10%")) + field(2, field(1, 0) + field(2, 3) + field(3, "")))
    selector = field(2, field(1, field(1, "app") + field(2, "x")))
    whole = field(2, field(1, 0) + selector + field(3, template) + field(4, field(1, "") + rolling) + field(5, 0))
    made = api.post(DEPLOYMENTS, envelope("apps/v1", "Deployment", metadata(api.name), whole), content_type=PROTOBUF).ok(201)[
        "spec"
    ]
    pods = made["template"]["spec"]
    assert (made["replicas"], made.get("minReadySeconds", 0)) == (0, 0)
    assert made["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 3}}
    assert pods["containers"][0]["resources"] == {"requests": {"cpu": "500m"}}
    assert pods["containers"][0]["livenessProbe"]["httpGet"]["port"] == 8080
    assert (pods["volumes"], pods["terminationGracePeriodSeconds"]) == ([{"name": "shared", "emptyDir": {}}], 0)
    assert pods["restartPolicy"] == "Always"


@case
def options_of_a_deletion_in_protobuf(api):
    api.post(CMS, config(api.name)).ok(201)
    kept = envelope("v1", "DeleteOptions", field(2, field(1, "another")))
    api.call("DELETE", f"{CMS}/{api.name}", kept, content_type=PROTOBUF).no(409, "Conflict")
    api.call("DELETE", f"{CMS}/{api.name}", b"nonsense", content_type=PROTOBUF).no(
        400, "BadRequest", "expected prefix [107 56 115 0]"
    )
    api.call("DELETE", f"{CMS}/{api.name}", envelope("v1", "DeleteOptions", field(4, "Background")), content_type=PROTOBUF).ok()


@case
def protobuf_without_its_prefix_is_400(api):
    prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    told = "the object provided is unrecognized (must be of type Namespace): "
    api.post(NAMESPACES, b'{"kind":1}', content_type=PROTOBUF).no(400, "BadRequest", f'{told}{prefix} ({{"kind":1}})')
    api.post(NAMESPACES, b"", content_type=PROTOBUF).no(400, "BadRequest", f"{told}empty data (<empty>)")


@case
def protobuf_that_is_cut_short_is_400(api):
    whole = envelope("v1", "Namespace", metadata(api.name))
    shown = whole[:30].hex()
    told = "the object provided is unrecognized (must be of type Namespace): unexpected EOF"
    api.post(NAMESPACES, whole[:-5], content_type=PROTOBUF).no(400, "BadRequest", f"{told} ({shown} ...)")
    inner = envelope("v1", "Namespace", metadata(api.name)[:-1])
    told = 'Namespace in version "v1" cannot be handled as a Namespace: unexpected EOF'
    api.post(NAMESPACES, inner, content_type=PROTOBUF).no(400, "BadRequest", told)
    overlong = envelope("v1", "Namespace", b"\xff" * 11)
    api.post(NAMESPACES, overlong, content_type=PROTOBUF).no(400, "BadRequest", "proto: integer overflow")


@case
def protobuf_of_another_kind_is_400(api):
    told = 'Pod in version "v1" cannot be handled as a Namespace: converting (v1.Pod) to (core.Namespace): unknown conversion'
    api.post(NAMESPACES, envelope("v1", "Pod", metadata(api.name)), content_type=PROTOBUF).no(400, "BadRequest", told)
    told = 'no kind "Nothing" is registered for version "v1"'
    api.post(NAMESPACES, envelope("v1", "Nothing", metadata(api.name)), content_type=PROTOBUF).no(400, "BadRequest", told)


@case
def protobuf_without_a_kind_is_of_the_kind_that_is_expected(api):
    assert api.post(CMS, envelope("", "", metadata(api.name)), content_type=PROTOBUF).ok(201)["kind"] == "ConfigMap"


# -- kinds -------------------------------------------------------------------------------------


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


# -- types -------------------------------------------------------------------------------------


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


# -- pods --------------------------------------------------------------------------------------

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


# -- names and versions ------------------------------------------------------------------------


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


# -- patches -----------------------------------------------------------------------------------


@case
def a_merge_patch_is_an_object(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    told = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
    api.patch(f"{CMS}/{api.name}", [1], MERGE).no(400, "BadRequest", told)
    api.patch(f"{CMS}/{api.name}", b"null", MERGE).no(400, "BadRequest", "Invalid JSON Patch")
    api.patch(f"{CMS}/{api.name}", b"{", MERGE).no(400, "BadRequest", "error decoding patch: unexpected end of JSON input")
    told = "json: cannot unmarshal array into Go value of type map[string]interface {}"
    api.patch(f"{CMS}/{api.name}", [1], STRATEGIC).no(400, "BadRequest", told)
    assert api.patch(f"{CMS}/{api.name}", b"null", STRATEGIC).ok()["data"] == {"a": "1"}


@case
def a_patch_to_wrong_types_is_422(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    told = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
    for patch, kind in (({"data": {"x": 1}}, MERGE), ([{"op": "add", "path": "/data/x", "value": 1}], JSON_PATCH)):
        refused = api.patch(f"{CMS}/{api.name}", patch, kind).no(422, "Invalid", told)
        assert refused["message"].startswith(' "" is invalid: patch: Invalid value: "{')
        assert [(cause["reason"], cause["field"]) for cause in refused["details"]["causes"]] == [("FieldValueInvalid", "patch")]
    told = ' "" is invalid: patch: Invalid value: "map[data:map[x:1]]": cannot convert int64 to string'
    api.patch(f"{CMS}/{api.name}", {"data": {"x": 1}}, STRATEGIC).no(422, "Invalid", told)
    told = 'Invalid value: "map[data:x]": cannot restore map from string'
    api.patch(f"{CMS}/{api.name}", {"data": "x"}, STRATEGIC).no(422, "Invalid", told)


@case
def a_patch_does_not_change_the_kind(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    api.patch(f"{CMS}/{api.name}", {"kind": "Secret"}, MERGE).no(422, "Invalid")
    told = 'no kind "ConfigMap" is registered for version "apps/v1"'
    api.patch(f"{CMS}/{api.name}", {"apiVersion": "apps/v1"}, MERGE).no(422, "Invalid", told)
    assert api.patch(f"{CMS}/{api.name}", {"kind": "Secret"}, STRATEGIC).ok()["kind"] == "ConfigMap"


@case
def a_patch_of_a_custom_object_is_held_against_its_schema(api):
    api.post(QUEUES, queue(api.name)).ok(201)
    told = 'spec.priority: Invalid value: "string": spec.priority in body must be of type integer: "string"'
    api.patch(f"{QUEUES}/{api.name}", {"spec": {"priority": "x"}}, MERGE).no(422, "Invalid", told)
    told = f'Other.fairlead.dev "{api.name}" is invalid: kind: Invalid value: "Other": must be Queue'
    api.patch(f"{QUEUES}/{api.name}", {"kind": "Other"}, MERGE).no(422, "Invalid", told)
    told = f'Queue "{api.name}" is invalid: apiVersion: Invalid value: "v1": must be fairlead.dev/v1alpha1'
    api.patch(f"{QUEUES}/{api.name}", {"apiVersion": "v1"}, MERGE).no(422, "Invalid", told)
    told = "accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    api.patch(f"{QUEUES}/{api.name}", {"spec": {}}, STRATEGIC).no(415, "UnsupportedMediaType", told)


@case
def a_directive_that_is_none_is_500(api):
    api.post(PODS, pod(api.name)).ok(201)
    told = "unknown patch type: frob in map: map[$patch:frob]"
    api.patch(f"{PODS}/{api.name}", {"$patch": "frob"}, STRATEGIC).no(500, None, told)
    told = "map: map[image:c] does not contain declared merge key: name"
    api.patch(f"{PODS}/{api.name}", {"spec": {"containers": [{"image": "c"}]}}, STRATEGIC).no(500, None, told)


@case
def a_json_patch_is_lax(api):
    """What is replaced need not be there, a value may be missing, a tilde may stand for itself, nothing is no steps."""
    path = f"{CMS}/{api.name}"
    api.post(CMS, config(api.name, a="1")).ok(201)
    assert api.patch(path, [{"op": "replace", "path": "/data/b", "value": "2"}], JSON_PATCH).ok()["data"] == {"a": "1", "b": "2"}
    assert api.patch(path, [{"op": "add", "path": "/data/c"}], JSON_PATCH).ok()["data"]["c"] == ""
    api.patch(path, [{"op": "add", "path": "/data/x~2", "value": "1"}], JSON_PATCH).no(422, "Invalid", "data[x~2]: Invalid value")
    for nothing in (b"null", b"[]"):
        assert len(api.patch(path, nothing, JSON_PATCH).ok()["data"]) == 3


@case
def a_json_patch_that_cannot_be_done_is_422(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    for step in (
        {"op": "frob", "path": "/data/a"},
        {"path": "/data/a", "value": "2"},
        {"op": "add", "value": "2"},
        {"op": "add", "path": "data", "value": "2"},
        {"op": "add", "path": "/nothing/below/it", "value": "2"},
        {"op": "remove", "path": "/data/nothing"},
        {"op": "move", "from": "/data/nothing", "path": "/data/b"},
        {"op": "copy", "path": "/data/b"},
        {"op": "test", "path": "/data/a", "value": "9"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "x/y"},
    ):
        told = "the server rejected our request due to an error in our request"
        assert api.patch(f"{CMS}/{api.name}", [step], JSON_PATCH).no(422, "Invalid", told)["details"] == {}


@case
def a_json_patch_is_a_list_of_objects(api):
    api.post(CMS, config(api.name, a="1")).ok(201)
    told = "error decoding patch: json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp"
    api.patch(f"{CMS}/{api.name}", b'"x"', JSON_PATCH).no(400, "BadRequest", told)
    told = "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"
    api.patch(f"{CMS}/{api.name}", [1], JSON_PATCH).no(400, "BadRequest", told)


@case
def tolerations_that_are_replaced_get_the_usual_ones_again(api):
    api.post(PODS, pod(api.name)).ok(201)
    more = {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}
    keys = [each["key"] for each in api.patch(f"{PODS}/{api.name}", more, STRATEGIC).ok()["spec"]["tolerations"]]
    assert keys == ["a", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


@case
def containers_of_a_pod_are_neither_added_nor_removed(api):
    api.post(PODS, pod(api.name)).ok(201)
    more = {"spec": {"containers": [{"name": "more", "image": "pause:3.10"}]}}
    told = "spec.containers: Forbidden: pod updates may not add or remove containers"
    api.patch(f"{PODS}/{api.name}", more, STRATEGIC).no(422, "Invalid", told)


# -- server-side apply -------------------------------------------------------------------------


def applied(kind, name, version="v1", **more):
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}).encode()


@case
def what_is_applied_says_what_it_is(api):
    path = f"{CMS}/{api.name}?fieldManager=x"
    api.patch(path, b"", APPLY).no(400, "BadRequest", "invalid object type: /, Kind=")
    api.patch(path, b"apiVersion: v1", APPLY).no(400, "BadRequest", "invalid object type: /v1, Kind=")
    api.patch(path, applied("Pod", api.name), APPLY).no(400, "BadRequest", "invalid object type: /v1, Kind=Pod")
    told = "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value"
    api.patch(path, b"[]", APPLY).no(400, "BadRequest", told)
    told = "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content"
    api.patch(path, b"a: [", APPLY).no(400, "BadRequest", told)
    told = f"the name of the object ({api.name} based on URL) was undeterminable: name must be provided"
    api.patch(path, b"{apiVersion: v1, kind: ConfigMap, metadata: {}}", APPLY).no(400, "BadRequest", told)
    queue_path = f"{QUEUES}/{api.name}?fieldManager=x"
    api.patch(queue_path, applied("Queue", api.name), APPLY).no(400, "BadRequest", "invalid object type: /v1, Kind=Queue")


@case
def what_is_applied_fits_the_schema(api):
    path, where = f"{CMS}/{api.name}?fieldManager=x", "failed to create typed patch object (/{}; /v1, Kind=ConfigMap): "
    told = where.format(api.name) + ".data.a: expected string, got &value.valueUnstructured{Value:5}"
    api.patch(path, applied("ConfigMap", api.name, data={"a": 5}), APPLY).no(500, None, told)
    told = where.format(api.name) + ".nope: field not declared in schema"
    api.patch(path, applied("ConfigMap", api.name, nope={}), APPLY).no(500, None, told)
    told = f"(/{api.name}; fairlead.dev/v1alpha1, Kind=Queue): .spec.priority: expected numeric (int or float), got string"
    wrong = applied("Queue", api.name, "fairlead.dev/v1alpha1", spec={"priority": "x"})
    api.patch(f"{QUEUES}/{api.name}?fieldManager=x", wrong, APPLY).no(500, None, told)


# -- options -----------------------------------------------------------------------------------


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


# -- paths and methods -------------------------------------------------------------------------


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


# -- tables ------------------------------------------------------------------------------------

WIDE = "*Containers *Images *Selector"
COLUMNS = {
    "/api/v1/services": "Name Type Cluster-IP External-IP Port(s) Age *Selector",
    "/api/v1/secrets": "Name Type Data Age",
    "/api/v1/endpoints": "Name Endpoints Age",
    "/api/v1/resourcequotas": "Name Request Limit Age",
    "/api/v1/limitranges": "Name Created_At:date",
    "/api/v1/serviceaccounts": "Name Age",
    "/api/v1/podtemplates": "Name Containers Images Pod_Labels",
    "/api/v1/persistentvolumes": "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age "
    "*VolumeMode",
    "/api/v1/persistentvolumeclaims": "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age *VolumeMode",
    "/api/v1/replicationcontrollers": f"Name Desired:integer Current:integer Ready:integer Age {WIDE}",
    "/apis/apps/v1/replicasets": f"Name Desired:integer Current:integer Ready:integer Age {WIDE}",
    "/apis/apps/v1/deployments": f"Name Ready Up-to-date Available Age {WIDE}",
    "/apis/apps/v1/statefulsets": "Name Ready Age *Containers *Images",
    "/apis/apps/v1/daemonsets": "Name Desired:integer Current:integer Ready:integer Up-to-date:integer Available:integer Node_Selector Age "
    f"{WIDE}",
    "/apis/apps/v1/controllerrevisions": "Name Controller Revision Age",
    "/apis/batch/v1/jobs": f"Name Status Completions Duration Age {WIDE}",
    "/apis/batch/v1/cronjobs": f"Name Schedule Timezone Suspend:boolean Active:integer Last_Schedule Age {WIDE}",
    "/apis/autoscaling/v2/horizontalpodautoscalers": "Name Reference Targets MinPods MaxPods Replicas Age",
    "/apis/rbac.authorization.k8s.io/v1/roles": "Name Created_At:date",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": "Name Created_At:date",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings": "Name Role Age *Users *Groups *ServiceAccounts",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": "Name Role Age *Users *Groups *ServiceAccounts",
    "/apis/networking.k8s.io/v1/ingresses": "Name Class Hosts Address Ports Age",
    "/apis/networking.k8s.io/v1/networkpolicies": "Name Pod-Selector Age",
    "/apis/discovery.k8s.io/v1/endpointslices": "Name AddressType Ports Endpoints Age",
    "/apis/storage.k8s.io/v1/storageclasses": "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age",
    "/apis/node.k8s.io/v1/runtimeclasses": "Name Handler Age",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": "Name Created_At:date",
}


@case
def tables_have_the_columns_that_people_know(api):
    for path, wanted in COLUMNS.items():
        table = api.get(f"{path}?limit=1", accept=TABLE).ok()
        found = [
            ("*" if each["priority"] else "")
            + each["name"].replace(" ", "_")
            + ("" if each["type"] == "string" else f":{each['type']}")
            for each in table["columnDefinitions"]
        ]
        assert found == wanted.split(), path


@case
def rows_of_tables(api):
    """What stands in a table's row, but for ages and addresses."""

    def row(path, body, accept=TABLE):
        name = api.post(path, {"metadata": {"name": api.fresh()}, **body}).ok(201)["metadata"]["name"]
        cells = api.get(f"{path}/{name}", accept=accept).ok()["rows"][0]["cells"]
        assert cells[0] == name
        return cells[1:]

    core, rbac = f"/api/v1/namespaces/{NS}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NS}"
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]},
    }
    deployment = row(DEPLOYMENTS, {"spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}})
    assert (deployment[0], deployment[4:]) == ("0/0", ["c,d", "i,j", "a=b"])
    assert row(SECRETS, {"data": {"a": "YQ=="}})[:2] == ["Opaque", 1]
    spec = {"schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}}}
    cron = row(CRON_JOBS, {"spec": spec})
    assert (cron[:5], cron[6:]) == (["@daily", "<none>", "False", 0, "<none>"], ["c,d", "i,j", "<none>"])
    subjects = [
        {"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"},
        {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
    ]
    role = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
    bound = row(f"{rbac}/rolebindings", {"roleRef": role, "subjects": subjects})
    assert (bound[0], bound[2:]) == ("Role/r", ["u", "", "n/s"])
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    rule = {"host": "h", "http": {"paths": [{"path": "/", "pathType": "Exact", "backend": backend}]}}
    ingress = row(f"/apis/networking.k8s.io/v1/namespaces/{NS}/ingresses", {"spec": {"rules": [rule]}})
    assert ingress[:4] == ["<none>", "h", "", "80"]
    policy = {
        "podSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}]}
    }
    assert row(f"/apis/networking.k8s.io/v1/namespaces/{NS}/networkpolicies", {"spec": policy})[0] == "a=b,c in (d,e)"
    storage = row("/apis/storage.k8s.io/v1/storageclasses", {"provisioner": "p", "allowVolumeExpansion": True})
    assert storage[:4] == ["p", "Delete", "Immediate", True]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
    claimed = row(f"{core}/persistentvolumeclaims", {"spec": claim})
    assert (claimed[1:6], claimed[7]) == (["", "", "", "none", "<unset>"], "Filesystem")
    assert row("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "h"})[0] == "h"
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    scaler = {"scaleTargetRef": reference, "maxReplicas": 3, "metrics": [metric]}
    scaled = row(f"/apis/autoscaling/v2/namespaces/{NS}/horizontalpodautoscalers", {"spec": scaler})
    assert scaled[:5] == ["Deployment/d", "cpu: <unknown>/80%", "1", 3, 0]


# -- defaults ----------------------------------------------------------------------------------


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


# -- reviews -----------------------------------------------------------------------------------


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

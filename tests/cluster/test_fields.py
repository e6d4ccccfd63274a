"""Every field of a pod's spec: the core sees it, the pod is refused, or no filter of kube-scheduler reads it.

The fields are those of Kubernetes' own types (`cluster/simulated/protobuf.txt`), so that a new version's fields fail here first.
"""

import re
from importlib import resources
from typing import Any

import msgspec
import pytest

from fairlead.cluster import convert, views
from fairlead.core.model.pods import ExtendedRequest

_REQUIRED, _PREFERRED = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))
SUPPORTED, REFUSED, UNREAD = "supported", "refused", "no filter reads it"

_TERM = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
_NODES = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": []}]}}
_SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
_PROBE = {"tcpSocket": {"port": 80}}

POD = {
    "volumes": (SUPPORTED, [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]),
    "containers": (SUPPORTED, [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]),
    "initContainers": (SUPPORTED, [{"name": "i", "resources": {"requests": {"cpu": "5"}}}]),
    "nodeSelector": (SUPPORTED, {"zone": "a"}),
    "nodeName": (SUPPORTED, "n1"),
    "affinity": (SUPPORTED, {"nodeAffinity": _NODES, "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]}}),
    "tolerations": (SUPPORTED, [{"key": "gpu", "operator": "Exists"}]),
    "overhead": (SUPPORTED, {"cpu": "1"}),
    "topologySpreadConstraints": (SUPPORTED, [_SPREAD]),
    "resources": (SUPPORTED, {"requests": {"cpu": "7"}}),
    "schedulingGates": (SUPPORTED, [{"name": "wait"}]),
    "schedulerName": (SUPPORTED, "default-scheduler"),
    "priority": (SUPPORTED, 7),
    "preemptionPolicy": (SUPPORTED, "Never"),
    "terminationGracePeriodSeconds": (SUPPORTED, 600),
    "activeDeadlineSeconds": (SUPPORTED, 600),
    "schedulingGroup": (SUPPORTED, {"podGroupName": "ring"}),
    "hostUsers": (UNREAD, False),  # together with hostNetwork it is read
    "resourceClaims": (SUPPORTED, [{"name": "gpu", "resourceClaimName": "mine"}]),
    "restartPolicy": (UNREAD, "Never"),
    "dnsPolicy": (UNREAD, "Default"),
    "serviceAccountName": (UNREAD, "sa"),
    "serviceAccount": (UNREAD, "sa"),
    "automountServiceAccountToken": (UNREAD, False),
    "hostNetwork": (UNREAD, False),  # the API server copies container ports to host ports, which are read
    "hostPID": (UNREAD, True),
    "hostIPC": (UNREAD, True),
    "shareProcessNamespace": (UNREAD, True),
    "securityContext": (UNREAD, {"runAsUser": 5}),
    "imagePullSecrets": (UNREAD, [{"name": "s"}]),
    "hostname": (UNREAD, "h"),
    "subdomain": (UNREAD, "s"),
    "setHostnameAsFQDN": (UNREAD, True),
    "hostnameOverride": (UNREAD, "h"),
    "hostAliases": (UNREAD, [{"ip": "10.0.0.1"}]),
    "priorityClassName": (UNREAD, "c"),  # the API server resolves it into priority
    "dnsConfig": (UNREAD, {"searches": ["x"]}),
    "readinessGates": (UNREAD, [{"conditionType": "x"}]),
    "runtimeClassName": (UNREAD, "gvisor"),  # the API server resolves it into overhead, node selector and tolerations
    "enableServiceLinks": (UNREAD, False),
    "ephemeralContainers": (UNREAD, [{"name": "debug"}]),
    "os": (UNREAD, {"name": "linux"}),
}

CONTAINER = {
    "resources": (SUPPORTED, {"requests": {"nvidia.com/gpu": "2"}}),
    "ports": (SUPPORTED, [{"containerPort": 80, "hostPort": 80}]),
    "image": (SUPPORTED, "train:2"),
    "restartPolicyRules": (SUPPORTED, [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]),
    "restartPolicy": (UNREAD, "Never"),  # of an init container it is read
    "name": (UNREAD, "other"),
    "command": (UNREAD, ["sh"]),
    "args": (UNREAD, ["-c"]),
    "workingDir": (UNREAD, "/"),
    "env": (UNREAD, [{"name": "A", "value": "b"}]),
    "envFrom": (UNREAD, [{"configMapRef": {"name": "c"}}]),
    "volumeMounts": (UNREAD, [{"name": "v", "mountPath": "/v"}]),
    "volumeDevices": (UNREAD, [{"name": "v", "devicePath": "/dev/v"}]),
    "livenessProbe": (UNREAD, _PROBE),
    "readinessProbe": (UNREAD, _PROBE),
    "startupProbe": (UNREAD, _PROBE),
    "lifecycle": (UNREAD, {}),
    "terminationMessagePath": (UNREAD, "/x"),
    "terminationMessagePolicy": (UNREAD, "File"),
    "imagePullPolicy": (UNREAD, "Always"),
    "securityContext": (UNREAD, {"privileged": True}),
    "stdin": (UNREAD, True),
    "stdinOnce": (UNREAD, True),
    "tty": (UNREAD, True),
    "resizePolicy": (UNREAD, [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
}


_IN = {"key": "a", "operator": "In", "values": ["b"]}
_OTHER = {"matchLabels": {"x": "y"}}
_SPREAD_TERM = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": _TERM["labelSelector"],
}

NESTED: dict[str, Any] = {
    "Toleration": (
        lambda value: {"tolerations": [{"key": "a", "value": "b", **value}]},
        {
            "key": (SUPPORTED, "z"),
            "operator": (SUPPORTED, "Exists"),  # Gt and Lt: alpha and off in 1.36
            "value": (SUPPORTED, "z"),
            "effect": (SUPPORTED, "NoSchedule"),
            "tolerationSeconds": (UNREAD, 5),  # the node controller's
        },
    ),
    "TopologySpreadConstraint": (
        lambda value: {"topologySpreadConstraints": [{**_SPREAD_TERM, **value}]},
        {
            "maxSkew": (SUPPORTED, 3),
            "topologyKey": (SUPPORTED, "rack"),
            "whenUnsatisfiable": (SUPPORTED, "ScheduleAnyway"),
            "labelSelector": (SUPPORTED, _OTHER),
            "minDomains": (SUPPORTED, 3),
            "nodeAffinityPolicy": (SUPPORTED, "Ignore"),
            "nodeTaintsPolicy": (SUPPORTED, "Honor"),
            "matchLabelKeys": (SUPPORTED, ["app"]),
        },
    ),
    "PodAffinityTerm": (
        lambda value: {"affinity": {"podAntiAffinity": {_REQUIRED: [{**_TERM, **value}]}}},
        {
            "labelSelector": (SUPPORTED, _OTHER),
            "namespaces": (SUPPORTED, ["x"]),
            "topologyKey": (SUPPORTED, "zone"),
            "namespaceSelector": (SUPPORTED, _OTHER),
            "matchLabelKeys": (UNREAD, ["app"]),  # the API server merges them into the selector
            "mismatchLabelKeys": (UNREAD, ["app"]),
        },
    ),
    "NodeSelectorTerm": (
        lambda value: {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [value]}}}},
        {
            "matchExpressions": (SUPPORTED, [_IN]),
            "matchFields": (SUPPORTED, [{"key": "metadata.name", "operator": "In", "values": ["n"]}]),
        },
    ),
    "NodeSelectorRequirement": (
        lambda value: {
            "affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{**_IN, **value}]}]}}}
        },
        {"key": (SUPPORTED, "z"), "operator": (SUPPORTED, "NotIn"), "values": (SUPPORTED, ["z"])},
    ),
    "NodeAffinity": (
        lambda value: {"affinity": {"nodeAffinity": value}},
        {
            _REQUIRED: (SUPPORTED, {"nodeSelectorTerms": [{"matchExpressions": [_IN]}]}),
            _PREFERRED: (SUPPORTED, [{"weight": 1, "preference": {"matchExpressions": [_IN]}}]),
        },
    ),
    "PodAffinity": (
        lambda value: {"affinity": {"podAffinity": value}},
        {_REQUIRED: (SUPPORTED, [_TERM]), _PREFERRED: (SUPPORTED, [{"weight": 1, "podAffinityTerm": _TERM}])},
    ),
    "PodAntiAffinity": (
        lambda value: {"affinity": {"podAntiAffinity": value}},
        {_REQUIRED: (SUPPORTED, [_TERM]), _PREFERRED: (SUPPORTED, [{"weight": 1, "podAffinityTerm": _TERM}])},
    ),
    "ResourceRequirements": (
        lambda value: {"containers": [{"name": "c", "image": "train:1", "resources": value}]},
        {
            "limits": (UNREAD, {"cpu": "9"}),  # the API server copies limits to requests that are absent
            "requests": (SUPPORTED, {"cpu": "9"}),
            "claims": (UNREAD, [{"name": "gpu"}]),  # a container without the claim still needs a node with it
        },
    ),
    "ContainerPort": (
        lambda value: {
            "containers": [{"name": "c", "image": "train:1", "ports": [{"containerPort": 1, "hostPort": 80, **value}]}]
        },
        {
            "name": (UNREAD, "x"),
            "hostPort": (SUPPORTED, 81),
            "containerPort": (UNREAD, 2),
            "protocol": (SUPPORTED, "UDP"),
            "hostIP": (SUPPORTED, "10.0.0.1"),
        },
    ),
    "PersistentVolumeClaimVolumeSource": (
        lambda value: {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "a", **value}}]},
        {"claimName": (SUPPORTED, "b"), "readOnly": (UNREAD, True)},
    ),
    "PodResourceClaim": (
        lambda value: {"resourceClaims": [{"name": "gpu", **value}] if value else []},
        {
            "name": (SUPPORTED, "other"),
            "resourceClaimName": (SUPPORTED, "mine"),
            "resourceClaimTemplateName": (SUPPORTED, "each"),
        },
    ),
    "VolumeSource": (
        lambda value: {"volumes": [{"name": "v", **value}]},
        {
            "persistentVolumeClaim": (SUPPORTED, {"claimName": "data"}),
            "ephemeral": (SUPPORTED, {"volumeClaimTemplate": {"spec": {}}}),
            "gcePersistentDisk": (SUPPORTED, {"pdName": "d"}),
            "awsElasticBlockStore": (SUPPORTED, {"volumeID": "d"}),
            "azureDisk": (SUPPORTED, {"diskName": "d", "diskURI": "u"}),
            "azureFile": (SUPPORTED, {"secretName": "s", "shareName": "f"}),
            "cinder": (SUPPORTED, {"volumeID": "d"}),
            "portworxVolume": (SUPPORTED, {"volumeID": "d"}),
            "vsphereVolume": (SUPPORTED, {"volumePath": "[d] x"}),
            "iscsi": (SUPPORTED, {"iqn": "q", "targetPortal": "p"}),
            "rbd": (SUPPORTED, {"monitors": ["m"], "image": "i"}),
            "image": (SUPPORTED, {"reference": "model:1"}),
            **dict.fromkeys(
                ("hostPath", "emptyDir", "gitRepo", "secret", "nfs", "glusterfs", "flexVolume", "cephfs", "flocker", "fc"),
                (UNREAD, {}),
            ),
            **dict.fromkeys(("configMap", "quobyte", "photonPersistentDisk", "projected", "scaleIO"), (UNREAD, {})),
            **dict.fromkeys(("storageos", "csi", "downwardAPI"), (UNREAD, {})),
        },
    ),
}


def fields(kind):
    table = (resources.files("fairlead.cluster.simulated") / "protobuf.txt").read_text()
    (line,) = (line for line in table.splitlines() if line.startswith(f"core/v1.{kind}: "))
    return set(re.findall(r"(?:: |, )\d+ (\w+) ", line))


def seen(**changes):
    container = {"name": "c", "image": "train:1", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "fairlead", "containers": [container], **changes}
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "x"}}, "spec": spec}
    return convert.pod(msgspec.convert(pod, views.Pod), "default")


def test_the_table_names_every_field():
    assert fields("PodSpec") == POD.keys()
    assert fields("Container") == CONTAINER.keys()


@pytest.mark.parametrize("kind", NESTED)
def test_the_tables_of_what_lies_deeper_name_every_field(kind):
    assert fields(kind) == NESTED[kind][1].keys()


@pytest.mark.parametrize(("kind", "field"), [(kind, field) for kind, (_, table) in NESTED.items() for field in table])
def test_a_field_that_lies_deeper_is_what_the_table_says(kind, field):
    within, table = NESTED[kind]
    what, value = table[field]
    check(what, seen(**within({field: value})), seen(**within({})))


@pytest.mark.parametrize("field", sorted(POD))
def test_a_field_of_the_spec_is_what_the_table_says(field):
    what, value = POD[field]
    check(what, seen(**{field: value}))


@pytest.mark.parametrize("field", sorted(CONTAINER))
def test_a_field_of_a_container_is_what_the_table_says(field):
    what, value = CONTAINER[field]
    container = {"name": "c", "image": "train:1", "resources": {"requests": {"cpu": "1"}}, field: value}
    check(what, seen(containers=[container]))


def check(what, pod, without=None):
    if what == REFUSED:
        assert pod.error is not None
        assert not pod.error.is_capacity
    else:
        assert pod.error is None
        assert (pod != (without or seen())) == (what == SUPPORTED)


def test_fields_that_are_read_together():
    assert seen(hostUsers=False, hostNetwork=True) != seen(hostUsers=False) == seen(hostNetwork=True)
    sidecar = {"name": "s", "resources": {"requests": {"cpu": "5"}}}
    assert seen(initContainers=[sidecar]) != seen(initContainers=[{**sidecar, "restartPolicy": "Always"}])


def test_claims_are_read_by_name_or_once_their_template_has_made_them():
    named = seen(resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    assert [(use.name, use.key, use.template) for use in named.claims] == [("gpu", "ns/mine", "")]
    view = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"schedulerName": "fairlead"}}
    view["spec"]["resourceClaims"] = [
        {"name": "one", "resourceClaimTemplateName": "t"},
        {"name": "two", "resourceClaimTemplateName": "t"},
        {"name": "none", "resourceClaimTemplateName": "t"},
    ]
    view["status"] = {"resourceClaimStatuses": [{"name": "two", "resourceClaimName": "p-two-x"}, {"name": "none"}]}
    pod = convert.pod(msgspec.convert(view, views.Pod), "default", {"fairlead": "ai"})
    assert [(use.name, use.key, use.template) for use in pod.claims] == [("one", "", "ns/t"), ("two", "ns/p-two-x", "ns/t")]


def test_resources_of_device_classes_are_claims():
    name = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    asks = {"containers": [{"name": "c", "resources": {"requests": {name: "1"}, "limits": {name: "1"}}}]}
    found = seen(**asks)
    assert found.error is None
    assert found.extended == (ExtendedRequest("c", 0, name, "container-0-request-0", 1),)


def test_extended_resources_are_read_by_container():
    gpu = "example.com/gpu"
    first = [
        {"name": "init", "resources": {"requests": {gpu: "2"}}},
        {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1", gpu: 1}}},
    ]
    main = [{"name": "c", "resources": {"requests": {"cpu": "1", "example.com/a": "0", gpu: "1", "kubernetes.io/x": "1"}}}]
    found = seen(initContainers=first, containers=main).extended
    assert found == (
        ExtendedRequest("init", 0, gpu, "container-0-request-0", 2, brief=True),
        ExtendedRequest("sidecar", 1, gpu, "container-1-request-1", 1),
        ExtendedRequest("c", 2, gpu, "container-2-request-2", 1),
    )
    view = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": main}}
    view["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": "p-x"}}
    assert convert.pod(msgspec.convert(view, views.Pod), "default").extended_claim == "p-x"

"""Every field of a pod's spec: the core sees it, the pod is refused, or no filter of kube-scheduler reads it.

The fields are those of Kubernetes' own types (`cluster/simulated/protobuf.txt`), so that a new version's fields fail here first.
"""

import re
from importlib import resources

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.cluster import convert, views

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
    "resourceClaims": (REFUSED, [{"name": "gpu", "resourceClaimName": "mine"}]),
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


def fields(kind):
    table = (resources.files("fairlead.cluster.simulated") / "protobuf.txt").read_text()
    (line,) = (line for line in table.splitlines() if line.startswith(f"core/v1.{kind}: "))
    return set(re.findall(r"(?:: |, )\d+ (\w+) ", line))


def seen(**changes):
    container = {"name": "c", "image": "train:1", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "fairlead", "containers": [container], **changes}
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}
    return convert.pod(msgspec.convert(pod, views.Pod), "default")


def test_the_table_names_every_field():
    assert fields("PodSpec") == POD.keys()
    assert fields("Container") == CONTAINER.keys()


@pytest.mark.parametrize("field", sorted(POD))
def test_a_field_of_the_spec_is_what_the_table_says(field):
    what, value = POD[field]
    check(what, seen(**{field: value}))


@pytest.mark.parametrize("field", sorted(CONTAINER))
def test_a_field_of_a_container_is_what_the_table_says(field):
    what, value = CONTAINER[field]
    container = {"name": "c", "image": "train:1", "resources": {"requests": {"cpu": "1"}}, field: value}
    check(what, seen(containers=[container]))


def check(what, pod):
    if what == REFUSED:
        assert pod.error is not None
        assert not pod.error.is_capacity
    else:
        assert pod.error is None
        assert (pod != seen()) == (what == SUPPORTED)


def test_fields_that_are_read_together():
    assert seen(hostUsers=False, hostNetwork=True) != seen(hostUsers=False) == seen(hostNetwork=True)
    sidecar = {"name": "s", "resources": {"requests": {"cpu": "5"}}}
    assert seen(initContainers=[sidecar]) != seen(initContainers=[{**sidecar, "restartPolicy": "Always"}])


def test_a_pod_with_claims_that_runs_closes_nothing_and_says_so_while_it_waits():
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    assert seen(resourceClaims=claims).error.code == ReasonCode.DEVICES
    assert "spec.resourceClaims ('gpu')" in seen(resourceClaims=claims).error.message
    assert seen(resourceClaims=claims, nodeName="n1").error is None

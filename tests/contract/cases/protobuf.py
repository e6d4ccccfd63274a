"""Bodies in protobuf."""

from __future__ import annotations

from tests.contract.cases.common import CMS, DEPLOYMENTS, NAMESPACES, PROTOBUF, case, config, metadata
from tests.protobuf import envelope, field


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

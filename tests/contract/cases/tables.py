"""Tables, and partial metadata."""

from __future__ import annotations

from tests.contract.cases.common import (
    CLASSES,
    CMS,
    CRON_JOBS,
    DEPLOYMENTS,
    GROUPS,
    NODES,
    NS,
    PODS,
    SECRETS,
    TABLE,
    case,
    config,
    group,
    names_of,
    node,
    pod,
    several,
)


@case
def pods_as_a_table(api):
    api.post(PODS, pod(api.name)).ok(201)
    table = api.get(f"{PODS}/{api.name}", accept=TABLE).ok()
    assert table["kind"] == "Table"
    shown = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert shown == ["Name", "Ready", "Status", "Restarts", "Age"]
    assert table["rows"][0]["cells"][:4] == [api.name, "0/1", "Pending", "0"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


@case
def lists_as_a_table(api):
    several(api, 3)
    table = api.get(f"{CMS}?labelSelector=case={api.name}", accept=TABLE).ok()
    assert [row["cells"][0].rpartition("-")[2] for row in table["rows"]] == ["0", "1", "2"]
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]


@case
def nodes_as_a_table(api):
    api.post(NODES, node(api.name)).ok(201)
    table = api.get(f"{NODES}/{api.name}", accept=TABLE).ok()
    wanted = ["Name", "Status", "Roles", "Age", "Version"]
    assert [column["name"] for column in table["columnDefinitions"] if not column["priority"]] == wanted
    assert table["rows"][0]["cells"][:3] == [api.name, "Unknown", "<none>"]


@case
def custom_objects_as_a_table(api):
    api.post(GROUPS, group(api.name, minMember=4, queue="vision")).ok(201)
    table = api.get(f"{GROUPS}/{api.name}", accept=TABLE).ok()
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Queue",
        "Min",
        "Scheduled",
        "Phase",
        "Reason",
        "Expected",
        "Age",
    ]
    assert table["rows"][0]["cells"][:3] == [api.name, "vision", 4]


@case
def priority_classes_as_a_table(api):
    table = api.get(f"{CLASSES}/system-node-critical", accept=TABLE).ok()
    assert table["rows"][0]["cells"][:3] == ["system-node-critical", 2000001000, False]


@case
def only_metadata_can_be_asked_for(api):
    api.post(CMS, config(api.name, a="b")).ok(201)
    found = api.get(f"{CMS}/{api.name}", accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").ok()
    assert found["kind"] == "PartialObjectMetadata"
    assert "data" not in found


@case
def only_metadata_of_lists(api):
    several(api, 2)
    form = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    found = api.get(f"{CMS}?labelSelector=case={api.name}", accept=form).ok()
    assert found["kind"] == "PartialObjectMetadataList"
    assert names_of(found) == ["0", "1"]


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

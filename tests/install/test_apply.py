"""Applying and removing, what is reported of an installation that does not run, and of a cluster that does not suit."""

import pytest

from fairlead.cluster.kubernetes.client import ApiError
from fairlead.cluster.times import timestamp
from fairlead.install import Monitoring, Values, installed, kinds
from fairlead.install.apply import InstallError, apply, obstacles, remove, rolled_out, running
from fairlead.install.preflight import of_leases, of_version, preflight
from tests.install.cluster import Cluster

VALUES = Values(image="fairlead:1")
OURS = {"app.kubernetes.io/managed-by": "fairlead-install"}
SYSTEM = "/api/v1/namespaces/fairlead-system"

NOW = 1.8e9


def deployment(**status):
    return {"metadata": {"name": "fairlead-scheduler", "generation": 2}, "spec": {"replicas": 2}, "status": status}


@pytest.mark.parametrize(
    ("status", "runs"),
    [
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}, True),
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}, False),
        ({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}, False),
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2}, False),
        ({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "readyReplicas": 3}, False),
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 2}, False),
        ({}, False),
    ],
)
def test_a_deployment_runs_once_its_leader_and_its_standbys_do(status, runs):
    assert rolled_out(deployment(**status)) is runs


def test_why_it_does_not_run_is_what_its_pods_report():
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    pods = [
        {"metadata": {"name": "a"}, "status": {"containerStatuses": [{"state": state}]}},
        {
            "metadata": {"name": "b"},
            "status": {
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no CPU"}]
            },
        },
        {"metadata": {"name": "c"}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
    ]
    assert list(obstacles(deployment(conditions=[condition], readyReplicas=0), pods)) == [
        "fairlead-scheduler: 0 of its 2 pods are ready",
        "fairlead-scheduler: ProgressDeadlineExceeded: timed out",
        "pod a: ImagePullBackOff: not found",
        "pod b: Unschedulable: no CPU",
    ]
    assert "no pod exists" in list(obstacles(deployment(), []))[1]


@pytest.mark.parametrize(
    ("minor", "result"),
    [("36", "passed"), ("36+", "passed"), ("40", "passed"), ("35", "failed"), ("9", "failed"), ("", "failed")],
)
def test_old_api_servers_are_refused(minor, result):
    assert of_version({"major": "1", "minor": minor}).result == result


def lease(name, namespace="kube-system", holder="h", age=0.0):
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": timestamp(NOW - age)}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def test_a_scheduler_of_ours_that_was_started_by_hand_has_to_end_first():
    [check] = of_leases([lease("fairlead-scheduler")], NOW, deployed=False)
    assert (check.result, "held by h" in check.message) == ("failed", True)
    assert not list(of_leases([lease("fairlead-scheduler")], NOW, deployed=True))
    assert not list(of_leases([lease("fairlead-scheduler", age=60)], NOW, deployed=False))
    assert not list(of_leases([lease("fairlead-scheduler", holder="")], NOW, deployed=False))


def test_other_schedulers_are_noted_once():
    found = [lease("volcano"), lease("vc-scheduler"), lease("c1f6bfd2.x", "kueue-system"), lease("kube-scheduler")]
    assert [(each.result, each.message.split()[0]) for each in of_leases(found, NOW, deployed=True)] == [
        ("note", "Volcano"),
        ("note", "Kueue"),
    ]


def silent(done, total):
    assert 0 <= done <= total


async def made(cluster, values=VALUES):
    return await apply(cluster, installed(values), silent)


def holds(cluster, *manifests):
    for path in manifests:
        *_, namespace, _, name = path.split("/")
        cluster.there[path] = {"metadata": {"name": name, "namespace": namespace}}


async def test_everything_is_applied_in_order_and_the_same_values_remove_nothing():
    cluster = Cluster()
    assert await made(cluster) == []
    assert cluster.done == [("apply", kinds.path(each)) for each in installed(VALUES)]
    assert await made(cluster) == []


async def test_what_other_values_do_not_have_is_removed():
    cluster = Cluster()
    await made(cluster)
    wanted = Values(image="fairlead:1", aggregated_api=False, network_policies=False)
    removed = await apply(cluster, installed(wanted), silent)
    assert {each.partition("/")[0] for each in removed} == {
        "APIService",
        "Service",
        "NetworkPolicy",
        "Role",
        "RoleBinding",
    }
    assert set(cluster.there) == {kinds.path(each) for each in installed(wanted)}


async def test_a_refusal_names_the_object():
    cluster = Cluster()
    cluster.refuses[f"{SYSTEM}/serviceaccounts/fairlead-operator"] = ApiError(422, "Invalid", "it is wrong")
    with pytest.raises(InstallError, match="ServiceAccount/fairlead-operator: it is wrong"):
        await made(cluster)


async def test_a_definition_that_is_never_served_is_reported(monkeypatch):
    monkeypatch.setattr("fairlead.install.apply._SERVED_WITHIN", 0.0)

    class Slow(Cluster):
        async def apply(self, path, body, manager):
            await super().apply(path, body, manager)
            condition = {"type": "NamesAccepted", "status": "False", "message": "queues is taken"}
            self.there[path]["status"] = {"conditions": [condition]}

    with pytest.raises(InstallError, match="is not served after 0 s: queues is taken"):
        await made(Slow())


@pytest.mark.parametrize(("codes", "served"), [([404, 503], True), ([403], True), ([404] * 9, False), ([500], False)])
async def test_nothing_else_is_applied_before_the_api_server_serves_what_is_defined(monkeypatch, codes, served):
    class Late(Cluster):
        left, asked = list(codes), 0

        async def get(self, path, **query):
            if path.startswith("/apis/fairlead.dev/") and query.get("limit") == "1":
                assert all("/customresourcedefinitions/" in path for _, path in self.done)
                self.asked += 1
                if self.left:
                    raise ApiError(self.left.pop(), "late", "not yet")
            return await super().get(path, **query)

    cluster = Late()
    monkeypatch.setattr("fairlead.install.apply._POLL", 0.0)
    monkeypatch.setattr("fairlead.install.apply._SERVED_WITHIN", 60.0 if served else 0.0)
    if served:
        await made(cluster)
        assert not cluster.left
        assert cluster.asked == len(codes) - (403 in codes) + sum(each["kind"] == kinds.DEFINITION for each in installed(VALUES))
    else:
        with pytest.raises((InstallError, ApiError), match="not yet"):
            await made(cluster)


async def test_an_installation_runs_once_all_pods_are_ready():
    cluster = Cluster()
    await made(cluster)
    why = await running(cluster, installed(VALUES), 0)
    assert why[0] == "fairlead-scheduler: 0 of its 2 pods are ready"
    for each in installed(VALUES):
        if each["kind"] == "Deployment":
            cluster.there[kinds.path(each)]["status"] = {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}
    assert await running(cluster, installed(VALUES), 0) == []


async def test_processes_end_before_they_lose_their_rights_and_definitions_stay():
    cluster = Cluster()
    await made(cluster)
    cluster.done.clear()
    found = await remove(cluster, definitions=False, limit=0)
    assert [path.rpartition("/")[2] for _, path in cluster.done[:2]] == ["fairlead-scheduler", "fairlead-operator"]
    assert found.kept == []
    assert {each["kind"] for each in cluster.there.values()} == {kinds.DEFINITION}
    assert len((await remove(cluster, definitions=True, limit=0)).removed) == 6
    assert not cluster.there


async def test_pods_that_do_not_end_keep_their_rights():
    cluster = Cluster()
    await made(cluster)
    holds(cluster, f"{SYSTEM}/pods/stuck")
    cluster.there[f"{SYSTEM}/pods/stuck"]["metadata"]["labels"] = {"app": "fairlead-operator"}
    with pytest.raises(InstallError, match="the pods of fairlead-operator have not ended: `kubectl get pods -n fairlead-system"):
        await remove(cluster, definitions=False, limit=0)
    assert f"{SYSTEM}/serviceaccounts/fairlead-operator" in cluster.there


async def test_a_namespace_with_something_in_it_stays():
    cluster = Cluster()
    await made(cluster)
    holds(cluster, f"{SYSTEM}/configmaps/kube-root-ca.crt", f"{SYSTEM}/secrets/database")
    assert (await remove(cluster, definitions=False, limit=0)).kept == ["fairlead-system"]
    del cluster.there[f"{SYSTEM}/secrets/database"]
    found = await remove(cluster, definitions=False, limit=0)
    assert (found.removed, found.kept) == (["Namespace/fairlead-system"], [])


async def test_what_is_gone_already_is_no_error_and_what_may_not_be_removed_is():
    cluster = Cluster()
    await made(cluster)
    path = f"{SYSTEM}/serviceaccounts/fairlead-operator"
    cluster.refuses[path] = ApiError(404, "NotFound", "gone")
    await remove(cluster, definitions=False, limit=0)
    await made(Cluster())
    cluster.refuses[path] = ApiError(403, "Forbidden", "not you")
    with pytest.raises(InstallError, match="ServiceAccount/fairlead-operator: not you"):
        await remove(cluster, definitions=False, limit=0)


async def checked(cluster, values=VALUES):
    found = await preflight(cluster, installed(values))
    return found.ready, {each.name: (each.result, each.message) for each in found.checks}


async def test_a_cluster_that_suits_passes():
    ready, found = await checked(Cluster())
    assert ready
    assert {result for result, _ in found.values()} == {"passed"}


async def test_what_is_not_served_or_allowed_fails_with_its_names():
    cluster = Cluster()
    cluster.absent.add("admissionregistration.k8s.io/v1")
    cluster.denied |= {("escalate", "clusterroles"), ("bind", "roles"), ("create", "namespaces")}
    ready, found = await checked(cluster)
    assert not ready
    assert "mutatingadmissionpolicies.admissionregistration.k8s.io/v1" in found["apis"][1]
    assert found["rights"] == (
        "failed",
        "you may not: create namespaces, escalate clusterroles, bind roles; install as an administrator of the cluster",
    )


async def test_definitions_that_are_left_out_have_to_be_there():
    cluster = Cluster()
    without = Values(image="f", crds=False)
    ready, found = await checked(cluster, without)
    assert (ready, found["definitions"][0]) == (False, "failed")
    cluster.there["/apis/fairlead.dev/v1alpha1"] = {"resources": []}
    assert (await checked(cluster, without))[0]


async def test_the_prometheus_operator_has_to_be_there_for_its_objects():
    cluster = Cluster()
    cluster.absent.add("monitoring.coreos.com/v1")
    assert (await checked(cluster))[0]
    ready, found = await checked(cluster, Values(image="f", monitoring=Monitoring(rules=True)))
    assert (ready, found["apis"][0]) == (False, "failed")
    assert "prometheusrules.monitoring.coreos.com/v1" in found["apis"][1]
    assert "install the Prometheus operator" in found["apis"][1]


async def test_a_namespace_of_others_is_not_restricted():
    cluster = Cluster()
    cluster.there[SYSTEM] = {"metadata": {"name": "fairlead-system"}}
    ready, found = await checked(cluster)
    assert (ready, found["namespace"][0]) == (False, "failed")
    cluster.there[SYSTEM]["metadata"]["labels"] = OURS
    assert (await checked(cluster))[0]


async def test_an_api_of_another_server_fails():
    cluster = Cluster()
    path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io"
    cluster.there[path] = {"metadata": {"name": "x"}, "spec": {"service": {"namespace": "keda", "name": "keda"}}}
    ready, found = await checked(cluster, Values(image="f", external_metrics=True))
    assert (ready, found["aggregated APIs"][0]) == (False, "failed")
    assert "is served by keda/keda: set externalMetrics or aggregatedApi to false" in found["aggregated APIs"][1]
    cluster.there[path]["metadata"]["labels"] = OURS
    assert (await checked(cluster, Values(image="f", external_metrics=True)))[0]


async def test_leases_that_may_not_be_listed_are_noted():
    cluster = Cluster()
    cluster.lists_leases = False
    ready, found = await checked(cluster)
    assert (ready, found["leases"][0]) == (True, "note")


async def test_a_leader_of_ours_fails_unless_it_was_installed():
    cluster = Cluster()
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fairlead-scheduler"
    cluster.there[path] = lease("fairlead-scheduler")
    assert (await checked(cluster))[0] is False
    await made(cluster)
    assert (await checked(cluster))[0]

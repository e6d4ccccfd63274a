"""No user is forged: no template, controller, operator or older object changes the user of a pod."""

import pytest

from testbed import tenants
from testbed.objects import chart, job, pod
from tests.e2e.planes import Plane

pytestmark = pytest.mark.e2e

STAMP = "fairlead.dev/user"
FORGED = {STAMP: "ann"}
POD_SPEC = {"containers": [{"name": "main", "image": "x"}]}


def with_older(plane):
    """Objects that are older than the policies, and kinds of others."""
    tenants.namespace(plane, "mal")
    plane.request("POST", "/apis/apps/v1/namespaces/mal/deployments", deployment("older"))
    plane.request("POST", "/apis/batch/v1/namespaces/mal/cronjobs", cron_job("older"))
    for group, kind in (
        ("jobset.x-k8s.io", "JobSet"),
        ("sparkoperator.k8s.io", "SparkApplication"),
        ("ray.io", "RayJob"),
        ("kubeflow.org", "PyTorchJob"),
    ):
        install(plane, group, kind)


MAKERS = "replicationcontroller replicaset deployment job serviceaccount resourcequota"
PLANE = Plane(",".join(f"{each}-controller" for each in MAKERS.split()), prepare=with_older)


def install(plane, group, kind):
    """A kind whose structure is not known here."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    spec = {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural}, "versions": [version]}
    manifest = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"}},
        "spec": spec,
    }
    plane.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", manifest)
    plane.await_served(f"/apis/{group}/v1/{plural}")
    rules = [{"apiGroups": [group], "resources": [plural], "verbs": ["*"]}]
    labels = {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": plural, "labels": labels}}
    plane.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {**role, "rules": rules})
    subject = {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": plural, "apiGroup": "rbac.authorization.k8s.io"}
    bound = {**role, "kind": "RoleBinding", "metadata": {"name": plural, "namespace": "mal"}}
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/mal/rolebindings"
    plane.request("POST", path, {**bound, "subjects": [subject], "roleRef": reference})


def template(annotations=None):
    return {"metadata": {"labels": {"app": "x"}, "annotations": annotations or {}}, "spec": POD_SPEC}


def deployment(name, annotations=None):
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": template(annotations)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def cron_job(name):
    inner = {"spec": {"template": {"spec": {**POD_SPEC, "restartPolicy": "Never"}}}}
    spec = {"schedule": "0 3 * * *", "jobTemplate": inner}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


def stamp(thing):
    return (thing.get("metadata", {}).get("annotations") or {}).get(STAMP)


def pods_of(cluster, prefix):
    return [each for name, each in cluster.pods("mal").items() if name.startswith(prefix)]


def test_a_replication_controller_forges_no_user(cluster, mallory):
    spec = {"replicas": 1, "selector": {"app": "x"}, "template": template(FORGED)}
    made = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "rc"}, "spec": spec}
    assert mallory.create(made) == ""
    assert stamp(mallory.get("rc", "rc")["spec"]["template"]) == "mallory"
    assert [stamp(each) for each in cluster.until(lambda: pods_of(cluster, "rc-"))] == ["mallory"]
    change = {"spec": {"template": {"metadata": {"annotations": FORGED}}}}
    assert mallory.patch("rc", "rc", change) == ""
    assert stamp(mallory.get("rc", "rc")["spec"]["template"]) == "mallory"
    plain = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pt"}, "template": template(FORGED)}
    cluster.create(plain, namespace="mal")  # which `edit` does not allow
    assert stamp(cluster.get("/api/v1/namespaces/mal/podtemplates/pt")["template"]) == "testbed-admin"


def test_what_is_older_than_the_policies_forges_no_user(cluster, mallory):
    change = {"spec": {"replicas": 1, "template": {"metadata": {"annotations": FORGED}}}}
    assert mallory.patch("deployment", "older", change) == ""
    assert stamp(mallory.get("deployment", "older")["spec"]["template"]) is None
    assert [stamp(each) for each in cluster.until(lambda: pods_of(cluster, "older-"))] == [None]
    inner = {"metadata": {"annotations": FORGED}, "spec": {"template": {"metadata": {"annotations": FORGED}}}}
    assert mallory.patch("cronjob", "older", {"spec": {"jobTemplate": inner}}) == ""
    found = mallory.get("cronjob", "older")["spec"]["jobTemplate"]
    assert (stamp(found), stamp(found["spec"]["template"])) == (None, None)


def test_a_controller_passes_on_what_a_stamped_owner_says_and_no_more(plane, mallory):
    trainer = tenants.tenant(plane, "trainer", "mal")

    def made(name, *owners):
        manifest = pod(name, gpus=0, annotations=FORGED)
        manifest["metadata"]["ownerReferences"] = [
            {"apiVersion": version, "kind": kind, "name": "x", "uid": "u", "controller": controller}
            for version, kind, controller in owners
        ]
        assert trainer.create(manifest) == ""
        return stamp(mallory.get("pod", name))

    assert made("bare") is None
    assert made("of-a-node", ("v1", "Node", True)) is None
    assert made("of-its-own-kind", ("mallory.example/v1", "Thing", True)) is None
    assert made("not-controlled", ("jobset.x-k8s.io/v1", "JobSet", False)) is None
    assert made("like-a-group", ("jobset.x-k8s.io.example/v1", "JobSet", True)) is None
    assert made("of-a-job", ("batch/v1", "Job", True)) == "ann"
    assert made("of-a-jobset", ("jobset.x-k8s.io/v1", "JobSet", True)) == "ann"
    assert made("of-an-aijob", ("fairlead.dev/v1alpha1", "AIJob", True)) == "ann"
    # A Job that says less of itself than of its pods is believed as little.
    claims = job("of-a-jobset")
    reference = {"apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSet", "name": "x", "uid": "u", "controller": True}
    claims["metadata"]["ownerReferences"] = [reference]
    claims["spec"]["template"]["metadata"] = {"annotations": FORGED}
    assert trainer.create(claims) == ""
    assert stamp(mallory.get("job", "of-a-jobset")["spec"]["template"]) == "ann"
    claims = job("claims")
    claims["spec"]["template"]["metadata"] = {"annotations": FORGED}
    assert trainer.create(claims) == ""
    assert stamp(mallory.get("job", "claims")["spec"]["template"]) is None


def test_a_tenants_own_reference_to_an_owner_changes_nothing(mallory):
    forged = pod("owned", gpus=0, annotations=FORGED)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "u", "controller": True}
    forged["metadata"]["ownerReferences"] = [reference]
    assert mallory.create(forged) == ""
    assert stamp(mallory.get("pod", "owned")) == "mallory"


@pytest.mark.parametrize(
    ("version", "kind", "spec", "places"),
    [
        (
            "jobset.x-k8s.io/v1",
            "JobSet",
            {"replicatedJobs": [{"template": {"spec": {"template": template(FORGED)}}}, {"name": "other"}]},
            lambda spec: (
                [job["template"] for job in spec["replicatedJobs"][:1]]
                + [job["template"]["spec"]["template"] for job in spec["replicatedJobs"][:1]]
            ),
        ),
        (
            "ray.io/v1",
            "RayJob",
            {"rayClusterSpec": {"headGroupSpec": {"template": {"spec": {}}}, "workerGroupSpecs": [{"template": template()}]}},
            lambda spec: [each["template"] for each in (spec["headGroupSpec"], *spec["workerGroupSpecs"])],
        ),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Master": {"template": template(FORGED)}, "Wor/ker": {"template": {"spec": {}}}}},
            lambda spec: [each["template"] for each in spec["pytorchReplicaSpecs"].values()],
        ),
    ],
    ids=["JobSet", "RayJob", "PyTorchJob"],
)
def test_templates_of_others_are_stamped_where_their_place_is_known(mallory, version, kind, spec, places):
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": "known"}, "spec": spec}
    resource = f"{kind.lower()}s.{version.partition('/')[0]}"
    assert mallory.create(manifest) == ""

    def stamps():
        found = mallory.get(resource, "known")["spec"]
        return [stamp(each) for each in places(found.get("rayClusterSpec", found))]

    assert stamps() == ["mallory", "mallory"]
    assert mallory.patch(resource, "known", {"spec": spec}) == "", "a change may forge it as little"
    assert stamps() == ["mallory", "mallory"]


@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        ("jobset.x-k8s.io/v1", "JobSet", {"some": [{"deep": [{"place": {"spec": {"template": template(FORGED)}}}]}]}),
        ("sparkoperator.k8s.io/v1", "SparkApplication", {"driver": {"annotations": FORGED}}),
        ("sparkoperator.k8s.io/v1", "SparkApplication", {"sparkConf": {f"spark.kubernetes.driver.annotation.{STAMP}": "ann"}}),
        ("ray.io/v1", "RayJob", {"submitterPodTemplate": template(FORGED)}),
    ],
)
def test_kinds_of_others_are_stamped_and_say_nothing_in_their_templates(mallory, version, kind, spec):
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": "forged"}, "spec": spec}
    assert "is written by the API server" in mallory.create(manifest)
    plain = {"apiVersion": version, "kind": kind, "metadata": {"name": "plain", "annotations": FORGED}, "spec": {"a": [1, "b"]}}
    resource = f"{kind.lower()}s.{version.partition('/')[0]}"
    mallory.kubectl("delete", resource, "plain", "--ignore-not-found")
    assert mallory.create(plain) == ""
    assert stamp(mallory.get(resource, "plain")) == "mallory"
    assert "is written by the API server" in mallory.patch(resource, "plain", {"spec": spec})
    assert "cannot be changed" in mallory.patch(resource, "plain", {"metadata": {"annotations": FORGED}})


def test_a_large_object_of_others_is_within_the_budget(mallory):
    """200 kB of templates: checking all of it costs less than the API server allows."""
    env = [{"name": f"VARIABLE_{i}", "value": "x" * 40} for i in range(100)]
    one = {"template": {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "x", "env": env}]}}}}}
    spec = {"replicatedJobs": [{"name": f"job-{i}", **one} for i in range(25)]}
    assert (
        mallory.create({"apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSet", "metadata": {"name": "large"}, "spec": spec}) == ""
    )


def test_subresources_do_not_change_the_stamp(plane, mallory):
    """Who may write statuses or sizes may not write whose a pod is."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "statuses"}}
    resources = ["pods/status", "pods/resize", "pods/ephemeralcontainers", "jobs/status"]
    rule = {"apiGroups": ["", "batch"], "resources": resources, "verbs": ["get", "patch", "update"]}
    plane.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {**role, "rules": [rule]})
    reference = {"kind": "ClusterRole", "name": "statuses", "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}
    bound = {**role, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": reference}
    plane.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", bound)
    assert mallory.create(pod("whose", gpus=0)) == ""
    change = {"metadata": {"annotations": FORGED}}
    for subresource in ("status", "resize", "ephemeralcontainers"):
        mallory.patch("pod", "whose", change, "--subresource", subresource)
        assert stamp(mallory.get("pod", "whose")) == "mallory", subresource
    assert "cannot be changed" in mallory.patch("pod", "whose", change, "--subresource", "status")


def test_the_quota_for_namespaces_of_tenants_keeps_the_systems_priorities_out(cluster, mallory):
    """Those of charts/system-priorities.yaml, for pods of schedulers that are not ours too."""
    (quota,) = chart("system-priorities.yaml")
    cluster.create(quota, namespace="mal")
    path = "/api/v1/namespaces/mal/resourcequotas/system-priorities"
    cluster.until(lambda: "hard" in cluster.get(path).get("status", {}))
    critical = pod("critical", gpus=0, scheduler="default-scheduler", priorityClassName="system-cluster-critical")
    assert "exceeded quota: system-priorities" in mallory.create(critical)
    assert mallory.create(pod("ordinary", gpus=0, scheduler="default-scheduler")) == ""
    cluster.delete(path)

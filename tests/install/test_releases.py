"""A second release in a cluster: its objects are its own, it is refused what a cluster has once, and goes without the first."""

import random
import re

import msgspec
import pytest

from fairlead.install import Values, ValuesError, installed, kinds, objects
from fairlead.install.accounts import usernames
from fairlead.install.apply import apply, remove
from fairlead.install.preflight import preflight
from fairlead.install.values import parse
from tests.install.cluster import Cluster

PROFILES = [{"schedulerName": "blue", "profile": "ai"}]
FIRST = {"image": "f", "trusted": usernames("blue-system", "blue")}
SECOND = {
    "image": "f",
    "name": "blue",
    "namespace": "blue-system",
    "crds": False,
    "aggregatedApi": False,
    "configuration": {"profiles": PROFILES},
}
POLICIES = re.compile(r"(Validating|Mutating)AdmissionPolicy(Binding)?$")


def values(document):
    return parse(document, "values")


def chosen(pick, document):
    """The values with others that a release may have at random."""
    more = {
        "replicas": pick.choice([1, 2, 3]),
        "history": pick.choice([None, {"storage": "1Gi"}, {"secretName": "database"}]),
        "prometheus": pick.choice(["", "http://prometheus:9090"]),
        "monitoring": {"serviceMonitor": pick.random() < 0.5},
        "networkPolicies": pick.random() < 0.5,
        "admissionPolicies": pick.random() < 0.8,
        "provisioningClasses": pick.choice([[], ["small"]]),
    }
    return values({**document, **more})


@pytest.mark.parametrize("seed", range(40))
def test_two_releases_share_no_object(seed):
    pick = random.Random(seed)
    namespace = pick.choice(["blue-system", "kube-system", "fairlead-system"])
    one, two = chosen(pick, FIRST), chosen(pick, {**SECOND, "namespace": namespace})
    first = {kinds.path(each) for each in objects(one)}
    second = {kinds.path(each) for each in objects(two)}
    shared = {"/api/v1/namespaces/fairlead-system"} if namespace == "fairlead-system" else set()
    assert first & second == shared  # which `install` refuses: see below
    third = {kinds.path(each) for each in objects(values({**SECOND, "name": "green", "configuration": _NAMES}))}
    assert not third & (first | second) - {f"/api/v1/namespaces/{namespace}"}


_NAMES = {"profiles": [{"schedulerName": "green", "profile": "ai"}]}


def test_all_that_a_second_release_has_is_named_after_it():
    wanted = values({**SECOND, "history": {"storage": "1Gi"}, "monitoring": {"serviceMonitor": True}})
    for each in objects(wanted):
        name = each["metadata"]["name"]
        assert name == "blue" or name.startswith("blue-"), (each["kind"], name)
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "blue"
    assert "fairlead-" not in str([each["spec"] for each in objects(wanted) if each["kind"] in ("Deployment", "NetworkPolicy")])


def test_the_first_release_keeps_its_names():
    known = {"fairlead", "fairlead-scheduler", "fairlead-operator", "fairlead-leases"}
    found = {each["metadata"]["name"] for each in objects(Values(image="f")) if not POLICIES.match(each["kind"])}
    assert known < found
    assert all("fairlead" in each for each in found)


def test_a_process_of_a_second_release_may_write_its_own_leases_only():
    for each in objects(values(SECOND)):
        for rule in each.get("rules", ()) if each["kind"] in ("Role", "ClusterRole") else ():
            if "leases" in rule["resources"] and rule["verbs"] != ["create"]:
                [name] = rule["resourceNames"]
                assert name in (each["metadata"]["name"], f"{each['metadata']['name']}-pair-speeds")
                assert name in ("blue-scheduler", "blue-scheduler-pair-speeds", "blue-operator")


def test_its_configuration_tells_both_processes_which_release_they_are_of():
    found = {each["kind"]: each for each in objects(values(SECOND)) if each["kind"] in ("ConfigMap", "Deployment")}
    [text] = found["ConfigMap"]["data"].values()
    assert msgspec.json.decode(text)["name"] == "blue"
    assert "blue-configuration" in str(found["Deployment"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"crds": True}, "crds: a cluster has it once, by the release fairlead; false in blue"),
        ({"aggregatedApi": True}, "aggregatedApi"),
        ({"externalMetrics": True}, "externalMetrics"),
        ({"requireScheduler": True}, "requireScheduler"),
        ({"namespaceDefaults": True}, "namespaceDefaults"),
        ({"monitoring": {"rules": True}}, "monitoring.rules"),
        ({"configuration": {}}, "give blue scheduler names of its own"),
        (
            {"configuration": {"profiles": [{"schedulerName": "fairlead", "profile": "ai"}]}},
            "'fairlead' is the release fairlead's",
        ),
        ({"configuration": {"name": "blue", "profiles": PROFILES}}, "leave out apiVersion, kind and name"),
        ({"name": "Blue"}, "name"),
        ({"name": "kube"}, "name: kube-scheduler is the Lease of kube-scheduler"),
        ({"name": "b" * 41}, "name"),
        ({"monitoring": {"labels": {"app.kubernetes.io/instance": "x"}}}, "monitoring.labels"),
    ],
)
def test_a_second_release_is_refused_what_a_cluster_has_once(more, message):
    with pytest.raises(ValuesError, match=re.escape(message)):
        values({**SECOND, **more})


_SERVED = "/apis/fairlead.dev/v1alpha1"

# -- in a cluster ------------------------------------------------------------------------------


def silent(done, total):
    assert 0 <= done <= total


async def checked(cluster, document):
    cluster.there[_SERVED] = {}
    found = await preflight(cluster, installed(values(document)))
    del cluster.there[_SERVED]
    return found.ready, {each.name: (each.result, each.message) for each in found.checks}


async def both():
    cluster = Cluster()
    for document in (FIRST, SECOND):
        assert await apply(cluster, installed(values(document)), silent) == []
    return cluster


async def test_each_is_upgraded_and_removed_without_the_other():
    cluster = await both()
    first, second = ({kinds.path(each) for each in installed(values(document))} for document in (FIRST, SECOND))
    assert set(cluster.there) == first | second
    less = {**FIRST, "networkPolicies": False}
    removed = await apply(cluster, installed(values(less)), silent)
    assert {each.partition("/")[0] for each in removed} == {"NetworkPolicy"}
    assert second < set(cluster.there)
    await remove(cluster, definitions=False, limit=1.0, release="blue")
    assert set(cluster.there) == {kinds.path(each) for each in installed(values(less))}
    await apply(cluster, installed(values(SECOND)), silent)
    await remove(cluster, definitions=False, limit=1.0)
    left = {path for path, each in cluster.there.items() if path not in second}
    assert {cluster.there[path]["kind"] for path in left} == {kinds.DEFINITION}
    assert second < set(cluster.there)


async def test_what_an_earlier_version_installed_is_the_first_release_s():
    cluster = await both()
    for each in cluster.there.values():
        if each["metadata"]["labels"]["app.kubernetes.io/instance"] == "fairlead":
            del each["metadata"]["labels"]["app.kubernetes.io/instance"]
    await remove(cluster, definitions=True, limit=1.0)
    assert set(cluster.there) == {kinds.path(each) for each in installed(values(SECOND))}


async def test_a_second_release_is_ready_beside_a_first_that_knows_of_it():
    cluster = Cluster()
    await apply(cluster, installed(values(FIRST)), silent)
    ready, found = await checked(cluster, SECOND)
    assert (ready, found["releases"]) == (
        True,
        ("note", "the release fairlead runs in namespace fairlead-system: each queue names its release"),
    )
    await apply(cluster, installed(values(SECOND)), silent)
    for document in (FIRST, SECOND):
        assert (await checked(cluster, document))[0]


async def test_a_first_release_that_does_not_trust_it_fails():
    cluster = Cluster()
    await apply(cluster, installed(values({"image": "f"})), silent)
    ready, found = await checked(cluster, SECOND)
    assert (ready, found["policies"][0]) == (False, "failed")
    assert found["policies"][1].endswith(
        "do not trust system:serviceaccount:blue-system:blue-scheduler, system:serviceaccount:blue-system:blue-operator: "
        "add to its value `trusted`"
    )
    assert (await checked(cluster, {**SECOND, "namespace": "kube-system"}))[0]  # whose accounts are trusted


async def test_a_first_release_of_an_older_version_fails():
    cluster = Cluster()
    await apply(cluster, installed(values(FIRST)), silent)
    [path] = [path for path in cluster.there if path.endswith("validatingadmissionpolicies/fairlead-fencing")]
    cluster.there[path]["spec"]["matchConditions"] = [{"name": "ours", "expression": "true"}]
    ready, found = await checked(cluster, SECOND)
    assert not ready
    assert found["policies"] == ("failed", "policy fairlead-fencing judges all bindings by one lease: upgrade the release first")


async def test_a_first_release_without_policies_is_noted():
    cluster = Cluster()
    await apply(cluster, installed(values({**FIRST, "admissionPolicies": False})), silent)
    ready, found = await checked(cluster, SECOND)
    assert (ready, found["policies"][0]) == (True, "note")


async def test_a_first_release_that_trusts_it_no_more_fails():
    cluster = await both()
    ready, found = await checked(cluster, {"image": "f"})
    assert not ready
    assert "the release blue would not be trusted any more: keep system:serviceaccount:blue-system:" in found["releases"][1]


@pytest.mark.parametrize("name", ["exempt", "fairlead-leases"])
async def test_a_name_that_others_have_fails(name):
    """Priority levels of the API server's own, or of the first release."""
    cluster = Cluster()
    await apply(cluster, installed(values(FIRST)), silent)
    path = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/exempt"
    cluster.there[path] = {"metadata": {"name": "exempt"}}
    second = {**SECOND, "name": name, "namespace": "kube-system"}
    ready, found = await checked(cluster, second)
    assert (ready, found["names"][0]) == (False, "failed")
    assert found["names"][1].startswith(f"PriorityLevelConfiguration/{name} is another's: choose another name than {name}")


async def test_a_scheduler_name_of_two_releases_fails():
    cluster = await both()
    green = {**SECOND, "name": "green", "namespace": "green", "configuration": {"profiles": PROFILES}}
    ready, found = await checked(cluster, green)
    assert not ready
    assert (
        found["releases"][1] == "scheduler name blue is that of the release blue, too, in namespace blue-system: each has its own"
    )
    [path] = [path for path in cluster.there if path.endswith("configmaps/blue-configuration")]
    for text in ("{", "- 1", '{"profiles": [1]}'):  # what cannot be read is of no known names
        cluster.there[path]["data"] = {"configuration.yaml": text}
        assert (await checked(cluster, {**green, "namespace": "kube-system"}))[0]


async def test_the_namespace_of_another_release_is_refused():
    cluster = await both()
    ready, found = await checked(cluster, {**FIRST, "namespace": "blue-system"})
    assert not ready
    assert found["namespace"][1].startswith("blue-system is that of the release blue, and would be removed with it")


async def test_a_leader_of_a_second_release_fails_unless_it_was_installed():
    cluster = Cluster()
    await apply(cluster, installed(values(FIRST)), silent)
    spec = {"holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": "2027-01-15T08:00:00.000000Z"}
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/blue-scheduler"
    cluster.there[path] = {"metadata": {"name": "blue-scheduler", "namespace": "kube-system"}, "spec": spec}
    assert cluster.clock() == 1.8e9
    ready, found = await checked(cluster, SECOND)
    assert (ready, found["leases"][0]) == (False, "failed")
    assert (await checked(cluster, FIRST))[0]
    await apply(cluster, installed(values(SECOND)), silent)
    assert (await checked(cluster, SECOND))[0]

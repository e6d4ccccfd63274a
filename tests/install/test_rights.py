"""Rights of processes and people, their reasons, and the files of `charts/` that are made of them."""

import re
from pathlib import Path

import pytest

from fairlead.install import History, Values, objects, roles
from fairlead.scheduler.queue_metrics import METRICS
from testbed import charts

RBAC = "rbac.authorization.k8s.io"
ALL = Values(image="fairlead:1", external_metrics=True, history=History(storage="5Gi"))
LEAST = Values(image="fairlead:1", aggregated_api=False)
EACH = pytest.mark.parametrize("values", [ALL, LEAST], ids=["all", "least"])
GROUP = "fairlead.dev"
SECURITY = Path(__file__).parents[2] / "SECURITY.md"


def named(found, kind):
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def rules(role):
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@EACH
def test_no_right_is_a_wildcard_or_reads_secrets_or_makes_more_of_itself(values):
    found = objects(values)
    for role in [*named(found, "ClusterRole").values(), *named(found, "Role").values()]:
        triples = rules(role)
        assert triples
        assert not [each for each in triples if "*" in str(each)]
        assert not [each for each in triples if each[1].partition("/")[0] in ("secrets", "serviceaccounts")]
        assert not [each for each in triples if each[2] in ("escalate", "bind", "impersonate")]
    assert not named(found, "Secret")


def test_every_rule_has_a_reason_and_grants_something():
    every = [
        *roles.OF_SCHEDULER,
        *roles.OF_OPERATOR,
        *roles.of_lease("scheduler"),
        roles.OF_SERVERS,
        roles.of_server("v1.x"),
        *roles.of_endpoints(("a",), "scheduler"),
        *roles.OF_VIEWERS,
        *roles.OF_USERS,
        *roles.OF_ADMINISTRATORS,
    ]
    for rule in every:
        assert len(rule.why) > 5
        assert all(rule.manifest().values())


def written(rules):
    """Verb and resource of what does more than read."""
    return {
        (verb, resource)
        for rule in rules
        for verb in rule.verbs.split()
        for resource in rule.resources.split()
        if verb not in ("get", "list", "watch")
    }


def test_the_threat_model_says_of_each_right_what_it_is_worth():
    """SECURITY.md lists what each process may do besides reading, all of it and nothing else."""
    stated = {"scheduler": set(), "operator": set(), "both": set()}
    for process, cell in re.findall(r"^\| (scheduler|operator|both) \| (.*?) \|", SECURITY.read_text(), re.MULTILINE):
        for part in cell.split(";"):
            words = re.findall(r"`(.*?)`", part)
            verbs = [word for word in words if word in ("create", "update", "patch", "delete")]
            stated[process] |= {(verb, resource) for verb in verbs for resource in words if resource not in verbs}
    own = [roles.of_server("v1.x"), *roles.of_endpoints(("a",), "scheduler")]
    assert stated["scheduler"] == written(roles.OF_SCHEDULER)
    assert stated["operator"] == written(roles.OF_OPERATOR)
    assert stated["both"] == written([*roles.of_lease("scheduler"), *own]) == written([*roles.of_lease("operator"), *own])


@pytest.mark.parametrize("process", ["scheduler", "operator"])
def test_no_right_is_granted_twice(process):
    granted = [
        (rule.group, resource, verb)
        for rule in roles.OF_PROCESS[process]
        for resource in rule.resources.split()
        for verb in rule.verbs.split()
    ]
    assert sorted(granted) == sorted(set(granted))


HISTORY = {
    ("fairlead.dev", "queues/status", "patch"),
    ("autoscaling", "horizontalpodautoscalers", "watch"),
}
PROVISIONING = {("autoscaling.x-k8s.io", "provisioningrequests", "create"), ("", "podtemplates", "delete")}


@pytest.mark.parametrize("history", [None, History(storage="5Gi"), History(secret_name="s")])
@pytest.mark.parametrize("classes", [[], ["small"]])
def test_what_is_switched_off_gives_no_rights(history, classes):
    values = Values(image="fairlead:1", aggregated_api=False, history=history, provisioning_classes=classes)
    may = rules(named(objects(values), "ClusterRole")["fairlead-operator"])
    assert may & HISTORY == (HISTORY if history else set())
    assert may & PROVISIONING == (PROVISIONING if classes else set())
    given = {"history": history, "provisioning_classes": classes, "": True}
    assert may == {
        (rule.group, resource, verb)
        for rule in roles.OF_OPERATOR
        if given[rule.needs]
        for resource in rule.resources.split()
        for verb in rule.verbs.split()
    }


def test_few_objects_give_rights_in_the_whole_cluster():
    found = objects(ALL)
    assert len(named(found, "ClusterRole")) + len(named(found, "ClusterRoleBinding")) <= 12


@EACH
def test_each_binding_is_of_a_role_that_is_there_to_the_account_of_its_process(values):
    found = objects(values)
    accounts = set(named(found, "ServiceAccount"))
    own = {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in found
        if each["kind"] in ("Role", "ClusterRole")
    }
    own -= {("ClusterRole", None, f"fairlead-{each}") for each in ("viewer", "user", "admin")}
    for binding in (each for each in found if "roleRef" in each):
        name, kind = binding["metadata"]["name"], binding["kind"].removesuffix("Binding")
        assert binding["roleRef"] == {"apiGroup": RBAC, "kind": kind, "name": name}
        own.remove((kind, binding["metadata"].get("namespace"), name))
        [subject] = binding["subjects"]
        if name != "fairlead-external-metrics":
            assert subject == {"kind": "ServiceAccount", "name": name, "namespace": "fairlead-system"}
            assert name in accounts
    assert not own


def test_a_leader_writes_only_the_endpoints_of_its_own_services():
    found = [each for each in objects(ALL) if each["kind"] == "Role" and each["metadata"]["namespace"] == "fairlead-system"]
    may = {each["metadata"]["name"]: {name for rule in each["rules"] for name in rule.get("resourceNames", ())} for each in found}
    assert may == {
        "fairlead-scheduler": {"fairlead-visibility", "fairlead-external-metrics"},
        "fairlead-operator": {"fairlead-history"},
    }
    written = {each["metadata"]["name"]: {(resource, verb) for _, resource, verb in rules(each)} for each in found}
    slices = {("endpointslices", "create"), ("endpointslices", "patch")}
    assert written == {"fairlead-scheduler": {("services", "get"), *slices}, "fairlead-operator": slices}


def test_a_process_may_only_serve_the_apis_that_it_serves():
    may = {
        name: {each for rule in role["rules"] if "apiservices" in rule["resources"] for each in rule["resourceNames"]}
        for name, role in named(objects(ALL), "ClusterRole").items()
    }
    assert may["fairlead-scheduler"] == {"v1alpha1.visibility.fairlead.dev", "v1beta1.external.metrics.k8s.io"}
    assert may["fairlead-operator"] == {"v1alpha1.history.fairlead.dev"}
    least = objects(LEAST)
    assert not [each for each in named(least, "ClusterRole").values() if "apiservices" in str(each)]
    assert not [each for each in least if each["kind"] == "Role" and "leases" not in str(each)]
    assert "configmaps" not in str(named(least, "Role"))
    assert not named(least, "APIService")


def test_people_get_their_rights_from_the_roles_of_kubernetes():
    found = named(objects(ALL), "ClusterRole")
    for name, into in (("viewer", "view"), ("user", "edit"), ("admin", "admin")):
        labels = found[f"fairlead-{name}"]["metadata"]["labels"]
        assert {each for each in labels if "aggregate-to" in each} == {f"{RBAC}/aggregate-to-{into}"}
    viewer, user, admin = (rules(found[f"fairlead-{name}"]) for name in ("viewer", "user", "admin"))
    assert {(GROUP, "aijobs", "create"), (GROUP, "podgroups", "delete")} <= user
    assert ("visibility.fairlead.dev", "aijobs/explanation", "get") in viewer
    question = ("visibility.fairlead.dev", "whatifs", "create")  # makes nothing, as a SelfSubjectAccessReview
    assert {verb for _, _, verb in viewer - {question}} == {"get", "list", "watch"}
    assert question in viewer
    assert (GROUP, "queues", "create") in admin - user
    assert not [each for each in user | admin if "/status" in each[1]]


def test_autoscalers_may_read_the_metrics_that_are_served():
    found = rules(named(objects(ALL), "ClusterRole")["fairlead-external-metrics"])
    assert {resource for _, resource, _ in found} == set(METRICS)


@pytest.mark.parametrize(("file", "text"), charts.files().items())
def test_charts_are_made_of_the_same_objects(file, text):
    assert (charts.FOLDER / file).read_text() == text, "run `make charts`"

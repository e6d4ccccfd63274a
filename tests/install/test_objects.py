"""The objects of an installation: what they contain, what they may do, and that values change only what they name."""

import msgspec
import pytest
import yaml

from fairlead.install import History, Values, ValuesError, kinds, objects
from fairlead.install.values import parse, read
from fairlead.scheduler.external_metrics import METRICS

RBAC = "rbac.authorization.k8s.io/v1"
ALL = Values(
    image="registry.example/fairlead:1",
    external_metrics=True,
    history=History(storage="5Gi"),
    prometheus="http://prometheus.monitoring:9090",
    configuration={"profiles": [{"schedulerName": "gpus", "profile": "ai"}]},
    provisioning_classes=["small"],
)
LEAST = Values(image="fairlead:1", visibility=False, network_policies=False)
EACH = pytest.mark.parametrize("values", [ALL, LEAST, Values(image="fairlead:1")], ids=["all", "least", "defaults"])


def named(found, kind):
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def pod(found, process):
    return named(found, "Deployment")[f"fairlead-{process}"]["spec"]["template"]["spec"]


def rules(role):
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@EACH
def test_the_same_values_give_the_same_list_in_the_order_of_application(values):
    found = objects(values)
    assert found == objects(values)
    assert [kinds.rank(each) for each in found] == sorted(kinds.rank(each) for each in found)
    paths = [kinds.path(each) for each in found]
    assert len(paths) == len(set(paths))


@EACH
def test_each_object_can_be_found_again(values):
    for each in objects(values):
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "fairlead"
        assert labels["app.kubernetes.io/managed-by"] == "fairlead-install"
        assert each["metadata"].get("namespace") == ("kube-system" if kinds.of(each).namespaced else None)


@EACH
def test_no_right_is_a_wildcard_or_reads_secrets(values):
    found = objects(values)
    for role in [*named(found, "ClusterRole").values(), *named(found, "Role").values()]:
        triples = rules(role)
        assert not [each for each in triples if "*" in each]
        assert not [each for each in triples if each[1].partition("/")[0] == "secrets"]
        assert not [each for each in triples if each[2] in ("escalate", "bind", "impersonate")]
    assert not named(found, "Secret")


def test_few_objects_give_rights_in_the_whole_cluster():
    found = objects(ALL)
    assert len(named(found, "ClusterRole")) + len(named(found, "ClusterRoleBinding")) <= 12


@EACH
def test_each_binding_is_of_a_role_that_is_there_to_the_account_of_its_process(values):
    found = objects(values)
    accounts = set(named(found, "ServiceAccount"))
    for kind in ("Role", "ClusterRole"):
        for name, binding in named(found, f"{kind}Binding").items():
            assert binding["roleRef"]["kind"] == kind
            assert binding["roleRef"]["name"] in named(found, kind)
            [subject] = binding["subjects"]
            if name != "fairlead-external-metrics":
                assert subject == {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
                assert name in accounts


def test_a_process_may_only_serve_the_apis_that_it_serves():
    may = {
        name: {rule["resourceNames"][0] for rule in role["rules"] if "apiservices" in rule["resources"]}
        for name, role in named(objects(ALL), "ClusterRole").items()
    }
    assert may["fairlead-scheduler"] == {"v1alpha1.visibility.fairlead.dev", "v1beta1.external.metrics.k8s.io"}
    assert may["fairlead-operator"] == {"v1alpha1.history.fairlead.dev"}
    least = named(objects(LEAST), "ClusterRole")
    assert not [each for each in least.values() if "apiservices" in str(each)]
    assert not named(objects(LEAST), "APIService")


def test_people_get_their_rights_from_the_roles_of_kubernetes():
    roles = named(objects(ALL), "ClusterRole")
    into = {
        name: [
            label.removeprefix(f"{RBAC[:-3]}/aggregate-to-") for label in role["metadata"]["labels"] if "aggregate-to" in label
        ]
        for name, role in roles.items()
    }
    assert (into["fairlead-viewer"], into["fairlead-user"], into["fairlead-admin"]) == (["view"], ["edit"], ["admin"])
    group = "fairlead.dev"
    assert {(group, "aijobs", "create"), (group, "podgroups", "delete")} <= rules(roles["fairlead-user"])
    assert ("visibility.fairlead.dev", "aijobs/explanation", "get") in rules(roles["fairlead-viewer"])
    assert {verb for _, _, verb in rules(roles["fairlead-viewer"])} == {"get", "list", "watch"}
    assert (group, "queues", "create") in rules(roles["fairlead-admin"])
    assert (group, "queues", "create") not in rules(roles["fairlead-user"])
    assert not [each for name in ("user", "admin") for each in rules(roles[f"fairlead-{name}"]) if "/status" in each[1]]


def test_autoscalers_may_read_the_metrics_that_are_served():
    found = rules(named(objects(ALL), "ClusterRole")["fairlead-external-metrics"])
    assert {resource for _, resource, _ in found} == set(METRICS)


@EACH
def test_pods_are_as_the_restricted_standard_has_them(values):
    for process in ("scheduler", "operator"):
        spec = pod(objects(values), process)
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert {kind for volume in spec["volumes"] for kind in volume if kind != "name"} <= {
            "configMap",
            "emptyDir",
            "persistentVolumeClaim",
        }
        [container] = spec["containers"]
        assert container["image"] == values.image
        written = [volume["name"] for volume in spec["volumes"] if "emptyDir" in volume]
        assert [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in written] == ["/tmp"]  # noqa: S108
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_a_rollout_waits_for_no_standby():
    for each in named(objects(Values(image="f")), "Deployment").values():
        assert each["spec"]["replicas"] == 2
        assert each["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == "100%"


def test_one_operator_writes_a_database_on_a_volume():
    found = objects(ALL)
    deployment = named(found, "Deployment")["fairlead-operator"]
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert "fairlead-history" in named(found, "PersistentVolumeClaim")


def test_the_url_of_a_database_stays_in_its_secret():
    found = objects(Values(image="f", history=History(secret_name="database", key="uri", port=6432)))
    key = {"secretKeyRef": {"name": "database", "key": "uri"}}
    assert {"name": "FAIRLEAD_DATABASE", "valueFrom": key} in pod(found, "operator")["containers"][0]["env"]
    assert pod(found, "scheduler")["containers"][0]["env"] == []
    assert {"protocol": "TCP", "port": 6432} in named(found, "NetworkPolicy")["fairlead-operator"]["spec"]["egress"][0]["ports"]


def test_both_processes_and_the_policies_know_the_configured_names():
    found = objects(ALL)
    [text] = named(found, "ConfigMap")["fairlead-configuration"]["data"].values()
    assert yaml.safe_load(text).items() >= ALL.configuration.items()
    for process in ("scheduler", "operator"):
        env = pod(found, process)["containers"][0]["env"]
        assert {"name": "FAIRLEAD_CONFIG", "value": "/etc/fairlead/configuration.yaml"} in env
    assert "'gpus'" in str(named(found, "ValidatingAdmissionPolicy"))
    assert "'fairlead-kubernetes'" not in str(named(found, "ValidatingAdmissionPolicy"))


def test_policies_open_what_the_processes_need_and_no_more():
    policies = named(objects(ALL), "NetworkPolicy")
    into = {name: [port["port"] for port in each["spec"]["ingress"][0]["ports"]] for name, each in policies.items()}
    assert into == {"fairlead-scheduler": [10259, 6443, 6445], "fairlead-operator": [10260, 6444]}
    out = {name: [port["port"] for port in each["spec"]["egress"][0]["ports"]] for name, each in policies.items()}
    assert out == {"fairlead-scheduler": [53, 53, 443, 6443], "fairlead-operator": [53, 53, 443, 6443, 9090]}
    for name, each in policies.items():
        assert each["spec"]["podSelector"]["matchLabels"] == {"app": name}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"image": "f", "replica": 3}, "unknown field `replica`"),
        ({"image": "f", "replicas": 0}, "replicas"),
        ({"image": "a b"}, "image"),
        ({"image": "f", "history": {}}, "give one of secretName and storage"),
        ({"image": "f", "history": {"secretName": "s", "storage": "1Gi"}}, "give one of secretName and storage"),
        ({"image": "f", "history": {"storage": "much"}}, "history.storage"),
        ({"image": "f", "requests": {"cpu": "0"}}, "requests.cpu: '0' is not above 0"),
        ({"image": "f", "prometheus": "prometheus:9090"}, "prometheus"),
        ({"image": "f", "configuration": {"profile": []}}, "configuration"),
        ({"image": "f", "apiServerPorts": []}, "apiServerPorts"),
    ],
)
def test_values_that_would_fail_later_fail_now(document, message):
    with pytest.raises(ValuesError, match=message):
        parse(document, "values.yaml")


def test_values_of_a_program_are_checked_too():
    with pytest.raises(ValuesError, match="give one of"):
        objects(Values(image="f", history=History()))


def test_the_image_of_the_command_line_takes_precedence(tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text("image: one\nreplicas: 3\n")
    assert (read(file).image, read(file, "two").image, read(file, "two").replicas) == ("one", "two", 3)
    assert read(None, "three") == Values(image="three")
    for text, message in (("", "no image"), ("- 1", "no mapping"), ("a: [", "is not YAML")):
        file.write_text(text)
        with pytest.raises(ValuesError, match=message):
            read(file)
    with pytest.raises(ValuesError, match="cannot read"):
        read(tmp_path / "absent.yaml")


def test_values_are_read_as_they_are_written():
    assert parse(msgspec.to_builtins(ALL), "values") == ALL

"""The objects of an installation: what they contain, and that values change only what they name."""

import msgspec
import pytest
import yaml
from typer.main import get_command

from fairlead.cli.main import app
from fairlead.install import History, Monitoring, Values, ValuesError, installed, kinds, objects
from fairlead.install.values import SYSTEM, parse, read
from tests.install.restricted import violations

ALL = Values(
    image="registry.example/fairlead:1",
    external_metrics=True,
    history=History(storage="5Gi"),
    prometheus="http://prometheus.monitoring:9090",
    configuration={"profiles": [{"schedulerName": "gpus", "profile": "ai"}]},
    provisioning_classes=["small"],
)
LEAST = Values(image="fairlead:1", namespace="kube-system", aggregated_api=False, network_policies=False)
PROCESSES = ("scheduler", "operator")
EACH = pytest.mark.parametrize("values", [ALL, LEAST, Values(image="fairlead:1")], ids=["all", "least", "defaults"])


def named(found, kind):
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def pod(found, process):
    return named(found, "Deployment")[f"fairlead-{process}"]["spec"]["template"]["spec"]


@EACH
def test_the_same_values_give_the_same_list_in_the_order_of_application(values):
    found = objects(values)
    assert found == objects(values)
    assert [kinds.rank(each) for each in found] == sorted(kinds.rank(each) for each in found)
    paths = [kinds.path(each) for each in found]
    assert len(paths) == len(set(paths))


@EACH
def test_what_is_installed_can_be_found_again(values):
    plain = objects(values)
    for each, found in zip(plain, installed(values), strict=True):
        assert each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "fairlead"
        assert found["metadata"]["labels"] == {**each["metadata"]["labels"], "app.kubernetes.io/managed-by": "fairlead-install"}
        assert {**found, "metadata": 0} == {**each, "metadata": 0}


@EACH
def test_everything_is_in_the_chosen_namespace_but_the_rights_on_leases(values):
    for each in objects(values):
        where = each["metadata"].get("namespace")
        if kinds.of(each).namespaced:
            assert where == values.namespace or (where == SYSTEM and each["kind"] in ("Role", "RoleBinding"))
        else:
            assert where is None


def test_a_namespace_of_its_own_admits_only_restricted_pods_and_that_of_the_system_is_left_alone():
    [namespace] = named(objects(Values(image="f", namespace="ai")), "Namespace").values()
    assert namespace["metadata"]["name"] == "ai"
    for mode in ("enforce", "warn", "audit"):
        assert namespace["metadata"]["labels"][f"pod-security.kubernetes.io/{mode}"] == "restricted"
    assert not named(objects(LEAST), "Namespace")


def test_the_policies_trust_the_processes_wherever_they_run():
    for values in (Values(image="f"), Values(image="f", namespace="ai", trusted=["ray"])):
        text = str(named(objects(values), "MutatingAdmissionPolicy")["fairlead-user"])
        for name in (*(f"system:serviceaccount:{values.namespace}:fairlead-{each}" for each in PROCESSES), *values.trusted):
            assert f"'{name}'" in text
    assert "fairlead-operator" not in str(named(objects(LEAST), "MutatingAdmissionPolicy"))


@EACH
def test_pods_pass_the_restricted_standard(values):
    for process in PROCESSES:
        assert violations(pod(objects(values), process)) == []


@EACH
def test_processes_write_only_what_is_mounted_for_it(values):
    for process in PROCESSES:
        [container] = pod(objects(values), process)["containers"]
        assert container["image"] == values.image
        assert container["securityContext"]["readOnlyRootFilesystem"]
        written = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
        assert written <= {"/tmp", "/var/lib/fairlead"}  # noqa: S108
        assert {each["name"] for each in container["volumeMounts"]} == {
            each["name"] for each in pod(objects(values), process)["volumes"]
        }


@EACH
def test_every_process_takes_the_arguments_that_it_gets(values):
    commands = get_command(app).commands
    for process in PROCESSES:
        [container] = pod(objects(values), process)["containers"]
        name, *arguments = container["args"]
        with commands[name].make_context(name, list(arguments)) as context:
            assert name == process
            assert context.params["address"] == "0.0.0.0:" + str(container["ports"][0]["containerPort"])
            serves = [each for each in arguments if each.endswith("-address") and each != "--address"]
            assert context.params["service_namespace"] == (values.namespace if serves else SYSTEM)


def test_a_rollout_and_a_drain_take_a_pod_once_another_waits_for_the_lease():
    found = objects(Values(image="f"))
    budgets = named(found, "PodDisruptionBudget")
    for name, each in named(found, "Deployment").items():
        assert each["spec"]["replicas"] == 2
        assert each["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
        [container] = each["spec"]["template"]["spec"]["containers"]
        assert container["readinessProbe"]["httpGet"]["path"] == "/standbyz"
        assert (budgets[name]["spec"]["maxUnavailable"], budgets[name]["spec"]["selector"]) == (1, each["spec"]["selector"])


def test_the_leader_is_the_endpoint_of_its_services():
    found = objects(ALL)
    for name, service in named(found, "Service").items():
        assert "selector" not in service["spec"]
        process = "operator" if name == "fairlead-history" else "scheduler"
        assert "status.podIP" in str(pod(found, process)["containers"][0]["env"])


def test_one_operator_writes_a_database_on_a_volume():
    found = objects(ALL)
    deployment = named(found, "Deployment")["fairlead-operator"]
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert list(named(found, "PodDisruptionBudget")) == ["fairlead-scheduler"]
    assert "fairlead-history" in named(found, "PersistentVolumeClaim")


def test_the_url_of_a_database_stays_in_its_secret():
    found = objects(Values(image="f", history=History(secret_name="database", key="uri", port=6432)))
    key = {"secretKeyRef": {"name": "database", "key": "uri"}}
    assert {"name": "FAIRLEAD_DATABASE", "valueFrom": key} in pod(found, "operator")["containers"][0]["env"]
    assert "FAIRLEAD_DATABASE" not in str(pod(found, "scheduler"))
    assert {"protocol": "TCP", "port": 6432} in named(found, "NetworkPolicy")["fairlead-operator"]["spec"]["egress"][0]["ports"]


def test_both_processes_and_the_policies_know_the_configured_names():
    found = objects(ALL)
    [text] = named(found, "ConfigMap")["fairlead-configuration"]["data"].values()
    assert yaml.safe_load(text).items() >= ALL.configuration.items()
    for process in PROCESSES:
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


def test_the_prometheus_operator_is_given_what_it_reads_only_where_it_is_wanted():
    given = Monitoring(service_monitor=True, rules=True, runbook="https://runbook", labels={"release": "prometheus"})
    found = objects(Values(image="f", namespace="ai", monitoring=given))
    monitor, rule = (next(iter(named(found, kind).values())) for kind in ("ServiceMonitor", "PrometheusRule"))
    for each in (monitor, rule):
        ours = {"app.kubernetes.io/part-of": "fairlead", "app.kubernetes.io/instance": "fairlead"}
        assert each["metadata"]["labels"] == {"release": "prometheus", **ours}
        assert each["metadata"]["namespace"] == "ai"
    assert "https://runbook#fairleadhistorynotwritten" in str(rule)
    scraped = {
        name: each["spec"]
        for name, each in named(found, "Service").items()
        if monitor["spec"]["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
    }
    assert sorted(scraped) == [f"fairlead-{each}-metrics" for each in sorted(PROCESSES)]
    for spec in scraped.values():
        [pods] = [
            each for each in found if each["kind"] == "Deployment" and each["spec"]["selector"]["matchLabels"] == spec["selector"]
        ]
        [container] = pods["spec"]["template"]["spec"]["containers"]
        assert spec["ports"][0]["targetPort"] == container["ports"][0]["name"]
        assert spec["ports"][0]["port"] == container["ports"][0]["containerPort"]
    assert not {"ServiceMonitor", "PrometheusRule"} & {each["kind"] for each in objects(Values(image="f"))}


def test_an_image_of_a_private_registry_is_pulled_with_its_secrets():
    found = objects(Values(image="f", image_pull_secrets=["one", "two"]))
    for process in PROCESSES:
        assert pod(found, process)["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
        assert "imagePullSecrets" not in pod(objects(Values(image="f")), process)


def test_what_a_cluster_has_once_can_be_left_out():
    found = objects(Values(image="f", crds=False, admission_policies=False, aggregated_api=False, history=History(storage="1Gi")))
    kinds_found = {each["kind"] for each in found}
    assert not {"CustomResourceDefinition", "APIService", "MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"} & kinds_found
    assert "--history-address" not in str(pod(found, "operator"))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"image": "f", "replica": 3}, "unknown field `replica`"),
        ({"image": "f", "replicas": 0}, "replicas"),
        ({"image": "a b"}, "image"),
        ({"image": "f", "namespace": "Kube"}, "namespace"),
        ({"image": "f", "history": {"secretname": "s"}}, r"unknown field `secretname` - at `\$.history`"),
        ({"image": "f", "replicas": "2"}, r"Expected `int`, got `str` - at `\$.replicas`"),
        ({"image": "f", "history": {}}, "give one of secretName and storage"),
        ({"image": "f", "history": {"secretName": "s", "storage": "1Gi"}}, "give one of secretName and storage"),
        ({"image": "f", "history": {"storage": "much"}}, "history.storage"),
        ({"image": "f", "requests": {"cpu": "0"}}, "requests.cpu: '0' is not above 0"),
        ({"image": "f", "prometheus": "prometheus:9090"}, "prometheus"),
        ({"image": "f", "configuration": {"profile": []}}, "configuration"),
        ({"image": "f", "apiServerPorts": []}, "apiServerPorts"),
        ({"image": "f", "prometheus": "http://p:65536"}, "prometheus"),
        ({"image": "f", "configuration": {"kind": "SchedulerConfiguration"}}, "leave out apiVersion, kind and name"),
        ({"image": "f", "configuration": {"consolidation": {"movesPerMinute": 1e-7}}}, "YAML does not return"),
        ({"image": "f", "provisioningClasses": ["a'b"]}, "provisioningClasses"),
        ({"image": "f", "requireScheduler": True, "admissionPolicies": False}, "admissionPolicies is false"),
        ({"image": "f", "monitoring": {"labels": {"app.kubernetes.io/part-of": "x"}}}, "monitoring.labels"),
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
    twice = "image: a\nimage: b", "key 'image' is there twice"
    for text, message in (("", "no image"), ("- 1", "no mapping"), ("a: [", "is not YAML"), twice):
        file.write_text(text)
        with pytest.raises(ValuesError, match=message):
            read(file)
    with pytest.raises(ValuesError, match="cannot read"):
        read(tmp_path / "absent.yaml")


def test_values_are_read_as_they_are_written():
    assert parse(msgspec.to_builtins(ALL), "values") == ALL

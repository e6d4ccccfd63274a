"""Components under Pulumi's mocks: what they register, and what they refuse while the program runs."""

import json
import math
import re

import pulumi
import pulumi_kubernetes as kubernetes
import pytest
import yaml

from fairlead.install import History, Values, objects
from fairlead.install import kinds as installer
from fairlead.pulumi import (
    AutoscaledDeployment,
    ClaimTemplate,
    CpuUtilization,
    DeviceClasses,
    DeviceRequest,
    ExpectedWait,
    Fairlead,
    GpuUtilization,
    InvalidArgument,
    MemoryUtilization,
    MigConfig,
    MigDevices,
    MigPolicy,
    Monitoring,
    NodePools,
    NodePoolSpec,
    PoolSize,
    Price,
    PriorityTiers,
    Queue,
    QueueLength,
    QueueResource,
    QueueSpec,
    QueueTree,
    Quota,
    RequestRate,
    ScaleDown,
    ServiceClasses,
    ServiceClassSpec,
    Tier,
    admission_configuration,
    manifests,
)
from testbed import charts

GPU = "nvidia.com/gpu"


def made(component, *arguments, **named):
    """What a component registers."""
    return manifests(lambda: component(*arguments, **named) and None)


def refused(component, *arguments, **named):
    """Why it registers nothing."""
    with pytest.raises(InvalidArgument) as caught:
        made(component, *arguments, **named)
    return str(caught.value)


def guaranteed(name, amount, *children, **more):
    return Queue(name, QueueSpec(resources=[QueueResource(name=GPU, quota=amount, **more)]), list(children))


# -- tiers -------------------------------------------------------------------------------------


def test_tiers_of_ones_own_have_no_quota_unless_asked():
    found = made(PriorityTiers, "t", [Tier("gold", 7), Tier("lead", -3, preempts=False)])
    assert [(each["kind"], each["metadata"]["name"], each["value"]) for each in found] == [
        ("PriorityClass", "gold", 7),
        ("PriorityClass", "lead", -3),
    ]
    assert found[1]["preemptionPolicy"] == "Never"
    assert not any(each["globalDefault"] for each in found)


def test_a_quota_is_of_its_tier_alone():
    tiers = [Tier("gold", 7)]
    found = made(
        PriorityTiers,
        "t",
        tiers,
        {"gold": Quota(gpus=4, pods=9, more={"requests.storage": "1Ti"})},
        "lab",
        create_namespace=False,
    )
    [quota] = [each for each in found if each["kind"] == "ResourceQuota"]
    assert quota["spec"]["hard"] == {"requests.nvidia.com/gpu": "4", "pods": "9", "requests.storage": "1Ti"}
    assert quota["metadata"]["namespace"] == "lab"
    assert not [each for each in found if each["kind"] == "Namespace"]


def test_a_quota_may_be_for_a_class_that_is_there_already():
    found = made(PriorityTiers, "t", [], {"old": Quota(cpu=1)}, existing=["old"])
    assert [each["kind"] for each in found] == ["Namespace", "ResourceQuota"]


@pytest.mark.parametrize(
    ("tiers", "quotas", "said"),
    [
        ([Tier("a", 1), Tier("a", 2)], None, "tier 'a' appears twice"),
        ([Tier("a", 1), Tier("b", 1)], None, "value of two tiers 1 appears twice"),
        ([Tier("a", 1)], {"b": Quota(cpu=1)}, "a quota is for 'b', which is not a tier (a)"),
        ([Tier("system-a", 1)], None, "names that begin with 'system-'"),
        ([Tier("A_b", 1)], None, "tier 'A_b' is not an object name"),
        ([Tier("a", 2_000_000_000)], None, "between -2147483648 and 1000000000"),
        ([Tier("a", True)], None, "give a whole number"),
        ([Tier("a", 1.5)], None, "give a whole number"),
        ([Tier("a", 1, is_default=True), Tier("b", 2, is_default=True)], None, "only one tier can be"),
        ([], None, "there are no tiers"),
        ([Tier("a", 1)], {"a": Quota()}, "limits nothing"),
        (["gold"], None, "tier 'gold' is not a tier; give Tier(name, value)"),
        ({"gold": 5, "silver": 5}, None, "value of two tiers 5 appears twice"),
        ({"gold": "5"}, None, "give a whole number"),
        ([Tier("a", 1)], {"a": Quota(cpu=-1)}, "negative"),
        ([Tier("a", 1)], {"a": Quota(memory="many")}, "'many'"),
        ([Tier("a", 1)], {"a": Quota(gpus=-4)}, "quota of 'a': gpus is -4; give a number at least 0"),
        ([Tier("a", 1)], {"a": Quota(gpus="0.5")}, "quota of 'a': gpus is '0.5'; give a whole number"),
        ([Tier("a", 1)], {"a": Quota(pods="500m")}, "quota of 'a': pods is '500m'; give a whole number"),
    ],
)
def test_tiers_that_would_fail_later_fail_now(tiers, quotas, said):
    assert said in refused(PriorityTiers, "t", tiers, quotas)


def test_the_admission_configuration_names_the_highest_tier_unless_told():
    seen = []
    manifests(lambda: seen.append(PriorityTiers("t").admission_configuration()))
    assert seen == [admission_configuration("high-priority")]
    with pytest.raises(InvalidArgument, match="tier 'gold' does not exist"):
        manifests(lambda: PriorityTiers("t").admission_configuration("gold") and None)


# -- deployments -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"min_replicas": 6}, "min_replicas 6 is above max_replicas 5"),
        ({"min_replicas": 0}, "at least 1"),
        ({"replicas": 9}, "between 2 and 5"),
        ({"requests": {"cpu": "2"}}, "requests of cpu (2) are above its limits (1000m)"),
        ({"requests": {"memory": "1Gi"}, "limits": {}}, "none is requested; add it to `requests`"),
        ({"requests": {"cpu": 1}, "limits": {}, "metrics": [MemoryUtilization()]}, "requested memory, and none is requested"),
        ({"requests": {"cpu": "1 core"}}, "1 core"),
        ({"requests": {"cpu": 1, "amd.com/gpu": 1}}, "amd.com/gpu is requested without a limit"),
        (
            {"requests": {"cpu": 1, "x.io/fpga": 1}, "limits": {"x.io/fpga": 2}},
            "requests of x.io/fpga (1) are not its limits (2)",
        ),
        ({"limits": {"nvidia.com/gpu": "0.5"}}, "limits of nvidia.com/gpu are 0.5; give a whole number"),
        ({"requests": {"cpu": 1, "hugepages-2Mi": "4Mi"}}, "hugepages-2Mi is requested without a limit"),
        ({"metrics": []}, "there are no metrics"),
        ({"metrics": [CpuUtilization(0)]}, "at least 1"),
        ({"metrics": [GpuUtilization(101)]}, "between 1 and 100"),
        ({"metrics": [RequestRate(math.nan)]}, "nan; give a number above zero"),
        ({"metrics": [RequestRate(-1)]}, "above zero"),
        ({"metrics": [QueueLength("Q")]}, "queue of a metric 'Q' is not an object name"),
        ({"metrics": [ExpectedWait("q", 0)]}, "above zero"),
        ({"scale_down": ScaleDown(3601)}, "between 0 and 3600"),
        ({"scale_down": ScaleDown(pods=0)}, "at least 1"),
        ({"gpus": -1}, "at least 0"),
        ({"gpus": 1.0}, "whole number"),
        ({"app": "Training"}, "is not an object name"),
        ({"image": " "}, "image is empty"),
        ({"queue": "a b"}, "is not an object name"),
        ({"ports": [70000]}, "between 1 and 65535"),
    ],
)
def test_deployments_that_would_fail_later_fail_before_anything_is_registered(arguments, said, monkeypatch):
    register = pulumi.ComponentResource.__init__

    def watched(self, *given, **named):
        assert not isinstance(self, AutoscaledDeployment), "it is registered already"
        register(self, *given, **named)

    monkeypatch.setattr(pulumi.ComponentResource, "__init__", watched)
    assert said in refused(AutoscaledDeployment, "d", **arguments)


def test_the_next_update_leaves_the_number_of_replicas_to_the_autoscaler():
    import pulumi

    seen = []

    class Watching(AutoscaledDeployment):
        pass

    def look(arguments):
        if arguments.type_ == "kubernetes:apps/v1:Deployment":
            seen.append(arguments.opts.ignore_changes)

    def program():
        pulumi.runtime.register_stack_transformation(look)
        Watching("d")

    manifests(program)
    assert seen == [["spec.replicas"]]


# -- our own objects ---------------------------------------------------------------------------


def test_a_tree_says_each_queues_parent():
    found = made(QueueTree, "q", [guaranteed("a", 8, guaranteed("b", 4, guaranteed("c", "2")), guaranteed("d", 4))])
    assert {each["metadata"]["name"]: each["spec"].get("parent") for each in found} == {"a": None, "b": "a", "c": "b", "d": "a"}


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        ([guaranteed("a", 8, guaranteed("a", 4))], "queue 'a' appears twice"),
        ([guaranteed("a", 8, guaranteed("b", 5), guaranteed("c", 4))], "guaranteed 9 nvidia.com/gpu together, it has 8"),
        ([guaranteed("a", 8, limit=4)], "its quota of 8 nvidia.com/gpu is above its limit of 4"),
        ([guaranteed("a", -8)], "-8"),
        ([guaranteed("a", "150 GPUs")], "150 GPUs"),
        ([guaranteed("a", "x%")], "x"),
        ([Queue("a", QueueSpec(parent="b"))], "leave `parent` out"),
        ([Queue("a", QueueSpec(priority="high"))], "Expected `int`"),
        ([Queue("A")], "is not an object name"),
        ([Queue("a", QueueSpec(resources=[QueueResource(name=GPU), QueueResource(name=GPU)]))], "appears twice"),
    ],
)
def test_trees_that_would_fail_later_fail_now(queues, said):
    assert said in refused(QueueTree, "q", queues)


def test_percentages_are_compared_with_nothing():
    assert len(made(QueueTree, "q", [guaranteed("a", "50%", guaranteed("b", 9999))])) == 2


def test_classes_of_unknown_priority_and_two_defaults_are_refused():
    known = {"a": ServiceClassSpec(priority_class_name="gold")}
    assert "priority class 'gold', which does not exist; existing: lead" in refused(ServiceClasses, "s", known, ["lead"])
    twice = {name: ServiceClassSpec(default_for=["Training"]) for name in "ab"}
    assert "both the default for Training jobs" in refused(ServiceClasses, "s", twice)
    assert "maxWait" in refused(ServiceClasses, "s", {"a": ServiceClassSpec(max_wait="soon")})


def _mig(devices, **fields):
    return MigPolicy(gpus_per_node=8, configs=[MigConfig(name="a", devices=[devices])], **fields)


def test_a_pool_has_a_policy_for_mig():
    spec = NodePoolSpec(mig=_mig(MigDevices(mig_devices={"1g.5gb": 7}), settle="1m"))
    [found] = made(NodePools, "p", {"a100": spec})
    assert found["spec"]["mig"] == {
        "gpusPerNode": 8,
        "configs": [{"name": "a", "devices": [{"migDevices": {"1g.5gb": 7}}]}],
        "settle": "1m",
    }


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (NodePoolSpec(price=Price(per_node_hour=-1.0)), "price per node and hour is -1.0"),
        (NodePoolSpec(price=Price(per_node_hour=math.nan)), "is nan"),
        (NodePoolSpec(price=Price(per_node_hour="two")), "'two'"),
        (NodePoolSpec(price=Price(per_node_hour=1.0, currency="Dollars")), "currency"),
        (NodePoolSpec(price=Price(per_node_hour=1.0, kind="Cheap")), "kind"),
        (NodePoolSpec(), "has no price"),
        (NodePoolSpec(price=Price(per_node_hour=1.0), size=PoolSize(min=3, max=2)), "size.min 3 is above size.max 2"),
        (NodePoolSpec(price=Price(per_node_hour=1.0), mig=_mig(MigDevices(devices=[8]))), "mig: config 'a' names GPU 8"),
        (NodePoolSpec(price=Price(per_node_hour=1.0), mig=_mig(MigDevices(), settle="soon")), "settle"),
    ],
)
def test_pools_that_would_fail_later_fail_now(spec, said):
    assert said in refused(NodePools, "p", {"h100": spec}, priced=True)


# -- the platform ------------------------------------------------------------------------------


def kinds(found, kind):
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def test_what_is_not_wanted_is_not_installed():
    found = made(Fairlead, image="fairlead:1", visibility=False, external_metrics=False)
    assert not kinds(found, "APIService")
    [scheduler] = kinds(found, "Deployment")["fairlead-scheduler"]["spec"]["template"]["spec"]["containers"]
    assert scheduler["args"] == ["scheduler", "--address", "0.0.0.0:10259"]


def test_a_database_url_is_kept_in_a_secret():
    found = made(Fairlead, image="fairlead:1", history_url="postgresql://u:p@db/f")
    [operator] = kinds(found, "Deployment")["fairlead-operator"]["spec"]["template"]["spec"]["containers"]
    key = {"secretKeyRef": {"name": "fairlead-history", "key": "url"}}
    assert {"name": "FAIRLEAD_DATABASE", "valueFrom": key} in operator["env"]
    assert "postgresql" not in str(operator)
    assert "fairlead-history" in kinds(found, "Secret")


def test_one_operator_writes_a_database_on_a_volume():
    found = made(Fairlead, image="fairlead:1", history_storage="5Gi", replicas=3)
    deployments = kinds(found, "Deployment")
    assert (deployments["fairlead-scheduler"]["spec"]["replicas"], deployments["fairlead-operator"]["spec"]["replicas"]) == (3, 1)
    assert deployments["fairlead-operator"]["spec"]["strategy"] == {"type": "Recreate"}


def test_the_platform_is_what_would_be_installed():
    found = made(Fairlead, image="fairlead:1", namespace="ai", external_metrics=False, trusted=["ray"], history_storage="5Gi")
    values = Values(image="fairlead:1", namespace="ai", trusted=["ray"], history=History(storage="5Gi"))
    assert {installer.path(each): each for each in found} == {installer.path(each): each for each in objects(values)}


def test_a_second_release_is_what_would_be_installed():
    configuration = {"profiles": [{"schedulerName": "blue", "profile": "ai"}]}
    more = {"release": "blue", "namespace": "ai", "visibility": False, "external_metrics": False, "configuration": configuration}
    found = made(Fairlead, image="fairlead:1", history_url="postgresql://u:p@db/f", **more)
    values = Values(
        image="fairlead:1",
        name="blue",
        namespace="ai",
        crds=False,
        aggregated_api=False,
        configuration=configuration,
        history=History(secret_name="blue-history"),
    )
    secret = kinds(found, "Secret")["blue-history"]
    found = {installer.path(each): each for each in found if each is not secret}
    assert found == {installer.path(each): each for each in objects(values)}
    assert "externalMetrics: a cluster has it once" in refused(Fairlead, image="f", **{**more, "external_metrics": True})


def test_an_image_may_be_known_later_and_a_database_listen_elsewhere():
    def program():
        Fairlead(image=pulumi.Output.from_input("fairlead:2"), history_url="mysql://db/f", history_port=3306)

    found = manifests(program)
    for each in kinds(found, "Deployment").values():
        assert each["spec"]["template"]["spec"]["containers"][0]["image"] == "fairlead:2"
    assert "3306" in str(kinds(found, "NetworkPolicy")["fairlead-operator"])


def test_manifests_of_ones_own_take_the_place_of_ours_and_their_roles_are_bound():
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "fairlead-scheduler"},
        "rules": [],
    }
    found = made(Fairlead, image="fairlead:0.9", manifests=[role])
    assert not kinds(found, "CustomResourceDefinition")
    assert list(kinds(found, "ClusterRole")) == ["fairlead-scheduler"]
    assert kinds(found, "ClusterRoleBinding")["fairlead-scheduler"]["subjects"][0]["name"] == "fairlead-scheduler"
    assert list(kinds(found, "ClusterRoleBinding")) == ["fairlead-scheduler"]
    assert {"fairlead-scheduler", "fairlead-operator"} == set(kinds(found, "Deployment")) == set(kinds(found, "ServiceAccount"))


def test_the_roles_of_charts_are_bound_to_the_accounts_that_use_them():
    given = [yaml.safe_load(text) for file in ("rbac", "visibility") for text in charts.files()[f"{file}.yaml"].split("---\n")]
    found = made(Fairlead, image="fairlead:0.9", manifests=given, external_metrics=False)
    bound = {(each["kind"], each["metadata"]["name"]): each["subjects"][0]["name"] for each in found if "roleRef" in each}
    for role in ("fairlead-scheduler", "fairlead-visibility-server"):
        assert bound["ClusterRoleBinding", role] == bound["RoleBinding", role] == "fairlead-scheduler"
    assert bound["ClusterRoleBinding", "fairlead-operator"] == "fairlead-operator"
    assert ("ClusterRoleBinding", "fairlead-visibility") not in bound
    assert kinds(found, "Service")["fairlead-visibility"]["metadata"]["namespace"] == "fairlead-system"


def test_the_installation_of_another_version_is_applied_as_it_is():
    given = objects(Values(image="fairlead:0.9", aggregated_api=False))
    found = made(Fairlead, image="fairlead:0.9", manifests=given, visibility=False, external_metrics=False)
    assert {installer.path(each): each for each in found} == {installer.path(each): each for each in given}


def test_manifests_that_are_none_are_refused():
    assert "is not a manifest" in refused(Fairlead, image="f", manifests=[{"kind": "Role"}])


def test_a_platform_with_two_histories_or_without_an_image_is_refused():
    assert "give one of them" in refused(Fairlead, image="f", history_url="sqlite://", history_storage="1Gi")
    assert "image is empty" in refused(Fairlead, image="")
    assert "is not a list of names" in refused(Fairlead, image="f", provisioning_classes="small")


def test_provisioning_classes_are_for_the_policies_and_for_the_operator():
    found = made(Fairlead, image="fairlead:1", provisioning_classes=["small", "large.autoscaling"])
    arguments = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]["containers"][0]["args"]
        for each in found
        if each["kind"] == "Deployment"
    }
    given = ["--provisioning-class=small", "--provisioning-class=large.autoscaling"]
    assert arguments["fairlead-operator"][-2:] == given
    assert "--provisioning-class" not in arguments["fairlead-scheduler"]
    [policy] = [
        each
        for each in found
        if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] == "fairlead-provisioning"
    ]
    assert all(name in policy["spec"]["validations"][0]["expression"] for name in ("small", "large.autoscaling"))


def test_both_processes_and_the_policies_know_the_configured_names():
    given = {"profiles": [{"schedulerName": "gpus", "profile": "ai"}], "gpuSharing": {"agents": ["slicer"]}}
    found = made(Fairlead, image="fairlead:1", configuration=given, history_storage="1Gi")
    [file] = kinds(found, "ConfigMap")["fairlead-configuration"]["data"].values()
    assert yaml.safe_load(file).items() >= given.items()
    for process in ("scheduler", "operator"):
        pod = kinds(found, "Deployment")[f"fairlead-{process}"]["spec"]["template"]["spec"]
        assert {"name": "FAIRLEAD_CONFIG", "value": "/etc/fairlead/configuration.yaml"} in pod["containers"][0]["env"]
        assert "/etc/fairlead" in [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]
        assert "fairlead-configuration" in str(pod["volumes"])
    assert "FAIRLEAD_DATABASE" in str(kinds(found, "Deployment")["fairlead-operator"])
    replicas = {name: each["spec"]["replicas"] for name, each in kinds(found, "Deployment").items()}
    assert replicas == {"fairlead-scheduler": 2, "fairlead-operator": 1}
    assert "'gpus'" in str(kinds(found, "ValidatingAdmissionPolicy"))
    assert "is listed twice" in refused(Fairlead, image="f", configuration={"profiles": given["profiles"] * 2})
    assert "configuration:" in refused(Fairlead, image="f", configuration={"profile": []})


# -- monitoring --------------------------------------------------------------------------------


def test_rules_and_dashboards_are_config_maps_unless_there_is_an_operator_for_them():
    found = made(Monitoring, namespace="watch", runbook="https://r")
    maps = kinds(found, "ConfigMap")
    assert set(maps) == {"fairlead-rules", "fairlead-queues-dashboard", "fairlead-cluster-dashboard"}
    alerts = yaml.safe_load(maps["fairlead-rules"]["data"]["rules.yaml"])["groups"][1]["rules"]
    assert all(each["annotations"]["runbook_url"].startswith("https://r#") for each in alerts)
    assert json.loads(maps["fairlead-queues-dashboard"]["data"]["fairlead-queues.json"])["uid"] == "fairlead-queues"
    services = kinds(found, "Service")
    assert services["fairlead-scheduler-metrics"]["metadata"]["annotations"]["prometheus.io/port"] == "10259"


def test_with_the_prometheus_operator_what_selects_matches_what_is_selected():
    found = made(Monitoring, prometheus_operator=True, with_dashboards=False, labels={"release": "prometheus"})
    [monitor] = kinds(found, "ServiceMonitor").values()
    assert not kinds(found, "ConfigMap")
    assert kinds(found, "PrometheusRule")["fairlead"]["metadata"]["labels"] == {"app": "fairlead", "release": "prometheus"}
    wanted = monitor["spec"]["selector"]["matchLabels"]
    for service in kinds(found, "Service").values():
        assert service["metadata"]["labels"].items() >= wanted.items()


def test_an_empty_runbook_is_refused():
    assert "runbook is empty" in refused(Monitoring, runbook=" ")


# -- programs without names ----------------------------------------------------------------------


def unnamed():
    kubernetes.core.v1.Namespace("team", metadata={"labels": {"a": "b"}})
    kubernetes.core.v1.ConfigMap("bare", data={"a": "b"})
    kubernetes.core.v1.ConfigMap("generated", metadata={"generate_name": "prefix-"}, data={})
    first = kubernetes.core.v1.ConfigMap("first", metadata={"namespace": "x"}, data={})
    kubernetes.core.v1.ConfigMap("second", metadata={"name": "second"}, data={"of": first.metadata.apply(lambda each: each.name)})
    kubernetes.core.v1.ConfigMap("x" * 300, data={})


def test_what_a_program_does_not_name_is_named_as_by_the_provider_and_alike_each_time():
    found = manifests(unnamed)
    assert found == manifests(unnamed)
    names = {each["metadata"]["name"]: each for each in found}
    assert len(names) == len(found) == 6
    for prefix in ("team", "bare", "prefix", "first"):
        [name] = [each for each in names if each.startswith(f"{prefix}-")]
        assert re.fullmatch(rf"{prefix}-[0-9a-f]{{8}}", name)
    assert max(len(each) for each in names) == 253
    assert names["second"]["data"]["of"] in names
    assert not any("generateName" in each["metadata"] for each in found)


# -- devices -----------------------------------------------------------------------------------


def test_device_classes_and_templates_are_as_kubernetes_has_them():
    (found,) = made(DeviceClasses, "d", {"gpu": ['device.driver == "gpu.nvidia.com"']})
    assert (found["kind"], found["metadata"]["name"]) == ("DeviceClass", "gpu")
    assert found["spec"]["selectors"] == [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]
    whole = DeviceRequest("whole", "gpu")
    half = DeviceRequest("half", "mig", 2, ['device.attributes["gpu.nvidia.com"].profile == "3g.20gb"'])
    share = DeviceRequest("share", "gpu", None, capacity={"memory": "10Gi"})
    requests = [DeviceRequest("either", alternatives=[whole, half]), share]
    (template,) = made(ClaimTemplate, "t", requests, "team", match=["gpu.nvidia.com/pcieRoot"], distinct=["x.org/a"])
    assert (template["kind"], template["metadata"]) == ("ResourceClaimTemplate", {"name": "t", "namespace": "team"})
    devices = template["spec"]["spec"]["devices"]
    assert [each["name"] for each in devices["requests"][0]["firstAvailable"]] == ["whole", "half"]
    assert devices["requests"][0]["firstAvailable"][1]["count"] == 2
    assert devices["requests"][1]["exactly"]["allocationMode"] == "All"
    assert devices["requests"][1]["exactly"]["capacity"] == {"requests": {"memory": "10Gi"}}
    assert devices["constraints"] == [{"matchAttribute": "gpu.nvidia.com/pcieRoot"}, {"distinctAttribute": "x.org/a"}]


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([], "1 to 32 requests, not 0"),
        ([DeviceRequest("a", "gpu"), DeviceRequest("a", "gpu")], "name of two requests"),
        ([DeviceRequest("a", "gpu", 0)], "count of 'a'"),
        ([DeviceRequest("a", "")], "device class of request 'a'"),
        ([DeviceRequest("a", "gpu", alternatives=[DeviceRequest("b", "gpu")])], "has alternatives and a class"),
        ([DeviceRequest("a", alternatives=[DeviceRequest("b", alternatives=[DeviceRequest("c", "gpu")])])], "has alternatives"),
        ([DeviceRequest("a", "gpu", selectors=["device.driver =="])], "selector 'device.driver ==' is refused at 1:"),
    ],
)
def test_claim_templates_that_would_fail_later_fail_now(requests, said):
    assert said in refused(ClaimTemplate, "t", requests, "team")


def test_device_classes_that_would_fail_later_fail_now():
    assert "no device classes" in refused(DeviceClasses, "d", {})
    assert "is refused at" in refused(DeviceClasses, "d", {"gpu": ["device.nothing"]})
    assert "needs its domain" in refused(ClaimTemplate, "t", [DeviceRequest("a", "gpu")], "team", match=["pcieRoot"])

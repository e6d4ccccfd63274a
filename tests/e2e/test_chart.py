"""The chart with the real Helm on a real API server, in namespaces that enforce `restricted`; the test plays the kubelet."""

from __future__ import annotations

import base64
import random
import shutil
import subprocess
import sys

import pytest
import yaml

import fairlead
from fairlead.api.names import GROUP
from fairlead.install import NAMESPACE, kinds
from fairlead.install.accounts import usernames
from fairlead.install.apply import rolled_out
from fairlead.install.objects import MANAGED_BY, MANAGER, SECURITY
from fairlead.install.values import SYSTEM, ValuesError, parse
from testbed import objects as made
from testbed.chart import files, render, rendered
from testbed.controlplane import ControlPlane
from testbed.kubelet import Kubelet, audit_flags, audited
from tests.install.test_chart import MISSPELT
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.chart]

IMAGE = "registry.example/fairlead:0.1"
CONTROLLERS = (
    "clusterrole-aggregation-controller,namespace-controller,deployment-controller,replicaset-controller,"
    "serviceaccount-controller,root-ca-certificate-publisher-controller,garbage-collector-controller"
)
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMES = {"profiles": [{"schedulerName": "gpus", "profile": "ai"}, {"schedulerName": "others", "profile": "kubernetes"}]}
SETS = {
    "defaults": {},
    "one": {"replicas": 1, "requests": {"cpu": "100m"}},
    "system": {"namespace": SYSTEM, "externalMetrics": True},
    "system-least": {"namespace": SYSTEM, "aggregatedApi": False, "networkPolicies": False, "admissionPolicies": False},
    "elsewhere": {"namespace": "batch", "trusted": ["system:serviceaccount:ray:kuberay-operator", "o'neil"]},
    "volume": {"history": {"storage": "1Gi"}, "prometheus": "http://prometheus.monitoring:9090"},
    "database": {"history": {"secretName": "database"}, "apiServerPorts": [6443]},
    "names": {"configuration": NAMES, "requireScheduler": True},
    "watched": {
        "monitoring": {"serviceMonitor": True, "rules": True, "labels": {"release": "prometheus"}},
        "namespaceDefaults": True,
    },
    "nodes": {"provisioningClasses": ["check-capacity.autoscaling.x-k8s.io", "small"], "externalMetrics": True},
    "quiet": {"aggregatedApi": False, "history": {"storage": "1Gi"}, "configuration": {"events": False}},
    "everything": {
        "imagePullSecrets": ["registry"],
        "namespace": "batch",
        "replicas": 3,
        "externalMetrics": True,
        "configuration": {**NAMES, "retries": {"backoffSeconds": 2.0}},
        "trusted": ["ann"],
        "history": {"secretName": "database", "key": "uri", "port": 6432},
        "prometheus": "https://prometheus.monitoring/path",
    },
}
ONCE = ("crds", "aggregatedApi", "externalMetrics", "requireScheduler", "namespaceDefaults")
"""What a cluster has once."""
SECOND = {
    "image": IMAGE,
    "name": "blue",
    "namespace": "batch",
    "configuration": {"profiles": [{"schedulerName": "blue", "profile": "ai"}]},
    **dict.fromkeys(ONCE, False),
}
SECRET = {"url": "sqlite:////tmp/history.db", "uri": "sqlite:////tmp/history.db"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("chart")


@pytest.fixture(scope="module")
def plane(folder):
    accounts = [each for namespace in (NAMESPACE, SYSTEM, "batch") for each in usernames(namespace)]
    with ControlPlane(CONTROLLERS, flags=audit_flags(folder, *accounts)) as running:
        running.await_served("/api/v1/namespaces/default/serviceaccounts/default")
        for plural, kind in (("servicemonitors", "ServiceMonitor"), ("prometheusrules", "PrometheusRule")):
            running.request("POST", DEFINITIONS, of_prometheus(plural, kind))
            running.await_served(f"/apis/monitoring.coreos.com/v1/{plural}")
        yield running


def of_prometheus(plural, kind):
    """The definition of a kind of the Prometheus operator, which takes anything."""
    group, anything = "monitoring.coreos.com", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": {"kind": kind, "plural": plural}, "scope": "Namespaced", "versions": [version]},
    }


@pytest.fixture
def release(plane, tmp_path):
    """Installs one, and removes it in the end with its definitions."""
    namespaces = []

    def install(values, chart=files.FOLDER, more=()):
        namespace = values.get("namespace", NAMESPACE)
        prepare(plane, namespace)
        arguments = ("install", "fairlead", str(chart), "--namespace", namespace, *more)
        done = render.helm(*arguments, values=values, kubeconfig=plane.kubeconfig)
        namespaces.append(namespace)
        assert (done.returncode, done.stderr) == (0, "")
        return done

    yield install
    for namespace in namespaces:
        uninstall(plane, namespace)
    for each in ours(plane):
        plane.request("DELETE", f"{DEFINITIONS}/{each['metadata']['name']}")
    until(lambda: not ours(plane), limit=120.0)


def ours(plane):
    return [each for each in plane.request("GET", DEFINITIONS)["items"] if each["spec"]["group"] == GROUP]


def prepare(plane, namespace):
    if namespace != SYSTEM:
        plane.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": SECURITY}})
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "database", "namespace": namespace},
        "stringData": SECRET,
    }
    if plane.find(f"/api/v1/namespaces/{namespace}/secrets/database") is None:
        plane.request("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)


def uninstall(plane, namespace):
    done = render.helm("uninstall", "fairlead", "--namespace", namespace, "--ignore-not-found", kubeconfig=plane.kubeconfig)
    assert done.returncode == 0, done.stderr
    pods = f"/api/v1/namespaces/{namespace}/pods"
    until(lambda: not [each for each in plane.request("GET", pods)["items"] if each["metadata"].get("labels", {}).get("app")])


def drawn(seed):
    """Values of a seed, with texts in which everything is that YAML, CEL or Go's templates could mistake."""
    draw = random.Random(seed)
    texts = ["a", "o'neil", 'q"uote', "back\\slash", "{{", "}}", "#x", "*", "&a", "yes", "1e3", "ü", "a:b", "[", "-", "%41", "`"]

    def some(*of, most=3):
        return draw.sample(of, draw.randint(0, min(most, len(of))))

    optional = {
        "namespace": lambda: draw.choice([SYSTEM, NAMESPACE, "x"]),
        "imagePullSecrets": lambda: some("a", "1e3", "0", "true"),
        "replicas": lambda: draw.randint(1, 9),
        "crds": lambda: draw.random() < 0.2,
        "admissionPolicies": lambda: draw.random() < 0.7,
        "configuration": lambda: draw.choice(
            [
                NAMES,
                {"profiles": [{"schedulerName": each, "profile": "ai"} for each in draw.sample(texts, draw.randint(1, 3))]},
                {"preemption": False, "fairShare": {"shareWaitSeconds": 7.0, "usageWeight": 0.25}, "address": "<&>"},
                {
                    "placement": {"strategy": "fgd", "strategyOptions": {"target": [1, 2.5, None, {"b": True}, {}]}},
                    "writers": 100,
                },
            ]
        ),
        "trusted": lambda: some(*texts),
        "provisioningClasses": lambda: some("small", "check-capacity.autoscaling.x-k8s.io", "yes", "1e3"),
        "requireScheduler": lambda: draw.random() < 0.5,
        "otherSchedulers": lambda: some(*texts),
        "aggregatedApi": lambda: draw.random() < 0.5,
        "externalMetrics": lambda: draw.random() < 0.5,
        "history": lambda: draw.choice(
            [
                {"storage": "5Gi"},
                {"secretName": "s"},
                {"secretName": "t", "key": draw.choice(texts), "port": draw.randint(1, 65535)},
            ]
        ),
        "prometheus": lambda: draw.choice(
            ["", "http://p", "https://p.x/y", "http://p:443", "http://p:9090/x?y=%41", "https://p:1"]
        ),
        "namespaceDefaults": lambda: draw.random() < 0.5,
        "monitoring": lambda: {
            "serviceMonitor": draw.random() < 0.5,
            "rules": draw.random() < 0.5,
            "runbook": draw.choice(texts),
            "labels": dict.fromkeys(some(*texts), draw.choice(["", "a", "1e3", "yes"])),
        },
        "networkPolicies": lambda: draw.random() < 0.7,
        "apiServerPorts": lambda: draw.choices([443, 6443, 80, 9090, 5432], k=draw.randint(1, 4)),
        "requests": lambda: draw.choice([{}, {"cpu": "2"}, {"memory": "1.5Gi", "example.com/x": "1e3"}]),
    }
    chosen = {name: make() for name, make in optional.items() if draw.random() < 0.5}
    if not chosen.get("admissionPolicies", True):
        chosen |= {"requireScheduler": False, "namespaceDefaults": False}
    if draw.random() < 0.35:
        profiles = [{"schedulerName": each, "profile": "ai"} for each in draw.sample(texts, draw.randint(1, 3))]
        chosen |= {"name": draw.choice(["blue", "b", "true", "1e3", "0", "a-b"]), **dict.fromkeys(ONCE, False)}
        chosen["configuration"] = {**chosen.get("configuration", {}), "profiles": profiles}
        chosen["monitoring"] = {**chosen.get("monitoring", {}), "rules": False}
    return {"crds": False, **chosen, "image": draw.choice(["f", "a.b/c@sha256:0", *texts])}


@pytest.mark.parametrize("seed", range(100))
def test_helm_renders_what_fairlead_installs(seed):
    values = drawn(seed)
    read = parse(values, str(seed))
    assert render.text(render.rendered(values, read.namespace)) == render.text(render.expected(read)), values


@pytest.mark.parametrize("name", SETS)
def test_the_command_prints_the_same_bytes(name, tmp_path):
    """But for the namespace, the label by which the command finds its objects again, and what keeps Helm from deleting."""
    values = {"image": IMAGE, **SETS[name]}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    command = [sys.executable, "-m", "fairlead", "install", "--dry-run", "--values", str(tmp_path / "values.yaml")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    wanted = []
    for each in yaml.load_all(printed, yaml.CSafeLoader):
        assert each["metadata"]["labels"].pop(MANAGED_BY) == MANAGER
        wanted += [files.of_chart(each)] if each["kind"] != "Namespace" else []
    assert render.text(render.rendered(values, values.get("namespace", NAMESPACE))) == render.text(wanted)


def test_the_chart_is_what_helm_expects_of_one(tmp_path):
    values = {"image": IMAGE}
    done = render.helm("lint", "--strict", str(files.FOLDER), values=values)
    assert done.returncode == 0, done.stdout
    assert render.helm("package", str(files.FOLDER), "--destination", str(tmp_path)).returncode == 0
    assert [each.name for each in tmp_path.iterdir()] == [f"fairlead-{fairlead.__version__}.tgz"]
    partly = tmp_path / "umbrella"
    shutil.copytree(files.FOLDER, partly / "charts" / "fairlead")
    (partly / "Chart.yaml").write_text("apiVersion: v2\nname: umbrella\nversion: 1.0.0\n")
    done = render.helm("template", "all", str(partly), values={"global": {"a": 1}, "fairlead": values})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", rendered.SETS)
def test_what_is_checked_in_is_what_helm_renders(name):
    values = rendered.SETS[name]
    found = render.text(render.rendered(values, values.get("namespace", NAMESPACE)))
    assert (rendered.FOLDER / f"{name}.yaml").read_text() == rendered.head(name) + found, "run `make rendered`"


def test_misspelt_values_are_refused():
    assert len(MISSPELT) >= 20
    for values in MISSPELT:
        with pytest.raises(ValueError, match="values don't meet the specifications of the schema"):
            render.rendered(values, NAMESPACE)
    with pytest.raises(ValueError, match="missing property 'image'"):
        render.rendered({}, NAMESPACE)
    with pytest.raises(ValueError, match="install it with --namespace batch"):
        render.rendered({"image": "f", "namespace": "batch"}, NAMESPACE)
    with pytest.raises(ValueError, match="admissionPolicies is false"):
        render.rendered({"image": "f", "namespaceDefaults": True, "admissionPolicies": False}, NAMESPACE)
    for more in ({"crds": True}, {"aggregatedApi": True}, {"externalMetrics": True}, {"monitoring": {"rules": True}}):
        with pytest.raises(ValueError, match="a cluster has it"):
            render.rendered({**SECOND, **more}, "batch")
        with pytest.raises(ValuesError, match="a cluster has it once"):
            parse({**SECOND, **more}, "values")
    for configuration in ({}, {"profiles": [{"schedulerName": "fairlead", "profile": "ai"}]}):
        with pytest.raises(ValueError, match="give blue scheduler names of its own"):
            render.rendered({**SECOND, "configuration": configuration}, "batch")
        with pytest.raises(ValuesError):
            parse({**SECOND, "configuration": configuration}, "values")


@pytest.mark.parametrize("name", SETS)
def test_a_release_becomes_ready_without_a_warning(name, plane, release, folder, tmp_path):
    values = {"image": IMAGE, **SETS[name]}
    namespace = values.get("namespace", NAMESPACE)
    release(values)
    wanted = render.expected(parse(values, name))
    for each in wanted:
        assert plane.find(kinds.path(each)) is not None, kinds.path(each)
    before = len(audited(folder))
    with Kubelet(plane, tmp_path, namespace) as kubelet:
        deployments = [kinds.path(each) for each in wanted if each["kind"] == "Deployment"]
        until(lambda: all(rolled_out(plane.find(path)) for path in deployments), kubelet.logs, limit=120.0)
        asked = audited(folder)[before:]
        assert {each["user"]["username"] for each in asked} == set(usernames(namespace))
        assert [each["requestURI"] for each in asked if each["responseStatus"]["code"] in (401, 403)] == []
        uninstall(plane, namespace)
    endpoints = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    until(lambda: not plane.request("GET", endpoints)["items"])
    left = [each for each in wanted if plane.find(kinds.path(each)) is not None]
    assert left == [each for each in wanted if each["kind"] in files.KEPT]


def test_a_second_release_is_installed_and_uninstalled_beside_the_first(plane, release):
    """Helm refuses to install what another release has."""
    first, second = {"image": IMAGE}, SECOND
    release(first)
    prepare(plane, "batch")
    arguments = ("install", "second", str(files.FOLDER), "--namespace", "batch")
    done = render.helm(*arguments, values=second, kubeconfig=plane.kubeconfig)
    assert (done.returncode, done.stderr) == (0, "")
    ones, others = ([kinds.path(each) for each in render.expected(parse(values, "values"))] for values in (first, second))
    assert all(plane.find(path) is not None for path in (*ones, *others))
    done = render.helm("uninstall", "second", "--namespace", "batch", kubeconfig=plane.kubeconfig)
    assert done.returncode == 0, done.stderr
    assert [path for path in others if plane.find(path) is not None] == []
    assert all(plane.find(path) is not None for path in ones)


def test_what_fairlead_installed_is_taken_over(plane, release):
    """Definitions stay when it is uninstalled; Helm takes what another one made only if it is asked to."""
    asked = ("install", "--image", IMAGE, "--kubeconfig", str(plane.kubeconfig), "--values", "/dev/stdin", "--timeout", "0")
    values = yaml.safe_dump({"namespace": "first", "aggregatedApi": False})
    done = subprocess.run([sys.executable, "-m", "fairlead", *asked], input=values, capture_output=True, text=True, check=False)
    assert "scheduler and operator do not run after 0 s" in done.stderr
    asked = ("uninstall", "--kubeconfig", str(plane.kubeconfig))
    subprocess.run([sys.executable, "-m", "fairlead", *asked], capture_output=True, text=True, check=True)
    release({"image": IMAGE, "namespace": "second"}, more=["--take-ownership"])


def test_an_upgrade_changes_the_definitions_and_uninstalling_keeps_what_users_made(plane, release, tmp_path):
    previous = tmp_path / "previous"
    shutil.copytree(files.FOLDER, previous)
    chart = previous / "Chart.yaml"
    chart.write_text(chart.read_text().replace("version: 0.1.0", "version: 0.0.9", 1))
    definitions = previous / "templates" / "definitions.yaml"
    text = definitions.read_text()
    assert "    shortNames:\n      - aj\n" in text
    definitions.write_text(text.replace("    shortNames:\n      - aj\n", "    shortNames:\n      - old\n"))
    path = f"{DEFINITIONS}/aijobs.fairlead.dev"
    release({"image": IMAGE}, previous)
    assert plane.request("GET", path)["spec"]["names"]["shortNames"] == ["old"]
    plane.await_served("/apis/fairlead.dev/v1alpha1/queues")
    plane.ensure(made.queue("default"))
    arguments = ("upgrade", "fairlead", str(files.FOLDER), "--namespace", NAMESPACE)
    done = render.helm(*arguments, values={"image": IMAGE, "history": {"storage": "1Gi"}}, kubeconfig=plane.kubeconfig)
    assert (done.returncode, done.stderr) == (0, "")
    assert plane.request("GET", path)["spec"]["names"]["shortNames"] == ["aj"]
    secrets = plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets")["items"]
    sizes = [len(base64.b64decode(each["data"]["release"])) for each in secrets if each["type"] == "helm.sh/release.v1"]
    assert len(sizes) == 2
    assert max(sizes) < 400_000  # of 1 MiB that a Secret may have
    done = render.helm("uninstall", "fairlead", "--namespace", NAMESPACE, kubeconfig=plane.kubeconfig)
    assert done.returncode == 0, done.stderr
    assert plane.find("/apis/fairlead.dev/v1alpha1/queues/default") is not None
    assert plane.find(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/fairlead-history") is not None
    release({"image": IMAGE})  # what stayed is of the release of that name
    assert yaml.safe_load(chart.read_text())["version"] == "0.0.9"

"""Two releases on one real API server, installed by `fairlead install`: each runs its own jobs, writes of its own objects only, is
fenced by its own lease, and goes without the other."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import urllib.error
from functools import partial

import pytest
import yaml

from fairlead.install import NAMESPACE, installed, kinds
from fairlead.install.accounts import usernames
from fairlead.install.values import parse
from testbed import objects as made
from testbed.controlplane import ControlPlane
from testbed.kubelet import MERGE, Kubelet, audit_flags, audited
from tests.e2e.planes import with_editor
from tests.waiting import until

pytestmark = pytest.mark.e2e

CONTROLLERS = (
    "clusterrole-aggregation-controller,namespace-controller,deployment-controller,replicaset-controller,"
    "serviceaccount-controller,root-ca-certificate-publisher-controller,garbage-collector-controller"
)
BLUE = "blue-system"
OWNERS = {"a": "fairlead", "b": "blue", "c": "blue", "d": "fairlead", "meanwhile": "blue", "after": "fairlead"}
"""Job -> the release that runs it, which is the name of its scheduler, too."""
FIRST = {
    "image": "registry.example/fairlead:1",
    "trusted": usernames(BLUE, "blue"),
    "requireScheduler": True,
    "otherSchedulers": ["blue"],
}
SECOND = {
    "image": "registry.example/fairlead:2",
    "name": "blue",
    "namespace": BLUE,
    "crds": False,
    "aggregatedApi": False,
    "configuration": {"profiles": [{"schedulerName": "blue", "profile": "ai"}]},
}
USERS = {**dict.fromkeys(usernames(NAMESPACE), "fairlead"), **dict.fromkeys(usernames(BLUE, "blue"), "blue")}
STATUS = re.compile(r"/(queues|podgroups|aijobs|reservations|serviceclasses|nodepools)/([^/?]+)/status")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("releases")


@pytest.fixture(scope="module")
def plane(folder):
    with ControlPlane(CONTROLLERS, flags=audit_flags(folder, *USERS)) as running:
        running.await_served("/api/v1/namespaces/default/serviceaccounts/default")
        yield running


@pytest.fixture
def kubelets(plane, tmp_path):
    with (
        Kubelet(plane, tmp_path / "first", NAMESPACE) as first,
        Kubelet(plane, tmp_path / "second", BLUE, first=100) as second,
    ):
        yield {"fairlead": first, "blue": second}
        for name in ("fairlead", "blue"):  # a namespace ends only while all APIs answer, and here none that is aggregated does
            done = fairlead(plane, "uninstall", "--name", name)
            assert done.returncode == 0, done.stderr


LONG = "600"  # seconds until processes are up on a slow machine


def fairlead(plane, *arguments, values=None):
    command = [sys.executable, "-m", "fairlead", *arguments, "--kubeconfig", str(plane.kubeconfig)]
    command += ["--values", "/dev/stdin"] if values is not None else []
    command += ["--timeout", LONG] if arguments[0] == "install" and "--timeout" not in arguments else []
    text = yaml.safe_dump(values) if values is not None else None
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=900, check=False)


def kubectl(kubeconfig, *arguments, text):
    command = ["kubectl", "--kubeconfig", str(kubeconfig), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)


def refusal(plane, path, manifest):
    """The message with which an object is refused."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        plane.request("POST", path, manifest)
    return refused.value.code, json.loads(refused.value.read())["message"]


def there(plane, values):
    """Which objects of a release are in the cluster, and which should be."""
    wanted = {kinds.path(each) for each in installed(parse(values, "values"))}
    return {path for path in wanted if plane.find(path) is not None}, wanted


def submit(plane, name, namespace, queue=""):
    job = made.ai_job(name, **({"queue": queue} if queue else {}))
    for role in job["spec"]["roles"]:
        del role["template"]["spec"]["schedulerName"]
    plane.request("POST", made.path(job, namespace), job)


def pods_of(plane, namespace, job):
    found = plane.request("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector=fairlead.dev/job={job}")["items"]
    return found if found and all(each["spec"].get("nodeName") for each in found) else None


def annotation(pod, name):
    return pod["metadata"]["annotations"].get(f"fairlead.dev/{name}")


def transitions(plane, lease):
    return plane.request("GET", f"{LEASES}/{lease}")["spec"]["leaseTransitions"]


def bind(plane, name, **annotations):
    """Have a pod of its own bound as a scheduler would; the status of the answer."""
    pod = made.pod(name, gpus=0, scheduler="by-hand")
    plane.request("POST", made.path(pod, "vision"), pod)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": {f"fairlead.dev/{key}": value for key, value in annotations.items()}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    }
    try:
        plane.request("POST", f"/api/v1/namespaces/vision/pods/{name}/binding", binding)
    except urllib.error.HTTPError as error:
        return error.code
    return 201


def prepared(plane):
    """Nodes, queues of both releases, a namespace for each."""
    queues = {"default": {}, "team": {"schedulerName": "blue"}, "below": {"parent": "team"}}
    for name, spec in queues.items():
        queue = made.queue(name)
        queue["spec"] |= spec
        plane.ensure(queue)
    for node in ("n", "m"):
        plane.ensure(made.node(node, gpus=8))
        plane.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": None}}, MERGE)
    for namespace, user in (("vision", "ann"), ("speech", "bea")):
        with_editor(namespace, user)(plane)
        until(lambda namespace=namespace: plane.find(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
    label = {"metadata": {"labels": {"fairlead.dev/default-queue": "below"}}}
    plane.request("PATCH", "/api/v1/namespaces/speech", label, MERGE)


def leader(kubelet, process):
    """The pod of a process that leads."""
    for pod in kubelet.addresses:
        if f"-{process}-" in pod and kubelet.running[pod].poll() is None and '"event": "leading"' in kubelet.log(pod):
            return pod
    return None


def test_two_releases_run_side_by_side(plane, kubelets, folder):
    logs = partial(logs_of, kubelets)
    refused = fairlead(plane, "install", "--check", values=SECOND)
    assert refused.returncode == 1
    assert "`crds` is false: apply what `fairlead crds` prints first" in refused.stdout
    for values in (FIRST, SECOND):
        done = fairlead(plane, "install", values=values)
        assert done.returncode == 0, done.stderr + logs()
    for values in (FIRST, SECOND):
        found, wanted = there(plane, values)
        assert found == wanted
    prepared(plane)
    each_runs_its_jobs(plane, logs)
    pods_are_told_whose_queue_it_is(plane, logs)
    each_is_fenced_by_its_own_lease(plane, kubelets, logs)
    each_writes_of_its_own_objects(folder)
    one_goes_and_the_other_runs_on(plane, kubelets, logs)


def logs_of(kubelets):
    return "\n".join(each.logs() for each in kubelets.values())


def each_runs_its_jobs(plane, logs):
    """In the default queue of the cluster, in that of a namespace, in one that is named."""
    child = made.queue("child")
    child["spec"] |= {"parent": "team", "schedulerName": "fairlead"}
    code, message = refusal(plane, made.path(child), child)
    assert (code, "only a queue without a parent may name a scheduler" in message) == (422, True)
    jobs = {"a": ("vision", ""), "b": ("speech", ""), "c": ("vision", "team"), "d": ("speech", "default")}
    for name, (namespace, queue) in jobs.items():
        submit(plane, name, namespace, queue)
    for name, (namespace, _) in jobs.items():
        release = OWNERS[name]
        for pod in until(partial(pods_of, plane, namespace, name), logs):
            assert pod["spec"]["schedulerName"] == release
            assert annotation(pod, "lease") == ("blue-scheduler" if release == "blue" else None)
            assert annotation(pod, "epoch") is not None
            assert not annotation(pod, "user").startswith("system:serviceaccount")


def pods_are_told_whose_queue_it_is(plane, logs):
    """Where the scheduler of a pod does not serve its queue."""
    for name, scheduler, queue in (("lost", "fairlead", "below"), ("gone", "blue", "default")):
        pod = made.pod(name, scheduler=scheduler, queue=queue)
        plane.request("POST", made.path(pod, "vision"), pod)
        told = until(partial(waits, plane, name), logs)
        assert told["reason"] == "OtherScheduler"
        assert f"queue '{queue}' is served by" in told["message"]
    for scheduler, refused in (("someone", True), ("blue", False), ("fairlead", False)):
        text = json.dumps(made.pod(f"by-{scheduler}", scheduler=scheduler))
        done = kubectl(plane.user("ann", "ann"), "create", "--dry-run=server", "-n", "vision", "-f", "-", text=text)
        assert ("one of fairlead, fairlead-kubernetes, blue" in done.stderr) == (done.returncode != 0) == refused, done.stderr


def each_is_fenced_by_its_own_lease(plane, kubelets, logs):
    """The leader of the first is killed, and its epoch is over; that of the other goes on, and so does its work."""
    old, blue = transitions(plane, "fairlead-scheduler"), transitions(plane, "blue-scheduler")
    kubelets["fairlead"].running[leader(kubelets["fairlead"], "scheduler")].kill()
    submit(plane, "meanwhile", "speech")
    until(partial(pods_of, plane, "speech", "meanwhile"), logs)
    until(lambda: transitions(plane, "fairlead-scheduler") > old, logs)
    assert transitions(plane, "blue-scheduler") == blue
    assert bind(plane, "deposed", epoch=str(old)) == 403
    assert bind(plane, "leads", epoch=str(old + 1)) == 201
    assert bind(plane, "of-blue", epoch=str(blue), lease="blue-scheduler") == 201
    assert bind(plane, "of-blue-before", epoch=str(blue - 1), lease="blue-scheduler") == 403
    submit(plane, "after", "vision")
    until(partial(pods_of, plane, "vision", "after"), logs)


def each_writes_of_its_own_objects(folder):
    """And is refused nothing that it asks for."""
    owned = {"queues": {"default": "fairlead", "team": "blue", "below": "blue"}, "aijobs": OWNERS, "podgroups": OWNERS}
    wrote = set()
    for each in audited(folder):
        release = USERS[each["user"]["username"]]
        assert each["responseStatus"]["code"] not in (401, 403), each
        if (status := STATUS.search(each["requestURI"])) and each["verb"] not in ("get", "list", "watch"):
            kind, name = status.groups()
            assert owned.get(kind, {}).get(name, "fairlead") == release, each["requestURI"]
            wrote.add((kind, name))
    assert wrote >= {*(("queues", each) for each in owned["queues"]), *(("aijobs", each) for each in OWNERS)}


def one_goes_and_the_other_runs_on(plane, kubelets, logs):
    """Then that one goes, too, and what it runs stays."""
    done = fairlead(plane, "uninstall")
    assert done.returncode == 0, done.stderr
    found, wanted = there(plane, SECOND)
    assert found == wanted
    assert leader(kubelets["fairlead"], "scheduler") is None
    submit(plane, "alone", "vision", "team")
    until(partial(pods_of, plane, "vision", "alone"), logs)
    done = fairlead(plane, "uninstall", "--name", "blue")
    assert done.returncode == 0, done.stderr
    assert there(plane, SECOND)[0] == set()
    assert {path.split("/")[4] for path in there(plane, FIRST)[0]} == {"customresourcedefinitions"}
    assert pods_of(plane, "vision", "alone")


def waits(plane, name):
    """The condition that tells why a pod waits."""
    pod = plane.request("GET", f"/api/v1/namespaces/vision/pods/{name}")
    conditions = pod["status"].get("conditions") or ()
    return next((each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"), None)


def test_a_second_release_is_refused_where_the_first_does_not_trust_it(plane, kubelets):
    assert fairlead(plane, "install", "--timeout", "0", values={"image": FIRST["image"]}).returncode == 1
    with contextlib.suppress(AssertionError):
        until(lambda: plane.find("/apis/fairlead.dev/v1alpha1/queues"), limit=10.0)
    refused = fairlead(plane, "install", values=SECOND)
    assert refused.returncode == 1
    assert "do not trust system:serviceaccount:blue-system:blue-scheduler" in refused.stderr
    assert there(plane, SECOND)[0] == set()
    for more, message in (
        ({"aggregatedApi": True}, "aggregatedApi"),
        ({"namespace": NAMESPACE}, "is that of the release fairlead"),
    ):
        refused = fairlead(plane, "install", values={**SECOND, **more})
        assert refused.returncode != 0
        assert message in refused.stderr
    refused = fairlead(plane, "uninstall", "--name", "blue", "--crds")
    assert "--crds: the definitions are those of the release fairlead" in refused.stderr

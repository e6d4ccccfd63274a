"""Claims that wait for their first consumer, with the real controllers that bind them."""

from __future__ import annotations

import pytest

from testbed import objects
from testbed.controlplane import ControlPlane
from tests.e2e.conftest import Cluster
from tests.e2e.planes import USER

pytestmark = pytest.mark.e2e


@pytest.fixture
def cluster(tmp_path):
    with ControlPlane(controllers="persistentvolume-binder-controller,serviceaccount-controller") as plane:
        plane.install(USER)
        made = Cluster(plane, tmp_path)
        made.until(lambda: made.get("/api/v1/namespaces/default/serviceaccounts/default"))
        yield made
        for each in made.schedulers:
            each.kill()


def storage_class(plane):
    plane.request(
        "POST",
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )


def disk(plane, name, host):
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}
    plane.request(
        "POST",
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        },
    )


def claim(plane, namespace, name):
    plane.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/persistentvolumeclaims",
        {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": "local",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "5Gi"}},
            },
        },
    )


def mounts(name, claimed):
    return objects.pod(name, gpus=0, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claimed}}])


def test_volumes_are_bound_before_their_pods(cluster):
    plane = cluster.plane
    storage_class(plane)
    for host in ("n1", "n2"):
        cluster.create(objects.node(host, gpus=0))
        disk(plane, f"disk-{host}", host)
    for number in range(2):
        claim(plane, "default", f"c{number}")
    cluster.scheduler()
    for number in range(2):
        cluster.create(mounts(f"p{number}", f"c{number}"))
    where = cluster.all_placed(2)
    assert sorted(where.values()) == ["n1", "n2"]
    for number in range(2):
        bound = cluster.get(f"/api/v1/namespaces/default/persistentvolumeclaims/c{number}")
        assert bound["status"]["phase"] == "Bound"
        assert bound["spec"]["volumeName"] == f"disk-{where[f'p{number}']}"

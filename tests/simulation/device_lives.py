"""A small simulated cluster with devices, on virtual time, in which the test itself allocates claims and binds pods."""

from __future__ import annotations

import asyncio
import itertools

from fairlead.api import names
from fairlead.cluster.simulated import devices, pod_claims
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.claims import FINALIZER
from fairlead.cluster.simulated.clock import Clock, VirtualLoop
from fairlead.cluster.simulated.controllers import Controllers
from fairlead.cluster.simulated.kubelet import Kubelet
from fairlead.cluster.simulated.resources import CLAIMS, PODS, SLICES

START = 1_767_225_600.0


def run(main):
    """Play a coroutine function on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


class DeviceLife:
    """Nodes with devices; models: by name. Nothing schedules."""

    def __init__(self, models):
        self.api = ApiServer(Clock(start=START, loop=asyncio.get_running_loop()), seed=1)
        self.kubelet = Kubelet(self.api)
        self.controllers = Controllers(self.api)
        self.drivers = self.kubelet.drivers
        self.models = dict(models)
        self.drivers.install(self.models)
        for name in self.models:
            self.add_node(name)
        self._shares = itertools.count(1)

    def add_node(self, name):
        amounts = {"cpu": "64", "memory": "1Ti", "pods": "110"}
        self.create("v1", "nodes", "", {"metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": amounts}})

    def create(self, version, plural, namespace, body):
        return self.api.create(self.api.served(version, plural), namespace, body)

    def claim(self, name, kind="resourceclaims", **asked):
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": devices.GPU_CLASS, **asked}}]}}
        spec = {"spec": spec} if kind == "resourceclaimtemplates" else spec
        self.create(devices.API_VERSION, kind, "default", {"metadata": {"name": name}, "spec": spec})

    def template(self, name, **asked):
        self.claim(name, "resourceclaimtemplates", **asked)

    def pod(self, name, seconds=None, *, scheduler="test", **claims):
        """A pod; claims: name -> claim, or `from-TEMPLATE`."""
        annotations = {names.SIMULATED_DURATION_ANNOTATION: f"{seconds}s"} if seconds is not None else {}
        listed = [
            {"name": each, **({"resourceClaimTemplateName": of[5:]} if of.startswith("from-") else {"resourceClaimName": of})}
            for each, of in claims.items()
        ]
        container = {"name": "main", "image": "x", "resources": {"claims": [{"name": each} for each in claims]}}
        spec = {"containers": [container], "restartPolicy": "Never", "schedulerName": scheduler, "resourceClaims": listed}
        return self.create("v1", "pods", "default", {"metadata": {"name": name, "annotations": annotations}, "spec": spec})

    def get(self, table, name, namespace="default"):
        record = self.api.store.get(table, (namespace, name))
        return None if record is None else record.object

    def phase(self, pod):
        return (self.get(PODS, pod) or {"status": {}})["status"].get("phase", "gone")

    def claims_of(self, pod):
        return pod_claims.used_by(self.get(PODS, pod))

    def allocate(self, claim, node, *found, pods=(), **more):
        """Allocate devices of a node to a claim, and reserve it for pods."""
        resource = self.api.served(devices.API_VERSION, "resourceclaims")
        live = self.get(CLAIMS, claim)
        finalizers = sorted({*(live["metadata"].get("finalizers") or ()), FINALIZER})
        live = self.api.update(resource, "default", claim, {**live, "metadata": {**live["metadata"], "finalizers": finalizers}})
        results = [{"request": "gpu", "driver": devices.DRIVER, "pool": node, "device": each, **more} for each in found]
        self.reserve(claim, *pods, allocation={"devices": {"results": results}})

    def share(self, claim, node, device, memory, pods=()):
        """Allocate a share of a device."""
        uid = f"00000000-0000-4000-8000-{next(self._shares):012d}"
        self.allocate(claim, node, device, pods=pods, shareID=uid, consumedCapacity={"memory": memory})

    def reserve(self, claim, *pods, allocation=None):
        """Reserve a claim for pods, too."""
        live = self.get(CLAIMS, claim)
        status = live["status"]
        more = [{"resource": "pods", "name": each, "uid": self.get(PODS, each)["metadata"]["uid"]} for each in pods]
        changed = {**status, "reservedFor": [*(status.get("reservedFor") or ()), *more]}
        if allocation is not None:
            changed["allocation"] = allocation
        resource = self.api.served(devices.API_VERSION, "resourceclaims")
        self.api.update(
            resource, "default", claim, {**live, "metadata": dict(live["metadata"]), "status": changed}, subresource="status"
        )

    def bind(self, pod, node):
        self.api.bind("default", pod, {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}})

    def delete(self, pod, grace=None):
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        self.api.delete(self.api.served("v1", "pods"), "default", pod, options)

    def slices(self, node):
        return [each.object for _, each in self.api.store.sorted(SLICES) if each.object["spec"].get("nodeName") == node]

    def said(self, pod):
        """The messages of a pod's warnings, with how often they came."""
        found = (record.object for _, record in self.api.store.sorted("events", "default"))
        return {
            each["message"]: each["count"]
            for each in found
            if each["involvedObject"]["name"] == pod and each["type"] == "Warning"
        }

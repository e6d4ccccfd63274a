"""Two API servers, real and simulated, and a small client for both."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import ssl
import threading
import time

import pytest

from fairlead.api import crds
from fairlead.api.policies import fencing
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.controllers import Controllers
from fairlead.cluster.simulated.http import Server
from fairlead.cluster.simulated.wire import Wire
from testbed.controlplane import ControlPlane

NS = "contract"
LIMIT = 20.0


class Answer:
    def __init__(self, status, headers, text):
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.text = text

    @property
    def body(self):
        return json.loads(self.text)

    def ok(self, status=200):
        assert self.status == status, self.text[:2000]
        return self.body

    def no(self, status, reason=None, message=""):
        assert self.status == status, f"{self.status}: {self.text[:2000]}"
        body = self.body
        assert (body["kind"], body["status"], body["code"]) == ("Status", "Failure", status)
        if reason is not None:
            assert body.get("reason") == reason, body
        assert message in body["message"], body["message"]
        return body


class Api:
    """One server. `name` is unique to the test."""

    counter = itertools.count()

    def __init__(self, host, port, context, headers, policies):
        self.host, self.port, self.context, self.headers = host, port, context, headers
        self.policies = policies
        self.name = ""

    def begin(self, name):
        self.name = f"{name.replace('_', '-')[:40].strip('-')}-{next(self.counter)}"

    def fresh(self):
        return f"{self.name}-{next(self.counter)}"

    def call(self, method, path, body=None, content_type="application/json", accept="application/json"):
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {**self.headers, "Accept": accept}
        if data is not None:
            headers["Content-Type"] = content_type
        connection = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=30)
        try:
            with contextlib.suppress(OSError):  # the server answered before it had read a body that is too large
                connection.request(method, path, data, headers)
            try:
                reply = connection.getresponse()
            except (OSError, http.client.HTTPException):
                return Answer(0, [], "")
            return Answer(reply.status, reply.getheaders(), reply.read().decode())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.call("GET", path, **more)

    def post(self, path, body, **more):
        return self.call("POST", path, body, **more)

    def put(self, path, body, **more):
        return self.call("PUT", path, body, **more)

    def patch(self, path, body, content_type):
        return self.call("PATCH", path, body, content_type=content_type)

    def delete(self, path, options=None):
        return self.call("DELETE", path, options)

    def watch(self, path, count, accept="application/json"):
        """The first events of a watch, fewer if it ends before."""
        connection = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=LIMIT)
        try:
            connection.request("GET", path, headers={**self.headers, "Accept": accept})
            reply = connection.getresponse()
            assert reply.status == 200, reply.read()
            lines = (reply.readline() for _ in range(count))
            return [json.loads(line) for line in lines if line]
        finally:
            connection.close()

    def until(self, what):
        deadline = time.monotonic() + LIMIT
        while not what():
            assert time.monotonic() < deadline, "not so in time"
            time.sleep(0.05)


class Simulated(threading.Thread):
    """The simulated API server over HTTP, on a loop of its own."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ready = threading.Event()

    def run(self):
        asyncio.run(self.serve())

    async def serve(self):
        self.loop = asyncio.get_running_loop()
        self.stop = asyncio.Event()
        api = ApiServer(Clock(start=time.time(), loop=self.loop))
        Controllers(api)
        async with Server(Wire(api)) as self.server:
            self.ready.set()
            await self.stop.wait()

    def __enter__(self):
        self.start()
        self.ready.wait(20)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.stop.set)
        self.join(20)


def prepared(host, port, context, headers):
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

    def install_policies():
        for each in (*fencing(), *fencing("blue")):
            plural = "validatingadmissionpolicies" if each["kind"].endswith("Policy") else "validatingadmissionpolicybindings"
            api.post(f"/apis/admissionregistration.k8s.io/v1/{plural}", each)

    api = Api(host, port, context, headers, install_policies)
    for each in crds.definitions():
        api.post(definitions, each).ok(201)
    api.post("/api/v1/namespaces", {"metadata": {"name": NS}}).ok(201)
    for plural in (f"namespaces/{NS}/podgroups", "queues"):
        api.until(lambda plural=plural: api.get(f"/apis/fairlead.dev/v1alpha1/{plural}").status == 200)
    return api


@pytest.fixture(scope="session")
def simulated_api():
    with Simulated() as running:
        context = ssl.create_default_context(cadata=running.server._authority.cert_pem.bytes().decode())
        yield prepared("127.0.0.1", running.server.port, context, {"Authorization": f"Bearer {running.server.token}"})


@pytest.fixture(scope="session")
def real_plane():
    of_devices = "resourceclaim-controller,device-taint-eviction-controller"
    controllers = f"garbage-collector-controller,namespace-controller,disruption-controller,{of_devices}"
    with ControlPlane(controllers=controllers, flags=["--disable-admission-plugins=ServiceAccount"]) as plane:
        yield plane


@pytest.fixture(scope="session")
def real_api(real_plane):
    return prepared("127.0.0.1", real_plane.port, real_plane.context(), {})


@pytest.fixture(params=[pytest.param("real", marks=[pytest.mark.e2e, pytest.mark.xdist_group("contract")]), "simulated"])
def api(request):
    found = request.getfixturevalue(f"{request.param}_api")
    found.begin(request.node.callspec.params.get("name", request.node.name))
    return found

"""The endpoint of an aggregated API: its leader alone."""

import asyncio

import pytest

from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.endpoints import Service
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.cluster.simulated.wire import Wire


class Asked(Client):
    """Takes down what is applied."""

    def __init__(self):
        super().__init__(Config("http://simulated"), transport=SimulatedTransport(Wire(ApiServer(Clock(start=1e9)))))
        self.applied = []

    async def get(self, path, **query):
        assert path == "/api/v1/namespaces/ai/services/fairlead-visibility"
        return b'{"metadata": {"uid": "of-the-service"}}'

    async def apply(self, path, body, manager):
        self.applied.append((path, body, manager))
        return b""


@pytest.mark.parametrize(("address", "kind"), [("10.1.2.3", b"IPv4"), ("fd00::2", b"IPv6")])
def test_the_leader_makes_its_pod_the_only_endpoint(address, kind):
    client = Asked()
    asyncio.run(Service("fairlead-visibility", "ai", address).lead_here(client, 6443))
    [(path, body, manager)] = client.applied
    assert path == "/apis/discovery.k8s.io/v1/namespaces/ai/endpointslices/fairlead-visibility"
    for part in (address.encode(), kind, b"6443", b'"kubernetes.io/service-name":"fairlead-visibility"', b"of-the-service"):
        assert part in body
    assert manager == "fairlead"


def test_without_an_address_of_the_pod_the_service_is_left_alone():
    client = Asked()
    service = Service("fairlead-visibility", "kube-system")
    asyncio.run(service.lead_here(client, 6443))
    assert not client.applied
    assert service.host == "fairlead-visibility.kube-system.svc"


def test_what_is_no_address_is_refused():
    with pytest.raises(ValueError, match="leader"):
        asyncio.run(Service("fairlead-visibility", "ai", "leader").lead_here(Asked(), 6443))

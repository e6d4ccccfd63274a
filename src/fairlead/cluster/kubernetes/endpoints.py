"""The Service through which the API server reaches an aggregated API, and the endpoint by which it leads to the leader."""

from __future__ import annotations

import ipaddress

import msgspec

from fairlead.cluster.kubernetes.client import Client, encode

_SERVICES = "/api/v1/namespaces/{}/services/{}"
_SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices/{}"


class Service(msgspec.Struct, frozen=True):
    """One Service. pod_address: of this pod; while it leads it is the only endpoint of the Service, which has no selector.

    Empty: the Service has endpoints without this process.
    """

    name: str
    namespace: str
    pod_address: str = ""

    @property
    def host(self) -> str:
        """Its DNS name, as the API server knows it."""
        return f"{self.name}.{self.namespace}.svc"

    async def lead_here(self, client: Client, port: int) -> None:
        """Make this pod the endpoint; it goes with the Service. Raises `ApiError`, `Unreachable`, ValueError where its address is
        none.
        """
        if not self.pod_address:
            return
        version = ipaddress.ip_address(self.pod_address).version
        service = msgspec.json.decode(await client.get(_SERVICES.format(self.namespace, self.name)))
        owner = {"apiVersion": "v1", "kind": "Service", "name": self.name, "uid": service["metadata"]["uid"]}
        body = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {"kubernetes.io/service-name": self.name, "endpointslice.kubernetes.io/managed-by": "fairlead"},
                "ownerReferences": [owner],
            },
            "addressType": f"IPv{version}",
            "endpoints": [{"addresses": [self.pod_address], "conditions": {"ready": True}}],
            "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        }
        await client.apply(_SLICES.format(self.namespace, self.name), encode(body), "fairlead")

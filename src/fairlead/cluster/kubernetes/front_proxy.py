"""Serving an aggregated API: whom the API server lets through, and how it knows us.

The API server has authenticated and authorized a request before it passes it on (RBAC on our group's resources), and
shows a client certificate of its front proxy's. No other client is answered: that certificate must be signed by the authority,
and bear one of the names, that the ConfigMap `kube-system/extension-apiserver-authentication` gives. Our own certificate
is made at start; its authority goes into the APIService, whose `caBundle` is ours to write.
"""

from __future__ import annotations

import base64
import json
import ssl
from typing import Any

import msgspec
import trustme
from aiohttp import web

from fairlead.cluster.kubernetes.client import ApiError, Client, encode

_CONFIG = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


class FrontProxyError(RuntimeError):
    """An aggregated API cannot be served here."""


class FrontProxy(msgspec.Struct, frozen=True):
    """Who may pass requests on. authority: PEM; names: of its certificates, empty for any; user_headers: who asked at first."""

    authority: str
    names: tuple[str, ...] = ()
    user_headers: tuple[str, ...] = ("X-Remote-User",)

    def admits(self, request: web.Request) -> bool:
        """Whether a request comes from the front proxy; its certificate was verified when it connected."""
        certificate = request.get_extra_info("peercert") or {}
        subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
        return bool(certificate) and (not self.names or subject.get("commonName") in self.names)


async def read(client: Client) -> FrontProxy:
    """The front proxy of the API server. Raises `FrontProxyError`, `ApiError`, `Unreachable`."""
    data: dict[str, str] = msgspec.json.decode(await client.get(_CONFIG)).get("data") or {}
    authority = data.get("requestheader-client-ca-file", "")
    if not authority:
        raise FrontProxyError("the API server has no front proxy: it was started without --requestheader-client-ca-file")
    known = tuple(json.loads(data.get("requestheader-allowed-names", "[]")))
    headers = tuple(json.loads(data.get("requestheader-username-headers", "[]"))) or ("X-Remote-User",)
    return FrontProxy(authority, known, headers)


class Identity:
    """A certificate of our own for some DNS names, and the authority that signed it."""

    def __init__(self, *names: str) -> None:
        self._authority = trustme.CA()
        self._certificate = self._authority.issue_cert(*names)

    def context(self, proxy: FrontProxy) -> ssl.SSLContext:
        """For a server that speaks with the front proxy alone."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._certificate.configure_cert(context)
        context.load_verify_locations(cadata=proxy.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def publish(self, client: Client, service: str, chart: str) -> None:
        """Write the authority into an APIService, which a chart makes.

        Raises `FrontProxyError` where there is none, `ApiError`, `Unreachable`.
        """
        bundle = base64.b64encode(self._authority.cert_pem.bytes()).decode()
        body: dict[str, Any] = {"spec": {"caBundle": bundle}}
        try:
            await client.patch(f"{_SERVICES}/{service}", encode(body), "application/merge-patch+json")
        except ApiError as error:
            if error.code == 404:
                raise FrontProxyError(f"APIService {service} does not exist: kubectl apply -f {chart}") from error
            raise

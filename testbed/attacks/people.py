"""Users of the range: each asks the real API server with a client certificate of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from fairlead.api import names
from testbed import objects
from testbed.attacks.errors import RangeError, UnansweredError
from testbed.controlplane import ControlPlane

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
_TIMEOUT = 30.0
_GROUPS = {
    "pods": "v1",
    "services": "v1",
    "configmaps": "v1",
    "replicationcontrollers": "v1",
    "podtemplates": "v1",
    "deployments": "apps/v1",
    "replicasets": "apps/v1",
    "statefulsets": "apps/v1",
    "daemonsets": "apps/v1",
    "jobs": "batch/v1",
    "cronjobs": "batch/v1",
    "poddisruptionbudgets": "policy/v1",
    "horizontalpodautoscalers": "autoscaling/v2",
    "jobsets": "jobset.x-k8s.io/v1alpha2",
    "provisioningrequests": "autoscaling.x-k8s.io/v1",
    "aijobs": names.API_VERSION,
    "podgroups": names.API_VERSION,
}
KINDS = tuple(_GROUPS)


class Answer(NamedTuple):
    """What the API server said. body: decoded, or None where it is no JSON."""

    code: int
    body: Any

    @property
    def refused(self) -> bool:
        """Whether it said no."""
        return self.code >= 400

    @property
    def message(self) -> str:
        """What the Status says, on one line."""
        return " ".join(str((self.body or {}).get("message", "")).split()) if isinstance(self.body, dict) else ""


def where(plural: str, namespace: str, name: str = "") -> str:
    """The path of a kind in a namespace, or of one object."""
    version = _GROUPS[plural]
    prefix = "/api/v1" if version == "v1" else f"/apis/{version}"
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}{inside}/{plural}" + (f"/{name}" if name else "")


class Person:
    """One user. refused: hears of each refusal of what the user tried."""

    def __init__(self, plane: ControlPlane, name: str, refused: Callable[[str], None], groups: tuple[str, ...] = ()) -> None:
        self.name = name
        file = name.replace(":", "-")
        self.kubeconfig = plane.user(file, name, groups)
        self._refused = refused
        self._port = plane.port
        self._context = ssl.create_default_context(cafile=str(plane.authority.path))
        folder = self.kubeconfig.parent
        self._context.load_cert_chain(folder / f"{file}.crt", folder / f"{file}.key")
        self._connection: http.client.HTTPSConnection | None = None

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json", **headers: str) -> Answer:
        """One request; what it says is for the caller to judge. Raises `UnansweredError`."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        for attempt in range(2):
            try:
                if self._connection is None:
                    self._connection = http.client.HTTPSConnection(
                        "127.0.0.1", self._port, timeout=_TIMEOUT, context=self._context
                    )
                self._connection.request(method, path, data, {"Content-Type": kind, **headers})
                reply = self._connection.getresponse()
                text = reply.read()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if attempt:
                    raise UnansweredError(f"{method} {path} of {self.name}: {error}") from error
                continue
            with contextlib.suppress(ValueError):
                return Answer(reply.status, json.loads(text))
            return Answer(reply.status, None)
        raise AssertionError

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def tries(self, method: str, path: str, body: object = None, kind: str = "application/json", **headers: str) -> Answer:
        """A request that belongs to an attack: a refusal is noted."""
        answer = self.ask(method, path, body, kind, **headers)
        if answer.refused:
            self._refused(f"{answer.code} {answer.message}"[:300])
        return answer

    def creates(self, manifest: dict[str, Any], namespace: str) -> Answer:
        """Try to create an object."""
        return self.tries("POST", objects.path(manifest, namespace), manifest)

    def makes(self, manifest: dict[str, Any], namespace: str) -> Any:
        """Create an object that is ordinary. Raises `RangeError` if it is refused."""
        answer = self.ask("POST", objects.path(manifest, namespace), manifest)
        if answer.refused:
            raise RangeError(f"{self.name} may not make {manifest['kind']} {manifest['metadata']}: {answer.message}")
        return answer.body

    def patches(self, plural: str, namespace: str, name: str, patch: object, kind: str = MERGE) -> Answer:
        """Try to change an object."""
        return self.tries("PATCH", where(plural, namespace, name), patch, kind)

    def labels(self, plural: str, namespace: str, name: str, **labels: str | None) -> Answer:
        """Try to label an object of ours: `queue="vision"` is `fairlead.dev/queue: vision`; None takes it away."""
        return self.patches(plural, namespace, name, {"metadata": {"labels": _ours(labels)}})

    def annotates(self, plural: str, namespace: str, name: str, **annotations: str | None) -> Answer:
        """Try to annotate an object, likewise."""
        return self.patches(plural, namespace, name, {"metadata": {"annotations": _ours(annotations)}})

    def removes(self, plural: str, namespace: str, name: str) -> Answer:
        """Try to delete an object."""
        return self.tries("DELETE", where(plural, namespace, name), {"propagationPolicy": "Background"})


def _ours(given: dict[str, str | None]) -> dict[str, str | None]:
    return {f"{names.GROUP}/{name.replace('_', '-')}": value for name, value in given.items()}

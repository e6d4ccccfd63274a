"""Where the API server is and who we are: kubeconfig files and the service account of a pod."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import yaml

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LARGEST = 4 << 20


class ConfigError(ValueError):
    """A kubeconfig that cannot be used: which file, what is wrong, what to do."""


class ExecPlugin(msgspec.Struct, frozen=True):
    """A program that prints an ExecCredential."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


class Config(msgspec.Struct, frozen=True):
    """One cluster and one user."""

    server: str
    ca_file: str = ""
    ca_data: bytes = b""
    insecure: bool = False
    cert_file: str = ""
    cert_data: bytes = b""
    key_file: str = ""
    key_data: bytes = b""
    token: str = ""
    token_file: str = ""
    exec_plugin: ExecPlugin | None = None
    namespace: str = "default"

    def ssl_context(self, certificate: tuple[bytes, bytes] | None = None) -> ssl.SSLContext | None:
        """The TLS settings; certificate: one given by an exec plugin, in PEM. None for plain HTTP."""
        if self.server.startswith("http://"):
            return None
        try:
            if self.insecure:
                context = ssl.create_default_context()
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            elif self.ca_data:
                context = ssl.create_default_context(cadata=self.ca_data.decode())
            else:
                context = ssl.create_default_context(cafile=self.ca_file or None)
            # From Python 3.13 on it would refuse certificates that older tools have issued and every other client accepts.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            self._load_certificate(context, certificate)
        except (OSError, ssl.SSLError, UnicodeDecodeError) as error:
            raise ConfigError(f"certificates for {self.server} cannot be loaded: {error}") from error
        return context

    def _load_certificate(self, context: ssl.SSLContext, certificate: tuple[bytes, bytes] | None) -> None:
        if certificate is None and self.cert_data:
            certificate = (self.cert_data, self.key_data)
        if certificate is None:
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None)
            return
        # ssl reads certificates from files only; these live for the duration of the call.
        with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
            chain, key = Path(folder) / "crt", Path(folder) / "key"
            for path, content in ((chain, certificate[0]), (key, certificate[1])):
                path.touch(mode=0o600)
                path.write_bytes(content)
            context.load_cert_chain(chain, key)


def load(path: str | None = None) -> Config:
    """The config from a kubeconfig: the given file, else $KUBECONFIG, else the pod's own account,
    else ~/.kube/config. Raises `ConfigError`.
    """
    if path:
        return from_file(Path(path))
    listed = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        return from_file(Path(listed[0]))
    if os.environ.get("KUBERNETES_SERVICE_HOST") and (_ACCOUNT / "token").exists():
        return in_cluster()
    home = Path.home() / ".kube" / "config"
    if not home.exists():
        raise ConfigError("no cluster: give --kubeconfig, set KUBECONFIG, or run in a pod with a service account")
    return from_file(home)


def in_cluster() -> Config:
    """The config of the pod we run in; its token file is read again as it rotates."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = _ACCOUNT / "namespace"
    return Config(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca_file=str(_ACCOUNT / "ca.crt"),
        token_file=str(_ACCOUNT / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def from_file(path: Path) -> Config:
    """The current context of a kubeconfig file. Raises `ConfigError`."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ConfigError(f"{path} is too large for a kubeconfig")
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} is not a kubeconfig")
    try:
        context = _named(document, "contexts", document.get("current-context"), path)["context"]
        cluster = _named(document, "clusters", context.get("cluster"), path)["cluster"]
        user = (_named(document, "users", context["user"], path).get("user") or {}) if context.get("user") else {}
        return _config(path.resolve().parent, context, cluster, user)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path} is not a usable kubeconfig: {error!r}") from error


def _config(base: Path, context: dict[str, Any], cluster: dict[str, Any], user: dict[str, Any]) -> Config:
    def file(name: str | None) -> str:
        return str(base / name) if name else ""

    def data(text: str | None) -> bytes:
        return base64.b64decode(text) if text else b""

    plugin = None
    if user.get("exec"):
        spec = user["exec"]
        plugin = ExecPlugin(
            command=spec["command"],
            api_version=spec.get("apiVersion", "client.authentication.k8s.io/v1"),
            args=tuple(spec.get("args") or ()),
            env=tuple((each["name"], each["value"]) for each in spec.get("env") or ()),
        )
    return Config(
        server=str(cluster["server"]).rstrip("/"),
        ca_file=file(cluster.get("certificate-authority")),
        ca_data=data(cluster.get("certificate-authority-data")),
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
        cert_file=file(user.get("client-certificate")),
        cert_data=data(user.get("client-certificate-data")),
        key_file=file(user.get("client-key")),
        key_data=data(user.get("client-key-data")),
        token=user.get("token") or "",
        token_file=file(user.get("tokenFile")),
        exec_plugin=plugin,
        namespace=context.get("namespace") or "default",
    )


def _named(document: dict[str, Any], kind: str, name: str | None, path: Path) -> dict[str, Any]:
    for entry in document.get(kind) or []:
        if entry.get("name") == name:
            return dict(entry)
    raise ConfigError(f"{path} has no entry {name!r} under {kind}: set current-context or choose another file")

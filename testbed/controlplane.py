"""A real control plane on free loopback ports: etcd and kube-apiserver, and more where asked.

RBAC is on. Every process is ours, is stopped by its pid, and dies with its parent. etcd does not
sync to disk (`--unsafe-no-fsync`): benchmarks on it say so.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from testbed import build, objects
from testbed.certificates import Authority, write_key

_START_LIMIT = 60.0
_STOP_LIMIT = 15.0
_SERVED_LIMIT = 20.0
_PORTS = range(12_000, 32_000)
_PORTS_PER_PROCESS = 61
SCHEDULER_USER = "system:kube-scheduler"

_asked = itertools.count()


@dataclass
class Process:
    """One started program and its log."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> None:
        """Ask it to end, and end it if it does not."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(_STOP_LIMIT)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()


def scheduler_command(kubeconfig: Path, *more: str) -> list[str]:
    """Our scheduler as a process of its own: without metrics, and without waiting for a lease."""
    asked = ["scheduler", "--kubeconfig", str(kubeconfig), "--address", "", "--no-leader-elect", *more]
    return [sys.executable, "-m", "fairlead", *asked]


@dataclass
class ControlPlane:
    """Start with `with ControlPlane() as plane:` or `start()` / `stop()`.

    controllers: run kube-controller-manager with these controllers ("" = none).
    kwok: run KWOK, which makes nodes Ready and pods Running.
    flags: more flags for kube-apiserver; controller_flags: for kube-controller-manager.
    """

    controllers: str = ""
    kwok: bool = False
    flags: Sequence[str] = ()
    controller_flags: Sequence[str] = ()
    folder: Path | None = None
    processes: dict[str, Process] = field(default_factory=dict)
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and wait until the API server is ready."""
        if self.folder is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="fairlead-testbed-")
            self.folder = Path(self._scratch.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(self.folder)
        self.authority.issue("apiserver", "kube-apiserver", server=True)
        self.front_proxy = Authority(self.folder, "front-proxy-ca")
        self.front_proxy.issue("front-proxy", "front-proxy-client")
        self._service_account_keys()
        self.etcd_port, self.peer_port, self.port = (free_port() for _ in range(3))
        self.url = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = self.user("admin", "testbed-admin", ("system:masters",))
        try:
            self.start_etcd()
            self.start_apiserver()
            if self.controllers:
                self.start_controller_manager()
            if self.kwok:
                self.start_kwok()
        except BaseException:
            self.stop()
            raise

    async def stop_with(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        """Stop it once the processes that use it have ended, which are asked to."""
        for process in processes:
            process.terminate()
        for process in processes:
            await asyncio.to_thread(process.wait)
        await asyncio.to_thread(self.stop)

    def stop(self) -> None:
        """Stop every process, newest first, and remove what it wrote."""
        for process in reversed(list(self.processes.values())):
            process.stop()
        self.processes.clear()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch, self.folder = None, None

    def start_etcd(self) -> None:
        """Etcd with its data in the scratch folder, which survives a restart of the process."""
        folder = self._folder()
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{self.peer_port}"
        self._run(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            "--quota-backend-bytes=8589934592",
        )

    def start_apiserver(self) -> None:
        """kube-apiserver on the port it had before, ready when this returns."""
        folder = self._folder()
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--cert-dir={folder}",
            f"--tls-cert-file={folder / 'apiserver.crt'}",
            f"--tls-private-key-file={folder / 'apiserver.key'}",
            f"--client-ca-file={self.authority.path}",
            "--authorization-mode=RBAC",
            f"--requestheader-client-ca-file={self.front_proxy.path}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={folder / 'front-proxy.crt'}",
            f"--proxy-client-key-file={folder / 'front-proxy.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'service-account.pub'}",
            f"--service-account-signing-key-file={folder / 'service-account.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            *([] if self.controllers else ["--disable-admission-plugins=ServiceAccount"]),
            *self.flags,
        )
        self._await_ready()

    def start_controller_manager(self) -> None:
        """kube-controller-manager with the controllers that were asked for."""
        folder = self._folder()
        kubeconfig = self.user("controller-manager", "system:kube-controller-manager")
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            f"--controllers={self.controllers}",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={folder / 'controller-manager'}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={folder / 'service-account.key'}",
            f"--root-ca-file={self.authority.path}",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            *self.controller_flags,
        )

    def start_kwok(self) -> None:
        """KWOK, which plays the kubelet for every node."""
        self._run(
            "kwok",
            f"--kubeconfig={self.kubeconfig}",
            f"--config={Path(__file__).parent / 'kwok-stages.yaml'}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
        )

    def stop_process(self, name: str, *, kill: bool = False) -> None:
        """Stop one program; `kill` as a crash would."""
        process = self.processes.pop(name)
        if kill:
            process.popen.kill()
            process.popen.wait()
        else:
            process.stop()

    # -- access --------------------------------------------------------------------------------

    def user(self, file: str, name: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig for a user with a client certificate."""
        certificate, key = self.authority.issue(file, name, groups)
        entry = {"client-certificate": str(certificate), "client-key": str(key)}
        return self.write_kubeconfig(file, entry)

    def write_kubeconfig(self, file: str, user: dict[str, Any]) -> Path:
        """A kubeconfig whose user entry is as given."""
        path = self._folder() / f"{file}.kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {"name": "testbed", "cluster": {"server": self.url, "certificate-authority": str(self.authority.path)}}
                    ],
                    "users": [{"name": "user", "user": user}],
                    "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "user"}}],
                    "current-context": "testbed",
                }
            )
        )
        return path

    def request(self, method: str, path: str, body: object = None, content_type: str = "application/json") -> Any:
        """One request as the administrator; returns the decoded JSON. For set-up, not for speed."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": content_type}, method=method)
        with urllib.request.urlopen(request, timeout=30, context=self.context()) as reply:
            return json.loads(reply.read() or b"null")

    def find(self, path: str) -> Any:
        """The object at a path; None: there is none."""
        try:
            return self.request("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def install(self, user: str) -> None:
        """The custom resources and a scheduler's rights for a user; they are served when this returns."""
        for manifest in [*objects.definitions(), *objects.rights(user)]:
            self.request("POST", objects.path(manifest), manifest)
        for plural in ("queues", "podgroups", "serviceclasses", "reservations", "nodepools", "aijobs"):
            self.await_served(f"/apis/fairlead.dev/v1alpha1/{plural}")

    def grant(self, *roles: str) -> None:
        """To users of these names the rights of the roles of these names; those that are granted already stay."""
        for role in roles:
            for manifest in objects.rights(role, role):
                self.ensure(manifest)

    def ensure(self, manifest: dict[str, Any]) -> None:
        """Create an object unless one of its name is there."""
        try:
            self.request("POST", objects.path(manifest), manifest)
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise

    def await_served(self, path: str) -> Any:
        """What is at a path, once it is there. Raises the server's last refusal after a while."""
        deadline = time.monotonic() + _SERVED_LIMIT
        while True:
            try:
                return self.request("GET", path)
            except urllib.error.HTTPError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def context(self) -> ssl.SSLContext:
        """TLS as the administrator speaks it."""
        context = ssl.create_default_context(cafile=str(self.authority.path))
        context.load_cert_chain(self._folder() / "admin.crt", self._folder() / "admin.key")
        return context

    # -- inside --------------------------------------------------------------------------------

    def _folder(self) -> Path:
        if self.folder is None:
            raise RuntimeError("the control plane is not started")
        return self.folder

    def _run(self, name: str, *arguments: str) -> None:
        log = self._folder() / f"{name}.log"
        with log.open("ab") as file:
            popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(build.binary(name)), *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self._folder(),
            )
        self.processes[name] = Process(name, popen, log)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + _START_LIMIT
        process = self.processes["kube-apiserver"]
        while True:
            try:
                self.request("GET", "/readyz?verbose=false".partition("?")[0])
            except json.JSONDecodeError:
                return  # it answers "ok", which is no JSON
            except (urllib.error.URLError, OSError):
                pass
            if process.popen.poll() is not None or time.monotonic() > deadline:
                logs = {name: process.log.read_text(errors="replace")[-4000:] for name, process in self.processes.items()}
                raise RuntimeError("\n".join(["kube-apiserver did not become ready", *(f"{n}:\n{t}" for n, t in logs.items())]))
            time.sleep(0.05)

    def _service_account_keys(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        write_key(self._folder() / "service-account.key", key)
        (self._folder() / "service-account.pub").write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )


def free_port() -> int:
    """A port of this machine's loopback that nobody listens on and that no outgoing connection is given.

    The kernel takes the ports of outgoing connections from 32768 upwards, so one of those may be taken between
    this answer and the start of the program that is to listen. Processes that run beside each other start their
    search at different places.
    """
    for _ in range(_PORTS.stop - _PORTS.start):
        port = _PORTS[(os.getpid() * _PORTS_PER_PROCESS + next(_asked)) % len(_PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"every port of {_PORTS.start} to {_PORTS.stop - 1} is in use")

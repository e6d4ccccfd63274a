"""A kubelet that is played: it starts the containers of a namespace's pods as processes, just as their specs have them.

Each process gets the arguments, environment, mounts, token and user of its pod in a mount namespace of its own, in which it can
write nothing else; `0.0.0.0` is an address of the pod's own on this machine's loopback. Probes decide on readiness. Needs root.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.controlplane import ControlPlane

_Object = dict[str, Any]

_ROOT = Path(__file__).parents[1]
MERGE = "application/merge-patch+json"
_ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
_ENTERED = """
set -e
mount -t tmpfs -o mode=755 tmpfs /run
for path in $KEPT; do mkdir -p "/run/kept$path"; mount --rbind "$path" "/run/kept$path"; done
mkdir -p {account}
cp "$GIVEN"/account/* {account}/
chmod -R a+rX /run/secrets
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir /run/etc && cp -a /etc/. /run/etc/ && mount --rbind /run/etc /etc
{mounts}
mount -t tmpfs -o ro tmpfs /var/tmp
mount -t tmpfs -o ro tmpfs /dev/shm
{closed}
cd /
exec env -i $ENVIRONMENT \\
  setpriv --reuid {user} --regid {user} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


class Kubelet:
    """Plays while the context is open. addresses: by pod, in the order in which they were started.

    first: the last part of the first address, where several play in one process; each has fewer than 50.
    """

    def __init__(self, plane: ControlPlane, folder: Path, namespace: str, *, first: int = 2) -> None:
        self.plane, self.folder, self.namespace = plane, folder, namespace
        self._first = first
        self.addresses: dict[str, str] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._ready: dict[str, bool] = {}
        self._ends = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._play, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends.set()
        self._thread.join(60)
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
                process.wait()
        if self._failure is not None:
            raise self._failure

    def log(self, pod: str) -> str:
        """What its container printed."""
        return (self.folder / pod / "log").read_text(errors="replace")

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"--- {pod}\n{self.log(pod)[-3000:]}" for pod in self.addresses)

    def _play(self) -> None:
        try:
            while not self._ends.wait(0.2):
                for pod in self.plane.request("GET", self._path())["items"]:
                    self._sync(pod)
        except BaseException as error:  # noqa: BLE001 - raised where the context ends
            self._failure = error

    def _sync(self, pod: _Object) -> None:
        name = pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp"):
            if name in self.running:
                self.running[name].terminate()
                self.running[name].wait(30)
            self._delete(name)
        elif name not in self.running:
            target = {"apiVersion": "v1", "kind": "Node", "name": "here"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            self.plane.request("POST", f"{self._path(name)}/binding", binding)
            self._start(pod)
        else:
            self._probe(pod)

    def _delete(self, name: str) -> None:
        try:
            self.plane.request("DELETE", self._path(name), {"gracePeriodSeconds": 0})
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def _start(self, pod: _Object) -> None:
        name, spec = pod["metadata"]["name"], pod["spec"]
        [container] = spec["containers"]
        given = self.folder / name
        (given / "account").mkdir(parents=True)
        number = len(self.addresses) + self._first
        address = self.addresses[name] = f"127.{os.getpid() % 250 + 2}.{os.getpid() // 250 % 250}.{number}"
        for file, text in self._account(spec["serviceAccountName"]).items():
            (given / "account" / file).write_text(text)
        mounted = {
            each["name"]: each["mountPath"] for each in container["volumeMounts"] if not each["mountPath"].startswith("/var/run")
        }
        mounts = [self._mount(volume, mounted[volume["name"]], given) for volume in spec["volumes"] if volume["name"] in mounted]
        mounts.sort(key=lambda lines: "/run/kept" in lines)  # what is below /tmp is read before
        user = spec["securityContext"]["runAsUser"]
        closed = "" if "/tmp" in mounted.values() else "mount -t tmpfs -o ro tmpfs /tmp"  # noqa: S108
        script = _ENTERED.format(account=_ACCOUNT, mounts="\n".join(mounts), closed=closed, user=user)
        environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.plane.port),
            "PYTHONPATH": str(_ROOT / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": "/nonexistent",
            **{each["name"]: self._value(each, name) for each in container.get("env", ())},
        }
        kept = [str(path) for path in (_ROOT, Path(sys.prefix)) if path.is_relative_to("/tmp")]  # noqa: S108
        outer = {
            **os.environ,
            "GIVEN": str(given),
            "KEPT": " ".join(kept),
            "ENVIRONMENT": " ".join(f"{key}={value}" for key, value in environment.items()),
        }
        arguments = [each.replace("0.0.0.0", address) for each in container["args"]]  # noqa: S104
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
        with (given / "log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command, sys.executable, "-m", "fairlead", *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=outer,
            )

    def _account(self, name: str) -> dict[str, str]:
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        token = self.plane.request("POST", path, request)["status"]["token"]
        return {"token": token, "ca.crt": self.plane.authority.path.read_text(), "namespace": self.namespace}

    def _mount(self, volume: _Object, path: str, given: Path) -> str:
        """The command that mounts a volume."""
        lines = [f"mkdir -p {path}", f"mount -t tmpfs -o mode=1777 tmpfs {path}"]
        if path == "/tmp":  # noqa: S108
            lines.append('for path in $KEPT; do mkdir -p "$path"; mount --rbind "/run/kept$path" "$path"; done')
        if "configMap" in volume:
            source = given / volume["name"]
            source.mkdir()
            found = self.plane.request("GET", f"/api/v1/namespaces/{self.namespace}/configmaps/{volume['configMap']['name']}")
            for key, text in found["data"].items():
                (source / key).write_text(text)
            lines += [f"cp {source}/* {path}/", f"chmod -R a+rX {path}", f"mount -o remount,ro {path}"]
        return "\n".join(lines)

    def ip(self, pod: str) -> str:
        """Its address in its status, from a range for tests: the endpoints of Services are not on loopback."""
        return f"198.18.0.{self.addresses[pod].rpartition('.')[2]}"

    def _value(self, variable: _Object, pod: str) -> str:
        if "value" in variable:
            return str(variable["value"])
        if "fieldRef" in variable["valueFrom"]:
            return self.ip(pod)  # the one field that is asked for
        key = variable["valueFrom"]["secretKeyRef"]
        secret = self.plane.request("GET", f"/api/v1/namespaces/{self.namespace}/secrets/{key['name']}")
        return base64.b64decode(secret["data"][key["key"]]).decode()

    def _probe(self, pod: _Object) -> None:
        name, [container] = pod["metadata"]["name"], pod["spec"]["containers"]
        probe = container["readinessProbe"]["httpGet"]
        ended = self.running[name].poll()
        ready = ended is None and self._answers(f"http://{self.addresses[name]}:{probe['port']}{probe['path']}")
        if self._ready.get(name) is ready:
            return
        self._ready[name] = ready
        state = {"running": {}} if ended is None else {"terminated": {"exitCode": ended, "reason": "Error"}}
        status = {
            "phase": "Running",
            "conditions": [{"type": each, "status": str(ready)} for each in ("Ready", "ContainersReady")],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": ready,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        self.plane.request("PATCH", f"{self._path(name)}/status", {"status": status}, MERGE)

    def _answers(self, url: str) -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    def _path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods{'/' if name else ''}{name}"


def audit_flags(folder: Path, *users: str) -> list[str]:
    """Flags of an API server that logs the requests of some users, and the pods that they create."""
    pods = {"verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]}
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Request", "users": list(users), **pods},
            {"level": "Metadata", "users": list(users)},
            {"level": "None"},
        ],
    }
    (folder / "audit-policy.yaml").write_text(json.dumps(policy))
    return [f"--audit-policy-file={folder / 'audit-policy.yaml'}", f"--audit-log-path={folder / 'audit.log'}"]


def audited(folder: Path) -> list[_Object]:
    """The requests that were logged."""
    return [json.loads(line) for line in (folder / "audit.log").read_text().splitlines()]

"""Authorization probes: the numbers behind `fairlead bench probes`.

A real control plane with what `fairlead install` applies. Tenants of random names have jobs in namespaces of their own; `ann` has
`edit` in `vision`, by a RoleBinding, and nothing else. She asks at random for what she may and for what she may not, by requests
to the API server and by commands. What she may do is a table of its own here, not read from the roles. A name of another tenant
in an answer to a question that did not name it is a leak.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from fairlead.install import NAMESPACE, History, Values, objects
from testbed import objects as made
from testbed.attacks.people import MERGE, Person
from testbed.controlplane import ControlPlane, Process, free_port

OURS, USER = "vision", "ann"
_CONTROLLERS = "clusterrole-aggregation-controller,serviceaccount-controller,root-ca-certificate-publisher-controller"
_LIMIT = 60.0
_TENANTS, _JOBS = 3, 3
_API = "/apis/fairlead.dev/v1alpha1"
_VISIBILITY, _HISTORY = "/apis/visibility.fairlead.dev/v1alpha1", "/apis/history.fairlead.dev/v1alpha1"
_FORBIDDEN, _REFUSED_EXIT = 403, 3
_TOO_MUCH, _PAUSE = 429, 5.0  # a user may ask only so many what-if questions a minute
_PATIENCE = 60
_MANIFEST = "MANIFEST"  # among the words of a command: a file with a pod


class ProbesError(RuntimeError):
    """A run that does not count, and why."""


class Finding(msgspec.Struct):
    """A probe that came out wrong. answer: the beginning of what came back."""

    probe: str
    answer: str


class Probes(msgspec.Struct):
    """How many were tried, and how many of them were allowed by the table; what came out wrong."""

    count: int
    seed: int
    allowed: int
    leaks: list[Finding]
    wrongly_refused: list[Finding]
    wrongly_allowed: list[Finding]

    @property
    def clean(self) -> bool:
        """Whether nothing came out wrong."""
        return not (self.leaks or self.wrongly_refused or self.wrongly_allowed)


class Request(NamedTuple):
    """One for the API server."""

    method: str
    path: str
    body: Any = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}" + (f" {json.dumps(self.body)}" if self.path.endswith("/whatifs") else "")


class Probe(NamedTuple):
    """One question: a request, or the words of a command. What it names itself is no leak where it comes back."""

    ask: Request | tuple[str, ...]
    allowed: bool

    def __str__(self) -> str:
        return str(self.ask) if isinstance(self.ask, Request) else "fairlead " + " ".join(self.ask)


class Tenant(NamedTuple):
    """Another user with a namespace and jobs, whose names nobody else may learn. jobs: each with its pod."""

    namespace: str
    user: str
    jobs: dict[str, str]


def run(count: int, seed: int, progress: Callable[[int, int], None]) -> Probes:
    """Ask so many questions. Raises `ProbesError`."""
    draw = random.Random(seed)
    with _Lab(draw) as lab:
        result = Probes(count, seed, 0, [], [], [])
        for number in range(count):
            probe = _drawn(draw, lab.tenants, lab.mine)
            refused, answer = lab.asks(probe)
            result.allowed += probe.allowed
            finding = Finding(str(probe), answer[:500])
            if refused and probe.allowed:
                result.wrongly_refused.append(finding)
            if not refused and not probe.allowed:
                result.wrongly_allowed.append(finding)
            if any(secret in answer for secret in lab.secrets if secret not in str(probe)):
                result.leaks.append(finding)
            progress(number + 1, count)
    return result


# -- what may be asked -----------------------------------------------------------------------------


def _drawn(draw: random.Random, tenants: list[Tenant], mine: Tenant) -> Probe:
    """A question at random."""
    tenant = draw.choice(tenants)
    kinds: list[Callable[[], Probe]] = [
        lambda: _own_command(draw, mine),
        lambda: _own_command(draw, mine),
        lambda: _own_request(draw, mine),
        lambda: _foreign_command(draw, tenant),
        lambda: _own_request(draw, mine),
        lambda: _foreign_request(draw, tenant),
        lambda: _of_the_cluster(draw),
        lambda: _of_the_installation(draw),
    ]
    return draw.choice(kinds)()


def _own_command(draw: random.Random, mine: Tenant) -> Probe:
    as_json, where = ("-o", "json"), ("-n", OURS)
    job = draw.choice(list(mine.jobs))
    command = draw.choice(
        [
            ("queue",),
            ("queue", "--start"),
            ("queue", "-q", "default"),
            ("share",),
            ("nodes",),
            ("quota",),
            ("quota", "-u", USER),
            ("top", "--once"),
            ("explain", f"pod/{mine.jobs[job]}"),
            ("explain", f"aijob/{job}"),
            ("whatif",),
            ("whatif", "-f", _MANIFEST),
            ("whatif", "--quota", f"default:{made.GPU}={draw.randrange(9)}"),
            ("whatif", "--drain", f"n{draw.randrange(2)}", "--add-nodes", f"{draw.randrange(1, 4)}"),
        ]
    )
    return Probe((*command, *where, *draw.choice([(), as_json])), allowed=True)


def _foreign_command(draw: random.Random, tenant: Tenant) -> Probe:
    job = draw.choice(list(tenant.jobs))
    explained = draw.choice([f"pod/{tenant.jobs[job]}", f"aijob/{job}"])
    asked = draw.choice([("whatif",), ("whatif", "-f", _MANIFEST)])
    command = draw.choice([("queue",), ("share",), ("nodes",), ("quota",), ("top", "--once"), ("explain", explained), asked])
    return Probe((*command, "-n", tenant.namespace), allowed=False)


def _own_request(draw: random.Random, mine: Tenant) -> Probe:
    job = draw.choice(list(mine.jobs))
    objects_of = draw.choice(["aijobs", "podgroups"])
    fresh = made.ai_job("new", workers=1) if objects_of == "aijobs" else made.pod_group("new", 1)
    inside, dry = f"{_API}/namespaces/{OURS}", "?dryRun=All"
    shown = f"{_VISIBILITY}/namespaces/{OURS}"
    return Probe(
        draw.choice(
            [
                Request("GET", f"{inside}/{objects_of}"),
                Request("GET", f"{inside}/{objects_of}?limit=1&labelSelector={draw.choice('ab')}"),
                Request("GET", f"{inside}/aijobs/{job}"),
                Request("POST", f"{inside}/{objects_of}{dry}", fresh),
                Request("PATCH", f"{inside}/aijobs/{job}{dry}", {"metadata": {"labels": {"a": "b"}}}),
                Request("DELETE", f"{inside}/aijobs/{job}{dry}"),
                Request("GET", f"{shown}/jobs"),
                Request("GET", f"{shown}/jobs?queue=default&since=1-{draw.randrange(9)}"),
                Request("GET", f"{shown}/pendingjobs"),
                Request("GET", f"{shown}/{draw.choice(['nodes', 'queues', 'quotas'])}"),
                Request("GET", f"{shown}/pods/{mine.jobs[job]}/explanation"),
                Request("GET", f"{shown}/aijobs/{job}/explanation"),
                Request("POST", f"{shown}/whatifs", _question(draw.choice([made.pod("new"), made.ai_job(job, workers=2)]))),
                Request("GET", f"{_HISTORY}/namespaces/{OURS}/jobs"),
                Request("GET", f"/api/v1/namespaces/{OURS}/pods"),
            ]
        ),
        allowed=True,
    )


def _question(*manifests: dict[str, Any]) -> dict[str, Any]:
    """What if there were these."""
    return {"spec": {"manifests": manifests}}


def _beyond(draw: random.Random, tenant: Tenant) -> Request:
    """A question of ours about another's namespace, or about what is no namespace's."""
    near: dict[str, Any] = {"topologyKey": "kubernetes.io/hostname", "namespaces": [tenant.namespace], "labelSelector": {}}
    beside = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    theirs = made.pod("new")
    theirs["metadata"]["namespace"] = tenant.namespace
    return Request(
        "POST",
        f"{_VISIBILITY}/namespaces/{OURS}/whatifs",
        _question(draw.choice([theirs, made.pod("new", affinity=beside), made.queue("default", quota=9)])),
    )


def _foreign_request(draw: random.Random, tenant: Tenant) -> Probe:
    job, space = draw.choice(list(tenant.jobs)), tenant.namespace
    inside, shown = f"{_API}/namespaces/{space}", f"{_VISIBILITY}/namespaces/{space}"
    ask = draw.choice(
        [
            Request("GET", f"{inside}/{draw.choice(['aijobs', 'podgroups'])}"),
            Request("GET", f"{inside}/aijobs/{job}"),
            Request("POST", f"{inside}/aijobs", made.ai_job("new", workers=1)),
            Request("PATCH", f"{inside}/aijobs/{job}", {"spec": {"suspend": True}}),
            Request("DELETE", f"{inside}/aijobs/{job}"),
            Request("GET", f"{shown}/{draw.choice(['jobs', 'pendingjobs', 'nodes', 'queues', 'quotas'])}"),
            Request("GET", f"{shown}/{draw.choice(['pods', 'aijobs', 'podgroups'])}/{job}/explanation"),
            Request("POST", f"{shown}/whatifs", _question(made.pod("new"))),
            _beyond(draw, tenant),
            Request("GET", f"{_HISTORY}/namespaces/{space}/jobs"),
            Request("GET", f"/api/v1/namespaces/{space}/pods/{tenant.jobs[job]}"),
        ]
    )
    return Probe(ask, allowed=False)


def _of_the_cluster(draw: random.Random) -> Probe:
    written = {"spec": {"weight": 9}}
    ask = draw.choice(
        [
            Request(
                "GET", f"{_API}/{draw.choice(['aijobs', 'podgroups', 'queues', 'serviceclasses', 'nodepools', 'reservations'])}"
            ),
            Request("POST", f"{_API}/queues", made.queue("mine", quota=8)),
            Request("PATCH", f"{_API}/queues/default", written),
            Request("DELETE", f"{_API}/queues/default"),
            Request("GET", f"{_VISIBILITY}/{draw.choice(['jobs', 'nodes', 'queues', 'quotas'])}"),
            Request("GET", f"{_HISTORY}/jobs"),
            Request("GET", "/api/v1/pods"),
            Request("GET", "/api/v1/nodes"),
            Request("PATCH", f"{_API}/namespaces/{OURS}/aijobs/{USER}-0/status", {"status": {"phase": "Succeeded"}}),
            Request("PATCH", f"{_API}/namespaces/{OURS}/podgroups/{USER}/status", {"status": {"phase": "Running"}}),
            Request("POST", f"/api/v1/namespaces/{OURS}/pods/{USER}-0-0/binding", {"target": {"name": "n0"}}),
        ]
    )
    return Probe(ask, allowed=False)


def _of_the_installation(draw: random.Random) -> Probe:
    registration = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.visibility.fairlead.dev"
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fairlead-scheduler"
    ask = draw.choice(
        [
            Request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods"),
            Request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
            Request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/fairlead-operator/token", {"spec": {}}),
            Request("PATCH", registration, {"spec": {"caBundle": ""}}),
            Request("PATCH", leases, {"spec": {"holderIdentity": USER}}),
            Request("GET", leases),
            Request("PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/fairlead-user", {"rules": []}),
            Request("GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"),
        ]
    )
    return Probe(ask, allowed=False)


# -- the cluster -------------------------------------------------------------------------------------


class _Lab:
    """The control plane, what is installed, its two processes, and the tenants."""

    def __init__(self, draw: random.Random) -> None:
        def name(prefix: str) -> str:
            return f"{prefix}{draw.randrange(16**8):08x}"

        self.tenants = [Tenant(name("t"), name("u"), {name("j"): "" for _ in range(_JOBS)}) for _ in range(_TENANTS)]
        self.mine = Tenant(OURS, USER, {f"{USER}-{number}": "" for number in range(_JOBS)})
        self.secrets = [secret for each in self.tenants for secret in (each.namespace, each.user, *each.jobs)]
        self._draw = draw
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def asks(self, probe: Probe) -> tuple[bool, str]:
        """Whether a question was refused, and the answer."""
        ask = self._requested if isinstance(probe.ask, Request) else self._commanded
        for _ in range(_PATIENCE):
            found = ask(probe)
            if found is not None:
                return found
            time.sleep(_PAUSE)
        raise ProbesError(f"{probe}: still more than a user may ask")

    def _commanded(self, probe: Probe) -> tuple[bool, str] | None:
        """A command; None: not now."""
        words = [str(self._manifest) if word == _MANIFEST else str(word) for word in probe.ask]
        command = [sys.executable, "-m", "fairlead", *words, "--kubeconfig", str(self._ann.kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=self._environment)
        if done.returncode not in (0, _REFUSED_EXIT):
            if "ask again in" in done.stderr:
                return None
            raise ProbesError(f"{probe}: exit code {done.returncode}: {done.stderr[-1000:]}")
        return done.returncode == _REFUSED_EXIT, done.stdout + done.stderr

    def _requested(self, probe: Probe) -> tuple[bool, str] | None:
        """A request; None: not now."""
        method, path, body = probe.ask
        answer = self._ann.ask(method, path, body, MERGE if method == "PATCH" else "application/json")
        if answer.code == _TOO_MUCH:
            return None
        if answer.refused and answer.code != _FORBIDDEN:
            raise ProbesError(f"{probe}: {answer.code}: {answer.message}")
        return answer.refused, json.dumps(answer.body)

    # -- standing it up ----------------------------------------------------------------------------

    def _start(self) -> None:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlead-probes-")))
        self._environment = {**os.environ, "COLUMNS": "200"}
        self._manifest = folder / "pod.yaml"
        self._manifest.write_text(json.dumps(made.pod("new")))
        self._plane = self._stack.enter_context(ControlPlane(controllers=_CONTROLLERS))
        ports = {"fairlead-visibility": free_port(), "fairlead-history": free_port()}
        self._install(ports)
        for process, served in (("scheduler", ("visibility", 0)), ("operator", ("history", 1))):
            arguments = [process, "--address", "", "--service-namespace", NAMESPACE]
            arguments += [f"--{served[0]}-address", f"127.0.0.1:{[*ports.values()][served[1]]}"]
            if process == "operator":
                arguments += ["--history", f"sqlite:///{folder / 'history.db'}"]
            self._stack.callback(self._process(folder, process, arguments).stop)
        self._ann = Person(self._plane, USER, lambda _: None)
        self._admin = Person(self._plane, "testbed-admin", lambda _: None, ("system:masters",))
        for person in (self._ann, self._admin):
            self._stack.callback(person.close)
        for group in ("visibility", "history"):
            self._plane.await_served(f"/apis/{group}.fairlead.dev/v1alpha1")
        self._fill()

    def _install(self, ports: dict[str, int]) -> None:
        values = Values(image="fairlead", network_policies=False, history=History(secret_name="unused"))  # noqa: S106
        for manifest in objects(values):
            if manifest["kind"] not in ("Deployment", "PodDisruptionBudget"):  # nothing runs pods here
                here = _here(manifest, ports)
                self._plane.request("POST", made.path(here, NAMESPACE), here)
        for plural in ("queues", "aijobs", "podgroups"):
            self._plane.await_served(f"{_API}/{plural}")

    def _process(self, folder: Path, name: str, arguments: list[str]) -> Process:
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/fairlead-{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        token = self._plane.request("POST", account, request)["status"]["token"]
        kubeconfig = self._plane.write_kubeconfig(name, {"token": token})
        log = folder / f"{name}.log"
        command = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            sys.executable,
            "-m",
            "fairlead",
            *arguments,
            "--kubeconfig",
            str(kubeconfig),
        ]
        with log.open("wb") as file:
            return Process(name, subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL), log)

    def _fill(self) -> None:
        """Nodes, namespaces, jobs of which some run, and ann's rights."""
        self._plane.ensure(made.queue("default"))
        for number in range(2):
            self._plane.ensure(made.node(f"n{number}", gpus=4))
            self._plane.request("PATCH", f"/api/v1/nodes/n{number}", {"spec": {"taints": None}}, MERGE)
        everyone = [self.mine, *self.tenants]
        for tenant in everyone:
            self._plane.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant.namespace}})
            subjects = [{"kind": "User", "name": tenant.user, "apiGroup": "rbac.authorization.k8s.io"}]
            reference = {"kind": "ClusterRole", "name": "edit", "apiGroup": "rbac.authorization.k8s.io"}
            binding: dict[str, Any] = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
            binding |= {"metadata": {"name": "edits"}, "subjects": subjects, "roleRef": reference}
            self._plane.request("POST", made.path(binding, tenant.namespace), binding)
        for tenant in everyone:
            self._submit(tenant)
        for tenant in everyone:
            for job in tenant.jobs:
                self._until(f"{job} has its pod", partial(self._named, tenant, job))
        self._until("ann sees her jobs", self._ann_sees)

    def _submit(self, tenant: Tenant) -> None:
        """A tenant's jobs, submitted by the tenant."""
        account = f"/api/v1/namespaces/{tenant.namespace}/serviceaccounts/default"
        self._until(f"{account} exists", lambda: not self._admin.ask("GET", account).refused)
        person = self._ann if tenant is self.mine else Person(self._plane, tenant.user, lambda _: None)
        for job in tenant.jobs:
            manifest = made.ai_job(job, workers=1, gpus=self._draw.choice([1, 2, 8]))
            self._until(f"{tenant.user} may submit", partial(self._submits, person, manifest, tenant.namespace))
        if tenant is not self.mine:
            person.close()

    def _submits(self, person: Person, manifest: dict[str, Any], namespace: str) -> bool:
        return not person.ask("POST", made.path(manifest, namespace), manifest).refused

    def _named(self, tenant: Tenant, job: str) -> bool:
        """Whether a job has its pod, whose name is kept."""
        pods = self._plane.request("GET", f"/api/v1/namespaces/{tenant.namespace}/pods")["items"]
        found = [name for each in pods if (name := each["metadata"]["name"]).startswith(f"{job}-")]
        tenant.jobs[job] = found[0] if found else ""
        return bool(found)

    def _ann_sees(self) -> bool:
        shown = self._ann.ask("GET", f"{_VISIBILITY}/namespaces/{OURS}/jobs")
        return len((shown.body or {}).get("items", [])) >= len(self.mine.jobs)

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _LIMIT
        while not holds():
            if time.monotonic() > deadline:
                raise ProbesError(f"not within {_LIMIT:g} s: {what}")
            time.sleep(0.1)


def _here(manifest: dict[str, Any], ports: dict[str, int]) -> dict[str, Any]:
    """An object of an installation whose processes run on this machine, on ports by Service."""
    if manifest["kind"] == "Service":
        port = ports[manifest["metadata"]["name"]]
        return {**manifest, "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}}
    if manifest["kind"] == "APIService":
        service = manifest["spec"]["service"]
        return {**manifest, "spec": {**manifest["spec"], "service": {**service, "port": ports[service["name"]]}}}
    return manifest

"""The range: a real control plane with Fairlead as its documents install it, two tenants, and what resets it between attacks.

The scheduler and the operator run as plain users with the charts' roles; the policies are applied with their names trusted.
`mallory` has `edit` in `mal` and `shared`, `ann` in `vision` and `shared`, both all verbs but status on AIJobs and PodGroups.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from fairlead.api import names
from testbed import objects
from testbed.attacks.errors import RangeError
from testbed.attacks.people import KINDS, MERGE, Person, where
from testbed.controlplane import ControlPlane, Process, free_port

HERE = Path(__file__).parents[2]
SCHEDULER, OPERATOR, AGENT = "fairlead", "fairlead-operator", "fairlead-agent"
TRUSTED = "system:serviceaccount:jobs:operator"
NODES = ("n1", "n2", "n3", "n4")
GPUS = 8
SPACES = ("mal", "vision", "shared")
CONTROLLERS = (
    "deployment-controller,replicaset-controller,replicationcontroller-controller,statefulset-controller,daemonset-controller,"
    "job-controller,cronjob-controller,disruption-controller,garbage-collector-controller,namespace-controller,"
    "serviceaccount-controller,clusterrole-aggregation-controller,horizontal-pod-autoscaler-controller,resourcequota-controller"
)
TIMES = ("--horizontal-pod-autoscaler-sync-period=1s", "--concurrent-horizontal-pod-autoscaler-syncs=2")
PATIENCE, OVERRIDE, VICTIM = 4.0, 4.0, 3.0
"""Seconds of the scheduler's bounds in the range, where the checkout under attack knows them."""
SOON = 12.0
"""Seconds within which a pod that nothing may keep out is bound here."""
_LIMIT = 60.0
_RBAC = "rbac.authorization.k8s.io/v1"


class Range:
    """Start with `with Range() as lab`. checkout: the checkout under attack, this one by default."""

    def __init__(self, checkout: Path = HERE, progress: Callable[[str], None] = lambda _: None) -> None:
        self.checkout = checkout
        self.progress = progress
        self.refusals: list[str] = []
        self.kept: dict[Any, Any] = {}
        """What an attempt leaves for its check."""
        self.refused = False
        """Whether something of the attempt that is checked was refused: then nothing may come, and little is waited for."""
        self._stack = contextlib.ExitStack()
        self._processes: dict[str, tuple[list[str], Process]] = {}

    def __enter__(self) -> Self:
        try:
            self._stand_up()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    # -- standing it up ------------------------------------------------------------------------

    def _stand_up(self) -> None:
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlead-attacks-")))
        self.plane = self._stack.enter_context(ControlPlane(controllers=CONTROLLERS, kwok=True, controller_flags=TIMES))
        noted = self.refusals.append
        self.admin = Person(self.plane, "testbed-admin", lambda _: None, ("system:masters",))
        self.ann, self.mallory = Person(self.plane, "ann", noted), Person(self.plane, "mallory", noted)
        self.trusted = Person(self.plane, TRUSTED, lambda _: None)
        for person in (self.admin, self.ann, self.mallory, self.trusted):
            self._stack.callback(person.close)
        self.metrics_port = free_port()
        self.served = {name: free_port() for name in ("visibility", "external-metrics", "history")}
        self._install()
        self._people()
        self._cluster()
        self._start()

    def fairlead(self, *arguments: str) -> str:
        """What a command of the checkout under attack prints."""
        command = [sys.executable, "-m", "fairlead", *arguments]
        return subprocess.run(command, env=self._environment(), capture_output=True, text=True, check=True, timeout=60).stdout

    def apply(self, manifests: Sequence[dict[str, Any]]) -> None:
        """As the administrator, server-side."""
        command = [
            "kubectl",
            "--kubeconfig",
            str(self.plane.kubeconfig),
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            "-",
        ]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RangeError(f"kubectl apply: {done.stderr.strip()[-2000:]}")

    def _install(self) -> None:
        """Definitions, a workload older than the policies, rights, policies: in the order in which clusters come to have them."""
        self.apply([*yaml.safe_load_all(self.fairlead("crds")), *(_foreign_kind(*each) for each in _FOREIGN)])
        for plural in ("queues", "podgroups", "aijobs", "serviceclasses"):
            self.plane.await_served(f"/apis/{names.API_VERSION}/{plural}")
        for group, version, kind in _FOREIGN:
            self.plane.await_served(f"/apis/{group}/{version}/{kind.lower()}s")
        self.apply([_namespace(name, {"team": name}) for name in (*SPACES, "jobs")])
        template = objects.pod("t", gpus=0, queue="mal", labels={"app": "old"})
        old = {"selector": {"matchLabels": {"app": "old"}}, "replicas": 0, "template": _template(template)}
        self.admin.makes({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "older"}, "spec": old}, "mal")
        charts = [
            each
            for file in sorted((self.checkout / "charts").glob("*.yaml"))
            for each in yaml.safe_load_all(file.read_text())
            if each
        ]
        for each in charts:
            self._here(each)
        self.apply(charts)
        users = {
            "fairlead-scheduler": SCHEDULER,
            "fairlead-visibility-server": SCHEDULER,
            "fairlead-external-metrics-server": SCHEDULER,
        }
        users |= {"fairlead-operator": OPERATOR, "fairlead-history-server": OPERATOR, "fairlead-agent": AGENT}
        roles = [each for each in charts if each["kind"] in ("Role", "ClusterRole") and each["metadata"]["name"] in users]
        bindings = [_bound(each, users[each["metadata"]["name"]]) for each in roles]
        trusts = [argument for user in (SCHEDULER, OPERATOR, TRUSTED) for argument in ("--trust", user)]
        self.apply([*bindings, *yaml.safe_load_all(self.fairlead("crds", "--policies", *trusts))])

    def _here(self, manifest: dict[str, Any]) -> None:
        """The processes run on this machine: Services lead to it."""
        ports = {f"fairlead-{name}": port for name, port in self.served.items()}
        if manifest["kind"] == "Service":
            port = ports[manifest["metadata"]["name"]]
            manifest["spec"] = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
        elif manifest["kind"] == "APIService":
            manifest["spec"]["service"]["port"] = ports[manifest["spec"]["service"]["name"]]

    def _people(self) -> None:
        every = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
        made: list[dict[str, Any]] = [
            {
                "apiVersion": _RBAC,
                "kind": "ClusterRole",
                "metadata": {"name": "tenant"},
                "rules": [
                    {"apiGroups": [names.GROUP], "resources": ["aijobs", "podgroups"], "verbs": every},
                    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": every},
                ],
            },
            {
                "apiVersion": _RBAC,
                "kind": "ClusterRole",
                "metadata": {"name": "makes-pods"},
                "rules": [{"apiGroups": ["", names.GROUP], "resources": ["pods", "podgroups"], "verbs": every}],
            },
        ]
        for user, spaces in (("mallory", ("mal", "shared")), ("ann", ("vision", "shared"))):
            made += [_grant(user, role, space) for space in spaces for role in ("edit", "tenant")]
        made += [_grant(TRUSTED, "makes-pods", space) for space in SPACES]
        made += [_own_affinity(space) for space in SPACES]
        self.apply(made)
        for space in SPACES:
            self.plane.await_served(f"/api/v1/namespaces/{space}/serviceaccounts/default")
        self.until("the tenants' rights are there", lambda: not self.mallory.ask("GET", where("pods", "mal")).refused)

    def _cluster(self) -> None:
        self.apply([_queue(*each) for each in _QUEUES])
        self.apply([objects.priority_class("gold", 1_000_000)])
        self.apply([objects.service_class(name, **spec) for name, spec in _CLASSES.items()])
        for name in NODES:
            more = {"fairlead.dev/gpu-sharing": "fairlead-agent"} if name == "n4" else {}
            self.admin.makes(objects.node(name, gpus=GPUS, labels=more), "")
            self.admin.ask("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE)
        self.until("the policies are in force", self._guarded)

    def _guarded(self) -> bool:
        """Whether pods are stamped, and a queue refuses whom it does not admit."""
        probe = objects.pod("probe", gpus=0, scheduler="probe")
        made = self.mallory.ask("POST", where("pods", "mal"), probe)
        stamp = (made.body.get("metadata", {}).get("annotations") or {}).get(names.USER_ANNOTATION)
        self.admin.ask("DELETE", where("pods", "mal", "probe"), {"gracePeriodSeconds": 0})
        foreign = objects.pod("foreign", gpus=0, scheduler="probe", queue="vision")
        refused = self.mallory.ask("POST", where("pods", "mal"), foreign).refused
        self.admin.ask("DELETE", where("pods", "mal", "foreign"), {"gracePeriodSeconds": 0})
        return stamp == "mallory" and refused

    # -- processes -----------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.checkout / "src"), "COVERAGE_RUN": "", "COLUMNS": "200"}

    def _start(self) -> None:
        schema = json.loads(self.fairlead("scheduler", "--config-schema"))
        config = self.folder / "scheduler.yaml"
        config.write_text(yaml.safe_dump(_configuration(schema)))
        scheduler = ["scheduler", "--config", str(config), "--address", f"127.0.0.1:{self.metrics_port}"]
        for name in ("visibility", "external-metrics"):
            scheduler += [f"--{name}-address", f"127.0.0.1:{self.served[name]}"]
        operator = ["operator", "--address", "", "--history", f"sqlite:///{self.folder / 'history.db'}"]
        operator += ["--history-address", f"127.0.0.1:{self.served['history']}"]
        for user, arguments in ((SCHEDULER, scheduler), (OPERATOR, operator)):
            command = [*arguments, "--kubeconfig", str(self.plane.user(user, user))]
            self._processes[user] = command, self._spawn(user, command)
        self._stack.callback(self._end)
        for name in ("visibility.fairlead.dev/v1alpha1", "external.metrics.k8s.io/v1beta1", "history.fairlead.dev/v1alpha1"):
            self.until(f"{name} is served", lambda name=name: not self.admin.ask("GET", f"/apis/{name}").refused)  # type: ignore[misc]
        self.until("the scheduler has synced", lambda: '"synced"' in self.log(SCHEDULER))

    def _end(self) -> None:
        for _, process in self._processes.values():
            process.stop()

    def _spawn(self, user: str, command: list[str]) -> Process:
        log = self.folder / f"{user}.log"
        line = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "fairlead", *command]
        with log.open("ab") as file:
            popen = subprocess.Popen(line, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env=self._environment())
        return Process(user, popen, log)

    def log(self, user: str) -> str:
        """What a process has logged."""
        return self._processes[user][1].log.read_text(errors="replace")

    def died(self) -> list[str]:
        """Processes that ended by themselves, with the last error they logged; they are started again."""
        found = []
        for user, (command, process) in self._processes.items():
            if process.popen.poll() is None:
                continue
            log = process.log.read_text(errors="replace")
            last = re.findall(r"(the lease was lost|\w+(?:Error|Exception)\b[^\"\n]{0,120})", log)
            why = last[-1] if last else "nothing was said"
            found.append(f"{user} ended ({why}; exit code {process.popen.returncode})")
            lease = "fairlead-scheduler" if user == SCHEDULER else OPERATOR
            self.admin.ask("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease}")
            process.log.unlink()
            self._processes[user] = command, self._spawn(user, command)
            self.until(f"{user} leads again", lambda user=user: '"leading"' in self.log(user) or '"synced"' in self.log(user))  # type: ignore[misc]
        return found

    def ended(self) -> bool:
        """Whether a process has ended by itself."""
        return any(process.popen.poll() is not None for _, process in self._processes.values())

    def failed_passes(self) -> int:
        """How many passes of the scheduler have failed."""
        return self.log(SCHEDULER).count('"pass failed"')

    def metrics(self) -> str:
        """What the scheduler's /metrics says."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as reply:
            text: str = reply.read().decode()
        return text

    # -- looking -------------------------------------------------------------------------------

    def until(self, what: str, ask: Callable[[], object], limit: float = _LIMIT) -> Any:
        """The first true answer. Raises `RangeError` if there is none in time."""
        answer = self.soon(ask, limit)
        if not answer:
            logs = "\n".join(self.log(user)[-1500:] for user in self._processes)
            raise RangeError(f"not so within {limit:g} s: {what}\n{logs}")
        return answer

    def soon(self, ask: Callable[[], object], limit: float = SOON) -> Any:
        """The first true answer, or the last one."""
        deadline = time.monotonic() + limit
        while True:
            answer = ask()
            if answer or time.monotonic() > deadline:
                return answer
            time.sleep(0.05)

    def all(self, plural: str, namespace: str = "") -> list[dict[str, Any]]:
        """What there is of a kind, as the administrator sees it."""
        answer = self.admin.ask("GET", where(plural, namespace))
        items: list[dict[str, Any]] = (answer.body or {}).get("items", [])
        return items

    def get(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        """One object, or None."""
        answer = self.admin.ask("GET", where(plural, namespace, name))
        return None if answer.refused else answer.body

    def pods(self, namespace: str, prefix: str = "") -> dict[str, dict[str, Any]]:
        """Pods whose names begin so."""
        return {
            each["metadata"]["name"]: each for each in self.all("pods", namespace) if each["metadata"]["name"].startswith(prefix)
        }

    def count(self, namespace: str) -> int:
        """How many pods there are, without listing them."""
        found = self.admin.ask("GET", f"{where('pods', namespace)}?limit=1").body
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))

    def bound(self, namespace: str, prefix: str = "") -> list[str]:
        """Names of the pods that are bound and not on their way out."""
        found = self.pods(namespace, prefix).items()
        return [name for name, pod in found if is_bound(pod) and not pod["metadata"].get("deletionTimestamp")]

    def settled(self, namespace: str, prefix: str, count: int = 1, limit: float = SOON) -> list[str]:
        """The bound ones among pods of a prefix, once each of at least `count` is bound or told why it waits."""
        begun = time.monotonic()

        def judged() -> bool:
            pods = self.pods(namespace, prefix).values()
            # Of what was refused nothing comes: what is there already is waited for.
            whole = len(pods) >= count or ((self.refused or bool(self.refusals)) and time.monotonic() > begun + 1.5)
            return whole and all(is_bound(pod) or waits(pod)[0] for pod in pods)

        self.soon(judged, limit)
        return self.bound(namespace, prefix)

    def made(self, namespace: str, prefix: str) -> list[dict[str, Any]]:
        """Pods that a controller made of what an attack created; none if it was refused, or told FailedCreate."""

        def asked() -> list[dict[str, Any]] | bool:
            pods = [*self.pods(namespace, prefix).values()]
            return pods or self.failed_create(namespace, prefix)

        found = self.soon(asked, 1.5 if self.refused else 6.0)
        return found if isinstance(found, list) else []

    def failed_create(self, namespace: str, prefix: str) -> bool:
        """Whether an event says that pods of a workload were refused."""
        events = (self.admin.ask("GET", f"/api/v1/namespaces/{namespace}/events").body or {}).get("items", [])
        named = [each for each in events if each["involvedObject"].get("name", "").startswith(prefix)]
        if any(each.get("reason") in ("FailedCreate", "NotAllowed") for each in named):
            self.refusals.extend(str(each.get("message", ""))[:300] for each in named if each.get("reason") == "FailedCreate")
            return True
        return False

    def serves(self, name: str, *, gpus: int = 1, limit: float = SOON, namespace: str = "vision", **more: Any) -> bool:
        """Whether an ordinary pod of ann's is bound soon."""
        self.ann.makes(objects.pod(name, gpus=gpus, queue="vision", **more), namespace)
        return bool(self.soon(lambda: is_bound(self.get("pods", namespace, name) or {}), limit))

    def runs(self, person: Person, namespace: str, *pods: dict[str, Any]) -> None:
        """Ordinary pods, made and bound. Raises `RangeError`."""
        for pod in pods:
            person.makes(pod, namespace)
        names_of = [pod["metadata"]["name"] for pod in pods]
        self.until(f"{names_of} run", lambda: all(is_bound(self.get("pods", namespace, name) or {}) for name in names_of))

    def fails(self, namespace: str, name: str, exit_code: int = 1) -> None:
        """Play the kubelet: a pod's container ended with an error."""
        ended = {"name": "main", "state": {"terminated": {"exitCode": exit_code, "reason": "Error"}}}
        body = {"status": {"phase": "Failed", "containerStatuses": [ended]}}
        self.admin.ask("PATCH", f"{where('pods', namespace, name)}/status", body, MERGE)

    def not_admitted(self, namespace: str, name: str) -> None:
        """Play the kubelet: it refuses a pod that asks for more than its node has. KWOK, which does not, comes first."""
        path = where("pods", namespace, name)

        def phase() -> str:
            return str((self.admin.ask("GET", path).body.get("status") or {}).get("phase"))

        self.soon(lambda: phase() == "Running", 5.0)
        self.admin.ask("PATCH", f"{path}/status", {"status": {"phase": "Failed", "reason": "OutOfcpu"}}, MERGE)

    # -- between attacks -----------------------------------------------------------------------

    def reset(self) -> None:
        """Delete what tenants made and undo what was done to nodes and namespaces."""
        self.kept.clear()
        self.refusals.clear()
        self.until("what tenants made is gone", self._cleared, 90.0)
        self._deployment_back()
        marks = {"fairlead.dev/quarantined": None}
        notes = {"fairlead.dev/quarantined-until": None, "fairlead.dev/failures": None}
        for node in self.admin.ask("GET", "/api/v1/nodes").body["items"]:
            if {*marks, *notes} & {*node["metadata"].get("labels", {}), *node["metadata"].get("annotations", {})}:
                body = {"metadata": {"labels": marks, "annotations": notes}, "spec": {"taints": None, "unschedulable": None}}
                self.admin.ask("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", body, MERGE)

    def _cleared(self) -> bool:
        left = False
        for plural in (*(each for each in KINDS if each != "pods"), "pods"):
            for each in self.all(plural):
                metadata = each["metadata"]
                if metadata["namespace"] not in SPACES or metadata["name"].startswith(("older", "kube-root-ca")):
                    continue
                left = True
                if metadata.get("finalizers"):
                    self.admin.ask("PATCH", where(plural, metadata["namespace"], metadata["name"]), _FREE, MERGE)
                if not metadata.get("deletionTimestamp") or plural == "pods":
                    body = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
                    self.admin.ask("DELETE", where(plural, metadata["namespace"], metadata["name"]), body)
        for space in SPACES:
            self.admin.ask("DELETE", f"/apis/events.k8s.io/v1/namespaces/{space}/events")
        return not left

    def _deployment_back(self) -> None:
        path = where("deployments", "mal", "older")
        found = self.get("deployments", "mal", "older")
        if found is not None and found["spec"]["replicas"]:
            self.admin.ask("PATCH", path, {"spec": {"replicas": 0}}, MERGE)
            self.until("its pods are gone", lambda: not self.pods("mal", "older"))


_FREE = {"metadata": {"finalizers": None}}


def is_bound(pod: dict[str, Any]) -> bool:
    """Whether a pod has a node and has not ended."""
    return bool(pod.get("spec", {}).get("nodeName")) and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def waits(pod: dict[str, Any]) -> tuple[str, str]:
    """(reason, message) of PodScheduled=False, or empty."""
    for each in pod.get("status", {}).get("conditions", []):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return each.get("reason", ""), each.get("message", "")
    return "", ""


def stamp(thing: dict[str, Any]) -> str:
    """Whose an object says it is."""
    return str((thing.get("metadata", {}).get("annotations") or {}).get(names.USER_ANNOTATION, ""))


def gpus(pods: dict[str, dict[str, Any]]) -> int:
    """Whole GPUs that bound pods hold."""
    held = 0
    for pod in pods.values():
        if is_bound(pod):
            held += sum(
                int(each.get("resources", {}).get("requests", {}).get(objects.GPU, 0)) for each in pod["spec"]["containers"]
            )
    return held


def _configuration(schema: dict[str, Any]) -> dict[str, Any]:
    """The scheduler's file: short times, of the settings that this version knows."""
    given: dict[str, Any] = {"apiVersion": "config.fairlead.dev/v1alpha1", "kind": "SchedulerConfiguration"}
    wanted = {
        "backfill": {"patienceSeconds": PATIENCE},
        "preemption": {"budgetOverrideSeconds": OVERRIDE, "victimTimeoutSeconds": VICTIM, "maxGraceSeconds": 2},
    }
    defined = schema["$defs"]
    root = defined["Configuration"]["properties"]
    for section, settings in wanted.items():
        described = root.get(section, {})
        references = [each.get("$ref", "") for each in (described, *described.get("anyOf", ()))]
        known = [name for each in references for name in defined.get(each.rpartition("/")[2], {}).get("properties", {})]
        chosen = {name: value for name, value in settings.items() if name in known}
        if chosen:
            given[section] = chosen
    return given


_Q = tuple[str, dict[str, int], dict[str, Any]]
_QUEUES: tuple[_Q, ...] = (
    ("vision", {"quota": 16, "limit": 24}, {"namespaceSelector": {"matchLabels": {"team": "vision"}}}),
    ("mal", {"quota": 2, "limit": 4}, {}),
    ("borrow", {"quota": 0}, {}),
    ("anns", {"quota": 4}, {"users": ["ann"]}),
    ("per", {}, {"perUser": {"running": 2, "submitted": 4, "resources": {objects.GPU: 4}}}),
    (
        "org",
        {"quota": 0},
        {"namespaceSelector": {"matchLabels": {"team": "vision"}}, "users": ["ann"], "serviceClasses": ["batch"]},
    ),
    ("org-a", {"quota": 0}, {"parent": "org"}),
)
_CLASSES: dict[str, dict[str, Any]] = {
    "gold": {"users": ["ann"], "priorityClassName": "gold", "preemption": {"mode": "Never"}},
    "batch": {"timeLimit": {"default": "4s", "max": "6s"}},
    "never": {"preemption": {"mode": "Never"}, "users": ["ann"]},
}


def _queue(name: str, amounts: dict[str, int], spec: dict[str, Any]) -> dict[str, Any]:
    made = objects.queue(name, **amounts)
    made["spec"] |= spec
    return made


def _namespace(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _own_affinity(namespace: str) -> dict[str, Any]:
    """The quota of docs/security.md: pods of a tenant's namespace select pods of their own only."""
    scope = {"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tenants", "namespace": namespace},
        "spec": {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [scope]}},
    }


def _template(pod: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: pod["metadata"][name] for name in ("labels", "annotations")}
    return {"metadata": metadata, "spec": pod["spec"]}


def _grant(user: str, role: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": _RBAC,
        "kind": "RoleBinding",
        "metadata": {"name": f"{user.replace(':', '-')}-{role}", "namespace": namespace},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"},
    }


def _bound(role: dict[str, Any], user: str) -> dict[str, Any]:
    metadata = {**role["metadata"], "name": f"range-{role['metadata']['name']}"}
    metadata.pop("labels", None)
    return {
        "apiVersion": _RBAC,
        "kind": f"{role['kind']}Binding",
        "metadata": metadata,
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": role["kind"], "name": role["metadata"]["name"], "apiGroup": "rbac.authorization.k8s.io"},
    }


_FOREIGN = (("jobset.x-k8s.io", "v1alpha2", "JobSet"), ("autoscaling.x-k8s.io", "v1", "ProvisioningRequest"))


def _foreign_kind(group: str, version: str, kind: str) -> dict[str, Any]:
    """A kind of somebody else's, as far as these attacks need it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    singular = kind.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{singular}s.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": f"{singular}s", "singular": singular, "kind": kind, "listKind": f"{kind}List"},
            "versions": [served],
        },
    }

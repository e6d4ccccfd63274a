"""Runs one scenario on a cluster, whichever it is: see README.md beside this file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from testbed import objects

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.yaml"))
LIMIT = 40.0
QUIET = 5  # checks in a row that must succeed
_BASE = "/apis/fairlead.dev/v1alpha1"
_PLURALS = {
    "NodePool": "nodepools",
    "Queue": "queues",
    "ServiceClass": "serviceclasses",
    "Reservation": "reservations",
    "PriorityClass": "priorityclasses",
}
_VERSIONS = {"PriorityClass": "scheduling.k8s.io/v1"}

Request = Callable[..., Any]
"""(method, path, body, content type) -> the decoded answer; raises on refusals."""


class Story:
    """One scenario under way. request: to the API server; create_node: makes a node that is ready."""

    def __init__(self, file: Path, request: Request, create_node: Callable[[dict[str, Any]], None]) -> None:
        self.told = yaml.safe_load(file.read_text())
        self.request = request
        self.create_node = create_node
        self.jobs: dict[str, dict[str, Any]] = {}
        self.made: dict[str, int] = {}

    def run(self) -> None:
        """All steps; raises `AssertionError` for what does not come true."""
        for name, given in self.told["nodes"].items():
            self.create_node(objects.node(name, gpus=given.get("gpus", 8), labels=given.get("labels")))
        for manifest in self.told.get("objects", ()):
            self._apply(manifest)
        for number, step in enumerate(self.told["steps"]):
            self._do(step)
            self._await(step.get("then", {}), f"{self.told['about']}, step {number + 1}")

    # -- what is done --------------------------------------------------------------------------

    def _do(self, step: dict[str, Any]) -> None:
        for reference in step.get("delete", ()):
            kind, _, name = reference.partition("/")
            self.request("DELETE", f"{self._list(kind)}/{name}", {})
        for name in step.get("cancel", ()):
            job = self.jobs.pop(name)
            for pod in self._pods(name):
                self._delete(pod)
            if job.get("gang"):
                self.request("DELETE", f"{_BASE}/namespaces/default/podgroups/{name}", {})
        for manifest in step.get("apply", ()):
            self._apply(manifest)
        for name, count in step.get("end", {}).items():
            self.jobs[name]["pods"] -= count
            for pod in [pod for pod in self._pods(name) if _running(pod)][:count]:
                self._delete(pod)
        for name, job in step.get("submit", {}).items():
            self.jobs[name] = dict(job)
            if job.get("gang"):
                group = objects.pod_group(name, job["gang"], job.get("queue", ""))
                self.request("POST", objects.path(group), group)
        self._control()

    def _list(self, kind: str) -> str:
        return f"/apis/{_VERSIONS[kind]}/{_PLURALS[kind]}" if kind in _VERSIONS else f"{_BASE}/{_PLURALS[kind]}"

    def _apply(self, manifest: dict[str, Any]) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        full = {"apiVersion": _VERSIONS.get(kind, "fairlead.dev/v1alpha1"), **manifest}
        there = [each for each in self.request("GET", self._list(kind))["items"] if each["metadata"]["name"] == name]
        if there:
            full["metadata"] = {**full["metadata"], "resourceVersion": there[0]["metadata"]["resourceVersion"]}
            self.request("PUT", f"{self._list(kind)}/{name}", full)
        else:
            self.request("POST", self._list(kind), full)

    def _delete(self, pod: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        self.request("DELETE", path, {"gracePeriodSeconds": 0})

    def _control(self) -> None:
        """Play the jobs' controllers: pods that were evicted are made anew."""
        for name, job in self.jobs.items():
            for _ in range(job["pods"] - len([pod for pod in self._pods(name) if not pod["metadata"].get("deletionTimestamp")])):
                self.made[name] = self.made.get(name, 0) + 1
                labels = {"job": name}
                if job.get("class"):
                    labels["fairlead.dev/service-class"] = job["class"]
                annotations = {"fairlead.dev/user": job["user"]} if job.get("user") else {}
                if job.get("timeLimit"):
                    annotations["fairlead.dev/time-limit"] = job["timeLimit"]
                more = {"priorityClassName": job["priority"]} if job.get("priority") else {}
                if job.get("selector"):
                    more["nodeSelector"] = job["selector"]
                pod = objects.pod(
                    f"{name}-{self.made[name]}",
                    gpus=job.get("gpus", 1),
                    queue=job.get("queue", ""),
                    group=name if job.get("gang") else "",
                    labels=labels,
                    annotations=annotations,
                    **more,
                )
                pod["metadata"]["ownerReferences"] = [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{name}", "controller": True}
                ]
                self.request("POST", objects.path(pod), pod)

    # -- what is so ----------------------------------------------------------------------------

    def _pods(self, job: str) -> list[dict[str, Any]]:
        items = self.request("GET", "/api/v1/namespaces/default/pods")["items"]
        return [each for each in items if (each["metadata"].get("labels") or {}).get("job") == job]

    def _await(self, then: dict[str, Any], where: str) -> None:
        deadline, quiet = time.monotonic() + LIMIT, 0
        while quiet < QUIET:
            self._control()
            wrong = self._wrong(then)
            quiet = 0 if wrong else quiet + 1
            if wrong and time.monotonic() > deadline:
                raise AssertionError(f"{where}: {'; '.join(wrong)}")
            time.sleep(0.1)

    def _wrong(self, then: dict[str, Any]) -> list[str]:
        wrong = []
        pods = {name: self._pods(name) for name in {*then.get("running", ()), *then.get("waiting", ()), *then.get("reasons", ())}}
        for name, count in then.get("running", {}).items():
            found = sum(_running(pod) for pod in pods[name])
            if found != count:
                wrong.append(f"{found} pods of {name} run, not {count}")
        for name, count in then.get("waiting", {}).items():
            found = sum(not pod["spec"].get("nodeName") for pod in pods[name])
            if found != count:
                wrong.append(f"{found} pods of {name} wait, not {count}")
        for name, allowed in then.get("reasons", {}).items():
            reasons = {_reason(pod) for pod in pods[name] if not pod["spec"].get("nodeName")}
            reasons = {"Resources" if each == "Unschedulable" and "Resources" in allowed else each for each in reasons}
            if not reasons or not reasons <= set(allowed):
                wrong.append(f"pods of {name} wait for {sorted(map(str, reasons))}, not {allowed}")
        for reference, (accepted, reason) in then.get("accepted", {}).items():
            kind, _, name = reference.partition("/")
            seen = self.request("GET", f"{self._list(kind)}/{name}").get("status") or {}
            found = [(each["status"], each["reason"]) for each in seen.get("conditions") or () if each["type"] == "Accepted"]
            if found != [("True" if accepted else "False", reason)]:
                wrong.append(f"{reference} is {found}, not {accepted}, {reason}")
        return wrong


def _running(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName")) and not pod["metadata"].get("deletionTimestamp")


def _reason(pod: dict[str, Any]) -> str | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition["reason"])
    return None

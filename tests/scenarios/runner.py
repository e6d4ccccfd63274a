"""Runs one scenario on a cluster, whichever it is: see README.md beside this file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from testbed import objects

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.yaml"))
LIMIT = 40.0
RACK = "topology.example/rack"
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
        self.noted: dict[str, dict[str, str]] = {}  # of jobs whose racks are noted: index -> rack
        self.before: dict[str, str] = {}  # of pods that ran when the step began: name -> node

    def run(self) -> None:
        """All steps; raises `AssertionError` for what does not come true."""
        for name, given in {**self.told.get("nodes", {}), **_racks(self.told.get("racks", {}))}.items():
            more = {key: given[key] for key in ("cpu", "memory") if key in given}
            self.create_node(objects.node(name, gpus=given.get("gpus", 8), labels=given.get("labels"), **more))
        for manifest in self.told.get("objects", ()):
            self._apply(manifest)
        for number, step in enumerate(self.told["steps"]):
            self.before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in self._all_pods() if _running(pod)}
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
        for name in step.get("fail", ()):
            # The node goes first: what waits must not get its place before it is gone.
            node = self._node_of(name)
            there = [pod for pod in self._all_pods() if pod["spec"].get("nodeName") == node]
            self.request("DELETE", f"/api/v1/nodes/{node}", {})
            for pod in there:
                self._delete(pod)
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
                group["spec"] |= {key: job[key] for key in ("topology", "serviceClass") if key in job}
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
            there = [pod for pod in self._pods(name) if not pod["metadata"].get("deletionTimestamp")]
            free = sorted({str(index) for index in range(job["pods"])} - {_index(pod) for pod in there}, key=int)
            for index in free[: job["pods"] - len(there)]:
                self.made[name] = self.made.get(name, 0) + 1
                labels = {"job": name, "fairlead.dev/index": index}
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
                    **{key: str(job[key]) for key in ("cpu", "memory") if key in job},
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

    def _all_pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.request("GET", "/api/v1/namespaces/default/pods")["items"]
        return found

    def _node_of(self, reference: str) -> str:
        """The node of a job's member, `job/index`."""
        job, _, index = reference.partition("/")
        return next(str(pod["spec"]["nodeName"]) for pod in self._pods(job) if _index(pod) == index)

    def _racks_of(self, job: str) -> dict[str, str]:
        """By index, the racks of a job's pods that run."""
        nodes = self.request("GET", "/api/v1/nodes")["items"]
        racks = {node["metadata"]["name"]: node["metadata"]["labels"].get(RACK, "") for node in nodes}
        return {_index(pod): racks.get(pod["spec"]["nodeName"], "") for pod in self._pods(job) if _running(pod)}

    def _whole_racks(self) -> int:
        """How many racks have no pod."""
        nodes = self.request("GET", "/api/v1/nodes")["items"]
        used = {pod["spec"].get("nodeName") for pod in self._all_pods()}
        by_rack: dict[str, bool] = {}
        for node in nodes:
            rack = node["metadata"]["labels"].get(RACK, "")
            by_rack[rack] = by_rack.get(rack, True) and node["metadata"]["name"] not in used
        return sum(by_rack.values())

    def _pods(self, job: str) -> list[dict[str, Any]]:
        return [each for each in self._all_pods() if (each["metadata"].get("labels") or {}).get("job") == job]

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
        wrong += list(self._wrong_racks(then))
        for reference, (accepted, reason) in then.get("accepted", {}).items():
            kind, _, name = reference.partition("/")
            seen = self.request("GET", f"{self._list(kind)}/{name}").get("status") or {}
            found = [(each["status"], each["reason"]) for each in seen.get("conditions") or () if each["type"] == "Accepted"]
            if found != [("True" if accepted else "False", reason)]:
                wrong.append(f"{reference} is {found}, not {accepted}, {reason}")
        return wrong

    def _wrong_racks(self, then: dict[str, Any]) -> Iterator[str]:
        """What is not so of where jobs run on the network."""
        for name, expected in then.get("racks", {}).items():
            counts = sorted(Counter(self._racks_of(name).values()).values())
            if counts != expected:
                yield f"{name} has {counts} pods in racks, not {expected}"
        for name, size in then.get("slices", {}).items():
            racks = self._racks_of(name)
            for first in range(0, self.jobs[name]["pods"], size):
                found = {racks.get(str(index), "nowhere") for index in range(first, min(first + size, self.jobs[name]["pods"]))}
                if len(found) != 1 or found & {"", "nowhere"}:
                    yield f"members of {name} from {first} on are in {sorted(found)}"
        for name in then.get("note", ()):
            self.noted[name] = self._racks_of(name)
        for name in then.get("as_noted", ()):
            if self._racks_of(name) != self.noted[name]:
                yield f"{name} is in {self._racks_of(name)}, not {self.noted[name]}"
        for name, count in then.get("spares", {}).items():
            group = self.request("GET", f"{_BASE}/namespaces/default/podgroups/{name}")
            kept = ((group.get("status") or {}).get("spares") or {}).get("kept", 0)
            if kept != count:
                yield f"{name} keeps {kept} spare places, not {count}"
        if "whole" in then and (found_whole := self._whole_racks()) < then["whole"]:
            yield f"{found_whole} racks have no pod, not {then['whole']}"
        if "stopped" in then:
            there = {pod["metadata"]["uid"] for pod in self._all_pods()}
            gone = len([uid for uid in self.before if uid not in there])
            if gone != then["stopped"]:
                yield f"{gone} pods that ran are gone, not {then['stopped']}"


def _racks(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Nodes in racks, whose names are not in the order of racks. given: `sizes`, and what each node has."""
    sizes = given.get("sizes", [])
    slots = [(place, rack) for rack, size in enumerate(sizes) for place in range(size)]
    more = {key: value for key, value in given.items() if key != "sizes"}
    return {f"n{place:02}-{rack:02}": {**more, "labels": {RACK: f"r{rack}"}} for place, rack in slots}


def _index(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"].get("fairlead.dev/index", ""))


def _running(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName")) and not pod["metadata"].get("deletionTimestamp")


def _reason(pod: dict[str, Any]) -> str | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition["reason"])
    return None

"""Control planes that tests ask for: a module sets `PLANE`, and its fixture `plane` (conftest.py) is that one.

A module without one shares the plane of its worker: an API server, RBAC, and the rights of the scheduler.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from testbed import tenants
from testbed.controlplane import ControlPlane
from testbed.objects import priority_class

USER = "fairlead"
OPERATOR = "fairlead-operator"
NO_SERVICE_ACCOUNTS = "--disable-admission-plugins=ServiceAccount"
"""Pods are admitted though no controller makes the ServiceAccount that they would run as."""
COLLECTS = "serviceaccount-controller,garbage-collector-controller"
"""Controllers that a job's objects need to go with it."""


class Plane(NamedTuple):
    """One control plane. operator: its rights are granted, too; prepare: what is there before the first test; else `ControlPlane`."""

    controllers: str = ""
    flags: Sequence[str] = ()
    kwok: bool = False
    controller_flags: Sequence[str] = ()
    operator: bool = False
    prepare: Callable[[ControlPlane], object] = lambda _: None

    @contextlib.contextmanager
    def started(self) -> Iterator[ControlPlane]:
        with ControlPlane(self.controllers, self.kwok, self.flags, self.controller_flags) as running:
            running.install(USER)
            if self.operator:
                running.grant(OPERATOR)
            self.prepare(running)
            yield running


AI_JOBS = Plane(COLLECTS, [NO_SERVICE_ACCOUNTS], operator=True)
"""What AIJobs need."""


def with_urgent(plane: ControlPlane) -> None:
    """A PriorityClass `urgent`."""
    plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority_class("urgent", 1000))


def with_namespace(name: str) -> Callable[[ControlPlane], object]:
    """A namespace without pods."""
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return lambda plane: plane.request("POST", "/api/v1/namespaces", manifest)


def with_tenant(name: str) -> Callable[[ControlPlane], object]:
    """A namespace of a tenant."""
    return lambda plane: tenants.namespace(plane, name)


def with_editor(namespace: str, user: str) -> Callable[[ControlPlane], object]:
    """A namespace in which one user may do what ClusterRole `edit` allows, and nothing else."""
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{user}-edits"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }

    def prepare(plane: ControlPlane) -> None:
        with_namespace(namespace)(plane)
        plane.request("POST", f"/apis/{group}/v1/namespaces/{namespace}/rolebindings", binding)

    return prepare

"""What pods ask for, as kube-scheduler counts it: exact amounts, rounded up once, at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import msgspec

from fairlead.api import quantity
from fairlead.api.quantity import SANE_MAXIMUM, QuantityError
from fairlead.cluster import views

Exact = dict[str, int | Fraction]

_POD_LEVEL = ("cpu", "memory")  # and hugepages-*: pod-level requests replace the sum of the containers'
_AMOUNTS = ("cpu", "memory", "ephemeral-storage")
RESIZE_PENDING = "PodResizePending"
"""The condition of a pod whose resize in place is not carried out yet."""
_UNASKED: Exact = {"cpu": 100, "memory": 200 << 20}
"""With how much a container counts in scores that asks for none: milli-CPU and bytes."""


def pod_requests(view: views.Pod) -> dict[str, int]:
    """What a pod asks for, or holds if it runs: (resource, base units); resources that nodes do not count are left out.

    Containers and sidecars run together; an init container runs beside the sidecars declared before it. Pod-level
    requests replace cpu, memory and hugepages; overhead comes on top. While a pod is being resized in place, the
    greatest of what is wanted, allocated and in force counts. Raises `QuantityError`.
    """
    return _rounded(_total(view, {}))


def scored_requests(view: views.Pod) -> tuple[tuple[int, int], tuple[int, int]]:
    """(milli-CPU, bytes) with which a pod counts in scores: once it is on a node, and while one is sought.

    The two differ only with pod-level requests. On a node these count, and a resource that they or some container
    give is not filled up for containers without; while a node is sought they do not count, as upstream.
    Raises `QuantityError`.
    """
    once = _rounded(_total(view, _UNASKED))
    now = once
    if _pod_level(view.spec.resources):
        given = _total(view, {})
        once = _rounded(_total(view, {resource: amount for resource, amount in _UNASKED.items() if resource not in given}))
        now = _rounded(_total(view, _UNASKED, pod_level=False))
    return (once.get("cpu", 0), once.get("memory", 0)), (now.get("cpu", 0), now.get("memory", 0))


def _total(view: views.Pod, fill: Exact, *, pod_level: bool = True) -> Exact:
    """Everything together, exact. fill: what containers count with that do not ask for a resource."""
    spec = view.spec
    state = _Resizing(view)
    total: Exact = {}
    for container in spec.containers:
        _add(total, _filled(state.of(container), fill))
    if spec.init_containers:
        sidecars: Exact = {}
        steps: Exact = {}
        for container in spec.init_containers:
            if container.restart_policy == "Always":
                requests = _filled(state.of(container), fill)
                _add(total, requests)
                _add(sidecars, requests)
                step = sidecars
            else:
                step = _filled(_requests(container.resources), fill)
                _add(step, sidecars)
            _raise_to(steps, step)
        _raise_to(total, steps)
    if pod_level:
        total |= state.whole(spec.resources)
    if spec.overhead:
        _add(total, _exact(spec.overhead))
    return total


def defaulted(view: views.Pod) -> views.Pod:
    """A pod of a template, as the API server makes it: where it has a limit and no request, it requests its limit.

    Pods that the API server has are so already, those of templates are not. What the containers request stands before the
    limit of the pod as a whole.
    """
    spec = view.spec
    containers = [_limited(each) for each in spec.containers]
    inits = [_limited(each) for each in spec.init_containers] if spec.init_containers else spec.init_containers
    whole = spec.resources
    if whole is not None and whole.limits:
        asked = {name for each in (*containers, *(inits or ())) if each.resources for name in each.resources.requests or ()}
        limits = {name: text for name, text in whole.limits.items() if name not in asked}
        whole = msgspec.structs.replace(whole, requests={**limits, **(whole.requests or {})})
    made = msgspec.structs.replace(spec, containers=containers, init_containers=inits, resources=whole)
    return msgspec.structs.replace(view, spec=made)


def _limited(container: views.Container) -> views.Container:
    given = container.resources
    if given is None or not given.limits:
        return container
    requests = {**given.limits, **(given.requests or {})}
    return msgspec.structs.replace(container, resources=msgspec.structs.replace(given, requests=requests))


class _Resizing:
    """What counts while containers are being resized: the greatest of wanted, allocated and in force."""

    def __init__(self, view: views.Pod) -> None:
        status = view.status or views.PodStatus()
        self.status = status
        self.containers = {
            each.name: each
            for each in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
            if each.resources is not None
        }
        pending = next((each for each in status.conditions or () if each.type == RESIZE_PENDING), None)
        self.infeasible = pending is not None and pending.reason == "Infeasible"

    def of(self, container: views.Container) -> Exact:
        """The requests of a container."""
        wanted = _requests(container.resources)
        status = self.containers.get(container.name)
        if status is None:
            return wanted
        return self._greatest(wanted, _requests(status.resources), _exact(status.allocated_resources or {}))

    def whole(self, resources: views.Resources | None) -> Exact:
        """The requests of the pod as a whole."""
        wanted = _pod_level(resources)
        if not wanted or self.status.resources is None:
            return wanted
        greatest = self._greatest(
            _requests(resources), _requests(self.status.resources), _exact(self.status.allocated_resources or {})
        )
        return {resource: greatest.get(resource, 0) for resource in wanted}

    def _greatest(self, wanted: Exact, actuated: Exact, allocated: Exact) -> Exact:
        result: Exact = {}
        for each in (actuated, allocated) if self.infeasible else (wanted, actuated, allocated):
            _raise_to(result, each)
        return result


def _pod_level(resources: views.Resources | None) -> Exact:
    return {
        resource: amount
        for resource, amount in _requests(resources).items()
        if resource in _POD_LEVEL or resource.startswith("hugepages-")
    }


def _requests(resources: views.Resources | None) -> Exact:
    return _exact(resources.requests) if resources is not None and resources.requests else {}


def _exact(quantities: Mapping[str, str | int | float]) -> Exact:
    result: Exact = {}
    for resource, text in quantities.items():
        try:
            result[resource] = quantity.exact(resource, text)
        except QuantityError as error:
            raise QuantityError(f"{resource}: {error}", too_large=error.too_large) from error
    return result


def _filled(requests: Exact, fill: Exact) -> Exact:
    return {**fill, **requests}


def _add(total: Exact, more: Exact) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _raise_to(total: Exact, least: Exact) -> None:
    for resource, amount in least.items():
        total[resource] = max(total.get(resource, 0), amount)


def _rounded(total: Exact) -> dict[str, int]:
    result = {}
    for resource, amount in total.items():
        if amount > SANE_MAXIMUM:
            raise QuantityError(f"{resource}: the containers together ask for more than any machine has", too_large=True)
        if counted(resource):
            result[resource] = math.ceil(amount)
    return result


def counted(resource: str) -> bool:
    """Whether nodes count a resource: the basic ones, huge pages, attachable volumes, and names with a domain."""
    if resource in _AMOUNTS or resource.startswith(("hugepages-", "attachable-volumes-")):
        return True
    domain, slash, name = resource.partition("/")
    if not slash:
        return False
    return "kubernetes.io/" in resource or (bool(domain and name) and not resource.startswith("requests."))

"""The extended resources that a pod's containers request, as requests of a ResourceClaim would name them."""

from __future__ import annotations

from fractions import Fraction

from fairlead.api import quantity
from fairlead.api.quantity import QuantityError
from fairlead.cluster import views
from fairlead.core.model.pods import ExtendedRequest

_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_NATIVE = "kubernetes.io/"  # anywhere in a name: not an extended resource, but one of Kubernetes itself
_QUOTA = "requests."


def extended_requests(view: views.Pod) -> tuple[ExtendedRequest, ...]:
    """What each container requests of extended resources, init containers first, whether a DeviceClass serves them or not.

    A request is named by the position of its container and that of the resource among all that it requests, by name, as
    upstream's scheduler does. Amounts that are no whole numbers above zero are left out.
    """
    first = view.spec.init_containers or ()
    found = []
    for position, container in enumerate((*first, *view.spec.containers)):
        requested = (container.resources.requests if container.resources is not None else None) or {}
        if not any("/" in each for each in requested):
            continue
        brief = position < len(first) and container.restart_policy != "Always"
        for at, resource in enumerate(sorted(requested)):
            amount = _whole(requested[resource]) if is_extended(resource) else 0
            if amount:
                name = f"container-{position}-request-{at}"
                found.append(ExtendedRequest(container.name, position, resource, name, amount, brief))
    return tuple(found)


def is_extended(resource: str) -> bool:
    """Whether a resource can be one that a DeviceClass serves: an extended resource, or one that has the name of a class."""
    if resource.startswith(_IMPLICIT):
        return True
    return "/" in resource and _NATIVE not in resource and not resource.startswith(_QUOTA)


def _whole(amount: object) -> int:
    try:
        found: int | Fraction = quantity.exact("", amount)
    except QuantityError:
        return 0  # the pod's own error names it
    return found if isinstance(found, int) and found > 0 else 0

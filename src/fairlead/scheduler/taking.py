"""How the state takes in each kind of objects: what is called when one comes or changes, and when one is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fairlead.api.reasons import Reason
from fairlead.cluster.kinds import (
    BUDGET,
    DEVICES,
    NAMESPACE,
    NODE,
    NODE_POOL,
    NODE_TOPOLOGY,
    OF_OBJECT,
    POD,
    POD_GROUP,
    QUEUE,
    RESERVATION,
    SERVICE_CLASS,
    STORAGE,
    Kind,
    complete,
)
from fairlead.cluster.port import Gone, Upsert
from fairlead.core.state.cluster import ClusterState

_Taken = Callable[[ClusterState, Any], Reason | None]
_Removed = Callable[[ClusterState, str], object]


def _of_storage(kind: Kind[Any]) -> tuple[_Taken, _Removed]:
    made = kind.made or object
    return lambda state, about: state.upsert_storage(about), lambda state, key: state.remove_storage(made, key)


def _of_devices(kind: Kind[Any]) -> tuple[_Taken, _Removed]:
    made = kind.made or object
    return lambda state, about: state.claims.upsert(about), lambda state, key: state.claims.remove(made, key)


_TAKEN: Mapping[str, tuple[_Taken, _Removed]] = complete(
    {
        NAMESPACE.name: (lambda state, about: state.upsert_namespace(about), lambda state, key: state.remove_namespace(key)),
        SERVICE_CLASS.name: (lambda state, about: state.upsert_class(about), lambda state, key: state.remove_class(key)),
        QUEUE.name: (lambda state, about: state.upsert_queue(about), lambda state, key: state.remove_queue(key)),
        NODE_POOL.name: (lambda state, about: state.upsert_pool(about), lambda state, key: state.remove_pool(key)),
        RESERVATION.name: (
            lambda state, about: state.upsert_reservation(about),
            lambda state, key: state.remove_reservation(key),
        ),
        NODE.name: (lambda state, about: state.upsert_node(about), lambda state, key: state.remove_node(key)),
        NODE_TOPOLOGY.name: (
            lambda state, about: state.numa.upsert(about),
            lambda state, key: state.numa.remove(key),
        ),
        BUDGET.name: (lambda state, about: state.upsert_budget(about), lambda state, key: state.remove_budget(key)),
        POD_GROUP.name: (lambda state, about: state.upsert_group(about), lambda state, key: state.remove_group(key)),
        POD.name: (lambda state, about: state.upsert_pod(about), lambda state, key: state.remove_pod(key)),
        **{kind.name: _of_storage(kind) for kind in STORAGE},
        **{kind.name: _of_devices(kind) for kind in DEVICES},
    },
    tuple(OF_OBJECT.values()),
)


def upsert(state: ClusterState, event: Upsert) -> Reason | None:
    """An object came or changed. Returns why a queue is refused."""
    return _TAKEN[OF_OBJECT[type(event.object)].name][0](state, event.object)


def remove(state: ClusterState, event: Gone) -> None:
    """An object is gone."""
    _TAKEN[event.kind][1](state, event.key)

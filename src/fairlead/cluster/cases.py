"""Clusters as files: objects in Kubernetes JSON, one cluster per line, for `fairlead feasibility --cases`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.cluster import convert, device_views, storage_views, views, workloads
from fairlead.core.feasibility import Judgement, judge
from fairlead.core.model.policy import Policy
from fairlead.core.pods.tasks import Task
from fairlead.core.state.cluster import ClusterState

_ALL_SCHEDULERS = {names.ANY_SCHEDULER: names.KUBERNETES_PROFILE}


class Case(views.View):
    """One cluster; whatever is absent does not exist."""

    id: Any = None
    nodes: list[views.Node] | None = None
    pods: list[views.Pod] | None = None
    namespaces: list[views.Namespace] | None = None
    services: list[workloads.PlainWorkload] | None = None
    replication_controllers: list[workloads.PlainWorkload] | None = None
    replica_sets: list[workloads.Workload] | None = None
    stateful_sets: list[workloads.Workload] | None = None
    persistent_volumes: list[storage_views.Volume] | None = None
    persistent_volume_claims: list[storage_views.Claim] | None = None
    storage_classes: list[storage_views.StorageClass] | None = None
    csi_nodes: list[storage_views.NodeDrivers] | None = None
    csi_drivers: list[storage_views.Driver] | None = None
    csi_storage_capacities: list[storage_views.StorageCapacity] | None = None
    volume_attachments: list[storage_views.Attachment] | None = None
    resource_slices: list[device_views.ResourceSlice] | None = None
    device_classes: list[device_views.DeviceClass] | None = None
    resource_claims: list[device_views.ResourceClaim] | None = None
    resource_claim_templates: list[device_views.ResourceClaimTemplate] | None = None
    pod_disruption_budgets: list[views.Budget] | None = None


class Loaded:
    """A case as a state of the core. waiting: the pods without a node, in the order given."""

    def __init__(self, case: Case) -> None:
        self.state = ClusterState(Policy())
        state = self.state
        belongs = workloads.Workloads()
        selectors: tuple[tuple[str, Sequence[workloads.PlainWorkload | workloads.Workload] | None], ...] = (
            ("services", case.services),
            ("replicationcontrollers", case.replication_controllers),
            ("replicasets", case.replica_sets),
            ("statefulsets", case.stateful_sets),
        )
        for kind, selecting in selectors:
            for each in selecting or ():
                belongs.upsert(kind, each)
        for namespace in case.namespaces or ():
            state.upsert_namespace(convert.namespace(namespace))
        self._load_storage(case)
        self._load_devices(case)
        for budget in case.pod_disruption_budgets or ():
            state.upsert_budget(convert.budget(budget))
        for node in case.nodes or ():
            state.upsert_node(convert.node(node))
        self.waiting: list[Task] = []
        self.nominated: dict[str, list[Task]] = {}
        for number, view in enumerate(case.pods or ()):
            if not view.metadata.uid:
                view.metadata.uid = f"{view.metadata.namespace}/{view.metadata.name}#{number}"
            pod = convert.pod(view, "default", _ALL_SCHEDULERS, belongs)
            state.upsert_pod(pod)
            task = state.tasks.get(pod.uid)
            if task is not None and not pod.node:
                self.waiting.append(task)
                if pod.nominated:
                    self.nominated.setdefault(pod.nominated, []).append(task)

    def _load_storage(self, case: Case) -> None:
        state = self.state
        for items in (
            case.persistent_volumes,
            case.persistent_volume_claims,
            case.storage_classes,
            case.csi_nodes,
            case.csi_drivers,
            case.csi_storage_capacities,
            case.volume_attachments,
        ):
            for item in items or ():
                state.upsert_storage(storage_views.convert(item))
        state.storage.known = True

    def _load_devices(self, case: Case) -> None:
        state = self.state
        for objects in (case.resource_slices, case.device_classes, case.resource_claim_templates, case.resource_claims):
            for item in objects or ():
                state.claims.upsert(device_views.device_object(item))
        state.claims.all_known()

    def judgements(self) -> list[tuple[Task, Judgement]]:
        """Every waiting pod, each judged against the same cluster."""
        return [(task, self.judgement(task)) for task in self.waiting]

    def judgement(self, task: Task) -> Judgement:
        """One waiting pod."""
        return judge(self.state, task, self.nominated)


def decode(line: bytes) -> Case:
    """One line of a file of cases; null stands for absent. Raises `ValueError` with what is wrong with it."""
    try:
        try:
            return msgspec.json.decode(line, type=Case)
        except msgspec.ValidationError:
            return msgspec.convert(_without_nulls(msgspec.json.decode(line)), Case)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not a cluster: {error}") from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value if each is not None]
    return value

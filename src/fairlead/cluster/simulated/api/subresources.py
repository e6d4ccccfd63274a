"""Subresources with verbs of their own: binding and eviction of pods, scale of workloads."""

from __future__ import annotations

from typing import Any

from fairlead.cluster.simulated import admission, errors, selectors
from fairlead.cluster.simulated.api.changing import Changing
from fairlead.cluster.simulated.api.definitions import Definitions
from fairlead.cluster.simulated.api.deleting import Deleting
from fairlead.cluster.simulated.api.preconditions import check_uid
from fairlead.cluster.simulated.api.reading import Reading
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import BUDGETS, PODS, Catalog, Resource
from fairlead.cluster.simulated.store import Object, Record, Store


class Subresources:
    """Binds and evicts pods, reads and sets scales."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        clock: Clock,
        definitions: Definitions,
        reading: Reading,
        changing: Changing,
        deleting: Deleting,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._definitions = definitions
        self._reading = reading
        self._changing = changing
        self._deleting = deleting

    def bind(self, namespace: str, name: str, binding: Object, *, dry_run: bool = False) -> None:
        """The `binding` subresource of a pod. Raises `StatusError`."""
        resource = self._definitions.served("v1", "pods")
        binding = {**binding, "metadata": binding.get("metadata") or {}}
        target = binding.get("target") or {}
        if target.get("kind") not in (None, "", "Node"):
            cause = errors.unsupported("target.kind", target["kind"], "Node")
            raise errors.invalid("", "Binding", name, [cause])
        if not target.get("name"):
            raise StatusError(500, "", "target.name: Required value")
        given = binding["metadata"]
        admission.admit(
            self._store, self._catalog, admission.Request(resource, "CREATE", namespace, name, binding, subresource="binding")
        )
        record = self._reading.get(resource, namespace, name)
        pod = record.object
        metadata = pod["metadata"]
        if given.get("uid"):
            check_uid(resource, name, given["uid"], pod)
        if given.get("resourceVersion") not in (None, "", metadata["resourceVersion"]):
            detail = (
                f"Precondition failed: ResourceVersion in precondition: {given['resourceVersion']}, "
                f"ResourceVersion in object meta: {metadata['resourceVersion']}"
            )
            raise errors.conflict("", "pods", name, detail)
        if metadata.get("deletionTimestamp"):
            raise errors.conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
        spec = pod["spec"]
        if spec.get("nodeName"):
            raise errors.conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
        if spec.get("schedulingGates"):
            raise errors.conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
        if dry_run:
            return
        marked = {**metadata}
        if given.get("annotations"):
            marked["annotations"] = {**(metadata.get("annotations") or {}), **given["annotations"]}
        if "generation" in marked:
            marked["generation"] += 1
        status = dict(pod.get("status") or {})
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": self._clock.text()}
        status["conditions"] = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"] + [
            scheduled
        ]
        bound = {**pod, "metadata": marked, "spec": {**spec, "nodeName": target["name"]}, "status": status}
        self._store.put(PODS, (namespace, name), bound)

    def evict(self, namespace: str, name: str, eviction: Object, *, dry_run: bool = False) -> None:
        """The `eviction` subresource: delete, if no disruption budget forbids it. Raises `StatusError`."""
        resource = self._definitions.served("v1", "pods")
        pod = self._reading.get(resource, namespace, name).object
        options = eviction.get("deleteOptions") or {}
        dry_run = dry_run or "All" in (options.get("dryRun") or ())
        phase = (pod.get("status") or {}).get("phase")
        uid = (options.get("preconditions") or {}).get("uid")
        if uid:
            check_uid(resource, name, uid, pod)
        if phase not in ("Pending", "Succeeded", "Failed") and not pod["metadata"].get("deletionTimestamp"):
            self._ask_budgets(namespace, pod, dry_run=dry_run)
        if not dry_run:
            self._deleting.delete(resource, namespace, name, {name: value for name, value in options.items() if name != "dryRun"})

    def _ask_budgets(self, namespace: str, pod: Object, *, dry_run: bool) -> None:
        labels = pod["metadata"].get("labels") or {}
        budgets = [
            (key, record.object)
            for key, record in self._store.sorted(BUDGETS, namespace)
            if selectors.in_object((record.object.get("spec") or {}).get("selector"))(labels)
        ]
        if len(budgets) > 1:
            raise StatusError(
                500,
                "InternalError",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                {},
            )
        for key, budget in budgets:
            status = budget.get("status") or {}
            allowed = status.get("disruptionsAllowed", 0)
            if allowed <= 0:
                needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
                cause = {
                    "reason": "DisruptionBudget",
                    "message": f"The disruption budget {key[1]} needs {needed} healthy pods and has {healthy} currently",
                }
                message = "Cannot evict pod as it would violate the pod's disruption budget."
                raise StatusError(429, "TooManyRequests", message, {"causes": [cause]})
            if not dry_run:
                self._store.put(BUDGETS, key, _with(budget, status={**status, "disruptionsAllowed": allowed - 1}))

    def scale(self, resource: Resource, record: Record) -> Object:
        """The Scale of a workload."""
        obj = record.object
        metadata = obj["metadata"]
        selector = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {
                name: metadata[name]
                for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
                if name in metadata
            },
            "spec": _nonzero(replicas=(obj.get("spec") or {}).get("replicas", 0)),
            "status": {
                "replicas": (obj.get("status") or {}).get("replicas", 0),
                "selector": ",".join(f"{key}={value}" for key, value in sorted(selector.items())),
            },
        }

    def set_scale(self, resource: Resource, namespace: str, name: str, scale: Object, *, dry_run: bool = False) -> Object:
        """Change the number of replicas."""
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        if not isinstance(replicas, int) or replicas < 0:
            raise errors.invalid(
                "autoscaling",
                "Scale",
                name,
                [errors.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")],
            )
        record = self._reading.get(resource, namespace, name)
        live = record.object
        version = (scale.get("metadata") or {}).get("resourceVersion", "")
        wanted = {
            **live,
            "metadata": {**live["metadata"], "resourceVersion": version},
            "spec": {**(live.get("spec") or {}), "replicas": replicas},
        }
        self._changing.replace(resource, (namespace, name), record, wanted, "scale", ("", "Update", "scale"), dry_run=dry_run)
        return self.scale(resource, self._reading.get(resource, namespace, name))


def _with(obj: Object, **fields: Any) -> Object:
    """A copy with other top-level fields and metadata of its own."""
    return {**obj, **fields, "metadata": dict(obj["metadata"])}


def _nonzero(**numbers: int) -> dict[str, int]:
    return {name: number for name, number in numbers.items() if number}

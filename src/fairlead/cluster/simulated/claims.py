"""The resourceclaim controller: claims for pods with templates, reservations of pods that are over, deallocation.

What it does and in which order is that of kube-controller-manager 1.36 (`pkg/controller/resourceclaim`): a claim is made with the
pod as its owner and noted in the pod's status; a pod that has ended, or was deleted before it had a node, loses its
reservations; a claim that nothing reserves any more loses its allocation and its finalizer, and is deleted if its pod
will not run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from fairlead.cluster.simulated import pod_claims
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.pod_claims import PodClaim
from fairlead.cluster.simulated.recording import Recorder
from fairlead.cluster.simulated.resources import CLAIMS, PODS, TEMPLATES
from fairlead.cluster.simulated.store import Change, Key, Object

FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
_OVER = ("Succeeded", "Failed")
_LONGEST_BASE = 57
_SHORTEST_RETRY, _LONGEST_RETRY = 0.005, 1000.0  # seconds, doubled from one to the other
Item = tuple[str, Key]
_Of = TypeVar("_Of", Key, str)


class Failed(Exception):
    """Why a claim of a pod cannot be made now."""


def over(pod: Object) -> bool:
    """Whether none of a pod's containers runs, or ever will."""
    ended = (pod.get("status") or {}).get("phase") in _OVER
    return ended or bool(pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName"))


def base_name(pod: str, claim: str) -> str:
    """What the name of a claim for a pod begins with; five characters follow."""
    base = f"{pod}-{claim}-"
    if len(base) <= _LONGEST_BASE:
        return base
    return f"{pod[: len(pod) * _LONGEST_BASE // len(base)]}-{claim[: len(claim) * _LONGEST_BASE // len(base)]}"


class ClaimController:
    """Runs beside an API server, on its clock's loop. made: claims made from templates so far."""

    def __init__(self, api: ApiServer) -> None:
        self.made = 0
        self._api = api
        self._recorder = Recorder(api, "resource_claim")
        self._claims = api.served("resource.k8s.io/v1", "resourceclaims")
        self._queue: dict[Item, None] = {}
        self._planned = False
        self._tries: dict[Item, int] = {}
        self._users: dict[Key, set[Key]] = defaultdict(set)  # claim -> pods that use it
        self._templated: dict[Key, set[Key]] = defaultdict(set)  # template -> pods that have claims of it
        self._owned: dict[str, set[Key]] = defaultdict(set)  # pod's uid -> claims made for it
        self._indexed: dict[Key, tuple[list[Key], list[Key]]] = {}  # pod -> its claims, its templates
        api.store.listen(PODS, self._pod_changed)
        api.store.listen(CLAIMS, self._claim_changed)
        api.store.listen(TEMPLATES, self._template_changed)

    # -- what changed --------------------------------------------------------------------------

    def _pod_changed(self, change: Change) -> None:
        pod = change.record.object
        if not pod_claims.uses(pod):
            return
        gone = change.kind == "DELETED"
        self._index(change.key, pod, gone=gone)
        if gone or over(pod):
            for name in pod_claims.used_by(pod):
                self._enqueue("claim", (change.key[0], name))
        if not gone and not pod["metadata"].get("deletionTimestamp"):
            self._enqueue("pod", change.key)

    def _index(self, key: Key, pod: Object, *, gone: bool) -> None:
        claims, templates = self._indexed.pop(key, ([], []))
        for each in claims:
            _drop(self._users, each, key)
        for each in templates:
            _drop(self._templated, each, key)
        if gone:
            return
        claims = [(key[0], name) for name in pod_claims.used_by(pod)]
        templates = [(key[0], each.template) for each in pod_claims.claims_of(pod) if each.template]
        self._indexed[key] = (claims, templates)
        for each in claims:
            self._users[each].add(key)
        for each in templates:
            self._templated[each].add(key)

    def _claim_changed(self, change: Change) -> None:
        owner = pod_claims.controlling_pod(change.record.object)
        if change.kind == "DELETED":
            if owner is not None:
                _drop(self._owned, owner["uid"], change.key)
        else:
            if owner is not None:
                self._owned[owner["uid"]].add(change.key)
            self._enqueue("claim", change.key)
        for pod in sorted(self._users.get(change.key, ())):
            self._enqueue("pod", pod)

    def _template_changed(self, change: Change) -> None:
        if change.kind == "ADDED":
            for pod in sorted(self._templated.get(change.key, ())):
                self._enqueue("pod", pod)

    # -- the queue -----------------------------------------------------------------------------

    def _enqueue(self, kind: str, key: Key) -> None:
        self._queue[kind, key] = None
        if not self._planned:
            self._planned = True
            self._api.clock.call_later(0.0, self._work)

    def _work(self) -> None:
        self._planned = False
        queue, self._queue = self._queue, {}
        for item in queue:
            self._sync(item)

    def _sync(self, item: Item) -> None:
        kind, key = item
        call: Callable[[Key], None] = self._sync_pod if kind == "pod" else self._sync_claim
        try:
            call(key)
        except (StatusError, Failed):
            tries = self._tries[item] = self._tries.get(item, 0) + 1
            wait = min(_LONGEST_RETRY, _SHORTEST_RETRY * 2.0 ** min(tries, 30))
            self._api.clock.call_later(wait, lambda: self._enqueue(kind, key))
        else:
            self._tries.pop(item, None)

    # -- pods ----------------------------------------------------------------------------------

    def _sync_pod(self, key: Key) -> None:
        record = self._api.store.get(PODS, key)
        if record is None or record.object["metadata"].get("deletionTimestamp") or over(record.object):
            return
        pod = record.object
        self._make_claims(key, pod)
        if not pod["spec"].get("nodeName"):
            return  # its scheduler reserves what it needs
        record = self._api.store.get(PODS, key)
        for each in pod_claims.claims_of(record.object if record is not None else pod):
            claim = self._api.store.get(CLAIMS, (key[0], each.claim)) if each.claim else None
            if claim is None or (each.template and not pod_claims.owned_by(claim.object, pod)):
                return
            if pod_claims.results_of(claim.object) and not pod_claims.reserved(claim.object, pod):
                self._reserve(claim.object, pod)

    def _make_claims(self, key: Key, pod: Object) -> None:
        """Make the claims of its templates, and note it in the pod's status."""
        made: dict[str, str] = {}
        for each in pod_claims.claims_of(pod):
            if each.template:
                try:
                    name = self._claim_for(pod, each)
                except (StatusError, Failed) as error:
                    message = error.message if isinstance(error, StatusError) else str(error)
                    self._recorder.warning(pod, "FailedResourceClaimCreation", f"PodResourceClaim {each.name}: {message}")
                    raise
                if name != each.claim:
                    made[each.name] = name
        record = self._api.store.get(PODS, key)
        if made and record is not None:
            pod = record.object
            status = pod.get("status") or {}
            kept = [each for each in status.get("resourceClaimStatuses") or () if each["name"] not in made]
            named = [{"name": name, "resourceClaimName": claim} for name, claim in made.items()]
            status = {**status, "resourceClaimStatuses": sorted([*kept, *named], key=lambda each: str(each["name"]))}
            self._api.store.put(PODS, key, {**pod, "metadata": dict(pod["metadata"]), "status": status})

    def _claim_for(self, pod: Object, asked: PodClaim) -> str:
        """The name of the claim of a template, which is made where there is none."""
        metadata = pod["metadata"]
        namespace = metadata["namespace"]
        known = self._api.store.get(CLAIMS, (namespace, asked.claim)) if asked.claim else None
        if known is not None and pod_claims.owned_by(known.object, pod):
            return asked.claim
        for key in sorted(self._owned.get(metadata["uid"], ())):  # made, but not noted in the pod's status
            found = self._api.store.get(CLAIMS, key)
            annotations = (found.object["metadata"].get("annotations") or {}) if found is not None else {}
            if annotations.get(POD_CLAIM_ANNOTATION) == asked.name:
                return key[1]
        template = self._api.store.get(TEMPLATES, (namespace, asked.template))
        if template is None:
            missing = f'resourceclaimtemplate.resource.k8s.io "{asked.template}" not found'
            raise Failed(f'resource claim template "{asked.template}": {missing}')
        spec = template.object["spec"]
        given = spec.get("metadata") or {}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
        fresh: Object = {
            "generateName": base_name(metadata["name"], asked.name),
            "ownerReferences": [owner],
            "annotations": {**(given.get("annotations") or {}), POD_CLAIM_ANNOTATION: asked.name},
        }
        if given.get("labels"):
            fresh["labels"] = dict(given["labels"])
        made = self._api.create(self._claims, namespace, {"metadata": fresh, "spec": spec["spec"]})
        self.made += 1
        name: str = made["metadata"]["name"]
        return name

    def _reserve(self, claim: Object, pod: Object) -> None:
        """A pod that was bound without its scheduler's reservation gets one."""
        metadata = pod["metadata"]
        consumer = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}
        status = claim["status"]
        self._write_status(claim, {**status, "reservedFor": [*(status.get("reservedFor") or ()), consumer]})

    # -- claims --------------------------------------------------------------------------------

    def _sync_claim(self, key: Key) -> None:
        record = self._api.store.get(CLAIMS, key)
        if record is None:
            return
        claim = record.object
        status = claim.get("status") or {}
        before = status.get("reservedFor") or []
        remaining = [each for each in before if not self._released(key[0], each)]
        protected = FINALIZER in (claim["metadata"].get("finalizers") or ())
        if len(remaining) < len(before):
            changed = {name: value for name, value in status.items() if name != "reservedFor"}
            if remaining:
                changed["reservedFor"] = remaining
            elif protected:
                changed.pop("allocation", None)
            claim = self._write_status(claim, changed)
            if protected and "allocation" not in claim["status"]:
                self._unprotect(claim)
        elif protected and claim["metadata"].get("deletionTimestamp") and not remaining:
            if status.get("allocation") is not None:
                claim = self._write_status(claim, {name: value for name, value in status.items() if name != "allocation"})
            self._unprotect(claim)
        if not remaining:
            self._delete_unused(key)

    def _released(self, namespace: str, consumer: Object) -> bool:
        """Whether a reservation is one of a pod that is over. Those of other consumers stay."""
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return False
        record = self._api.store.get(PODS, (namespace, consumer["name"]))
        return record is None or record.object["metadata"]["uid"] != consumer["uid"] or over(record.object)

    def _write_status(self, claim: Object, status: Object) -> Object:
        metadata = claim["metadata"]
        changed = {**claim, "metadata": dict(metadata), "status": status}
        return self._api.update(self._claims, metadata["namespace"], metadata["name"], changed, subresource="status")

    def _unprotect(self, claim: Object) -> None:
        metadata = dict(claim["metadata"])
        metadata["finalizers"] = [each for each in metadata["finalizers"] if each != FINALIZER]
        if not metadata["finalizers"]:
            del metadata["finalizers"]
        self._api.update(self._claims, metadata["namespace"], metadata["name"], {**claim, "metadata": metadata})

    def _delete_unused(self, key: Key) -> None:
        """A claim that was made for a pod goes when the pod will not run; if the pod is gone, that is the garbage collector's."""
        record = self._api.store.get(CLAIMS, key)
        owner = pod_claims.controlling_pod(record.object) if record is not None else None
        if record is None or owner is None or record.object["metadata"].get("deletionTimestamp"):
            return
        pod = self._api.store.get(PODS, (key[0], owner["name"]))
        if pod is not None and (pod.object["metadata"]["uid"] != owner["uid"] or over(pod.object)):
            self._api.delete(self._claims, *key)


def _drop(index: dict[_Of, set[Key]], of: _Of, what: Key) -> None:
    """Take something out of an index, and the entry where that was the last."""
    found = index.get(of)
    if found is not None:
        found.discard(what)
        if not found:
            del index[of]

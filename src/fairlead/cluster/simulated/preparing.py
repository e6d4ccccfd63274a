"""The kubelet's side of claims: a pod starts once all of its claims are prepared, and ends before they are given back.

Order and messages are those of the kubelet 1.36 (`pkg/kubelet/cm/dra`): a claim must exist, belong to the pod where it was made
from a template, be reserved for it and allocated, and its drivers must be there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from fairlead.cluster.simulated import pod_claims
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.drivers import Drivers
from fairlead.cluster.simulated.recording import Recorder
from fairlead.cluster.simulated.resources import CLAIMS
from fairlead.cluster.simulated.store import Object

Prepared = tuple[str, str]
"""(node, UID of a claim)."""


class Refused(Exception):
    """Why a pod's claims are not prepared."""


def usable(pod: Object, find: Callable[[str], Object | None], away: Callable[[list[str]], str]) -> Iterator[Object]:
    """The claims of a bound pod, each as it may be prepared. Raises `Refused` at the first that may not.

    find: the claim of a name in the pod's namespace. away: the first of these drivers that is not on the node, if any.
    """
    metadata = pod["metadata"]
    namespace, shown = metadata["namespace"], f"{metadata['namespace']}/{metadata['name']}"
    asked = [(each.claim, bool(each.template)) for each in pod_claims.claims_of(pod)]
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    if extended.get("resourceClaimName"):
        asked.append((extended["resourceClaimName"], False))
    for name, made in asked:
        if not name:
            raise Refused(f'pod "{shown}": ResourceClaim not created yet')
        claim = find(name)
        if claim is None:
            raise Refused(f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found')
        if made and not pod_claims.owned_by(claim, pod):
            raise Refused(f"ResourceClaim {namespace}/{name} was not created for Pod {shown} (Pod is not owner)")
        if not pod_claims.reserved(claim, pod):
            uids = metadata["uid"], claim["metadata"]["uid"]
            raise Refused(f"pod {metadata['name']} ({uids[0]}) is not allowed to use ResourceClaim {name} ({uids[1]})")
        if (claim.get("status") or {}).get("allocation") is None:
            raise Refused(f"ResourceClaim {name}: not allocated")
        absent = away([each["driver"] for each in pod_claims.results_of(claim)])
        if absent:
            raise Refused(f"DRA driver {absent} is not registered")
        yield claim


class Preparing:
    """What the kubelets of all nodes have prepared."""

    def __init__(self, api: ApiServer, drivers: Drivers) -> None:
        self.drivers = drivers
        self._api = api
        self._recorder = Recorder(api, "kubelet")
        self._users: dict[Prepared, set[str]] = defaultdict(set)  # the UIDs of the pods that use a prepared claim
        self._of_pod: dict[tuple[str, str], set[Prepared]] = defaultdict(set)  # (node, UID of a pod)
        self._drivers_of: dict[Prepared, set[str]] = {}
        drivers.ready = self._clean

    def prepare(self, pod: Object) -> bool:
        """Prepare all claims of a pod; where that fails, the pod's event gives the reason."""
        node = pod["spec"]["nodeName"]
        try:
            claims = list(self._claims(pod))
            for claim in claims:
                key = (node, claim["metadata"]["uid"])
                self._users[key].add(pod["metadata"]["uid"])
                self._of_pod[node, pod["metadata"]["uid"]].add(key)
                self._drivers_of[key] = {each["driver"] for each in pod_claims.results_of(claim)}
                why = self.drivers.prepare(node, claim)
                if why:
                    raise Refused(f"NodePrepareResources failed for ResourceClaim {claim['metadata']['name']}: {why}")
        except Refused as error:
            message = f"Failed to prepare dynamic resources: prepare dynamic resources: {error}"
            self._recorder.warning(pod, "FailedPrepareDynamicResources", message, host=node)
            return False
        return True

    def _claims(self, pod: Object) -> Iterator[Object]:
        namespace, node = pod["metadata"]["namespace"], pod["spec"]["nodeName"]

        def find(name: str) -> Object | None:
            record = self._api.store.get(CLAIMS, (namespace, name))
            return record.object if record is not None else None

        return usable(pod, find, lambda drivers: self.drivers.away(node, drivers))

    def release(self, node: str, uid: str) -> bool:
        """A pod's containers have ended: its claims are given back. Returns whether they all could be; if not, ask again."""
        done = True
        for key in sorted(self._of_pod.get((node, uid), ())):
            if self._drop(key, uid):
                self._of_pod[node, uid].discard(key)
            else:
                done = False
        if done:
            self._of_pod.pop((node, uid), None)
        return done

    def _drop(self, key: Prepared, uid: str) -> bool:
        if self._users[key] == {uid}:
            if self.drivers.away(key[0], self._drivers_of[key]) and key[0] in self.drivers.nodes:
                return False
            self.drivers.unprepare(*key)
            del self._users[key], self._drivers_of[key]
        else:
            self._users[key].discard(uid)
        return True

    def vanished(self, node: str, uid: str) -> None:
        """A pod is gone from the API server, its containers ended or not: its claims go once their driver is there."""
        for key in sorted(self._of_pod.get((node, uid), ())):
            if not self._drop(key, uid):
                self._users[key] = set()  # for `_clean`
        self._of_pod.pop((node, uid), None)

    def _clean(self, node: str) -> None:
        for key in [key for key, users in self._users.items() if key[0] == node and not users]:
            self.drivers.unprepare(*key)
            del self._users[key], self._drivers_of[key]

"""Whether queues, classes, reservations and node pools are in force as they are, where that changed."""

from __future__ import annotations

from fairlead.api.names import SHARED_PREFIX
from fairlead.api.reasons import Reason
from fairlead.cluster.port import JUDGED
from fairlead.core.model.charges import key_of
from fairlead.core.queues.limits import OVER_LIMIT
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.faults import Faults
from fairlead.scheduler.outputs import Verdict


class Verdicts:
    """What could not be used of which object, and what was written of it."""

    def __init__(self, state: ClusterState, faults: Faults) -> None:
        self._state = state
        self._faults = faults
        self._complaints: dict[tuple[str, str], str] = {}  # (plural, name) -> what could not be used of it
        self._refused: dict[str, Reason | None] = {}  # queue -> why its latest change was refused
        self._reported: dict[tuple[str, str], Verdict] = {}
        self._changed = False
        self._totals = -1  # for which capacity of the nodes those were judged of which it makes the verdict
        self._absent: set[str] = set()  # resources, or those of pools, that queues name and no node has
        self._again: set[tuple[str, str]] = set()  # (plural, name) of those to judge anew, where not all are

    def judged(self, kind: str, name: str, complaint: str) -> None:
        """An object was read. kind: its plural; complaint: what of it cannot be used, empty: nothing."""
        self._complaints[kind, name] = complaint
        self._changed = True

    def queue_changed(self, name: str, refused: Reason | None) -> None:
        """A queue's object was taken in, or why not."""
        self._refused[name] = refused
        self._changed = True

    def reservation_changed(self, name: str) -> None:
        """A reservation's object was taken in. What cannot be used of it may be as before, and not come again."""
        self._again.add(("reservations", name))
        self._again.update(("reservations", each) for each in self._state.reserved.given)  # they may be for the same nodes

    def node_changed(self) -> None:
        """A node came, changed or went: pools that queues name, and reservations, may have nodes now, or none any more."""
        self._changed = self._changed or bool(self._state.queues.tree.pools.named or self._state.reserved.given)

    def amounts_changed(self) -> None:
        """What queues hold changed: some may be beyond a limit now, or no longer. The others are not judged for that."""
        for name, node in self._state.queues.queues.items():
            reported = self._reported.get(("queues", name))
            if (reported is not None and reported.reason == OVER_LIMIT) or node.over_limit():
                self._again.add(("queues", name))

    def _totals_changed(self) -> None:
        """Capacity came or went: percentages are other amounts, and reservations may have what they ask for."""
        tree, before = self._state.queues.tree, self._absent
        named = {key_of(each.name, each.pool) for node in tree.queues.values() for each in node.policy.resources}
        self._absent = {key for key in named if not tree.total(key)}
        for name, node in tree.queues.items():
            for each in node.policy.resources:
                key = key_of(each.name, each.pool)
                percent = each.quota_percent is not None or each.limit_percent is not None
                if percent or (key in self._absent) != (key in before):
                    self._again.add(("queues", name))
        self._again.update(("reservations", name) for name in self._state.reserved.given)

    def _absent_resource(self, name: str) -> tuple[bool, str, str] | None:
        """Whether a queue's policy is about a resource that is nowhere, such as a misspelt one."""
        tree, classes = self._state.queues.tree, self._state.device_claims.extended
        node = tree.node_of(name)
        for each in sorted(node.policy.resources, key=lambda each: (each.name, each.pool)):
            key = key_of(each.name, each.pool)
            if not tree.total(key) and not node.used.get(key) and not classes.class_of(each.name):
                where = f" of pool {each.pool!r}" if each.pool else ""
                who = "NodePool shares" if each.name.startswith(SHARED_PREFIX) and not each.pool else f"node{where} has"
                return True, "ResourceNotFound", f"no {who} {each.name}: an entry for it has no effect"
        return None

    def _absent_class(self, name: str) -> tuple[bool, str, str] | None:
        """Whether a queue takes jobs of a class that does not exist, such as a misspelt one."""
        known = self._state.services.classes
        for each in sorted(self._state.queues.tree.node_of(name).policy.classes or ()):
            if each not in known:
                return True, "ServiceClassNotFound", f"ServiceClass {each!r} (serviceClasses) does not exist: no job is of it"
        return None

    def _refused_parent(self, name: str) -> tuple[bool, str, str] | None:
        """Whether the parent that a queue lacks has an object, which is refused: each is below the other."""
        parent = self._state.queues.tree.node_of(name).policy.parent
        refused = self._refused.get(parent)
        if refused is None:
            return None
        message = f"parent queue {parent!r} is not accepted: {refused.message}; until it is, it guarantees and limits nothing"
        return False, "ParentNotAccepted", message

    def _class_doubt(self, name: str) -> tuple[bool, str, str] | None:
        """What an administrator should know of a class: what it names does not exist, or it shares what one class has."""
        classes = self._state.services.classes
        service = classes.get(name)
        if service is None:
            return None
        for pool in sorted(set(service.pools) - self._state.queues.tree.pools.given.keys()):
            return True, "PoolNotFound", f"NodePool {pool!r} (alternativePools) does not exist: no alternative runs there"
        for kind in service.default_for:
            several = sorted(each.name for each in classes.values() if kind in each.default_for)
            if len(several) > 1:
                listed = ", ".join(map(repr, several))
                message = (
                    f"{len(several)} ServiceClasses are the default for {kind}: {listed}; the first by name, {several[0]!r}, is"
                )
                return True, "SeveralDefaults", message
        return None

    def forget(self, kind: str, name: str) -> None:
        """An object is gone. kind: as in `Gone`."""
        if kind not in JUDGED:
            return
        self._complaints.pop((JUDGED[kind], name), None)
        self._reported.pop((JUDGED[kind], name), None)
        if kind == "queue":
            self._refused.pop(name, None)
        self._changed = True

    def due(self) -> list[Verdict]:
        """What is to be written now."""
        verdicts: list[Verdict] = []
        nodes = self._state.nodes
        totals = nodes.totals_version + nodes.shared.described  # neither becomes less
        if totals != self._totals:
            self._totals = totals
            self._totals_changed()
        every, self._changed = self._changed, False
        again, self._again = self._again, set()
        keys = sorted(self._complaints if every else again & self._complaints.keys())
        for kind, name in keys:
            complaint = self._complaints[kind, name]
            try:
                verdict = self._verdict(kind, name, complaint)
            except Exception as error:  # noqa: BLE001 - one status stops no other status
                self._faults.note("status", f"{kind}/{name}", error)
                continue
            if self._reported.get((kind, name)) != verdict:
                self._reported[kind, name] = verdict
                verdicts.append(verdict)
        return verdicts

    def _verdict(self, kind: str, name: str, complaint: str) -> Verdict:
        refused = self._refused.get(name) if kind == "queues" else None
        if refused is not None:
            before = "the previous policy stays" if self._state.queues.tree.has_object(name) else "the queue is not"
            message = f"{refused.message}; {before} in effect"
            return Verdict(kind, name, accepted=False, reason=str(refused.code), message=message)
        if complaint:
            return Verdict(kind, name, accepted=False, reason="Unsupported", message=complaint)
        doubt = None
        if kind == "queues":
            doubt = self._state.queues.limits.doubt(name)
            if doubt is not None and doubt[1] == "ParentNotFound":
                doubt = self._refused_parent(name) or doubt
            doubt = doubt or self._absent_class(name) or self._absent_resource(name)
        elif kind == "reservations":
            doubt = self._state.reserved.doubt(name)
        elif kind == "serviceclasses":
            doubt = self._class_doubt(name)
        accepted, reason, message = doubt if doubt is not None else (True, "Accepted", "")
        return Verdict(kind, name, accepted, reason, message)

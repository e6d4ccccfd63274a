"""Pods that are on nodes and of which something cannot be read: how they count, and what is reported of them.

What was read of a pod before goes on to count, whatever is written on it later. Only a pod whose size was never known
closes the node that it is on; then pod and node are named in the reasons of pods that wait for that node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod
from fairlead.core.model.transactions import Unread, ref_of
from fairlead.core.nodes.table import NodeTable

_MOST_NAMED = 3
MOST_RESOURCES = 1024
"""Names of resources that are counted that only pods name; every node keeps an amount of each."""
_SHORT = 200


def last_readable(before: Pod, now: Pod) -> Pod:
    """A newer view of a pod with an error, with what can no longer be read as it was; both views are of one placed pod."""
    if now.error is None or before.unsized:
        return now
    if not now.node:
        return msgspec.structs.replace(before, error=now.error)  # nothing of it can be read, not even where it is
    return msgspec.structs.replace(now, spec=before.spec, unsized=False, time_limit=before.time_limit, expected=before.expected)


def counted(nodes: NodeTable, pod: Pod) -> Pod:
    """The pod without resources that no node has offered, where as many names are in use as are kept.

    Names are free to make up, and each costs an amount on every node. What nodes offer is always counted.
    """
    if len(nodes.resources) + len(pod.spec.requests) <= MOST_RESOURCES:
        return pod
    unknown = [resource for resource, _ in pod.spec.requests if resource not in nodes.resources]
    if not unknown:
        return pod
    known = tuple(each for each in pod.spec.requests if each[0] in nodes.resources)
    message = f"pod {pod.key}: no node offers {unknown[0]}, and {MOST_RESOURCES} resource names are in use already"
    reason = pod.error or Reason(ReasonCode.INVALID_SPEC, f"{message}: create the pod again once a node offers it")
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, requests=known), error=reason)


class UnreadPods:
    """Those on nodes, by UID."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._unreported: dict[str, None] = {}
        self._unreported_nodes: dict[str, Node] = {}

    def note_node(self, before: Node | None, node: Node) -> None:
        """A node came or changed."""
        if node.error is not None and (before is None or before.error != node.error):
            self._unreported_nodes[node.name] = node

    def note(self, pod: Pod) -> None:
        """A pod on a node came or changed."""
        known = self._pods.get(pod.uid)
        if pod.error is None:
            if known is not None:
                self.forget(pod.uid)
            return
        self._pods[pod.uid] = pod
        if known is None or (known.error, known.node, known.unsized) != (pod.error, pod.node, pod.unsized):
            self._unreported[pod.uid] = None

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._pods.pop(uid, None)
        self._unreported.pop(uid, None)

    def report(self) -> Iterator[Unread]:
        """What was not reported yet."""
        nodes, self._unreported_nodes = self._unreported_nodes, {}
        for node in nodes.values():
            if node.error is not None:
                yield Unread(None, node.name, node.error, closes=True)
        unreported, self._unreported = self._unreported, {}
        for pod in map(self._pods.get, unreported):
            if pod is not None and pod.error is not None:
                group = f"{pod.namespace}/{pod.group}" if pod.group and pod.ours else ""
                yield Unread(ref_of(pod), pod.node, pod.error, pod.unsized, group)

    def closers(self, nodes: NodeTable, name: str, seen_from: str = "") -> list[str]:
        """What closes a node, each in words; empty if it is open. seen_from: a namespace; pods of others are counted."""
        row = nodes.rows.get(name)
        node = nodes.objects[row] if row is not None else None
        found = [f"node {name} itself: {node.error.message[:_SHORT]}"] if node is not None and node.error is not None else []
        pods = [pod for uid in nodes.poisoned.get(name, ()) if (pod := self._pods.get(uid)) is not None]
        named = [pod for pod in pods if seen_from in ("", pod.namespace)]
        counted = [f"{len(pods) - len(named)} pods of other namespaces on {name}"] if len(named) < len(pods) else []
        return found + sorted(f"pod {pod.key} on {name}" for pod in named) + counted

    def complaint(self, nodes: NodeTable, names: Iterable[str]) -> str:
        """Why these nodes are closed, in kube-scheduler's form, for messages; the first few culprits are named."""
        culprits = [each for name in sorted(names) for each in self.closers(nodes, name)]
        more = f" and {len(culprits) - _MOST_NAMED} more" if len(culprits) > _MOST_NAMED else ""
        return f"node(s) were closed because objects on them cannot be counted ({', '.join(culprits[:_MOST_NAMED])}{more})"

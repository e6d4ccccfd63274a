"""Labelled: pods by their namespaces and labels, for those keys that selectors of disruption budgets name.

A selector that wants one of some values for a key is asked for by that key; any other selects among all pods of its namespace.
Pods are listed under a key from the first budget on that names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from fairlead.core.model.pods import Pod
from fairlead.core.model.selectors import Requirement, Selector
from fairlead.core.pods.tasks import Task

_Place = tuple[str, str, str]
"""A namespace, a key and a value."""
_NONE = Requirement("", "In")
Key = TypeVar("Key")


class Labelled:
    """Tasks by namespace and UID, of all that there are."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._of: dict[str, dict[str, Task]] = {}  # namespace -> uid -> task
        self._keys: dict[str, list[str]] = {}  # namespace -> keys that were asked for
        self._listed: dict[tuple[str, str, str], dict[str, Task]] = {}  # (namespace, key, value) -> uid -> task

    def add(self, task: Task) -> None:
        """A task came, or has the labels that its pod has now."""
        self._of.setdefault(task.pod.namespace, {})[task.pod.uid] = task
        for place in self._places(task.pod):
            self._listed.setdefault(place, {})[task.pod.uid] = task

    def remove(self, task: Task) -> None:
        """A task is gone, or will have other labels than its pod has now."""
        _take(self._of, task.pod.namespace, task.pod.uid)
        for place in self._places(task.pod):
            _take(self._listed, place, task.pod.uid)

    def relist(self) -> None:
        """All anew."""
        self._of.clear()
        self._listed.clear()
        for task in self._tasks.values():
            self.add(task)

    def of(self, namespace: str) -> Collection[Task]:
        """All of a namespace."""
        return self._of.get(namespace, {}).values()

    def watch(self, namespace: str, selector: Selector) -> None:
        """It will be asked for what a selector selects in a namespace."""
        key = _key(selector).key
        keys = self._keys.setdefault(namespace, [])
        if key and key not in keys:
            keys.append(key)
            for task in self.of(namespace):
                for place in _place(task.pod, key):
                    self._listed.setdefault(place, {})[task.pod.uid] = task

    def candidates(self, namespace: str, selector: Selector) -> Iterator[Task]:
        """All that a selector may select in a namespace, for which `watch` was called."""
        asked = _key(selector)
        if not asked.key:
            yield from self.of(namespace)
        for value in dict.fromkeys(asked.values):
            yield from self._listed.get((namespace, asked.key, value), {}).values()

    def _places(self, pod: Pod) -> Iterable[_Place]:
        if not self._keys:
            return ()
        return (place for key in self._keys.get(pod.namespace, ()) for place in _place(pod, key))

    def problems(self) -> list[str]:
        """What is listed and is not so."""
        anew = Labelled(self._tasks)
        anew._keys = self._keys
        anew.relist()
        kept = anew._of == self._of and anew._listed == self._listed
        return [] if kept else ["pods are not listed by the namespaces and labels that they have"]


def _key(selector: Selector) -> Requirement:
    """The requirement of a selector by which pods are listed; one without a key: there is none such."""
    return next((each for each in selector or () if each.operator == "In" and each.key), _NONE)


def _place(pod: Pod, key: str) -> list[_Place]:
    """Where a pod is listed by a key, if it has that."""
    return [(pod.namespace, key, value) for name, value in pod.labels if name == key]


def _take(listed: dict[Key, dict[str, Task]], key: Key, uid: str) -> None:
    theirs = listed.get(key, {})
    if theirs.pop(uid, None) is not None and not theirs:
        del listed[key]

"""ResourceQuotas and LimitRanges of the simulated cluster: what is admitted, and what is used.

As on a real one: admission counts a pod as used before it is made, and the controller counts anew when pods end or go, and when
a quota changes. Objects other than pods are counted where a quota names `count/KIND.GROUP`, or the short names of old.
"""

from __future__ import annotations

from fractions import Fraction

import msgspec

from fairlead.cluster import resource_quotas as rules
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.errors import forbidden
from fairlead.cluster.simulated.resources import Resource
from fairlead.cluster.simulated.store import Change, Key, Object, Store

QUOTAS, RANGES, _PODS = "resourcequotas", "limitranges", "pods"
_OLD_NAMES = frozenset({"services", "configmaps", "secrets", "persistentvolumeclaims", "replicationcontrollers", QUOTAS})
_LAG = 1.0  # seconds until the controller has counted what is gone


class Quotas:
    """Admits objects by the quotas of their namespace, and counts what is used."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._stale: set[str] = set()  # namespaces to be counted anew
        store.listen(QUOTAS, self._quota_changed)
        store.listen(_PODS, self._pod_changed)

    # -- admission -----------------------------------------------------------------------------

    def default(self, namespace: str, obj: Object) -> Object:
        """A pod with what the LimitRanges of its namespace give it. Raises `StatusError`."""
        if not self._store.count(RANGES) or not isinstance(obj.get("spec"), dict):
            return obj
        ranges = [msgspec.convert(each, rules.LimitRange) for each in self._in(RANGES, namespace)]
        if not ranges:
            return obj
        made = rules.defaulted(obj, ranges)
        for each in ranges:
            if wrong := rules.beyond(made, each):
                raise forbidden("", "pods", str(obj["metadata"].get("name", "")), wrong)
        return made

    def admit(self, resource: Resource, namespace: str, obj: Object, *, dry_run: bool) -> None:
        """Count an object as used. Raises `StatusError` where a quota is exceeded."""
        if not namespace or not self._store.count(QUOTAS):
            return
        changed: list[tuple[Object, dict[str, str]]] = []
        for body in self._in(QUOTAS, namespace):
            quota = msgspec.convert(body, rules.Quota)
            asked = self._usage(resource, obj, quota)
            hard, used = quota.status.hard or {}, quota.status.used or {}
            asked = {name: amount for name, amount in asked.items() if name in hard}
            new = {name: _parse(used.get(name, "0")) + amount for name, amount in asked.items()}
            over = sorted(name for name, amount in new.items() if amount > _parse(hard[name]))
            if over:
                amounts = {"requested": {name: _text(asked[name]) for name in over}, "used": used, "limited": hard}
                exceeded = ", ".join(
                    f"{what}: {','.join(f'{name}={given.get(name, 0)}' for name in over)}" for what, given in amounts.items()
                )
                why = f"exceeded quota: {quota.metadata.name}, {exceeded}"
                raise forbidden(resource.group, resource.plural, str(obj["metadata"].get("name", "")), why)
            if new:
                changed.append((body, {**used, **{name: _text(amount) for name, amount in new.items()}}))
        if not dry_run:
            for body, used in changed:
                self._write(body, {**body["status"], "used": used})

    @staticmethod
    def _usage(resource: Resource, obj: Object, quota: rules.Quota) -> rules.Amounts:
        if resource.table == _PODS:
            wrong = rules.unset(obj, quota)
            if wrong:
                why = f"failed quota: {quota.metadata.name}: must specify {wrong}"
                raise forbidden("", "pods", str(obj["metadata"].get("name", "")), why)
            return rules.usage(obj) if rules.is_for(quota, obj) else {}
        named = f"count/{resource.plural}" + (f".{resource.group}" if resource.group else "")
        return {named: Fraction(1), **({resource.plural: Fraction(1)} if resource.plural in _OLD_NAMES else {})}

    # -- the controller ------------------------------------------------------------------------

    def _pod_changed(self, change: Change) -> None:
        ended = (change.record.object.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if (change.kind == "DELETED" or ended) and self._store.count(QUOTAS):
            self._count_later(change.key[0])

    def _quota_changed(self, change: Change) -> None:
        spec = change.record.object.get("spec") or {}
        status = change.record.object.get("status") or {}
        if change.kind != "DELETED" and (status.get("hard") or {}) != (spec.get("hard") or {}):
            self._count_later(change.key[0])

    def _count_later(self, namespace: str) -> None:
        if namespace not in self._stale:
            self._stale.add(namespace)
            self._clock.call_later(_LAG, lambda: self._count(namespace))

    def _count(self, namespace: str) -> None:
        """What is used of each quota of a namespace, from what there is."""
        self._stale.discard(namespace)
        pods = [each for each in self._in(_PODS, namespace) if isinstance(each.get("spec"), dict)]
        for body in list(self._in(QUOTAS, namespace)):
            hard = dict((body.get("spec") or {}).get("hard") or {})
            quota = msgspec.convert({**body, "status": {"hard": hard}}, rules.Quota)
            total: rules.Amounts = dict.fromkeys(hard, Fraction(0))
            for pod in pods:
                if not rules.is_for(quota, pod):
                    continue
                over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
                asked = {rules.COUNT: Fraction(1)} if over else rules.usage(pod)
                for name in hard.keys() & asked.keys():
                    total[name] += asked[name]
            for name in hard:
                if (table := self._counted_table(name)) is not None:
                    total[name] = Fraction(len(self._in(table, namespace)))
            status = {"hard": hard, "used": {name: _text(amount) for name, amount in total.items()}}
            if body.get("status") != status:
                self._write(body, status)

    def _counted_table(self, name: str) -> str | None:
        """The table of objects that a quota counts under a name; None: it is no such name."""
        if name in _OLD_NAMES:
            return name
        plural, _, group = name.removeprefix("count/").partition(".")
        if name == plural or (plural == _PODS and not group):
            return None
        return f"{group}/{plural}" if group else plural

    def _in(self, table: str, namespace: str) -> list[Object]:
        return [record.object for _, record in self._store.sorted(table, namespace)]

    def _write(self, body: Object, status: Object) -> None:
        key: Key = (body["metadata"]["namespace"], body["metadata"]["name"])
        record = self._store.get(QUOTAS, key)
        if record is not None:
            self._store.put(QUOTAS, key, {**record.object, "metadata": dict(record.object["metadata"]), "status": status})


def _parse(text: str) -> Fraction:
    return rules.signed(str(text))


def _text(amount: Fraction) -> str:
    if amount.denominator == 1:
        return str(amount.numerator)
    return f"{-(-amount.numerator * 1000 // amount.denominator)}m"

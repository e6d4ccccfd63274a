"""Defaults: pods that name no scheduler get the one that their namespace names in a label. An administrator chooses this."""

from __future__ import annotations

from fairlead.api import names
from fairlead.api.policies.objects import CRON_JOBS, OUTSIDE_SYSTEM, PODS, TEMPLATED, Manifest, mutating, quoted, rules

_LABEL = names.SCHEDULER_NAME_LABEL
_OTHERS = "default-scheduler"
"""What the API server writes where none is named."""


def defaults() -> list[Manifest]:
    """For pods and for the templates of their controllers; those of a DaemonSet each belong to one node, and stay.

    The queue needs no policy: the scheduler itself reads the default queue of a namespace.
    """
    chosen = f"namespaceObject.metadata.labels[{quoted(_LABEL)}]"
    selected = {"matchExpressions": [*OUTSIDE_SYSTEM["matchExpressions"], {"key": _LABEL, "operator": "Exists"}]}
    made: list[Manifest] = []
    for suffix, resources, path in (
        ("", PODS, ("spec",)),
        ("-templates", TEMPLATED, ("spec", "template", "spec")),
        ("-cronjobs", CRON_JOBS, ("spec", "jobTemplate", "spec", "template", "spec")),
    ):
        spec = ".".join(("object", *path))
        there = " && ".join(f"has({'.'.join(('object', *path[:depth]))})" for depth in range(1, len(path) + 1))
        conditions = [
            ("names-none", f"{there} && (!has({spec}.schedulerName) || {spec}.schedulerName in ['', '{_OTHERS}'])"),
            ("names-no-node", f"!has({spec}.nodeName) || {spec}.nodeName == ''"),
            ("of-no-daemonset", _OF_NO_DAEMONSET),
        ]
        value = f"Object.{'.'.join(path)}{{schedulerName: {chosen}}}"
        for depth in range(len(path) - 1, 0, -1):
            value = f"Object.{'.'.join(path[:depth])}{{{path[depth]}: {value}}}"
        mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": f"Object{{{path[0]}: {value}}}"}}
        made += mutating(f"fairlead-defaults{suffix}", mutation, rules(resources, "CREATE"), conditions, namespaces=selected)
    return made


_OF_NO_DAEMONSET = (
    "object.kind != 'DaemonSet' && (!has(object.metadata.ownerReferences) || "
    "!object.metadata.ownerReferences.exists(o, o.kind == 'DaemonSet'))"
)

"""Templates in kinds of others, where their place is known: stamped as those of the control plane's kinds are."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api import names

STAMP = names.USER_ANNOTATION
_MOST = 64
"""Entries of a list that are stamped; pods of later ones are their namespace's."""

_RAY = ("headGroupSpec/template", "workerGroupSpecs/[]/template")
_TRAINING = ("pytorch", "tf", "xgb", "mpi", "paddle", "jax")
KNOWN: tuple[tuple[str, str, Sequence[str]], ...] = (
    ("jobset.x-k8s.io", "jobsets", ("replicatedJobs/[]/template", "replicatedJobs/[]/template/spec/template")),
    (
        "leaderworkerset.x-k8s.io",
        "leaderworkersets",
        ("leaderWorkerTemplate/leaderTemplate", "leaderWorkerTemplate/workerTemplate"),
    ),
    *(
        ("kubeflow.org", f"{'xgboost' if kind == 'xgb' else kind}jobs", (f"{kind}ReplicaSpecs/{{}}/template",))
        for kind in _TRAINING
    ),
    ("ray.io", "rayclusters", _RAY),
    ("ray.io", "rayjobs", tuple(f"rayClusterSpec/{each}" for each in _RAY)),
    ("ray.io", "rayservices", tuple(f"rayClusterConfig/{each}" for each in _RAY)),
)
"""API group, plural, and where below `spec` what becomes metadata of pods or Jobs is; `[]`: each of a list, `{}`: of a map."""


def stamping(places: Sequence[str], user: str) -> str:
    """CEL: the JSON patches that stamp what is at these places below `spec`. user: CEL, whom to name."""
    return " + ".join(_patches(place.split("/"), user) for place in places)


def _patches(steps: Sequence[str], user: str) -> str:
    at, path, guards = "object.spec", "'/spec'", ["has(object.spec)"]
    for i, step in enumerate(steps):
        if step in ("[]", "{}"):
            within = _patch_below(steps[i + 1 :], user, at, path, entry=step)
            return f"({' && '.join(guards)} ? {within} : [])"
        at, path = f"{at}.{step}", f"{path} + '/{step}'"
        guards.append(f"has({at})")
    return f"({' && '.join(guards)} ? [{_patch(at, path, user)}] : [])"


def _patch_below(steps: Sequence[str], user: str, of: str, path: str, *, entry: str) -> str:
    """For each entry of a list or map that has what the steps lead to."""
    each = f"{of}[i]"
    at, guards = each, []
    for step in steps:
        at = f"{at}.{step}"
        guards.append(f"has({at})")
    there = " && ".join(guards)
    tail = "".join(f"/{step}" for step in steps)
    if entry == "[]":
        number = f"[{', '.join(map(str, range(_MOST)))}].filter(i, i < size({of}) && {there})"
        numbered = f"{path} + '/' + string(i) + '{tail}'"
        return f"{number}.map(i, {_patch(at, numbered, user)})"
    key = f"{path} + '/' + jsonpatch.escapeKey(i) + '{tail}'"
    return f"{of}.filter(i, {there}).map(i, {_patch(at, key, user)})"


def _patch(at: str, path: str, user: str) -> str:
    """One patch, which makes the metadata or the annotations where there are none."""
    stamp = f"{{'{STAMP}': {user}}}"
    bare, unannotated = f"!has({at}.metadata)", f"!has({at}.metadata.annotations)"
    key = f"'/metadata/annotations/' + jsonpatch.escapeKey('{STAMP}')"
    where = f"({bare} ? '/metadata' : {unannotated} ? '/metadata/annotations' : {key})"
    value = f"({bare} ? dyn({{'annotations': {stamp}}}) : {unannotated} ? dyn({stamp}) : dyn({user}))"
    return f"JSONPatch{{op: 'add', path: {path} + {where}, value: {value}}}"

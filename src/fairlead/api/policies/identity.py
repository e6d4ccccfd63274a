"""Identity: the user who creates a workload is stamped on it and on its pods. The stamp cannot be changed or forged.

A controller passes a stamp on, and only from an owner of a kind that is stamped; without one the pod is its namespace's.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api import names
from fairlead.api.policies.objects import (
    CRON_JOBS,
    OTHERS,
    OURS,
    POD_TEMPLATES,
    PODS,
    TEMPLATED,
    Manifest,
    listed,
    mutating,
    passes_on,
    quoted,
    refusal,
    rules,
    validating,
    whole,
)
from fairlead.api.policies.templates import KNOWN, stamping

_STAMP = names.USER_ANNOTATION
_KNOWN = [*PODS, *TEMPLATED, *CRON_JOBS, *POD_TEMPLATES, *OURS]
_STAMPED = [*_KNOWN, *whole(OTHERS)]
_SUBRESOURCES = [
    ("", ["pods/status", "pods/resize", "pods/ephemeralcontainers", "replicationcontrollers/status"]),
    ("batch", ["jobs/status", "cronjobs/status"]),
    ("apps", ["deployments/status", "replicasets/status", "statefulsets/status", "daemonsets/status"]),
]
_OWNERS = ("apps", "batch", names.GROUP, *OTHERS)
_DEPTH = 11  # below `spec`; the deepest template known, of a RayJob or a CronJob in a workflow, has its annotations at nine


_Condition = tuple[str, str]
"""A name, and when a policy applies in CEL."""


def identity(trusted: Sequence[str]) -> list[Manifest]:
    """trusted: users whose pods keep the stamp of an owner, such as operators' accounts."""
    passed = f"({passes_on(trusted)})"
    by_user = ("by-its-user", f"!{passed}")
    by_controller = ("by-a-controller", passed)
    return [
        *_stamping_objects(by_user),
        *_stamping_templates(by_user),
        *_removing_forged(by_controller),
        *_removing_older(by_user),
        *_refusing_changes(by_user),
    ]


def _stamping_objects(by_user: _Condition) -> list[Manifest]:
    """The user who creates an object is stamped on it."""
    own = f"Object{{metadata: Object.metadata{{annotations: {{'{_STAMP}': request.userInfo.username}}}}}}"
    return _applying("fairlead-user", own, rules(_STAMPED, "CREATE"), [by_user])


def _stamping_templates(by_user: _Condition) -> list[Manifest]:
    """The same stamp is on the templates of its pods, also after a change."""
    created = ("known", f"request.operation == 'CREATE' || ({_has('oldObject.metadata')})")
    # A change of a workload does not change whose it is: the pods that it makes stay those of its creator.
    owner = f"(request.operation == 'CREATE' ? request.userInfo.username : oldObject.metadata.annotations['{_STAMP}'])"
    inner = f"{{annotations: {{'{_STAMP}': {owner}}}}}"
    template = f"Object.spec.template{{metadata: Object.spec.template.metadata{inner}}}"
    job = "Object.spec.jobTemplate"
    cron_pod = f"{job}.spec.template{{metadata: {job}.spec.template.metadata{inner}}}"
    cron = f"{job}{{metadata: {job}.metadata{inner}, spec: {job}.spec{{template: {cron_pod}}}}}"
    plain = f"Object.template{{metadata: Object.template.metadata{inner}}}"
    plainly = {
        "templates": (f"Object{{spec: Object.spec{{template: {template}}}}}", TEMPLATED),
        "cronjobs": (f"Object{{spec: Object.spec{{jobTemplate: {cron}}}}}", CRON_JOBS),
        "podtemplates": (f"Object{{template: {plain}}}", POD_TEMPLATES),
    }
    found = []
    for name, (expression, kinds) in plainly.items():
        found += _applying(f"fairlead-user-{name}", expression, rules(kinds, "CREATE", "UPDATE"), [by_user, created])
    for group, plural, places in KNOWN:
        patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": stamping(places, owner)}}
        matched = rules([(group, [plural])], "CREATE", "UPDATE")
        found += mutating(f"fairlead-user-{plural}", patch, matched, [by_user, created])
    return found


def _removing_forged(by_controller: _Condition) -> list[Manifest]:
    """A stamp that a controller cannot have from an owner is removed."""
    claimed = _claims("object.spec.template")
    # Kinds of others carry no stamp of another user; on what they own, the object itself needs no stamp.
    backed = (
        f"({_has('object.metadata')} && {_value('object.spec.template.metadata')} == {_value('object.metadata')}) || "
        f"{_owned_by(OTHERS)}"
    )
    created = [by_controller, ("claimed", claimed), ("unbacked", f"!({backed})")]
    return [
        *_stripping("fairlead-user-unowned", "", rules(_STAMPED, "CREATE"), [by_controller, ("forged", _FORGED)]),
        *_stripping("fairlead-user-unbacked", "/spec/template", rules(TEMPLATED, "CREATE"), created),
    ]


def _removing_older(by_user: _Condition) -> list[Manifest]:
    """What was created before the policies has no stamp, and a change gives it none."""
    older = ("older-than-the-policies", f"request.operation == 'UPDATE' && !({_has('oldObject.metadata')})")
    places = {
        "": (TEMPLATED, "template"),
        "-cronjobs": (CRON_JOBS, "jobTemplate.spec.template"),
        "-jobs-of-cronjobs": (CRON_JOBS, "jobTemplate"),
    }
    found = []
    for name, (kinds, template) in places.items():
        conditions = [by_user, older, ("claimed", _claims(f"object.spec.{template}"))]
        where = f"/spec/{template.replace('.', '/')}"
        found += _stripping(f"fairlead-user-older{name}", where, rules(kinds, "UPDATE"), conditions)
    return found


def _refusing_changes(by_user: _Condition) -> list[Manifest]:
    """Users neither change a stamp, nor write one into templates of others' kinds, which are anywhere in those."""
    unchanged = refusal(
        f"{_value('object.metadata')} == {_value('oldObject.metadata')}",
        f"annotation {_STAMP} names the user who created the object and cannot be changed",
    )
    own = refusal(
        _only_own_stamp("object.spec"), f"annotation {_STAMP} is written by the API server: remove it from the templates"
    )
    updated = [*rules(_STAMPED, "UPDATE"), *rules(_SUBRESOURCES, "UPDATE")]
    others = rules([*whole(OTHERS), (names.GROUP, ["aijobs"])], "CREATE", "UPDATE")
    return [
        *validating("fairlead-user-immutable", updated, [unchanged], conditions=[by_user]),
        *validating("fairlead-user-of-others", others, [own], conditions=[by_user, ("has-a-spec", "has(object.spec)")]),
    ]


def _claims(template: str) -> str:
    """CEL: a template has a stamp."""
    return f"has({template}) && has({template}.metadata) && {_has(f'{template}.metadata')}"


def _has(metadata: str) -> str:
    return f"(has({metadata}.annotations) && '{_STAMP}' in {metadata}.annotations)"


def _value(metadata: str) -> str:
    return f"({_has(metadata)} ? {metadata}.annotations['{_STAMP}'] : '')"


def _owned_by(groups: Sequence[str]) -> str:
    """CEL: it has a controller of one of these API groups."""
    group = "o.apiVersion.contains('/') ? o.apiVersion.split('/')[0] : ''"
    owners = "object.metadata.ownerReferences"
    controller = "has(o.controller) && o.controller"
    plain = "o.apiVersion == 'v1' && o.kind == 'ReplicationController'"
    counts = f"({group}) in {listed(groups)}" + (f" || ({plain})" if "apps" in groups else "")
    return f"(has({owners}) && {owners}.exists(o, {controller} && ({counts})))"


# A pod or workload made by a controller names a user, and has no owner of a stamped kind from which it could have that name.
_FORGED = f"{_has('object.metadata')} && !{_owned_by(_OWNERS)}"


def _only_own_stamp(root: str) -> str:
    """CEL: no map below has a key that contains the stamp, but for the object's own. Kinds of others have templates anywhere."""
    own = _value("object.metadata")

    def absent(value: str, depth: int) -> str:
        own_key = f"k == {quoted(_STAMP)} && {value}[k] == {own} && {own} != ''"
        clean = f"(type({value}) != map || {value}.all(k, !k.contains({quoted(_STAMP)}) || ({own_key})))"
        if not depth:
            return clean
        below = f"v{depth}"
        children = f"(type({value}) == map ? {value}.map(k, {value}[k]) : type({value}) == list ? {value} : [])"
        return f"{clean} && {children}.all({below}, {absent(below, depth - 1)})"

    return absent(root, _DEPTH)


def _applying(name: str, expression: str, matched: list[Manifest], conditions: Sequence[_Condition]) -> list[Manifest]:
    return mutating(
        name, {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}, matched, conditions
    )


def _stripping(name: str, where: str, matched: list[Manifest], conditions: Sequence[_Condition]) -> list[Manifest]:
    key = f"'{where}/metadata/annotations/' + jsonpatch.escapeKey({quoted(_STAMP)})"
    patch = {"expression": f"[JSONPatch{{op: 'remove', path: {key}}}]"}
    return mutating(name, {"patchType": "JSONPatch", "jsonPatch": patch}, matched, conditions)

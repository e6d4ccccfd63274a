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
    OUTSIDE_SYSTEM,
    POD_TEMPLATES,
    PODS,
    TEMPLATED,
    Manifest,
    binding,
    listed,
    passes_on,
    policy,
    quoted,
    refusal,
    rules,
    together,
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


def identity(trusted: Sequence[str]) -> list[Manifest]:
    """trusted: users whose pods keep the stamp of an owner, such as operators' accounts."""
    passed = f"({passes_on(trusted)})"
    by_user = ("by-its-user", f"!{passed}")
    by_controller = ("by-a-controller", passed)
    created = ("known", f"request.operation == 'CREATE' || ({_has('oldObject.metadata')})")
    # A change of a workload does not change whose it is: the pods that it makes stay those of its creator.
    owner = f"(request.operation == 'CREATE' ? request.userInfo.username : oldObject.metadata.annotations['{_STAMP}'])"
    own = f"Object{{metadata: Object.metadata{{annotations: {{'{_STAMP}': request.userInfo.username}}}}}}"
    inner = f"{{annotations: {{'{_STAMP}': {owner}}}}}"
    template = f"Object.spec.template{{metadata: Object.spec.template.metadata{inner}}}"
    job = "Object.spec.jobTemplate"
    cron_pod = f"{job}.spec.template{{metadata: {job}.spec.template.metadata{inner}}}"
    cron = f"{job}{{metadata: {job}.metadata{inner}, spec: {job}.spec{{template: {cron_pod}}}}}"
    plain = f"Object.template{{metadata: Object.template.metadata{inner}}}"
    in_template = "object.spec.template"
    claimed = f"has({in_template}) && has({in_template}.metadata) && {_has(f'{in_template}.metadata')}"
    # Kinds of others carry no stamp of another user; on what they own, the object itself needs no stamp.
    backed = (
        f"({_has('object.metadata')} && {_value(f'{in_template}.metadata')} == {_value('object.metadata')}) || "
        f"{_owned_by(OTHERS)}"
    )
    older = ("older-than-the-policies", f"request.operation == 'UPDATE' && !({_has('oldObject.metadata')})")
    return [
        *_applying("fairlead-user", own, rules(_STAMPED, "CREATE"), [by_user]),
        *_applying(
            "fairlead-user-templates",
            f"Object{{spec: Object.spec{{template: {template}}}}}",
            rules(TEMPLATED, "CREATE", "UPDATE"),
            [by_user, created],
        ),
        *_applying(
            "fairlead-user-cronjobs",
            f"Object{{spec: Object.spec{{jobTemplate: {cron}}}}}",
            rules(CRON_JOBS, "CREATE", "UPDATE"),
            [by_user, created],
        ),
        *_applying(
            "fairlead-user-podtemplates",
            f"Object{{template: {plain}}}",
            rules(POD_TEMPLATES, "CREATE", "UPDATE"),
            [by_user, created],
        ),
        *(
            each
            for group, plural, places in KNOWN
            for each in _mutating(
                f"fairlead-user-{plural}",
                {"patchType": "JSONPatch", "jsonPatch": {"expression": stamping(places, owner)}},
                rules([(group, [plural])], "CREATE", "UPDATE"),
                [by_user, created],
            )
        ),
        *_stripping("fairlead-user-unowned", "", rules(_STAMPED, "CREATE"), [by_controller, ("forged", _FORGED)]),
        *_stripping(
            "fairlead-user-unbacked",
            "/spec/template",
            rules(TEMPLATED, "CREATE"),
            [by_controller, ("claimed", claimed), ("unbacked", f"!({backed})")],
        ),
        *_stripping(
            "fairlead-user-older",
            "/spec/template",
            rules(TEMPLATED, "UPDATE"),
            [by_user, older, ("claimed", claimed)],
        ),
        *_stripping(
            "fairlead-user-older-cronjobs",
            "/spec/jobTemplate/spec/template",
            rules(CRON_JOBS, "UPDATE"),
            [by_user, older, ("claimed", claimed.replace("object.spec.template", "object.spec.jobTemplate.spec.template"))],
        ),
        *_stripping(
            "fairlead-user-older-jobs-of-cronjobs",
            "/spec/jobTemplate",
            rules(CRON_JOBS, "UPDATE"),
            [by_user, older, ("claimed", claimed.replace("object.spec.template", "object.spec.jobTemplate"))],
        ),
        *validating(
            "fairlead-user-immutable",
            [*rules(_STAMPED, "UPDATE"), *rules(_SUBRESOURCES, "UPDATE")],
            [
                refusal(
                    f"{_value('object.metadata')} == {_value('oldObject.metadata')}",
                    f"annotation {_STAMP} names the user who created the object and cannot be changed",
                )
            ],
            conditions=[by_user],
        ),
        *validating(
            "fairlead-user-of-others",
            rules([*whole(OTHERS), (names.GROUP, ["aijobs"])], "CREATE", "UPDATE"),
            [
                refusal(
                    _only_own_stamp("object.spec"),
                    f"annotation {_STAMP} is written by the API server: remove it from the templates",
                )
            ],
            conditions=[by_user, ("has-a-spec", "has(object.spec)")],
        ),
    ]


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


def _applying(name: str, expression: str, matched: list[Manifest], conditions: Sequence[tuple[str, str]]) -> list[Manifest]:
    return _mutating(
        name, {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}, matched, conditions
    )


def _stripping(name: str, where: str, matched: list[Manifest], conditions: Sequence[tuple[str, str]]) -> list[Manifest]:
    key = f"'{where}/metadata/annotations/' + jsonpatch.escapeKey({quoted(_STAMP)})"
    patch = {"expression": f"[JSONPatch{{op: 'remove', path: {key}}}]"}
    return _mutating(name, {"patchType": "JSONPatch", "jsonPatch": patch}, matched, conditions)


def _mutating(name: str, mutation: Manifest, matched: list[Manifest], conditions: Sequence[tuple[str, str]]) -> list[Manifest]:
    spec = {
        "reinvocationPolicy": "Never",
        "matchConstraints": {"namespaceSelector": OUTSIDE_SYSTEM, "resourceRules": matched},
        "matchConditions": [together(conditions)],
        "mutations": [mutation],
    }
    return [policy(name, spec, mutating=True), binding(name, mutating=True)]

"""Which of the rights that an installation grants were used, by the audit log of the API server.

A right is one verb on one resource of a group, by a role, on the objects of a name where the role names them. The log has for
each request the binding by which it was allowed. Three rights are checked by the API server without a request of their own: a
server-side apply that creates its object has needed `create` beside `patch`; and an object that blocks the deletion of its owner
has needed `update` on the owner's finalizers, where the admission plugin OwnerReferencesPermissionEnforcement is on (`FLAG`);
and who writes the allocation or the reservations of a ResourceClaim has needed the same verb on `resourceclaims/binding`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fairlead.install import roles
from fairlead.install.accounts import PROCESSES, account

FLAG = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
_PEOPLE = {"fairlead-viewer": roles.OF_VIEWERS, "fairlead-user": roles.OF_USERS, "fairlead-admin": roles.OF_ADMINISTRATORS}
_INTO = {"view": "fairlead-viewer", "edit": "fairlead-user", "admin": "fairlead-admin"}
_ALLOWED = re.compile(r'^RBAC: allowed by (?:Cluster)?RoleBinding "([^"]*)" of (?:Cluster)?Role "([^"]*)" to ')


class Right(NamedTuple):
    """role: its name; namespace: of a Role; name: of objects, empty: all."""

    role: str
    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        named = f" {self.name}" if self.name else ""
        return f"{self.role}{where}: {self.verb} {self.resource}{named} of {self.group or 'core'}: {why(self)}"


def granted(manifests: Iterable[Mapping[str, Any]]) -> list[Right]:
    """The rights of Roles and ClusterRoles."""
    found = []
    for each in manifests:
        role, namespace = each["metadata"]["name"], each["metadata"].get("namespace", "")
        for rule in each["rules"]:
            found += [
                Right(role, namespace, group, resource, verb, name)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
                for name in rule.get("resourceNames") or [""]
            ]
    return found


def used(events: Iterable[Mapping[str, Any]]) -> set[Right]:
    """What was done by which role, with and without the name of the object. A request that was refused used nothing.

    What a user does by Kubernetes' `view`, `edit` and `admin` counts for the role of Fairlead that is contained in it.
    """
    return {each for event in events for right in _of(event) for each in (right, right._replace(name=""))}


def refused(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Who was not allowed what."""
    return [
        f"{event['user']['username']}: {event['verb']} {event['requestURI']}: {event['responseStatus'].get('message', '')}"
        for event in events
        if event.get("responseStatus", {}).get("code") in (401, 403)
    ]


def why(right: Right) -> str:
    """The reason that the table of rules gives for a right."""
    return next((rule.why for rule in _rules(right) if _grants(rule, right)), "no rule of fairlead.install.roles")


def _rules(right: Right) -> Iterator[roles.Rule]:
    yield from _PEOPLE.get(right.role, ())
    named = (right.name,)
    for process in PROCESSES:
        if right.role == account(process):
            if right.namespace:
                yield from (*roles.of_lease(process), roles.OF_SERVERS, *roles.of_endpoints(named, process))
            else:
                yield from (*roles.OF_PROCESS[process], roles.of_server(right.name))
    yield roles.of_autoscalers((right.resource,))


def _grants(rule: roles.Rule, right: Right) -> bool:
    names = rule.names.split() or [""]
    return (
        rule.group == right.group
        and right.resource in rule.resources.split()
        and right.verb in rule.verbs.split()
        and right.name in names
    )


def _of(event: Mapping[str, Any]) -> Iterator[Right]:
    code = event.get("responseStatus", {}).get("code", 0)
    allowed = _ALLOWED.match(event.get("annotations", {}).get("authorization.k8s.io/reason", ""))
    about = event.get("objectRef")
    if allowed is None or about is None or not 200 <= code < 300:
        return
    binding, role = allowed.groups()
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    group, name = about.get("apiGroup", ""), about.get("name", "")
    right = Right(_INTO.get(role, role), binding.partition("/")[2], group, resource, event["verb"], name)
    if right.role in _PEOPLE:
        right = right._replace(namespace="")  # a RoleBinding gives them a ClusterRole
    yield right
    if event["verb"] == "patch" and code == 201:
        yield right._replace(verb="create")
    if resource == "resourceclaims/status":
        yield right._replace(resource="resourceclaims/binding")
    owners = event.get("requestObject", {}).get("metadata", {}).get("ownerReferences", ())
    for owner in owners if event["verb"] == "create" and not right.namespace else ():
        if owner.get("blockOwnerDeletion"):
            plural = f"{owner['kind'].lower()}s"
            yield Right(right.role, "", owner["apiVersion"].rpartition("/")[0], f"{plural}/finalizers", "update")

"""What a request requires of its object: the name, the UID, the version."""

from __future__ import annotations

from fairlead.cluster.simulated import errors
from fairlead.cluster.simulated.resources import Resource
from fairlead.cluster.simulated.store import Object


def check_name(given: Object, name: str) -> None:
    """What is sent to an object's path is that object."""
    if not given.get("name", name):
        raise errors.bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if given.get("name", name) != name:
        raise errors.bad_request(f"the name of the object ({given.get('name')}) does not match the name on the URL ({name})")


def check_uid(resource: Resource, name: str, uid: str, live: Object) -> None:
    """The object still has the UID of the request."""
    if uid != live["metadata"]["uid"]:
        detail = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live['metadata']['uid']}"
        raise errors.conflict(resource.group, resource.plural, name, detail)


def check_deletion(resource: Resource, obj: Object, conditions: Object) -> None:
    """The preconditions of a deletion."""
    metadata = obj["metadata"]
    for what, field, why in (("UID", "uid", "deleted and then recreated"), ("ResourceVersion", "resourceVersion", "modified")):
        wanted, present = conditions.get(field), metadata[field]
        if wanted and wanted != present:
            differ = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({present})"
            detail = f"{differ}. The object might have been {why}"
            raise errors.conflict(resource.group, resource.kind, metadata["name"], detail)

"""The target state of a job, a PodGroup's `status.target`: whether it is to run, and its pods' specs while it is suspended.

`owners` are the objects for the operator to act on. The rest is for the scheduler: while the job is suspended, `members`, each a
count and a pod as the core sees it; once it has resumed, `attained` and `firstCreated`, what it had before. `nodes` has the
places that are reserved for its members until `keptUntil`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.kinds.common import MEMBERS
from fairlead.cluster import views
from fairlead.cluster.times import seconds, timestamp
from fairlead.core.model.groups import Member, Target
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.transactions import Resume, Suspension

log = structlog.get_logger("targets")

RUNNING, SUSPENDED = "Running", "Suspended"
_NO_PLACES = {"nodes": None, "keptUntil": None}


def suspended(job: Suspension) -> dict[str, Any]:
    """The target of a job that is to be suspended."""
    owners = []
    for kind, uid in job.owners:
        version, _, rest = kind.rpartition("/")[0].rpartition("/")
        owners.append({"apiVersion": version, "kind": rest, "name": kind.rpartition("/")[2], "uid": uid})
    members = [{"count": each.count, "pod": msgspec.json.encode(each.pod).decode()} for each in job.members]
    served = {"attained": None, "firstCreated": None}  # the members have them
    return {"state": SUSPENDED, "epoch": job.epoch, "owners": owners, "members": members, **served, **_NO_PLACES}


def running(job: Resume) -> dict[str, Any]:
    """The target of a job that may run again; a merge patch: whose it is stays known."""
    target: dict[str, Any] = {"state": RUNNING, "epoch": job.epoch}
    if job.places:
        # They are those of the members that are recorded there.
        target |= {"nodes": list(job.places[:MEMBERS]), "keptUntil": timestamp(job.until)}
    else:
        target |= {"members": None, **_NO_PLACES}
    if job.attained:
        target |= {"attained": job.attained, "firstCreated": timestamp(job.since)}
    return target


def group_for(job: Suspension) -> dict[str, Any]:
    """The PodGroup that is made for a job that has none; it goes with the job, which resumes as whole as it was."""
    namespace, _, name = job.group.partition("/")
    owner = suspended(job)["owners"][0]
    spec: dict[str, Any] = {"minMember": sum(each.count for each in job.members), "queue": job.queue}
    if job.service_class:
        spec["serviceClass"] = job.service_class
    return {
        "apiVersion": names.API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {names.MADE_FOR_LABEL: owner["kind"]},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def target(view: views.PodGroup) -> Target | None:
    """The target of a PodGroup. A record that cannot be read stands for a pod that asks for nothing: the job resumes at once."""
    found = view.status.target if view.status is not None else None
    if found is None or not found.state:
        return None
    members = []
    for each in found.members or ():
        try:
            members.append(Member(max(1, each.count), msgspec.json.decode(each.pod, type=Pod)))
        except msgspec.MsgspecError as error:
            log.error("record of a suspended pod cannot be read", group=view.metadata.name, error=str(error))
            members.append(Member(1, Pod("", "", "", PodSpec())))
    owners = tuple(sorted(owner.uid for owner in found.owners or ()))
    attained, created = max(0.0, found.attained or 0.0), seconds(found.first_created)
    places = tuple(found.nodes or ()), seconds(found.kept_until)
    return Target(found.state, found.epoch, owners, tuple(members), attained, created, *places)

"""Writing `PodGroup.status.target`, whose epoch only rises.

A write without an answer may have been carried out, or may be carried out late. It is repeated only after a read, and never over
a target that was written since: a job that has resumed would be suspended again for nothing. Each try names the version that was
read, so that one which is still on its way is refused once anything else was written.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.port import Outcome
from fairlead.cluster.transport import Unreachable

_TRIES = 5
_MERGE = "application/merge-patch+json"


class _Owner(msgspec.Struct):
    uid: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    owner_references: list[_Owner] = []


class _Target(msgspec.Struct):
    state: str = ""
    epoch: int = 0


class _Status(msgspec.Struct):
    target: _Target | None = None


class _Group(msgspec.Struct):
    metadata: _Metadata
    status: _Status | None = None


async def write_target(client: Client, path: str, target: dict[str, Any], owner: str = "") -> tuple[Outcome, str]:  # noqa: PLR0911 - an answer each
    """Write a target into the PodGroup at a path. `GONE`: there is none. `REFUSED`: a target of that epoch or later stands.

    `DONE` where that is so after a write without an answer: it is this one, or has overtaken it. owner: the UID of what must own
    it; empty: that is not asked.
    """
    message, unanswered = "", False
    for _ in range(_TRIES):
        sent = False
        try:
            group = msgspec.json.decode(await client.get(path), type=_Group)
            if owner and all(each.uid != owner for each in group.metadata.owner_references):
                return Outcome.REFUSED, f"PodGroup {path.rpartition('/')[2]} exists and belongs to another object"
            stands = group.status.target if group.status is not None else None
            if stands is not None and stands.epoch >= target["epoch"]:
                if unanswered or stands == _Target(target["state"], target["epoch"]):
                    return Outcome.DONE, ""
                return Outcome.REFUSED, f"a later target state is in place: {stands.state}, epoch {stands.epoch}"
            sent = True
            metadata = {"resourceVersion": group.metadata.resource_version}
            await client.patch(f"{path}/status", encode({"metadata": metadata, "status": {"target": target}}), _MERGE)
            return Outcome.DONE, ""
        except ApiError as error:
            message = str(error)
            if error.code == 404:
                return Outcome.GONE, error.message
            if error.code < 500 and error.code != 409:
                return Outcome.REFUSED, message
            unanswered = unanswered or (sent and error.code != 409)
        except (Unreachable, msgspec.DecodeError) as error:
            message, unanswered = str(error), unanswered or sent
    return Outcome.REFUSED, message

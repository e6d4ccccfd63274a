"""The process that plays `whatif` for users who may not list the cluster, one question after the other.

    python -m fairlead.simulation.answering      # started by the leader (`scheduler/player.py`), which talks to it through pipes

It is apart from the leader, so that a question takes neither its interpreter's time nor its memory, and can be ended. It lists
the cluster with the leader's account. A list, and what the scheduler would do as things stand, serve the questions of some
seconds.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
import time
from queue import SimpleQueue
from typing import BinaryIO

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster import grouping
from fairlead.cluster.kubernetes.aggregated import camelled
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable
from fairlead.cluster.kubernetes.config import Config, ConfigError
from fairlead.cluster.kubernetes.listing import everything
from fairlead.cluster.translate import Objects
from fairlead.core.model.policy import Policy
from fairlead.observability.logs import configure
from fairlead.scheduler.player import Asked, Played, Setting, read_frame, write_frame
from fairlead.simulation import asked, whatif
from fairlead.simulation.whatif import Outcome, WhatIfError

log = structlog.get_logger("whatif")

_NICENESS = 10
_FRESH = 10.0  # seconds for which a list serves
_LONGEST = 1000  # characters of a message, which may repeat what was asked
_REQUEST = 30.0  # seconds for one request to the API server


class Cluster:
    """The cluster as it was listed last, and what the scheduler would do then. setting: whose it is, and how it decides."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._listed_at = float("-inf")
        self._objects = Objects(0.0)
        self._outcome: Outcome | None = None

    @property
    def policy(self) -> Policy:
        """The scheduler's."""
        return self._setting.policy

    def objects(self) -> Objects:
        """All of it. Raises `ApiError`, `Unreachable`, `ConfigError`."""
        if time.monotonic() - self._listed_at > _FRESH:
            self._objects, self._outcome = Objects(0.0), None  # the memory of the list before, before there is another
            self._objects = asyncio.run(_listed(self._setting.config))
            self._listed_at = time.monotonic()
        return self._objects

    def outcome(self) -> Outcome:
        """What becomes of it as it is."""
        if self._outcome is None:
            self._outcome = whatif.play(self._objects, self.policy)
        return self._outcome


async def _listed(config: Config) -> Objects:
    async with Client(config, connections=8, timeout=_REQUEST, read_only=True) as client:
        return (await everything(client))[0]


def answer(cluster: Cluster, question: Asked) -> Played:
    """The answer to one question, or why there is none: as a status of HTTP, a reason and a message."""
    try:
        read = asked.read(question.body)
        # What is refused is refused before anything is played.
        after = asked.changed(cluster.objects(), read, question.namespace, question.user)
        found = asked.answer(cluster.outcome(), after, question.namespace, cluster.policy)
    except asked.NotYours as error:
        return Played(403, "Forbidden", str(error)[:_LONGEST])
    except WhatIfError as error:
        return Played(422, "Invalid", str(error)[:_LONGEST])
    except (ApiError, Unreachable, ConfigError) as error:
        return Played(503, "ServiceUnavailable", f"the scheduler cannot list the cluster: {error}")
    except MemoryError:
        return Played(503, "ServiceUnavailable", "the cluster is too large for the memory that what-if questions may have")
    except Exception:
        log.exception("a question cannot be played", namespace=question.namespace, user=question.user)
        return Played(500, "InternalError", "the question cannot be played; the scheduler's log has the traceback")
    return Played(200, "", "", msgspec.json.encode(camelled(found)))


def serve(frames_in: BinaryIO, frames_out: BinaryIO) -> None:
    """Answer until the other end closes: then the process ends at once, whatever it is doing."""
    questions: SimpleQueue[Asked] = SimpleQueue()
    setting = msgspec.msgpack.decode(read_frame(frames_in) or b"", type=Setting)
    names.answer_to(setting.schedulers)
    names.share_by(setting.sharing_agents)
    names.count_parts(setting.gpu_parts)
    grouping.use(setting.rules)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    memory = setting.memory if most == resource.RLIM_INFINITY else min(setting.memory, most)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, most))

    def receive() -> None:
        try:
            while frame := read_frame(frames_in):
                questions.put(msgspec.msgpack.decode(frame, type=Asked))
        finally:
            os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    cluster = Cluster(setting)
    while True:
        write_frame(frames_out, msgspec.msgpack.encode(answer(cluster, questions.get())))


def main() -> None:
    """On this process's pipes; what anything prints goes to stderr."""
    configure("warning")
    os.nice(_NICENESS)
    frames_out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, frames_out)


if __name__ == "__main__":
    main()

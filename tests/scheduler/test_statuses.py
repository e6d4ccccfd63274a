"""Latest statuses: what is written instead of what was not, and what a later message must not lose."""

import asyncio

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster.transport import Unreachable
from fairlead.core.model.transactions import Fault, PodRef, Refuse
from fairlead.scheduler.writing.counters import WriteCounters
from fairlead.scheduler.writing.lines import Lines
from fairlead.scheduler.writing.messages import Messages
from fairlead.scheduler.writing.statuses import Statuses

POD = PodRef("uid-p", "ns", "p")
WAITS = Reason(ReasonCode.RESOURCES, "no node has room", {})
BROKEN = Reason(ReasonCode.INTERNAL_ERROR, "set aside", {})


class Server:
    """What was written about pods. lost: so many writes do not arrive, after `meanwhile` was called."""

    def __init__(self, lost=0):
        self.written = []
        self.lost = lost
        self.meanwhile = lambda: None

    async def refuse(self, pod, reason, *, withdraw=False):
        if self.lost:
            self.lost -= 1
            self.meanwhile()
            raise Unreachable("gone")
        self.written.append((reason.code, withdraw))


class NoEvents:
    def put(self, *_, **__):
        pass


def write(server, act):
    """What the server has once all that `act` and `server.meanwhile` report is written."""

    async def run():
        lines = Lines(2, lambda: False)
        statuses = Statuses(server, lines, WriteCounters())
        act(Messages(statuses, NoEvents()), statuses)
        writers = asyncio.create_task(lines.run())
        while not lines.idle:
            await asyncio.sleep(0)
        writers.cancel()
        await asyncio.gather(writers, return_exceptions=True)
        return server.written

    return asyncio.run(run())


def refusal(withdrawn=()):
    return Refuse((POD,), WAITS, withdrawn=withdrawn)


def test_a_later_message_does_not_lose_that_a_nomination_is_withdrawn():
    def act(messages, _):
        messages.refuse(refusal((POD.uid,)))
        messages.fault(Fault("serve", (POD,), BROKEN))

    assert write(Server(), act) == [(ReasonCode.INTERNAL_ERROR, True)]


def test_nor_does_one_that_comes_while_that_is_lost():
    server = Server(lost=1)

    def act(messages, _):
        messages.refuse(refusal((POD.uid,)))
        server.meanwhile = lambda: messages.refuse(refusal())

    assert write(server, act) == [(ReasonCode.RESOURCES, True)]


def test_a_nomination_that_came_later_is_not_withdrawn():
    server = Server(lost=1)

    def act(messages, statuses):
        def nominated():
            statuses.refusals.drop(POD.uid)
            messages.refuse(refusal())

        messages.refuse(refusal((POD.uid,)))
        server.meanwhile = nominated

    assert write(server, act) == [(ReasonCode.RESOURCES, False)]

    def dropped(messages, statuses):
        messages.refuse(refusal((POD.uid,)))
        statuses.refusals.drop(POD.uid)
        messages.refuse(refusal())

    assert write(Server(), dropped) == [(ReasonCode.RESOURCES, False)]

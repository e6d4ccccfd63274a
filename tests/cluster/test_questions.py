"""A POST that asks and makes nothing: clients that only read may send it, it is no write, and a 429 is for who asks."""

import pytest

from fairlead.cluster.kubernetes.client import ApiError, Client, ReadOnly
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.transport import Reply


class Replies:
    """A transport that gives these replies."""

    def __init__(self, *replies):
        self.replies, self.sent = list(replies), []

    async def request(self, method, path, *, query, headers, body):
        self.sent.append((method, path, body))
        return self.replies.pop(0)

    async def close(self):
        pass


async def test_a_client_that_only_reads_may_ask_and_not_write():
    transport = Replies(Reply(200, {}, b"answer"))
    async with Client(Config("http://x"), transport=transport, read_only=True) as client:
        assert await client.ask("/whatifs", b"question") == b"answer"
        with pytest.raises(ReadOnly):
            await client.post("/pods", b"pod")
    assert (transport.sent, client.writes) == ([("POST", "/whatifs", b"question")], 0)


async def test_writes_that_are_held_do_not_hold_a_question():
    async with Client(Config("http://x"), transport=Replies(Reply(200, {}, b"answer"))) as client:
        client.hold_writes()
        assert await client.ask("/whatifs", b"") == b"answer"


async def test_who_asks_too_much_hears_of_it_at_once():
    transport = Replies(Reply(429, {"Retry-After": "25"}, b'{"message": "ask again in 25 s"}'))
    async with Client(Config("http://x"), transport=transport) as client:
        with pytest.raises(ApiError, match="ask again in 25 s"):
            await client.ask("/whatifs", b"")
    assert len(transport.sent) == 1

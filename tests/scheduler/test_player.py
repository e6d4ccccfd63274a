"""The process that plays what-if questions: one at a time, within limits of time and of work for each user, and replaced when it ends."""

import asyncio
import random
import sys
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from fairlead.api import names
from fairlead.cluster.kubernetes.config import Config
from fairlead.core.model.policy import Policy
from fairlead.scheduler import player
from fairlead.scheduler.player import Asked, Budget, Played, Player, Setting, TooMuch
from fairlead.scheduler.visibility import Visibility

DOUBLE = """
import os, sys, time
import msgspec
from fairlead.scheduler.player import Asked, Played, Setting, read_frame, write_frame

setting = msgspec.msgpack.decode(read_frame(sys.stdin.buffer), type=Setting)
while frame := read_frame(sys.stdin.buffer):
    body = msgspec.msgpack.decode(frame, type=Asked).body
    if body == b"hang":
        time.sleep(600)
    if body == b"die":
        os._exit(1)
    if body == b"rest":
        time.sleep(0.3)
    if body == b"junk":
        os.write(1, b"\\xff" * 64)
    write_frame(sys.stdout.buffer, msgspec.msgpack.encode(Played(200, "", "", b"%d" % os.getpid())))
"""
SETTING = Setting(config=Config("https://nowhere"), policy=Policy(), schedulers={}, sharing_agents=[])


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
async def made():
    """A player that talks to a double."""
    found = Player((sys.executable, "-c", DOUBLE), SETTING, Clock())
    yield found
    await found.close()


def asked(body=b"", user="ann", namespace="vision"):
    return Asked(namespace, user, body)


def seen(made):
    """No more is held against any user."""
    made._clock.now += 10_000


async def pid(made, **more):
    answer = await made.play(asked(**more))
    seen(made)
    return int(answer.outcome)


async def test_one_process_answers_one_question_after_the_other(made):
    first = await pid(made)
    assert await pid(made, user="bob") == first


async def test_one_that_has_ended_is_replaced(made):
    first = await pid(made)
    made._process.kill()
    await made._process.wait()
    assert await pid(made) != first


async def test_a_question_that_ends_it_twice_is_refused_and_the_next_one_is_answered(made):
    answer = await made.play(asked(b"die"))
    assert (answer.code, answer.outcome) == (503, b"")
    seen(made)
    assert await pid(made)


async def test_what_is_no_answer_ends_it(made):
    answer = await made.play(asked(b"junk"))
    assert answer.code == 503
    seen(made)
    assert await pid(made)


async def test_a_question_that_takes_too_long_ends_with_its_process(made, monkeypatch):
    await pid(made)
    process = made._process
    monkeypatch.setattr(player, "_LIMIT", 0.5)
    with pytest.raises(TimeoutError):
        await made.play(asked(b"hang"))
    assert await asyncio.wait_for(process.wait(), 5) < 0
    monkeypatch.undo()
    seen(made)
    assert await pid(made)


async def test_others_wait_for_their_turn_but_each_asks_one_at_a_time(made):
    await pid(made)
    playing = asyncio.create_task(made.play(asked(b"rest")))
    await asyncio.sleep(0)
    with pytest.raises(TooMuch, match="a question of yours is being played"):
        await made.play(asked(namespace="other"))
    assert (await made.play(asked(user="bob"))).code == 200
    assert playing.done(), "one at a time"


async def test_a_line_has_an_end_and_waiting_has_one(made, monkeypatch):
    monkeypatch.setattr(player, "_LINE", 2)
    await pid(made)
    line = [asyncio.create_task(made.play(asked(b"rest", user=f"u{number}", namespace=f"n{number}"))) for number in range(3)]
    await asyncio.sleep(0.05)
    with pytest.raises(TooMuch, match="2 questions wait"):
        await made.play(asked(user="bob", namespace="bobs"))
    assert [each.code for each in await asyncio.gather(*line)] == [200] * 3
    seen(made)
    monkeypatch.setattr(player, "_PATIENCE", 0.05)
    playing = asyncio.create_task(made.play(asked(b"rest", user="a", namespace="as")))
    await asyncio.sleep(0.02)
    with pytest.raises(TooMuch, match="other questions are being played"):
        await made.play(asked(user="bob", namespace="bobs"))
    await playing
    seen(made)
    assert await pid(made, user="bob"), "who waited in vain may ask again"


async def test_it_ends_after_a_while_without_a_question(made, monkeypatch):
    monkeypatch.setattr(player, "_IDLE", 0.1)
    await pid(made)
    process = made._process
    assert await asyncio.wait_for(process.wait(), 5) < 0
    assert await pid(made) != process.pid


async def test_a_process_that_cannot_be_started_is_an_answer_and_no_failure():
    found = Player(("/nowhere/python",), SETTING, Clock())
    assert (await found.play(asked())).code == 503


async def test_each_user_and_each_namespace_may_ask_for_so_much(made):
    for _ in range(30):  # each counts as a second at least
        assert (await made.play(asked())).code == 200
    with pytest.raises(TooMuch, match="user ann has asked for as much as each may; ask again in 5 s") as refused:
        await made.play(asked(namespace="other"))
    with pytest.raises(TooMuch, match="namespace vision has asked"):
        await made.play(asked(user="system:serviceaccount:vision:another"))
    assert (await made.play(asked(user="bob", namespace="other"))).code == 200
    made._clock.now += refused.value.wait
    assert (await made.play(asked())).code == 200
    with pytest.raises(TooMuch):
        await made.play(asked())


async def test_all_together_may_ask_for_so_much(made):
    for number in range(120):
        await made.play(asked(user=f"u{number}", namespace=f"n{number}"))
    with pytest.raises(TooMuch, match="for all users together") as refused:
        await made.play(asked(user="bob", namespace="bobs"))
    made._clock.now += refused.value.wait
    assert (await made.play(asked(user="bob", namespace="bobs"))).code == 200


@pytest.mark.parametrize("seed", range(50))
def test_a_budget_grants_what_it_says_and_refuses_no_longer_than_it_says(seed):
    draw = random.Random(seed)
    clock = Clock()
    at_once, rate = draw.choice([5.0, 30.0]), draw.choice([0.1, 0.5])
    budget = Budget(at_once, rate, clock)
    begun, granted, largest = clock.now, dict.fromkeys("ab", 0.0), 0.0
    for _ in range(400):
        clock.now += draw.choice([0.0, 0.5, 3.0, 40.0])
        who = draw.choice("ab")
        wait = budget.wait(who)
        if wait:
            clock.now += wait
            assert budget.wait(who) == 0, "after that time they may"
        spent = draw.choice([1.0, 2.5, 20.0])
        budget.spend(who, spent)
        granted[who] += spent
        largest = max(largest, spent)
        assert granted[who] <= at_once + rate * (clock.now - begun) + largest + 1e-6
    clock.now += 10_000
    budget.spend("c", 1.0)
    assert set(budget._spent) == {"c"}, "who has spent nothing for long is forgotten"


class Answers:
    """A player that answers all questions alike."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    async def play(self, question):
        self.asked.append(question)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        (Played(200, "", "", b'{"starts": []}'), 200, '"status":{"starts": []}'),
        (Played(422, "Invalid", "no such node"), 422, "no such node"),
        (Played(403, "Forbidden", "not yours"), 403, "not yours"),
        (TooMuch("as much as each may", 6.2), 429, "ask again in 7 s"),
        (TimeoutError(), 504, "not played to its end in time"),
    ],
)
async def test_the_answer_over_http(answer, code, told):
    made = Answers(answer)
    visibility = Visibility(None, "", None, None, time.time, made)
    application = web.Application()
    application.add_routes(visibility._api._routes)
    async with TestClient(TestServer(application)) as client:
        reply = await client.post(f"{names.VISIBILITY}/namespaces/vision/whatifs", data=b"{}")
        assert (reply.status, told in await reply.text()) == (code, True)
        assert reply.headers.get("Retry-After") == ("7" if code == 429 else None)
        assert (await client.get(f"{names.VISIBILITY}/namespaces/vision/whatifs")).status == 405
    assert made.asked == [asked(b"{}", user="")]


def test_the_process_that_is_started_ends_with_its_pipe():
    """The leader may be killed: what it started does not stay behind."""
    import subprocess

    import msgspec

    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead.simulation.answering"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    content = msgspec.msgpack.encode(SETTING)
    process.stdin.write(len(content).to_bytes(4, "big") + content)
    process.stdin.flush()
    time.sleep(0.2)
    process.stdin.close()
    assert process.wait(20) == 0
    process.stdout.close()

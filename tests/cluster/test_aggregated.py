"""An aggregated API that cannot be served yet is tried again: soon at first, then less often."""

import asyncio

import pytest

from fairlead.cluster.kubernetes import aggregated
from fairlead.cluster.kubernetes.aggregated import AggregatedApi
from fairlead.cluster.kubernetes.front_proxy import FrontProxyError


async def test_rests_between_attempts_grow_and_begin_anew_once_it_was_served(monkeypatch):
    rests, serves, loop = [], [0.0] * 6 + [40.0, 0.0], asyncio.get_running_loop()
    now = [loop.time()]

    class Api(AggregatedApi):
        async def _serve(self):
            if not serves:
                raise asyncio.CancelledError
            now[0] += serves.pop(0)
            raise FrontProxyError("no rights yet")

    async def rest(seconds):
        rests.append(seconds)

    monkeypatch.setattr(loop, "time", lambda: now[0])
    monkeypatch.setattr(aggregated.asyncio, "sleep", rest)
    with pytest.raises(asyncio.CancelledError):
        await Api(None, "", "g", "v1", None, [], [], "chart").run()
    assert rests == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 2.0, 4.0]

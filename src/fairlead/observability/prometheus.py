"""Asking a Prometheus server: instant queries, nothing more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aiohttp
import msgspec


class PrometheusError(Exception):
    """It cannot be reached, or refuses the question."""


class _Sample(msgspec.Struct):
    metric: dict[str, str] = {}
    value: tuple[float, str] = (0.0, "NaN")


class _Data(msgspec.Struct):
    result: list[_Sample] = []


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


class Prometheus:
    """A server. url: such as `http://prometheus.monitoring:9090`; limit: seconds for an answer."""

    def __init__(self, url: str, *, limit: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self._limit = aiohttp.ClientTimeout(total=limit)

    async def query(self, question: str, labels: Sequence[str]) -> Mapping[tuple[str, ...], float]:
        """The value of each series, by the values of some labels. Raises `PrometheusError`."""
        try:
            async with (
                aiohttp.ClientSession(timeout=self._limit) as session,
                session.post(f"{self.url}/api/v1/query", data={"query": question}) as reply,
            ):
                answer = msgspec.json.decode(await reply.read(), type=_Answer)
            found = {tuple(each.metric.get(name, "") for name in labels): float(each.value[1]) for each in answer.data.result}
        except (TimeoutError, aiohttp.ClientError, msgspec.MsgspecError, ValueError) as error:
            raise PrometheusError(f"{self.url}: {error or type(error).__name__}") from error
        if answer.status != "success":
            raise PrometheusError(f"{self.url}: {answer.error or 'no success'}")
        return found

"""What Prometheus has of pods and nodes becomes annotations, when it is news."""

import json
import math

from fairlead.api import names, pressure
from fairlead.cluster.kubernetes.client import ApiError
from fairlead.observability.prometheus import PrometheusError
from fairlead.operator.measured import NODE_METRIC, POD_METRIC, SPEED_METRIC, Measured

POD, NODE = "/api/v1/namespaces/vision/pods/bert", "/api/v1/nodes/n1"


class Asked:
    """A Prometheus with given answers."""

    def __init__(self):
        self.answers = {POD_METRIC: {}, NODE_METRIC: {}, SPEED_METRIC: {}}

    async def query(self, question, labels):
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers[question]


class Server:
    """An API server that keeps what was patched."""

    def __init__(self):
        self.now = 1_800_000_000.0
        self.written = []
        self.refuses = {}

    def clock(self):
        return self.now

    async def patch(self, path, body, kind):
        if path in self.refuses:
            raise self.refuses[path]
        (text,) = json.loads(body)["metadata"]["annotations"].values()
        self.written.append((path, text))
        return b"{}"


def world():
    asked, server = Asked(), Server()
    return asked, server, Measured(asked, server)


async def test_a_pod_is_written_once_until_it_changes_much():
    asked, server, measured = world()
    asked.answers[POD_METRIC] = {
        ("vision", "bert", "network"): 0.25,
        ("vision", "bert", "disk"): math.nan,
        ("vision", "bert", "odd"): 1.0,
        ("", "bert", "network"): 1.0,
        ("a/b", "bert", "network"): 1.0,
    }
    await measured.measure()
    assert [path for path, _ in server.written] == [POD]
    at, found = pressure.read_measured(server.written[0][1])
    assert (at, found) == ("2027-01-15T08:00:00Z", (0, 0, 250, 0))
    asked.answers[POD_METRIC] = {("vision", "bert", "network"): 0.3}
    await measured.measure()
    assert len(server.written) == 1
    asked.answers[POD_METRIC] = {("vision", "bert", "network"): 0.6}
    await measured.measure()
    assert pressure.read_measured(server.written[1][1])[1] == (0, 0, 600, 0)


async def test_a_node_in_use_is_written_before_that_is_old():
    asked, server, measured = world()
    asked.answers[NODE_METRIC] = {("n1", "cpu"): 1.5, ("n2", "cpu"): 0.01}
    for _ in range(4):
        await measured.measure()
        server.now += 20.0
    assert [path for path, _ in server.written] == [NODE, NODE]
    assert pressure.read_measured(server.written[0][1], pressure.LOADS)[1] == (0, 0, 0, 0, 1500)
    asked.answers[NODE_METRIC] = {("n1", "cpu"): 0.0}
    for _ in range(3):
        await measured.measure()
        server.now += 40.0
    assert len(server.written) == 3  # that it is idle is written once


async def test_failures_are_counted_and_tried_again():
    asked, server, measured = world()
    answers = asked.answers
    answers[POD_METRIC] = {("vision", "bert", "network"): 0.25}
    asked.answers = PrometheusError("down")
    await measured.measure()
    assert (measured.failures, server.written) == (1, [])
    asked.answers = answers
    server.refuses[POD] = ApiError(403, "Forbidden", "no")
    await measured.measure()
    assert (measured.failures, server.written) == (2, [])
    server.refuses[POD] = ApiError(404, "NotFound", "gone")
    await measured.measure()
    assert measured.failures == 2
    server.refuses.clear()
    await measured.measure()
    assert [path for path, _ in server.written] == [POD]
    assert names.MEASURED_PRESSURE_ANNOTATION == "fairlead.dev/measured-pressure"


async def test_a_speed_is_written_every_minute_and_when_it_changes():
    """Who is beside a pod may change while its speed does not: that must be measured, too."""
    asked, server, measured = world()
    asked.answers[SPEED_METRIC] = {
        ("vision", "bert"): 12.5,
        ("vision", "odd"): math.nan,
        ("vision", "huge"): 1e300,
        ("vision", "back"): -1.0,
        ("", "bert"): 1.0,
    }
    for _ in range(4):
        await measured.measure()
        server.now += 20.0
    assert server.written == [(POD, "at=2027-01-15T08:00:00Z,speed=12.5"), (POD, "at=2027-01-15T08:01:00Z,speed=12.5")]
    asked.answers[SPEED_METRIC] = {("vision", "bert"): 6.0}
    await measured.measure()
    assert server.written[2:] == [(POD, "at=2027-01-15T08:01:20Z,speed=6")]
    server.refuses[POD] = ApiError(500, "no", None)
    asked.answers[SPEED_METRIC] = {("vision", "bert"): 0.0}
    await measured.measure()
    del server.refuses[POD]
    await measured.measure()
    assert server.written[3:] == [(POD, "at=2027-01-15T08:01:20Z,speed=0")]
    assert measured.failures == 1

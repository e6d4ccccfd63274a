"""What is used of what is held: measured every few minutes, and never guessed."""

import json
import math
import time

import msgspec
import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.observability.history import Job, Run, Stay
from fairlead.observability.prometheus import PrometheusError
from fairlead.observability.store import History
from fairlead.operator.accounting.accounting import Accounting
from fairlead.operator.accounting.node_intervals import NodeView
from fairlead.operator.accounting.observations import NodeObserved
from fairlead.operator.use import Use, Used
from tests.operator.observed import gone, pod

POD = ("vision", "bert")


class Asked:
    """A Prometheus with given answers."""

    def __init__(self):
        self.answer = {}

    async def query(self, question, labels):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_measurements_are_shares_of_the_time_since_the_one_before():
    server, clock, observed = Asked(), [1000.0], []
    use = Use(server, lambda: clock[0], observed.append)
    server.answer = {POD: 25.0, ("vision", "nan"): math.nan, ("vision", "hot"): 130.0, ("vision", "odd"): -1.0}
    await use.measure()
    clock[0] = 1120.0
    await use.measure()
    clock[0] = 900.0  # set back: the time is unknown, and it is no more than a measurement's own time
    await use.measure()
    clock[0] = 1e9
    await use.measure()
    assert observed[0].share == {POD: 0.25, ("vision", "hot"): 1.0, ("vision", "odd"): 0.0}
    assert [each.seconds for each in observed] == [300.0, 120.0, 300.0, 300.0]


async def test_what_cannot_be_asked_is_not_measured():
    server, observed = Asked(), []
    use = Use(server, lambda: 1000.0, observed.append)
    server.answer = PrometheusError("down")
    await use.measure()
    assert (observed, use.failures) == ([], 1)


def node(name):
    metadata = {"name": name, "uid": name, "labels": {"fairlead.dev/pool": "h100"}}
    view = {"metadata": metadata, "status": {"capacity": {"nvidia.com/gpu": "8"}}}
    return NodeObserved(name, msgspec.convert(view, NodeView))


def test_runs_add_up_what_was_measured_while_they_went_on(history):
    accounting = Accounting(history)
    accounting.apply([node("a"), pod("bert", node="a", bound=100, phase="Running")], 100.0)
    accounting.close_others()
    accounting.apply([Used({POD: 0.5}, 300.0, 200.0)], 200.0)  # it ran for a hundred of these seconds only
    accounting.apply([Used({POD: 1.0, ("vision", "other"): 1.0}, 300.0, 500.0)], 500.0)
    accounting.apply([Used({}, 300.0, 800.0)], 800.0)  # not measured: neither used nor unused
    accounting.write(800.0)
    [run] = history.held(0.0, 1000.0)[1]
    assert (run[0].used, run[0].measured) == (350.0, 400.0)
    assert (accounting.pool_used, accounting.pool_measured) == ({("h100",): 350.0}, {("h100",): 400.0})
    accounting.apply([gone("bert"), Used({POD: 1.0}, 300.0, 1100.0)], 1100.0)
    accounting.write(1100.0)
    [run] = history.held(0.0, 2000.0)[1]
    assert run[0].measured == 400.0, "it was gone"


def test_an_operator_that_comes_up_adds_to_what_is_written(history):
    for moment in (200.0, 500.0):
        accounting = Accounting(history)
        accounting.apply([pod("bert", node="a", bound=100, phase="Running")], moment)
        accounting.apply([Used({POD: 1.0}, 100.0, moment)], moment)
        accounting.write(moment)
    [run] = history.held(0.0, 1000.0)[1]
    assert run[0].used == 200.0


@pytest.fixture
def url(database):
    """Four GPUs held for two of ten hours; measured for one of these, and half used then."""
    url, begun = database, time.time() - 36000
    store = History(url)
    run = {"uid": "r", "job": "j", "namespace": "lab", "name": "r", "queue": "vision", "service_class": "", "user": "ann"}
    stay = {"uid": "s", "node": "n", "node_uid": "n", "pool": "p", "price": None, "currency": "", "kind": ""}
    store.write(
        [Job(uid="j", namespace="lab", kind="AIJob", name="bert", user="ann", submitted_at=begun)],
        [Run(**run, node="n", cpus=1.0, gpus=4.0, started_at=begun, ended_at=begun + 7200, used=7200.0, measured=14400.0)],
        begun + 36000,
        [Stay(**stay, gpus=8.0, cpus=64.0, started_at=begun)],
    )
    store.close()
    return url


def asked(url, *arguments):
    return CliRunner().invoke(app, ["cost", "--database", url, *arguments])


def test_the_ledger_has_used_beside_held(url, tmp_path):
    found = json.loads(asked(url, "-o", "json").stdout)["lines"][0]
    assert (found["gpu_hours"], found["used_gpu_hours"], found["measured_gpu_hours"]) == (8.0, 2.0, 4.0)
    assert "50 %" in asked(url).stdout
    assert asked(url, "--csv", str(tmp_path / "costs.csv")).exit_code == 0
    head, line, *_ = (tmp_path / "costs.csv").read_text().splitlines()
    told = dict(zip(head.split(","), line.split(","), strict=True))
    assert (told["used_gpu_hours"], told["measured_gpu_hours"]) == ("2.0", "4.0")


def test_half_of_a_run_has_half_of_its_use(url):
    begun = time.time() - 36000
    half = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(begun + 3600))
    found = json.loads(asked(url, "--until", half, "-o", "json").stdout)["lines"][0]
    assert found["used_gpu_hours"] == pytest.approx(1.0, abs=0.01)

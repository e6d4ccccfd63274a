"""The decision log: what is written can be replayed, and what is not a log is refused."""

import io
import json

import pytest
from typer.testing import CliRunner

from fairlead.api.names import DEFAULT_QUEUE_LABEL
from fairlead.cli.main import app
from fairlead.cluster.port import Bound, Gone, Synced, Upsert
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.policy import Policy
from fairlead.core.model.transactions import Place
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.decision_log import LogError, LogWriter, Player
from tests.builders import group, node, pod, queue


def recorded(path, limit=1 << 20):
    """A short life of a core, recorded; returns its outputs."""
    outputs = []
    with path.open("wb") as file:
        writer = LogWriter(file, Policy(), limit=limit)
        core = CoreLoop(Policy(), outputs.extend, writer)
        core.apply([Upsert(node("n")), Upsert(pod("p")), Upsert(group("g", 2)), Synced()], 100.0)
        core.decide(100.5)
        core.apply([Bound("p"), Upsert(pod("huge", gpus=64))], 101.0)
        core.decide(101.5)
        core.apply([Gone("pod", "p")], 102.25)
        core.decide(102.5)
    return outputs, writer


def test_a_log_replays_exactly(tmp_path):
    outputs, _ = recorded(tmp_path / "log")
    assert any(isinstance(each, Place) for each in outputs)
    result = Player(tmp_path / "log").play()
    assert (result.identical, result.passes, result.events, result.truncated) == (True, 3, 7, False)
    assert (result.first, result.last) == (100.0, 102.5)


def test_whether_queues_are_charged_for_pods_of_others_is_in_the_log(tmp_path):
    policy = Policy(charge_foreign=True)
    namespace = Namespace("ns", ((DEFAULT_QUEUE_LABEL, "q"),))
    known = (node("n"), queue("q", limit=4), namespace, pod("theirs", gpus=3, at="n", ours=False), pod("p", queue="q", gpus=2))
    with (tmp_path / "log").open("wb") as file:
        core = CoreLoop(policy, lambda _: None, LogWriter(file, policy))
        core.apply([*map(Upsert, known), Synced()], 100.0)
        core.decide(100.5)
        core.apply([Gone("pod", "uid-theirs")], 101.0)
        core.decide(101.5)
    text = (tmp_path / "log").read_text()
    assert Player(tmp_path / "log").play().identical
    assert "held by pods of other schedulers" in text
    (tmp_path / "log").write_text(text.replace('"charge_foreign":true', '"charge_foreign":false'))
    assert Player(tmp_path / "log").play().difference.number == 1


def test_a_change_in_the_log_is_found(tmp_path):
    recorded(tmp_path / "log")
    text = (tmp_path / "log").read_text()
    assert '"node":"n"' in text
    (tmp_path / "log").write_text(text.replace('"node":"n"', '"node":"m"', 1))
    result = Player(tmp_path / "log").play()
    assert not result.identical
    assert result.difference.number == 1


def test_one_pass_can_be_looked_at(tmp_path):
    recorded(tmp_path / "log")
    done = CliRunner().invoke(app, ["replay", str(tmp_path / "log"), "--pass", "1", "-o", "json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert (shown["number"], shown["nodes"], shown["tasks"]) == (1, 1, 1)
    assert shown["outputs"][0]["type"] == "Place"
    assert CliRunner().invoke(app, ["replay", str(tmp_path / "log"), "--pass", "9"]).exit_code == 4


def test_a_log_that_was_cut_off_replays_as_far_as_it_goes(tmp_path):
    recorded(tmp_path / "log")
    content = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(content[:-20])
    result = Player(tmp_path / "log").play()
    assert result.identical
    assert result.truncated
    assert result.passes == 2


def test_a_full_log_ends_rather_than_leaves_a_gap(tmp_path):
    _, writer = recorded(tmp_path / "log", limit=900)
    assert writer.full
    result = Player(tmp_path / "log").play()
    assert result.identical
    assert result.passes < 3


@pytest.mark.parametrize("content", [b"", b"hello\n", b'{"fairlead":"0","format":99,"policy":{}}\n'])
def test_what_is_no_log_is_said_to_be_none(tmp_path, content):
    (tmp_path / "log").write_bytes(content)
    with pytest.raises(LogError):
        Player(tmp_path / "log")
    assert CliRunner().invoke(app, ["replay", str(tmp_path / "log")]).exit_code == 2


def test_a_broken_line_is_named(tmp_path):
    recorded(tmp_path / "log")
    lines = (tmp_path / "log").read_bytes().splitlines(keepends=True)
    lines[2] = b'{"at": "never"}\n'
    (tmp_path / "log").write_bytes(b"".join(lines))
    with pytest.raises(LogError, match="line 3"):
        Player(tmp_path / "log").play()


def test_a_missing_log_is_not_found(tmp_path):
    assert CliRunner().invoke(app, ["replay", str(tmp_path / "nothing")]).exit_code == 4


def test_a_closed_writer_is_not_written_to():
    writer = LogWriter(io.BytesIO(), Policy(), limit=10)
    assert writer.full
    writer.observed(1.0, [Synced()])
    writer.decided(1.0, [])

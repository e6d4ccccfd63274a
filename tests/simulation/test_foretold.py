"""Foretold starts of several replays are judged together, and what is written is read again."""

from __future__ import annotations

import json
import random

import msgspec
import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.simulation import foretold
from fairlead.simulation.foretold import ForetoldError, Start
from tests.simulation.test_jobs import job


def drawn(seed):
    """Starts of jobs of all sizes; some foretold nothing, some waited a moment only."""
    draw = random.Random(seed)
    for number in range(draw.randrange(60)):
        submitted = draw.uniform(0, 1000)
        started = submitted + draw.choice((draw.uniform(0, 600), draw.uniform(601, 9000)))
        expected = draw.choice((-1.0, draw.uniform(submitted, 10_000)))
        earliest = expected - draw.uniform(0, 500)
        yield Start(
            f"j{number}", draw.choice((1, 2, 8, 9, 64)), submitted, started, expected, earliest, expected + draw.uniform(0, 500)
        )


@pytest.mark.parametrize("seed", range(20))
def test_months_are_judged_as_one_by_size_whatever_files_their_starts_are_in(seed, tmp_path):
    found = list(drawn(seed))
    paths = [tmp_path / name for name in "abc"]
    for number, path in enumerate(paths):
        foretold.write(found[number::3], path)
    done = CliRunner().invoke(app, ["simulate", "starts", *map(str, paths), "-o", "json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    assert result["files"] == 3
    assert result["expected_starts"] == msgspec.to_builtins(foretold.judge(found))
    for each, sizes in zip(result["expected_starts"], (range(1, 65), (1,), range(2, 9), range(9, 65)), strict=True):
        asked = [start for start in found if start.gpus in sizes and start.started - start.submitted > 600]
        known = [start for start in asked if start.expected >= 0]
        assert (each["jobs"], each["blank"]) == (len(asked), len(asked) - len(known))
        inside = sum(start.earliest <= start.started <= start.latest for start in known)
        assert each["coverage"] == pytest.approx(inside / len(known) if known else 1.0)


def at(each):
    return f"2017-10-03 00:{each.submitted // 60:02}:{each.submitted % 60:02}"


def test_a_replay_writes_its_foretold_starts(tmp_path):
    table = tmp_path / "jobs.csv"
    jobs = [job("first", 0, 7200, 8), *(job(f"j{number}", 60 + number, 3600, 8) for number in range(3))]
    rows = ["submit_time,duration_s,num_gpus,vc", *(f"{at(each)},{each.duration},{each.gpus},v" for each in jobs)]
    table.write_text("\n".join(rows) + "\n")
    path = tmp_path / "starts.jsonl"
    command = ["simulate", "jobs", "--jobs", str(table), "--nodes", "1", "--no-time-slicing", "-o", "json"]
    done = CliRunner().invoke(app, [*command, "--starts", str(path)])
    assert done.exit_code == 0, done.output
    starts = foretold.read(path)
    assert [each.gpus for each in starts] == [8, 8, 8]
    assert all(each.started > each.submitted + 600 for each in starts)
    assert json.loads(done.output)["expected_starts"] == msgspec.to_builtins(foretold.judge(starts))


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--starts", "there/no/folder"], 2, "--starts there/no/folder: No such file or directory"),
        (["--starts", "x", "--policy", "las"], 2, "--starts applies only to --policy default: las foretells no starts"),
    ],
)
def test_where_starts_cannot_be_written_nothing_is_replayed(options, code, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text("submit_time,duration_s,num_gpus,vc\n2017-10-03 00:00:00,60,1,v\n")
    done = CliRunner().invoke(app, ["simulate", "jobs", "--jobs", "jobs.csv", "--compare", "none", *options])
    assert (done.exit_code, says in done.output) == (code, True), done.output


def test_files_that_hold_no_starts_are_refused_by_name(tmp_path):
    bad = tmp_path / "bad"
    with pytest.raises(ForetoldError, match="bad: No such file"):
        foretold.read(bad)
    bad.write_text('{"job": 3}\n')
    with pytest.raises(ForetoldError, match="bad: no starts as"):
        foretold.read(bad)
    good = tmp_path / "good"
    foretold.write(drawn(1), good)
    done = CliRunner().invoke(app, ["simulate", "starts", str(good), str(good)])
    assert (done.exit_code, "named twice" in done.output) == (2, True), done.output

"""`fairlead cost` over a database."""

import csv
import json
import time

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.observability.history import Job, Run, Stay
from fairlead.observability.store import History

HOUR = 3600.0


@pytest.fixture
def url(database):
    """A node of eight, priced 16 an hour, for ten hours: half of it ann's for four of them, an eighth bob's all along."""
    url, now = database, time.time()
    begun = now - 10 * HOUR

    def run(uid, user, gpus, start, end):
        return Run(
            uid=uid,
            job=f"job-{uid}",
            namespace="lab",
            name=uid,
            queue="vision" if user == "ann" else "",
            service_class="batch",
            user=user,
            node="n",
            gpus=gpus,
            cpus=1.0,
            started_at=start,
            ended_at=end,
        )

    store = History(url)
    store.write(
        [Job(uid="job-a", namespace="lab", kind="AIJob", name="bert", user="ann", submitted_at=begun)],
        [run("a", "ann", 4.0, begun + HOUR, begun + 5 * HOUR), run("b", "bob", 1.0, begun, begun + 10 * HOUR)],
        now,
        [
            Stay(
                uid="s",
                node="n",
                node_uid="n",
                pool="h100",
                gpus=8.0,
                cpus=64.0,
                price=16_000_000,
                currency="USD",
                kind="Spot",
                started_at=begun,
                ended_at=begun + 10 * HOUR,
            )
        ],
    )
    store.close()
    return url


def asked(url, *arguments):
    return CliRunner().invoke(app, ["cost", "--database", url, *arguments])


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("user", ["ann", "bob"]),
        ("queue", ["vision", "(none)"]),
        ("job", ["lab/bert", "job-b"]),
        ("class", ["batch"]),
        ("namespace", ["lab"]),
    ],
)
def test_costs_by_what_was_asked(url, by, names):
    found = json.loads(asked(url, "--by", by, "-o", "json").stdout)
    assert [line["name"] for line in found["lines"]] == names
    assert sum(line["cost"]["USD"] for line in found["lines"]) == pytest.approx(52.0)
    assert (found["idle"]["cost"]["USD"], found["nodes"]["cost"]["USD"]) == (pytest.approx(108.0), pytest.approx(160.0))
    assert found["balance"] == {"USD": 0.0}


def test_the_table_ends_with_what_was_idle_and_all(url):
    lines = asked(url, "--by", "user").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["USER", "ann", "bob", "idle", "all"]
    assert lines[1].split()[-1] == "32.00"


def test_a_window_cuts(url):
    found = json.loads(asked(url, "--since", "7h", "--until", "6h", "--by", "user", "-o", "json").stdout)
    assert found["nodes"]["gpu_hours"] == pytest.approx(8.0, abs=0.01)
    assert [line["gpu_hours"] for line in found["lines"]] == [pytest.approx(4.0, abs=0.01), pytest.approx(1.0, abs=0.01)]


def test_csv(url, tmp_path):
    path = tmp_path / "costs.csv"
    assert asked(url, "--by", "user", "--csv", str(path)).exit_code == 0
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["user"] for row in rows] == ["ann", "bob", "idle", "nodes"]
    assert float(rows[0]["cost_USD"]) == pytest.approx(32.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "1h", "--until", "2h"], "is not before"),
        (["--since", "soon"], "neither a duration"),
        (["--csv", "/nowhere/x.csv"], "No such file"),
    ],
)
def test_wrong_usage_says_what_is_wrong(url, arguments, said):
    done = asked(url, *arguments)
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_a_history_of_no_such_job_says_so(url):
    def history(*arguments):
        return CliRunner().invoke(app, ["history", "--database", url, *arguments])

    assert history("bert").exit_code == history("--user", "nobody").exit_code == 0
    for given, narrowed in (((), ""), (("--user", "bob", "-t", "Failed"), " (user bob, state Failed)")):
        done = history("nope", *given)
        assert (done.exit_code, done.stdout) == (4, "")
        assert f"nope: no such job since 7d{narrowed}; --since and --namespace set where to search" in done.stderr


def test_no_database_says_how_to_name_one(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["cost"])
    assert (done.exit_code, "FAIRLEAD_DATABASE" in done.output) == (4, True)
    assert "no such file" in asked(f"sqlite:///{tmp_path}/none.db").output


def test_hours_without_a_price_are_told(tmp_path):
    url, now = f"sqlite:///{tmp_path}/history.db", time.time()
    store = History(url)
    stay = Stay(
        uid="s", node="n", node_uid="n", pool="", gpus=8.0, cpus=1.0, price=None, currency="", kind="", started_at=now - HOUR
    )
    store.write([], [], now, [stay])
    store.close()
    assert "8.0 GPU-hours have no price" in asked(url).stdout

"""The history's database: days added up against all runs, lists against the plain rule, databases of earlier versions."""

import random
import sqlite3

import msgspec
import pytest
import sqlalchemy as sql

from fairlead.observability.history import HistoryError, Job, Run, Scaler, State, Stay, Wanted
from fairlead.observability.ledger import DAY, ledger, ledger_with_days
from fairlead.observability.store import History
from fairlead.simulation import long_history

HOUR = 3600.0
NOW = 9.6 * DAY
FIELDS = ("gpu_hours", "cpu_hours", "unpriced_gpu_hours", "cost")
KEYS = {
    "queue": lambda each: each.queue,
    "user": lambda each: each.user,
    "all": lambda each: f"{each.namespace}/{each.service_class}",
}


@pytest.fixture
def history(database):
    store = History(database)
    yield store
    store.close()


def at(draw):
    """Some moment, often a midnight or next to one."""
    whole = draw.randrange(11) * DAY
    return whole + draw.choice((0.0, 0.0004, -0.0004, 0.001, draw.uniform(0, DAY), draw.uniform(0, DAY)))


def ends(draw, started):
    return max(started, at(draw)) if draw.random() < 0.8 else None


def drawn_stay(draw, number):
    started = max(0.0, at(draw))
    return Stay(
        uid=f"s{number}",
        node=f"n{draw.randrange(3)}",
        node_uid="u",
        pool="p",
        gpus=draw.choice((8.0, 4.0, 0.0)),
        cpus=64.0,
        price=draw.choice((None, 7_777_777, 32_000_000)),
        currency=draw.choice(("USD", "EUR")),
        kind="Spot",
        started_at=started,
        ended_at=ends(draw, started),
    )


def drawn_run(draw, number):
    started = max(0.0, at(draw))
    return Run(
        uid=f"r{number}",
        job=f"j{draw.randrange(9)}",
        namespace=draw.choice("ab"),
        name=f"r{number}",
        queue=draw.choice(("q1", "q2", "")),
        service_class=draw.choice(("", "batch")),
        user=draw.choice(("ann", "bob")),
        node=f"n{draw.randrange(4)}",
        gpus=draw.choice((1.0, 0.333, 8.0, 0.0)),
        cpus=2.0,
        started_at=started,
        ended_at=ends(draw, started),
        used=draw.choice((0.0, 100.0)),
        measured=draw.choice((0.0, 200.0, 777.0)),
    )


def changed(draw, row):
    """What may be written of the same row later."""
    if row.ended_at is None or draw.random() < 0.3:
        row = msgspec.structs.replace(row, ended_at=ends(draw, row.started_at))
    if isinstance(row, Run):
        return msgspec.structs.replace(
            row,
            used=row.used + draw.choice((0.0, 5.0)),
            measured=row.measured + draw.choice((0.0, 9.0)),
            queue=draw.choice((row.queue, row.queue, "q3")),
            outcome=draw.choice(("", "Failed")),
        )
    return msgspec.structs.replace(row, price=draw.choice((row.price, row.price, 1_000_000)))


def check(history, since, until, now):
    stays, runs = history.held(since, until)
    kept = history.held_by_days(since, until)
    for key in KEYS.values():
        plain = ledger(stays, [run for run, _ in runs], since, until, key, now)
        found = ledger_with_days(*kept, since, until, key, now)
        assert (found.since, found.until, found.balance) == (plain.since, plain.until, plain.balance)
        assert {line.name for line in found.lines} == {line.name for line in plain.lines}
        mine = {line.name: line for line in (*found.lines, found.idle, found.nodes)}
        for line in (*plain.lines, plain.idle, plain.nodes):
            assert [getattr(mine[line.name], name) for name in FIELDS] == [getattr(line, name) for name in FIELDS]
            assert mine[line.name].used_gpu_hours == pytest.approx(line.used_gpu_hours)
            assert mine[line.name].measured_gpu_hours == pytest.approx(line.measured_gpu_hours)
    return len(kept[2])


@pytest.mark.parametrize("seed", range(8))
def test_days_that_are_added_up_come_to_the_same_as_all_runs(seed, history):
    draw = random.Random(seed)
    rows = {Run: {}, Stay: {}}
    used = 0
    for _ in range(15):
        for kind, drawn in ((Run, drawn_run), (Stay, drawn_stay)):
            known = rows[kind]
            some = [drawn(draw, len(known) + number) for number in range(draw.randrange(3))]
            some += [changed(draw, each) for each in draw.sample(list(known.values()), min(len(known), draw.randrange(3)))]
            known |= {each.uid: each for each in some}
            history.write((), some if kind is Run else (), NOW, some if kind is Stay else ())
        for _ in range(draw.randrange(12)):
            history.add_up(0.0, NOW)
        for _ in range(2):
            since, until = sorted((max(0.0, at(draw)), max(0.0, at(draw))))
            used += check(history, since, until, NOW) if since < until else 0
        used += check(history, 0.3 * DAY, NOW, NOW)
    assert used > 10


def test_a_day_is_added_up_an_hour_after_its_end_the_latest_first_and_not_before_the_history_is_kept(history):
    history.write((), (), NOW, [drawn_stay(random.Random(1), 1)])
    with history._database.writing() as connection:
        connection.exec_driver_sql("update stays set started_at = 0, ended_at = null")

    def days():
        with history._database.writing() as connection:
            return {row[0] for row in connection.exec_driver_sql("select day from days")}

    assert not history.add_up(0.0, DAY + 0.9 * HOUR), "it is over, but not for long"
    assert history.add_up(3 * DAY, 8 * DAY + HOUR)
    assert days() == {7}
    while history.add_up(3.5 * DAY, 8 * DAY + HOUR):
        pass
    assert days() == {4, 5, 6, 7}
    history.forget(5.5 * DAY)
    assert days() == {6, 7}
    [row] = history.held(0.0, NOW)[0]
    history.write((), (), NOW, [msgspec.structs.replace(row, ended_at=7.5 * DAY)])
    assert days() == {6}


def test_a_run_that_goes_on_or_ends_today_leaves_days_as_they_are(history):
    draw = random.Random(3)
    run = msgspec.structs.replace(drawn_run(draw, 1), started_at=2 * DAY, ended_at=None)
    history.write((), [run], NOW, [msgspec.structs.replace(drawn_stay(draw, 1), started_at=0.0, ended_at=None)])
    while history.add_up(0.0, NOW):
        pass
    history.write((), [msgspec.structs.replace(run, used=1.0, measured=2.0)])
    history.write((), [msgspec.structs.replace(run, used=9.0, measured=9.0, ended_at=9 * DAY + 1.0, outcome="Succeeded")])
    assert not history.add_up(0.0, NOW)
    assert check(history, 0.0, NOW, NOW) == 9


# -- lists ---------------------------------------------------------------------------------------


def drawn_job(draw, number):
    submitted = draw.choice((float(draw.randrange(9)) * DAY, at(draw)))
    return Job(
        uid=f"j{number}",
        namespace=draw.choice("ab"),
        kind="AIJob",
        name=f"job-{draw.randrange(4)}-{number % 7}",
        queue=draw.choice(("q1", "q2")),
        user=draw.choice(("ann", "bob")),
        state=draw.choice(list(State)),
        submitted_at=submitted,
        ended_at=ends(draw, submitted),
    )


def test_lists_are_those_of_the_plain_rule(history):
    draw = random.Random(1)
    jobs = [drawn_job(draw, number) for number in range(300)]
    runs = [msgspec.structs.replace(drawn_run(draw, number), job=f"j{draw.randrange(300)}") for number in range(900)]
    history.write(jobs, runs)
    for _ in range(200):
        wanted = Wanted(
            namespace=draw.choice(("", "a")),
            name=draw.choice(("", "", jobs[draw.randrange(300)].name)),
            user=draw.choice(("", "ann")),
            queue=draw.choice(("", "q1")),
            states=draw.choice(((), (), ("Running", "Failed"))),
            since=draw.choice((None, at(draw))),
            until=draw.choice((None, at(draw))),
            limit=draw.choice((1, 20, 1000)),
        )
        plain = [
            each
            for each in jobs
            if wanted.namespace in ("", each.namespace)
            and wanted.name in ("", each.name)
            and wanted.user in ("", each.user)
            and wanted.queue in ("", each.queue)
            and (not wanted.states or each.state in wanted.states)
            and (wanted.since is None or each.ended_at is None or each.ended_at >= wanted.since)
            and (wanted.until is None or each.submitted_at <= wanted.until)
        ]
        plain.sort(key=lambda each: (-each.submitted_at, each.namespace, each.name, each.uid))
        found = history.jobs(wanted, NOW)
        assert [each.job for each in found] == plain[: wanted.limit]
        for each in found:
            theirs = [run for run in runs if run.job == each.job.uid]
            lasted = [max(0.0, (NOW if run.ended_at is None else run.ended_at) - run.started_at) for run in theirs]
            assert each.runs == len(theirs)
            assert each.gpu_seconds == pytest.approx(sum(run.gpus * each for run, each in zip(theirs, lasted, strict=True)))
            assert each.cpu_seconds == pytest.approx(sum(run.cpus * each for run, each in zip(theirs, lasted, strict=True)))


@pytest.mark.parametrize("name", long_history.lists())
def test_no_list_reads_a_row_of_a_job_that_it_does_not_show(name, tmp_path):
    """Whatever jobs are chosen by is in one index, and only runs of those are read."""
    steps = []

    def explain(_connection, cursor, statement, parameters, _context, _many):
        plan = cursor.connection.cursor()
        plan.execute(f"explain query plan {statement}", parameters)
        steps.extend(row[3] for row in plan.fetchall())

    draw, history = random.Random(1), History(f"sqlite:///{tmp_path}/history.db")
    history.write([drawn_job(draw, number) for number in range(9)], [])
    sql.event.listen(history._database.engine, "before_cursor_execute", explain)
    history.jobs(long_history.lists()[name], NOW)
    history.close()
    [jobs] = [step for step in steps if " jobs " in step]
    assert "INDEX ix_jobs_" in jobs
    assert all("SEARCH runs USING INDEX ix_runs_job" in step for step in steps if " runs " in step)


# -- earlier versions ----------------------------------------------------------------------------


def indexes(path):
    with sqlite3.connect(path) as connection:
        found = connection.execute("select name from sqlite_master where type = 'index' and name like 'ix_%'").fetchall()
    connection.close()
    return {name for (name,) in found}


def everything(store):
    """All that is kept, as far as every version has it."""
    stays, runs = store.held(0.0, NOW)
    return store.jobs(Wanted(), NOW), runs, stays, store.scalers(0.0, NOW), store.open_ends()


def made_before(path, version):
    """A database as an earlier version made it, and what is in it."""
    draw, store = random.Random(5), History(f"sqlite:///{path}")
    runs = [msgspec.structs.replace(drawn_run(draw, number), used=0.0, measured=0.0) for number in range(60)]
    scaler = Scaler(uid="h", namespace="a", name="h", kind="HPA", target="x", min_replicas=1, max_replicas=9, started_at=1.0)
    stays = [drawn_stay(draw, number) for number in range(9)]
    store.write([drawn_job(draw, number) for number in range(30)], runs, 5 * DAY, stays, [scaler])
    written = everything(store)
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("drop table days")
        connection.execute("drop table history_version")
        for name in indexes(path):
            if name in ("ix_jobs_listed", "ix_jobs_name", "ix_jobs_user"):
                connection.execute(f"drop index {name}")
        connection.execute("drop index ix_runs_ended_at_started_at")
        connection.execute("create index ix_jobs_namespace on jobs (namespace)")
        connection.execute("create index ix_jobs_submitted_at on jobs (submitted_at)")
        connection.execute("create index ix_runs_ended_at on runs (ended_at)")
        if version == "1":
            connection.execute("alter table runs drop column used")
            connection.execute("alter table runs drop column measured")
        connection.execute("update notes set value = ? where name = 'version'", (version,))
    connection.close()
    return written


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_database_of_an_earlier_version_is_upgraded_and_keeps_everything(version, tmp_path):
    History(f"sqlite:///{tmp_path}/fresh.db").close()
    written = made_before(tmp_path / "old.db", version)
    with pytest.raises(HistoryError, match="an operator of this version upgrades it"):
        History(f"sqlite:///{tmp_path}/old.db", create=False)
    store = History(f"sqlite:///{tmp_path}/old.db")
    assert indexes(tmp_path / "old.db") == indexes(tmp_path / "fresh.db")
    assert everything(store) == written
    store.write((), [drawn_run(random.Random(1), 1)], NOW, [drawn_stay(random.Random(1), 1)])
    assert store.add_up(0.0, NOW)
    store.close()
    History(f"sqlite:///{tmp_path}/old.db", create=False).close()

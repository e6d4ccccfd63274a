"""The history's database: days added up against all runs, lists against the plain rule."""

import random

import msgspec
import pytest
import sqlalchemy as sql

from fairlead.observability.history import Run, Stay, Wanted
from fairlead.observability.ledger import DAY, ledger, ledger_with_days
from fairlead.observability.store import History
from fairlead.simulation import long_history
from tests.databases import on_databases
from tests.observability.histories import NOW, at, drawn_job, drawn_run, drawn_stay, ends

HOUR = 3600.0
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


@on_databases(range(8))
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

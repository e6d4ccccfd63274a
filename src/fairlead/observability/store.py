"""Where the history is kept: a database that outlives the objects.

One process writes, the leader of the operators; any number read. SQLite for one replica of the operator, PostgreSQL for several.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sql

from fairlead.observability import migrations
from fairlead.observability.database import Database
from fairlead.observability.history import OF_CLAIM, Entry, HistoryError, Job, Run, Scaler, State, Stay, SupersededError, Wanted
from fairlead.observability.ledger import DAY, DayTotal, day_total
from fairlead.observability.tables import DAYS, JOBS, NOTES, RUNS, SCALERS, STAYS

_AT_ONCE = 500  # rows in a statement: SQLite takes some thousand parameters, not more
_SETTLED = 3600.0  # seconds after its end from which on a day is added up
_ROUNDED = 0.001  # seconds that times are rounded by in totals

_T = TypeVar("_T")


class History:
    """An open database. url: `sqlite:////path/to/file` or `postgresql://user@host/name`. Raises `HistoryError`, as methods do.

    create: this process writes, and takes the database over at once; wait: it does so later, by `take_over`; else it reads.
    Methods wait for the database: a loop calls them in another thread.
    """

    def __init__(self, url: str, *, create: bool = True, wait: bool = False) -> None:
        self._database = Database(url)
        self._writer = ""  # the note by which the database knows this writer
        try:
            if create and not wait:
                self.take_over()
                return
            if not create:
                self._database.require_file()
            with self._database.opening() as connection:
                (migrations.refuse_later if create else migrations.require)(migrations.present(connection))
        except HistoryError:
            self.close()
            raise

    def take_over(self) -> None:
        """Bring the schema to the present version, and be the only writer from now on: writes of others are refused."""
        writer = uuid.uuid4().hex
        with self._database.alone() as connection:
            migrations.upgrade(connection)
            _note(connection, "writer", writer)
        self._writer = writer

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    @contextmanager
    def _writing(self) -> Iterator[sql.Connection]:
        """A transaction of the only writer: it waits for that of another, and is refused where that took the database over."""
        mine = sql.and_(NOTES.c.name == "writer", NOTES.c.value == self._writer)
        with self._database.writing() as connection:
            if not connection.execute(sql.update(NOTES).where(mine).values(value=self._writer)).rowcount:
                raise SupersededError("history: another operator has taken the database over; this one writes no more")
            yield connection

    # -- writing -------------------------------------------------------------------------------

    def write(
        self,
        jobs: Iterable[Job],
        runs: Iterable[Run],
        alive_at: float | None = None,
        stays: Iterable[Stay] = (),
        scalers: Iterable[Scaler] = (),
    ) -> None:
        """Write these as they are now, in one transaction. alive_at: the time up to which the writer has observed everything."""
        with self._writing() as connection:
            _forget_days(connection, runs := list(runs), stays := list(stays))
            _put(connection, JOBS, [msgspec.structs.asdict(job) | {"state": str(job.state)} for job in jobs])
            _put(connection, RUNS, [msgspec.structs.asdict(run) for run in runs])
            _put(connection, STAYS, [msgspec.structs.asdict(stay) for stay in stays])
            _put(connection, SCALERS, [msgspec.structs.asdict(scaler) for scaler in scalers])
            if alive_at is not None:
                _note(connection, "alive_at", repr(alive_at))

    def forget(self, before: float) -> int:
        """Remove jobs that ended before then, with their runs, and what nodes there were; how many jobs."""
        ended = sql.select(JOBS.c.uid).where(JOBS.c.ended_at < before)
        with self._writing() as connection:
            connection.execute(sql.delete(RUNS).where(RUNS.c.job.in_(ended)))
            connection.execute(sql.delete(DAYS).where(DAYS.c.day <= before // DAY))
            for table in (STAYS, SCALERS):
                connection.execute(sql.delete(table).where(table.c.ended_at < before))
            return connection.execute(sql.delete(JOBS).where(JOBS.c.ended_at < before)).rowcount

    def add_up(self, since: float, now: float) -> bool:
        """Add up the latest day after `since` that is over and was not added up yet; whether there was one."""
        last = int((now - _SETTLED) // DAY) - 1
        with self._writing() as connection:
            begun = connection.scalar(sql.select(sql.func.min(STAYS.c.started_at)))
            known = set(connection.scalars(sql.select(DAYS.c.day)))
            first = max(math.floor((begun if begun is not None else now) / DAY), math.ceil(since / DAY))
            day = next((each for each in range(last, first - 1, -1) if each not in known), None)
            if day is None:
                return False
            begin, end = float(day * DAY), float((day + 1) * DAY)
            runs = [Run(**row._mapping) for row in connection.execute(sql.select(RUNS).where(_between(RUNS, begin, end)))]
            there = _between(STAYS, min([begin, *(run.started_at for run in runs)]), end)
            stays = [Stay(**row._mapping) for row in connection.execute(sql.select(STAYS).where(there))]
            connection.execute(sql.insert(DAYS).values(day=day, total=msgspec.json.encode(day_total(day, stays, runs))))
            return True

    # -- reading -------------------------------------------------------------------------------

    def open_ends(self) -> tuple[list[Job], list[Run], float | None]:
        """The jobs and runs without a written end, and the time up to which the last writer had observed everything."""
        jobs = sql.select(JOBS).where(JOBS.c.ended_at.is_(None))
        runs = sql.select(RUNS).where(RUNS.c.ended_at.is_(None))
        alive = sql.select(NOTES.c.value).where(NOTES.c.name == "alive_at")
        with self._database.reading() as connection:
            alive_at = connection.scalar(alive)
            return (
                [_job(row._mapping) for row in connection.execute(jobs)],
                [Run(**row._mapping) for row in connection.execute(runs)],
                float(alive_at) if alive_at is not None else None,
            )

    def open_stays(self) -> list[Stay]:
        """Nodes that are there, as far as is written."""
        with self._database.reading() as connection:
            return [Stay(**row._mapping) for row in connection.execute(sql.select(STAYS).where(STAYS.c.ended_at.is_(None)))]

    def open_scalers(self) -> list[Scaler]:
        """Autoscalers that are there, as far as is written."""
        ask = sql.select(SCALERS).where(SCALERS.c.ended_at.is_(None))
        with self._database.reading() as connection:
            return [Scaler(**row._mapping) for row in connection.execute(ask)]

    def scalers(self, since: float, until: float) -> list[Scaler]:
        """The autoscalers that were at some time between."""
        ask = sql.select(SCALERS).where(_between(SCALERS, since, until)).order_by(SCALERS.c.started_at, SCALERS.c.uid)
        with self._database.reading() as connection:
            return [Scaler(**row._mapping) for row in connection.execute(ask)]

    def kinds(self, since: float, until: float) -> dict[str, Job]:
        """The jobs of the runs that were at some time between, by uid."""
        ask = sql.select(JOBS).where(JOBS.c.uid.in_(sql.select(RUNS.c.job).where(_between(RUNS, since, until))))
        with self._database.reading() as connection:
            return {job.uid: job for job in (_job(row._mapping) for row in connection.execute(ask))}

    def held(self, since: float, until: float) -> tuple[list[Stay], list[tuple[Run, str]]]:
        """The stays, and the runs with their jobs' `namespace/name`, that were at some time between."""
        names = sql.select(RUNS, JOBS.c.namespace.label("of"), JOBS.c.name.label("job_name"))
        ask = names.outerjoin(JOBS, JOBS.c.uid == RUNS.c.job).where(_between(RUNS, since, until))
        with self._database.reading() as connection:
            there = _stays(since, until)
            stays = [Stay(**row._mapping) for row in connection.execute(there)]
            runs = []
            for row in connection.execute(ask):
                given = dict(row._mapping)
                namespace, name = given.pop("of"), given.pop("job_name")
                runs.append((Run(**given), f"{namespace}/{name}" if name else given["job"]))
            return stays, runs

    def held_by_days(self, since: float, until: float) -> tuple[list[Stay], list[Run], list[DayTotal]]:
        """For `ledger_with_days`: the stays between, days between that are added up, and the runs that were outside of those."""
        with self._database.reading() as connection:
            there = _stays(since, until)
            stays = [Stay(**row._mapping) for row in connection.execute(there)]
            inside = sql.and_(DAYS.c.day >= math.ceil(since / DAY), DAYS.c.day < math.floor(until / DAY))
            days = _in_a_row(connection.execute(sql.select(DAYS.c.day, DAYS.c.total).where(inside).order_by(DAYS.c.day)).all())
            windows = [(since, days[0].day * DAY), ((days[-1].day + 1) * DAY, until)] if days else [(since, until)]
            runs = {
                row.uid: Run(**row._mapping)
                for window in windows
                for row in connection.execute(sql.select(RUNS).where(_between(RUNS, *window)))
            }
            return stays, list(runs.values()), days

    def written(self, jobs: Sequence[str], runs: Sequence[str]) -> tuple[list[Job], list[Run]]:
        """What is written already of those with these uids."""
        found: tuple[list[Job], list[Run]] = [], []
        with self._database.reading() as connection:
            for some in _parts(jobs):
                found[0].extend(_job(row._mapping) for row in connection.execute(sql.select(JOBS).where(JOBS.c.uid.in_(some))))
            for some in _parts(runs):
                found[1].extend(Run(**row._mapping) for row in connection.execute(sql.select(RUNS).where(RUNS.c.uid.in_(some))))
        return found

    def jobs(self, wanted: Wanted, now: float) -> list[Entry]:
        """The latest jobs first. now: until when runs that go on are counted."""
        order = JOBS.c.submitted_at.desc(), JOBS.c.namespace, JOBS.c.name, JOBS.c.uid
        ask = sql.select(JOBS).where(*_matching(wanted)).order_by(*order).limit(wanted.limit)
        with self._database.reading() as connection:
            found = [_job(row._mapping) for row in connection.execute(ask)]
            used: dict[str, tuple[int, float, float]] = {}
            for some in _parts(found):
                used |= {row[0]: tuple(row)[1:] for row in connection.execute(_used([job.uid for job in some], now))}
        return [_entry(job, *used.get(job.uid, (0, 0.0, 0.0))) for job in found]

    def runs(self, job: str) -> list[Run]:
        """The runs of one job, by when they started."""
        ask = sql.select(RUNS).where(RUNS.c.job == job).order_by(RUNS.c.started_at, RUNS.c.name)
        with self._database.reading() as connection:
            return [Run(**row._mapping) for row in connection.execute(ask)]


def _matching(wanted: Wanted) -> list[sql.ColumnElement[bool]]:
    """The conditions of a list, of columns that one index has."""
    equal = {
        JOBS.c.namespace: wanted.namespace,
        JOBS.c.name: wanted.name,
        JOBS.c.user: wanted.user,
        JOBS.c.queue: wanted.queue,
    }
    found = [column == value for column, value in equal.items() if value]
    if wanted.states:
        found.append(JOBS.c.state.in_([str(each) for each in wanted.states]))
    if wanted.since is not None:
        # Not as an alternative: SQLite would gather all jobs of both, and sort them.
        found.append(sql.func.coalesce(JOBS.c.ended_at, wanted.since) >= wanted.since)
    if wanted.until is not None:
        found.append(JOBS.c.submitted_at <= wanted.until)
    return found


def _stays(since: float, until: float) -> sql.Select[Any]:
    return sql.select(STAYS).where(_between(STAYS, since, until)).order_by(STAYS.c.started_at, STAYS.c.uid)


def _between(table: sql.Table, since: float, until: float) -> sql.ColumnElement[bool]:
    """What was at some time between."""
    return sql.and_(table.c.started_at < until, sql.or_(table.c.ended_at.is_(None), table.c.ended_at > since))


def _in_a_row(rows: Sequence[Any]) -> list[DayTotal]:
    """The most days that lie one after the other, of rows with days and their totals."""
    best, begin = range(0), 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or rows[place].day != rows[place - 1].day + 1:
            best, begin = max(best, range(begin, place), key=len), place
    return [msgspec.json.decode(rows[place].total, type=DayTotal) for place in best]


def _forget_days(connection: sql.Connection, runs: Sequence[Run], stays: Sequence[Stay]) -> None:
    """Remove the totals of days from the first on of which these rows change anything."""
    last = connection.scalar(sql.select(sql.func.max(DAYS.c.day)))
    if last is None:
        return
    end = (last + 1) * DAY + _ROUNDED
    first = end
    for table, kind, rows in ((RUNS, Run, runs), (STAYS, Stay, stays)):
        early = [row for row in rows if row.started_at < end]
        for some in _parts(early):
            asked = sql.select(table).where(table.c.uid.in_([row.uid for row in some]))
            before = {row.uid: kind(**row._mapping) for row in connection.execute(asked)}
            first = min([first, *(_changed_from(before.get(row.uid), row) for row in some)])
    if first < end:
        connection.execute(sql.delete(DAYS).where(DAYS.c.day >= (first - _ROUNDED) // DAY))


def _changed_from(before: Run | Stay | None, now: Run | Stay) -> float:
    """From when on a row differs from what it was before; infinity where it does not."""
    if before is None:
        return now.started_at
    ends = [each for each in (before.ended_at, now.ended_at) if each is not None]
    same = msgspec.structs.replace(before, ended_at=now.ended_at)
    if isinstance(same, Run) and isinstance(now, Run):
        same = msgspec.structs.replace(same, outcome=now.outcome, exit_code=now.exit_code)
        if msgspec.structs.replace(same, used=now.used, measured=now.measured) != now:
            return min(before.started_at, now.started_at)
        if before.ended_at != now.ended_at or same != now:
            return min(ends, default=math.inf)
        return math.inf
    if same != now:
        return min(before.started_at, now.started_at)
    return min(ends, default=math.inf) if before.ended_at != now.ended_at else math.inf


def _put(connection: sql.Connection, table: sql.Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows, or replace those with the same keys, in SQL that every database supports."""
    insert = sql.insert(table)
    # With an answer SQLAlchemy sends many rows at once, and without one PostgreSQL's driver each by itself.
    batched = insert if connection.dialect.name == "sqlite" else insert.returning(table.c.uid)
    for some in _parts(rows):
        connection.execute(sql.delete(table).where(table.c.uid.in_([row["uid"] for row in some])))
        connection.execute(batched, some)


def _note(connection: sql.Connection, name: str, value: str) -> None:
    connection.execute(sql.delete(NOTES).where(NOTES.c.name == name))
    connection.execute(sql.insert(NOTES).values(name=name, value=value))


def _parts(rows: Sequence[_T]) -> Iterable[Sequence[_T]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]


def _job(row: Any) -> Job:
    return Job(**{**row, "state": State(row["state"])})


def _entry(job: Job, runs: int, gpu_seconds: float, cpu_seconds: float) -> Entry:
    return Entry(job=job, runs=runs, gpu_seconds=gpu_seconds, cpu_seconds=cpu_seconds)


def _used(jobs: Sequence[str], now: float) -> sql.Select[Any]:
    """Of each of these jobs: how many runs it had, and for how many seconds it held GPUs and CPUs."""
    until = sql.func.coalesce(RUNS.c.ended_at, now)
    lasted = sql.case((until > RUNS.c.started_at, until - RUNS.c.started_at), else_=0.0)
    sums = (sql.func.sum(column * lasted) for column in (RUNS.c.gpus, RUNS.c.cpus))
    pods = sql.func.sum(sql.case((RUNS.c.uid.like(f"{OF_CLAIM}%"), 0), else_=1))
    return sql.select(RUNS.c.job, pods, *sums).where(RUNS.c.job.in_(jobs)).group_by(RUNS.c.job)

"""Where the history is kept: a database that outlives the objects.

One process writes, the leader of the operators; any number read. SQLite for one replica; another database is a URL of
SQLAlchemy's away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError

from fairlead.observability.history import Entry, HistoryError, Job, Run, Scaler, State, Stay, Wanted

_VERSION: Final = "2"
_AT_ONCE = 500  # rows in a statement: SQLite takes some thousand parameters, not more

_T = TypeVar("_T")
_METADATA = sql.MetaData()
_TEXT = sql.String(512)

_JOBS = sql.Table(
    "jobs",
    _METADATA,
    sql.Column("uid", _TEXT, primary_key=True),
    sql.Column("namespace", _TEXT, nullable=False, index=True),
    sql.Column("kind", _TEXT, nullable=False),
    sql.Column("name", _TEXT, nullable=False),
    sql.Column("queue", _TEXT, nullable=False),
    sql.Column("service_class", _TEXT, nullable=False),
    sql.Column("user", _TEXT, nullable=False),
    sql.Column("state", _TEXT, nullable=False),
    sql.Column("submitted_at", sql.Double, nullable=False, index=True),
    sql.Column("started_at", sql.Double),
    sql.Column("ended_at", sql.Double, index=True),
    sql.Column("restarts", sql.Integer, nullable=False),
    sql.Column("interruptions", sql.Integer, nullable=False),
    sql.Column("exit_code", sql.Integer),
    sql.Column("message", sql.Text, nullable=False),
)
_RUNS = sql.Table(
    "runs",
    _METADATA,
    sql.Column("uid", _TEXT, primary_key=True),
    sql.Column("job", _TEXT, nullable=False, index=True),
    sql.Column("namespace", _TEXT, nullable=False),
    sql.Column("name", _TEXT, nullable=False),
    sql.Column("queue", _TEXT, nullable=False),
    sql.Column("service_class", _TEXT, nullable=False),
    sql.Column("user", _TEXT, nullable=False),
    sql.Column("node", _TEXT, nullable=False, index=True),
    sql.Column("gpus", sql.Double, nullable=False),
    sql.Column("cpus", sql.Double, nullable=False),
    sql.Column("started_at", sql.Double, nullable=False),
    sql.Column("ended_at", sql.Double, index=True),
    sql.Column("outcome", _TEXT, nullable=False),
    sql.Column("exit_code", sql.Integer),
    sql.Column("used", sql.Double, nullable=False, server_default="0"),
    sql.Column("measured", sql.Double, nullable=False, server_default="0"),
)
_STAYS = sql.Table(
    "stays",
    _METADATA,
    sql.Column("uid", _TEXT, primary_key=True),
    sql.Column("node", _TEXT, nullable=False, index=True),
    sql.Column("node_uid", _TEXT, nullable=False),
    sql.Column("pool", _TEXT, nullable=False),
    sql.Column("gpus", sql.Double, nullable=False),
    sql.Column("cpus", sql.Double, nullable=False),
    sql.Column("price", sql.BigInteger),
    sql.Column("currency", _TEXT, nullable=False),
    sql.Column("kind", _TEXT, nullable=False),
    sql.Column("started_at", sql.Double, nullable=False, index=True),
    sql.Column("ended_at", sql.Double, index=True),
)
_SCALERS = sql.Table(
    "scalers",
    _METADATA,
    sql.Column("uid", _TEXT, primary_key=True),
    sql.Column("namespace", _TEXT, nullable=False),
    sql.Column("name", _TEXT, nullable=False),
    sql.Column("kind", _TEXT, nullable=False),
    sql.Column("target", _TEXT, nullable=False),
    sql.Column("min_replicas", sql.Integer, nullable=False),
    sql.Column("max_replicas", sql.Integer, nullable=False),
    sql.Column("started_at", sql.Double, nullable=False, index=True),
    sql.Column("ended_at", sql.Double, index=True),
)
_NOTES = sql.Table("notes", _METADATA, sql.Column("name", _TEXT, primary_key=True), sql.Column("value", _TEXT, nullable=False))


_UPGRADES: Final = {"1": ("2", [_RUNS.c.used, _RUNS.c.measured])}
"""From which version to which, and the columns that are new."""


class History:
    """An open database. url: as SQLAlchemy's, `sqlite:////path/to/file` for a file. Raises `HistoryError`, as all methods do.

    Methods wait for the database: a loop calls them in another thread.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        try:
            self._engine = sql.create_engine(url)
            if self._engine.dialect.name == "sqlite":
                file = self._engine.url.database
                if not create and file and not Path(file).exists():
                    raise HistoryError(f"history database {_shown(url)}: there is no such file")
                sql.event.listen(self._engine, "connect", _as_sqlite)
            if create:
                _METADATA.create_all(self._engine)
            self._check_version(create=create)
        except (SQLAlchemyError, ImportError) as error:
            raise HistoryError(f"history database {_shown(url)}: {_first_line(error)}") from error

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _check_version(self, *, create: bool) -> None:
        with self._engine.begin() as connection:
            found = connection.scalar(sql.select(_NOTES.c.value).where(_NOTES.c.name == "version"))
            while create and found in _UPGRADES:
                found = _upgrade(connection, found)
            if found is None and create:
                connection.execute(sql.insert(_NOTES).values(name="version", value=_VERSION))
            elif found != _VERSION:
                raise HistoryError(
                    f"the history database has version {found}, this program reads {_VERSION}: "
                    + ("an operator of this version upgrades it" if found in _UPGRADES else "use another database")
                )

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
        try:
            with self._engine.begin() as connection:
                _put(connection, _JOBS, [msgspec.structs.asdict(job) | {"state": str(job.state)} for job in jobs])
                _put(connection, _RUNS, [msgspec.structs.asdict(run) for run in runs])
                _put(connection, _STAYS, [msgspec.structs.asdict(stay) for stay in stays])
                _put(connection, _SCALERS, [msgspec.structs.asdict(scaler) for scaler in scalers])
                if alive_at is not None:
                    connection.execute(sql.delete(_NOTES).where(_NOTES.c.name == "alive_at"))
                    connection.execute(sql.insert(_NOTES).values(name="alive_at", value=repr(alive_at)))
        except SQLAlchemyError as error:
            raise HistoryError(f"history: {_first_line(error)}") from error

    def forget(self, before: float) -> int:
        """Remove jobs that ended before then, with their runs, and what nodes there were; how many jobs."""
        ended = sql.select(_JOBS.c.uid).where(_JOBS.c.ended_at < before)
        try:
            with self._engine.begin() as connection:
                connection.execute(sql.delete(_RUNS).where(_RUNS.c.job.in_(ended)))
                for table in (_STAYS, _SCALERS):
                    connection.execute(sql.delete(table).where(table.c.ended_at < before))
                return connection.execute(sql.delete(_JOBS).where(_JOBS.c.ended_at < before)).rowcount
        except SQLAlchemyError as error:
            raise HistoryError(f"history: {_first_line(error)}") from error

    # -- reading -------------------------------------------------------------------------------

    def open_ends(self) -> tuple[list[Job], list[Run], float | None]:
        """The jobs and runs without a written end, and the time up to which the last writer had observed everything."""
        jobs = sql.select(_JOBS).where(_JOBS.c.ended_at.is_(None))
        runs = sql.select(_RUNS).where(_RUNS.c.ended_at.is_(None))
        alive = sql.select(_NOTES.c.value).where(_NOTES.c.name == "alive_at")
        with self._reading() as connection:
            alive_at = connection.scalar(alive)
            return (
                [_job(row._mapping) for row in connection.execute(jobs)],
                [Run(**row._mapping) for row in connection.execute(runs)],
                float(alive_at) if alive_at is not None else None,
            )

    def open_stays(self) -> list[Stay]:
        """Nodes that are there, as far as is written."""
        with self._reading() as connection:
            return [Stay(**row._mapping) for row in connection.execute(sql.select(_STAYS).where(_STAYS.c.ended_at.is_(None)))]

    def open_scalers(self) -> list[Scaler]:
        """Autoscalers that are there, as far as is written."""
        ask = sql.select(_SCALERS).where(_SCALERS.c.ended_at.is_(None))
        with self._reading() as connection:
            return [Scaler(**row._mapping) for row in connection.execute(ask)]

    def scalers(self, since: float, until: float) -> list[Scaler]:
        """The autoscalers that were at some time between."""
        ask = sql.select(_SCALERS).where(_between(_SCALERS, since, until)).order_by(_SCALERS.c.started_at)
        with self._reading() as connection:
            return [Scaler(**row._mapping) for row in connection.execute(ask)]

    def kinds(self, since: float, until: float) -> dict[str, Job]:
        """The jobs of the runs that were at some time between, by uid."""
        ask = sql.select(_JOBS).where(_JOBS.c.uid.in_(sql.select(_RUNS.c.job).where(_between(_RUNS, since, until))))
        with self._reading() as connection:
            return {job.uid: job for job in (_job(row._mapping) for row in connection.execute(ask))}

    def held(self, since: float, until: float) -> tuple[list[Stay], list[tuple[Run, str]]]:
        """The stays, and the runs with their jobs' `namespace/name`, that were at some time between."""
        names = sql.select(_RUNS, _JOBS.c.namespace.label("of"), _JOBS.c.name.label("job_name"))
        ask = names.outerjoin(_JOBS, _JOBS.c.uid == _RUNS.c.job).where(_between(_RUNS, since, until))
        with self._reading() as connection:
            there = sql.select(_STAYS).where(_between(_STAYS, since, until))
            stays = [Stay(**row._mapping) for row in connection.execute(there)]
            runs = []
            for row in connection.execute(ask):
                given = dict(row._mapping)
                namespace, name = given.pop("of"), given.pop("job_name")
                runs.append((Run(**given), f"{namespace}/{name}" if name else given["job"]))
            return stays, runs

    def written(self, jobs: Sequence[str], runs: Sequence[str]) -> tuple[list[Job], list[Run]]:
        """What is written already of those with these uids."""
        found: tuple[list[Job], list[Run]] = [], []
        with self._reading() as connection:
            for some in _parts(jobs):
                found[0].extend(_job(row._mapping) for row in connection.execute(sql.select(_JOBS).where(_JOBS.c.uid.in_(some))))
            for some in _parts(runs):
                found[1].extend(Run(**row._mapping) for row in connection.execute(sql.select(_RUNS).where(_RUNS.c.uid.in_(some))))
        return found

    def jobs(self, wanted: Wanted, now: float) -> list[Entry]:
        """The latest jobs first. now: until when runs that go on are counted."""
        until = sql.func.coalesce(_RUNS.c.ended_at, now)
        lasted = sql.case((until > _RUNS.c.started_at, until - _RUNS.c.started_at), else_=0.0)
        used = (
            sql.select(
                _RUNS.c.job,
                sql.func.count().label("runs"),
                sql.func.sum(_RUNS.c.gpus * lasted).label("gpu_seconds"),
                sql.func.sum(_RUNS.c.cpus * lasted).label("cpu_seconds"),
            )
            .group_by(_RUNS.c.job)
            .subquery()
        )
        ask = sql.select(_JOBS, *list(used.c)[1:]).outerjoin(used, used.c.job == _JOBS.c.uid)
        for column, value in (
            (_JOBS.c.namespace, wanted.namespace),
            (_JOBS.c.name, wanted.name),
            (_JOBS.c.user, wanted.user),
            (_JOBS.c.queue, wanted.queue),
        ):
            if value:
                ask = ask.where(column == value)
        if wanted.states:
            ask = ask.where(_JOBS.c.state.in_([str(each) for each in wanted.states]))
        if wanted.since is not None:
            ask = ask.where(sql.or_(_JOBS.c.ended_at.is_(None), _JOBS.c.ended_at >= wanted.since))
        if wanted.until is not None:
            ask = ask.where(_JOBS.c.submitted_at <= wanted.until)
        ask = ask.order_by(_JOBS.c.submitted_at.desc(), _JOBS.c.namespace, _JOBS.c.name).limit(wanted.limit)
        with self._reading() as connection:
            return [_entry(dict(row._mapping)) for row in connection.execute(ask)]

    def runs(self, job: str) -> list[Run]:
        """The runs of one job, by when they started."""
        ask = sql.select(_RUNS).where(_RUNS.c.job == job).order_by(_RUNS.c.started_at, _RUNS.c.name)
        with self._reading() as connection:
            return [Run(**row._mapping) for row in connection.execute(ask)]

    def _reading(self) -> _Reading:
        return _Reading(self._engine)


class _Reading:
    """A connection whose errors are ours."""

    def __init__(self, engine: sql.Engine) -> None:
        self._engine = engine

    def __enter__(self) -> sql.Connection:
        try:
            self._connection = self._engine.connect()
        except SQLAlchemyError as error:
            raise HistoryError(f"history: {_first_line(error)}") from error
        return self._connection

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._connection.close()
        if isinstance(error, SQLAlchemyError):
            raise HistoryError(f"history: {_first_line(error)}") from error


def _upgrade(connection: sql.Connection, found: str) -> str:
    """Bring the tables to the next version; which one that is."""
    version, columns = _UPGRADES[found]
    for column in columns:
        kind = column.type.compile(connection.dialect)
        connection.execute(sql.text(f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind} DEFAULT 0 NOT NULL"))
    connection.execute(sql.update(_NOTES).where(_NOTES.c.name == "version").values(value=version))
    return version


def _between(table: sql.Table, since: float, until: float) -> sql.ColumnElement[bool]:
    """What was at some time between."""
    return sql.and_(table.c.started_at < until, sql.or_(table.c.ended_at.is_(None), table.c.ended_at > since))


def _put(connection: sql.Connection, table: sql.Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows, or replace those with the same keys, in SQL that every database supports."""
    for some in _parts(rows):
        connection.execute(sql.delete(table).where(table.c.uid.in_([row["uid"] for row in some])))
        connection.execute(sql.insert(table), some)


def _parts(rows: Sequence[_T]) -> Iterable[Sequence[_T]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE]


def _job(row: Any) -> Job:
    return Job(**{**row, "state": State(row["state"])})


def _entry(row: dict[str, Any]) -> Entry:
    used = {name: row.pop(name) or 0 for name in ("runs", "gpu_seconds", "cpu_seconds")}
    return Entry(job=_job(row), **used)


def _as_sqlite(connection: Any, _: object) -> None:
    """Readers do not stand in the writer's way, nor it in theirs."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA busy_timeout=10000")
    cursor.close()


def _shown(url: str) -> str:
    """A URL without its password."""
    try:
        return sql.make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "URL"


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__

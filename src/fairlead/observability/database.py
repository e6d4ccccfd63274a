"""The database that a URL names: how it is connected to, and what of it one transaction has.

SQLite is a file beside the one process that writes. PostgreSQL is a server, which may be away, restart, or never answer again.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError

from fairlead.observability.history import HistoryError

_DRIVER: Final = "postgresql+pg8000"
_PLAIN: Final = ("postgresql", "postgres")  # schemes without a driver
_ANSWER: Final = 60.0  # seconds that a server may be silent
_CHANGE: Final = 600.0  # the same while tables are changed
_IDLE_MS = 60_000  # after which the server ends a transaction that its client, paused or cut off, does not go on with
_LOCK: Final = 0x6661_6972_6C65_6164  # of PostgreSQL's advisory locks, "fairlead": migrations of one database
_ONE_MOMENT: Final = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_BUSY_MS: Final = 10_000
_PASSED: Final = ("application_name", "unix_sock")  # parameters of a URL that the driver takes as they are


class Database:
    """url: as SQLAlchemy's; PostgreSQL's without a driver is connected to by the one that is installed with Fairlead.

    Raises `HistoryError`, as all methods do.
    """

    def __init__(self, url: str) -> None:
        self.shown = _shown(url)
        try:
            parsed = sql.make_url(url)
            if parsed.drivername in _PLAIN:
                parsed = parsed.set(drivername=_DRIVER)
            if parsed.get_backend_name() not in ("sqlite", "postgresql"):
                raise HistoryError(f"history database {self.shown}: neither sqlite nor postgresql")
            self._url, self._arguments = _arguments(parsed)
            self._of_one_moment = "BEGIN" if self._is_file else _ONE_MOMENT
            self.engine = self._connected(**({} if self._is_file else {"pool_pre_ping": True}))
        except (SQLAlchemyError, ImportError) as error:
            raise HistoryError(f"history database {self.shown}: {first_line(error)}") from error

    @property
    def _is_file(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    def _connected(self, **more: Any) -> sql.Engine:
        engine = sql.create_engine(self._url, **{"connect_args": self._arguments} | more)
        sql.event.listen(engine, "connect", _as_sqlite if self._is_file else _as_postgresql)
        return engine

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def require_file(self) -> None:
        """Refuse a file that does not exist, which SQLite would make."""
        file = self._url.database
        if self._is_file and file and not Path(file).exists():
            raise HistoryError(f"history database {self.shown}: there is no such file")

    def opening(self) -> AbstractContextManager[sql.Connection]:
        """A transaction whose errors name the database."""
        return self._one(f"history database {self.shown}", self.engine)

    def writing(self) -> AbstractContextManager[sql.Connection]:
        """A transaction."""
        return self._one("history", self.engine)

    @contextmanager
    def reading(self) -> Iterator[sql.Connection]:
        """A transaction in which all that is read is of one moment."""
        try:
            with self.engine.connect() as connection:
                connection.exec_driver_sql(self._of_one_moment)
                yield connection
        except (SQLAlchemyError, OSError) as error:
            raise self._failure("history", error) from error

    @contextmanager
    def alone(self) -> Iterator[sql.Connection]:
        """A transaction, also of changes of tables, that no other of this kind is beside: others wait until it ends."""
        if self._is_file:
            with self._one(f"history database {self.shown}", self.engine) as connection:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
            return
        arguments = self._arguments | ({"timeout": _CHANGE} if "timeout" in self._arguments else {})
        engine = self._connected(connect_args=arguments, poolclass=sql.NullPool)
        with self._one(f"history database {self.shown}", engine) as connection:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            yield connection

    @contextmanager
    def _one(self, what: str, engine: sql.Engine) -> Iterator[sql.Connection]:
        try:
            with engine.begin() as connection:
                yield connection
        except (SQLAlchemyError, OSError) as error:
            raise self._failure(what, error) from error

    def _failure(self, what: str, error: SQLAlchemyError | OSError) -> HistoryError:
        if isinstance(error, OSError):
            self.engine.dispose()  # the driver's connections do not notice that they are broken
        return HistoryError(f"{what}: {first_line(error)}")


def _arguments(url: sql.URL) -> tuple[sql.URL, dict[str, Any]]:
    """A URL without the parameters that libpq has, and what the driver takes instead of those."""
    if url.drivername != _DRIVER:
        return url, {}
    asked = {key: value if isinstance(value, str) else value[-1] for key, value in url.query.items()}
    arguments: dict[str, Any] = {"application_name": "fairlead", "timeout": _ANSWER}
    arguments |= {key: asked.pop(key) for key in _PASSED if key in asked}
    mode, root = asked.pop("sslmode", ""), asked.pop("sslrootcert", None)
    try:
        arguments |= _tls(mode, root)
    except (OSError, ValueError) as error:
        raise HistoryError(f"history database {_shown(url)}: sslmode={mode}, sslrootcert={root}: {error}") from error
    if asked:
        raise HistoryError(f"history database {_shown(url)}: parameter {min(asked)!r} is unknown")
    return url.set(query={}), arguments


def _tls(mode: str, root: str | None) -> dict[str, Any]:
    """The driver's argument for libpq's modes. Without one: TLS where the server has it, as libpq does."""
    if mode in ("", "allow", "prefer"):
        return {}
    if mode == "disable":
        return {"ssl_context": False}
    if mode not in ("require", "verify-ca", "verify-full"):
        raise ValueError("choose disable, prefer, require, verify-ca or verify-full")
    context = ssl.create_default_context(cafile=root)
    if mode != "verify-full":
        context.check_hostname = False
    if mode == "require" and root is None:
        context.verify_mode = ssl.CERT_NONE
    return {"ssl_context": context}


def _as_sqlite(connection: Any, _: object) -> None:
    """Readers do not stand in the writer's way, nor it in theirs."""
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _as_postgresql(connection: Any, _: object) -> None:
    """A writer that is paused does not keep the next one waiting."""
    cursor = connection.cursor()
    cursor.execute(f"SET idle_in_transaction_session_timeout = {_IDLE_MS}")
    cursor.close()
    connection.commit()


def _shown(url: str | sql.URL) -> str:
    """A URL without its password."""
    try:
        return sql.make_url(url).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return "URL"


def first_line(error: BaseException) -> str:
    """What an error states, on one line."""
    cause = error.orig if isinstance(error, sql.exc.DBAPIError) else None
    given = cause.args[0] if cause is not None and cause.args else None
    if isinstance(given, dict) and "M" in given:  # the fields of a message of PostgreSQL
        return str(given["M"])[:300]
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__

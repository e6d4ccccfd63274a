"""A real PostgreSQL on a free loopback port, from Debian's packages.

The machine's own programs are used where they are installed; else the packages are unpacked, once, where only the testbed finds
them: no server is installed or started by the system. PostgreSQL refuses to run as root, so root starts it as user `nobody`, with
a data folder of its own. It does not sync to disk. The server's locale orders text as English does, as many servers do.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pg8000.dbapi

from testbed import build
from testbed.controlplane import Process, free_port

USER = "fairlead"
_SYSTEM = Path("/usr/lib/postgresql")
_OTHER_USER = ("nobody", "nogroup")
_START_LIMIT = 60.0
_STOP_LIMIT = 30.0
_ATTEMPTS = 3  # another process may take a port that was free
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "jit": "off",
}


class PostgreSQL:
    """Start with `with PostgreSQL() as server:`. port: where it listens; password: of user `fairlead`, its superuser."""

    def __init__(self) -> None:
        self.port = 0
        self.password = secrets.token_hex(8)
        self._programs, self._libraries = programs()
        self._scratch = tempfile.TemporaryDirectory(prefix="fairlead-postgresql-")
        self._folder = Path(self._scratch.name)
        self._process: Process | None = None

    def __enter__(self) -> Self:
        try:
            self._initialize()
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def start(self) -> None:
        """Start it on the data that is there; on its port of before, where it had one."""
        for attempt in range(_ATTEMPTS):
            self.port = self.port or free_port()
            if self._start():
                return
            if attempt + 1 < _ATTEMPTS:
                self.port = 0
        raise RuntimeError(f"postgres did not become ready:\n{(self._folder / 'log').read_text(errors='replace')[-4000:]}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the process without waiting for its clients; the data stays."""
        if self._process is not None:
            self._process.popen.send_signal(how)
            self._process.popen.wait(_STOP_LIMIT)
            self._process = None

    # -- databases -----------------------------------------------------------------------------

    def emptied(self, name: str) -> str:
        """A database of this name, made or emptied; its URL. A new one costs some megabytes, and time."""
        if self.execute("postgres", f"SELECT 1 FROM pg_database WHERE datname = '{name}'"):  # noqa: S608 - a test's own name
            self.execute(name, "DROP SCHEMA public CASCADE")
            self.execute(name, "CREATE SCHEMA public")
        else:
            self.execute("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str, user: str = USER, password: str = "") -> str:
        """The URL of a database, as its superuser or another one uses it."""
        return f"postgresql://{user}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def execute(self, database: str, statement: str) -> list[Sequence[Any]]:
        """One statement, outside of a transaction; its rows."""
        with contextlib.closing(self._connect(database)) as connection:
            connection.autocommit = True
            cursor = connection.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def run(self, program: str, *arguments: str) -> str:
        """A program of PostgreSQL as a client of this server, such as pg_dump; what it printed."""
        access = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": USER, "PGPASSWORD": self.password}
        command = [str(self._programs / program), *arguments]
        environment = {**os.environ, **self._libraries, **access}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    # -- inside --------------------------------------------------------------------------------

    def _initialize(self) -> None:
        password = self._folder / "password"
        password.write_text(self.password)
        if os.geteuid() == 0:
            for path in (self._folder, password):
                shutil.chown(path, *_OTHER_USER)
        command = [*_as_other_user(), str(self._programs / "initdb"), "--pgdata", str(self._data), "--username", USER]
        command += ["--pwfile", str(password), "--auth", "scram-sha-256", "--no-sync", "--encoding", "UTF8"]
        command += ["--locale", "C.UTF-8", "--locale-provider", "icu", "--icu-locale", "en-US"]
        done = subprocess.run(
            command, env={**os.environ, **self._libraries}, cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _start(self) -> bool:
        settings = [text for name, value in {**_SETTINGS, "port": self.port}.items() for text in ("-c", f"{name}={value}")]
        log = self._folder / "log"
        with log.open("ab") as file:
            popen = subprocess.Popen(
                [*_as_other_user("--pdeathsig", "QUIT"), str(self._programs / "postgres"), "-D", str(self._data), *settings],
                env={**os.environ, **self._libraries},
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self._folder,
            )
        self._process = Process("postgres", popen, log)
        deadline = time.monotonic() + _START_LIMIT
        while popen.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(pg8000.dbapi.Error):
                self._connect("postgres").close()
                return True
            time.sleep(0.05)
        self.stop()
        return False

    def _connect(self, database: str) -> pg8000.dbapi.Connection:
        return pg8000.dbapi.connect(USER, "127.0.0.1", database, self.port, self.password)

    def _end(self) -> None:
        self.stop(signal.SIGQUIT)  # as a crash would: what is not written yet is not needed
        self._scratch.cleanup()


def programs() -> tuple[Path, dict[str, str]]:
    """The folder of PostgreSQL's programs, and the environment that they need; unpacked if they are not there yet."""
    installed = _newest(_SYSTEM)
    if installed is not None:
        return installed, {}
    folder = _unpacked()
    found = _newest(folder / "usr/lib/postgresql")
    if found is None:
        raise RuntimeError(f"the packages in {folder} contain no PostgreSQL")
    libraries = [str(path) for path in sorted((folder / "usr/lib").glob("*-linux-gnu*"))]
    return found, {"LD_LIBRARY_PATH": ":".join(libraries)}


def _newest(folder: Path) -> Path | None:
    found = [path.parent for path in folder.glob("*/bin/initdb")]
    return max(found, key=lambda path: int(path.parent.name), default=None)


def _unpacked() -> Path:
    """The folder of the unpacked packages: PostgreSQL, and those that it depends on and the machine does not have."""
    # Another user reads it, to whom root's home is closed.
    folder = (Path("/var/cache/fairlead/testbed") if os.geteuid() == 0 else build.cache()) / "postgresql"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with build.locked(folder.parent / "postgresql.lock"):
        if folder.exists():
            return folder
        print("testbed: unpacking postgresql", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            for package in _downloaded(Path(scratch)):
                subprocess.run(["dpkg-deb", "--extract", str(package), f"{scratch}/all"], check=True)
            (Path(scratch) / "all").rename(folder)
    return folder


def _downloaded(scratch: Path) -> Iterator[Path]:
    (scratch / "archives/partial").mkdir(parents=True)
    (scratch / "archives").chmod(0o755)
    options = ["-o", f"Dir::Cache={scratch}", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"]
    install = ["apt-get", "-qq", *options, "--download-only", "--no-install-recommends", "install", "postgresql"]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        subprocess.run(["apt-get", "-qq", "update"], check=True)
        subprocess.run(install, check=True)
    return (scratch / "archives").glob("*.deb")


def _as_other_user(*more: str) -> list[str]:
    """How a program is started: as another user where this one is root."""
    if os.geteuid() != 0:
        return ["setpriv", *more] if more else []
    user, group = _OTHER_USER
    return ["setpriv", "--reuid", user, "--regid", group, "--clear-groups", *more]

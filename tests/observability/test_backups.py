"""Backups as docs/history.md has them, taken while the history is written to, and restored: nothing lost, costs equal to the cent."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sql

from fairlead.observability.history import Job, State
from fairlead.observability.store import History
from tests.databases import on_databases
from tests.observability import histories, outputs

DOCS = (Path(__file__).parents[2] / "docs/history.md").read_text()
POD = "/var/lib/fairlead/history.db"


def documented(program):
    """The arguments of a documented command."""
    [line] = re.findall(rf"^    {program} (.*?)(?: +#.*)?$", DOCS, re.MULTILINE)
    return line


@pytest.fixture
def backups(database, tmp_path, request):
    if database.startswith("sqlite"):
        return Files(tmp_path)
    return Dumps(tmp_path, request.getfixturevalue("postgresql"))


class Files:
    """Of SQLite."""

    def __init__(self, folder):
        self.folder = folder
        self.there = folder / "there"
        self.there.mkdir()

    def back_up(self, database):
        """As in the operator's pod."""
        [script] = re.findall(r"-- python -c '(.*)'$", DOCS, re.MULTILINE)
        assert POD in script
        file = database.removeprefix("sqlite:///")
        backup = self.folder / "backup.db"
        backup.unlink(missing_ok=True)
        script = script.replace(POD, file).replace("/var/lib/fairlead/backup.db", str(backup))
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
        return backup

    def restore(self, backup):
        """In the place of another history: what is beside that one's file is removed, as documented."""
        file = self.there / "history.db"
        History(f"sqlite:///{file}").close()
        for left in ("history.db-wal", "history.db-shm"):
            (self.there / left).write_bytes(b"of the file before")
            assert left in DOCS
            (self.there / left).unlink()
        shutil.copy(backup, file)
        return f"sqlite:///{file}"


class Dumps:
    """Of PostgreSQL."""

    def __init__(self, folder, server):
        self.folder = folder
        self.server = server

    def back_up(self, database):
        backup = self.folder / "history.dump"
        self._run("pg_dump", {"history.dump": str(backup), '"$URL"': database})
        return backup

    def restore(self, backup):
        url = self.server.emptied("restored")
        self._run("pg_restore", {"history.dump": str(backup), '"$URL"': url})
        return url

    def _run(self, program, given):
        arguments = documented(program).split()
        assert set(given) <= {part for each in arguments for part in (each, each.partition("=")[2])}
        for name, value in given.items():
            arguments = [each.replace(name, value) for each in arguments]
        self.server.run(program, *arguments)


def compared(database):
    return histories.everything(database), histories.schema(database)


@on_databases(range(2))
def test_what_was_migrated_is_backed_up_while_it_is_written_to_and_restored(database, seed, backups):
    histories.made(database, "3", histories.drawn(seed))
    writer = History(database)
    outputs.add_up(writer)
    before, printed = compared(database), outputs.printed(database)
    late = Job(uid="late", namespace="lab", kind="AIJob", name="late", submitted_at=1.0)
    with writer._writing() as connection:  # neither waits for the other
        connection.execute(sql.text("DELETE FROM runs"))
        backup = backups.back_up(database)
        connection.rollback()
    writer.write([late], [], histories.NOW)
    restored = backups.restore(backup)
    assert compared(restored) == before
    again = outputs.printed(restored)
    assert (again["history"], again["cost by queue"]["lines"]) == (printed["history"], printed["cost by queue"]["lines"])
    assert again == printed
    writer.close()


def test_an_operator_goes_on_with_what_was_restored(database, backups):
    histories.made(database, "3", histories.drawn(4))
    writer = History(database)
    restored = History(backups.restore(backups.back_up(database)))
    jobs, runs, alive_at = restored.open_ends()
    assert (jobs, runs, alive_at) == writer.open_ends()
    ended = [msgspec.structs.replace(each, state=State.LOST, ended_at=alive_at) for each in jobs]
    restored.write(ended, [], histories.NOW)
    assert restored.open_ends() == ([], runs, histories.NOW)
    writer.write([], [], histories.NOW)  # the one that was backed up is another's
    restored.close()
    writer.close()


def test_a_backup_from_before_an_upgrade_is_upgraded_once_it_is_restored(database, backups):
    histories.made(database, "3", histories.drawn(5))
    before, schema = compared(database)
    backup = backups.back_up(database)
    History(database).close()
    upgraded = compared(database), outputs.printed(database)
    restored = backups.restore(backup)
    assert compared(restored) == (before, schema), "as the version before had it"
    History(restored).close()
    assert (compared(restored), outputs.printed(restored)) == upgraded

"""Databases of earlier versions, brought to the present schema: nothing is lost, nothing is done by halves, later ones are refused."""

import json
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.observability import migrations
from fairlead.observability.database import Database
from fairlead.observability.history import HistoryError, SchemaError
from fairlead.observability.store import History
from fairlead.observability.tables import METADATA
from tests.databases import on_databases
from tests.observability import histories, outputs

PRINTED = json.loads((Path(__file__).parent / "printed_by_version_3.json").read_text())
NUMBER = "UPDATE history_version SET version_num = '5'"


def close(found, expected):
    """Equal; numbers that are sums of others but for their last digits."""
    if isinstance(expected, float):
        return found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(close(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    return found == expected


def costs(printed):
    """All amounts of money, as they are: the ledger's sums are exact."""
    kept = ("cost", "added_cost", "balance")
    if isinstance(printed, dict):
        return [(key, value) if key in kept else costs(value) for key, value in printed.items()]
    return [costs(each) for each in printed] if isinstance(printed, list) else None


def with_days(seed):
    """A history of version 3 as its program left it: with the days that it had added up."""
    days = [{"day": day, "total": total.encode()} for day, total in PRINTED[str(seed)]["days"]]
    return histories.drawn(seed) | {"days": days}


@on_databases(range(3))
def test_the_previous_versions_history_is_kept_to_the_row_and_to_the_cent(database, seed):
    histories.made(database, "3", with_days(seed))
    before = histories.everything(database)
    assert {name: len(rows) for name, rows in before.items()} == {
        "jobs": 24, "runs": 60, "stays": 12, "scalers": 6, "days": 6, "notes": 1
    }  # fmt: skip
    with pytest.raises(SchemaError, match="schema version 3, this program reads 4: an operator of this version upgrades it"):
        History(database, create=False)
    History(database).close()
    assert histories.everything(database) == before
    printed, expected = outputs.printed(database), PRINTED[str(seed)]["printed"]
    assert costs(printed) == costs(expected)
    assert close(printed, expected)
    History(database).close()  # once more changes nothing
    assert histories.everything(database) == before


@pytest.mark.parametrize("version", ["1", "2"])
def test_histories_of_versions_before_are_kept_too(version, database):
    rows = histories.drawn(7)
    histories.made(database, version, rows)
    before = histories.everything(database, histories.VERSIONS[version])
    History(database).close()
    after = histories.everything(database)
    if version == "1":
        assert all(("used", (True, 0.0)) in row and ("measured", (True, 0.0)) in row for row in after["runs"])
        after["runs"] = [tuple(each for each in row if each[0] not in ("used", "measured")) for row in after["runs"]]
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_every_way_leads_to_the_same_schema(version, database, tmp_path, request):
    histories.made(database, version, {})
    History(database).close()
    migrated = histories.schema(database)
    fresh = f"sqlite:///{tmp_path}/fresh.db"
    if database.startswith("postgresql"):
        fresh = request.getfixturevalue("postgresql").emptied("fresh")
    History(fresh).close()
    assert migrated == histories.schema(fresh)
    assert histories.execute(fresh, "SELECT version_num FROM history_version") == [(migrations.LATEST,)]


def test_the_schema_is_that_of_the_tables(database):
    History(database).close()
    opened = Database(database)
    with opened.reading() as connection:
        found = MigrationContext.configure(connection, opts={"version_table": migrations.TABLE, "compare_type": True})
        assert compare_metadata(found, METADATA) == []
    if database.startswith("postgresql"):
        asked = "SELECT collation_name FROM information_schema.columns WHERE table_schema = 'public' AND data_type = 'character varying'"
        ours = f"{asked} AND table_name <> '{migrations.TABLE}'"
        assert set(histories.execute(database, ours)) == {("C",)}
    opened.close()


def test_a_migration_that_fails_changes_nothing(database):
    histories.made(database, "1", histories.drawn(1))
    histories.execute(database, 'CREATE INDEX ix_jobs_user ON jobs ("user")')  # in the way of version 3's
    before, schema = histories.everything(database, histories.VERSIONS["1"]), histories.schema(database)
    with pytest.raises(HistoryError, match=r"ix_jobs_user.* already exists"):
        History(database)
    assert histories.schema(database) == schema
    assert histories.everything(database, histories.VERSIONS["1"]) == before
    histories.execute(database, "DROP INDEX ix_jobs_user")
    History(database).close()
    assert "days" in histories.schema(database)


def writes(store):
    """Whether it may."""
    try:
        store.write((), (), 1.0)
    except HistoryError as error:
        if "another operator has taken the database over" not in str(error):
            raise
        return False
    return True


def test_of_those_that_start_at_once_one_migrates_and_one_writes(database):
    histories.made(database, "3", histories.drawn(2))
    before = histories.everything(database)
    begin, opened, failed = threading.Barrier(6), [], []

    def start():
        begin.wait()
        try:
            opened.append(History(database))
        except HistoryError as error:
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []
    assert histories.everything(database) == before
    assert histories.execute(database, "SELECT version_num FROM history_version") == [("4",)]
    refused = [each for each in opened if not writes(each)]
    for each in opened:
        each.close()
    assert len(refused) == 5


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"create": False}, {"wait": True}], ids=str)
def test_a_later_schema_is_refused_and_left_as_it_is(how, database):
    History(database).close()
    histories.execute(database, NUMBER, "ALTER TABLE jobs ADD COLUMN of_the_future INTEGER")
    before = histories.everything(database), histories.schema(database)
    with pytest.raises(
        SchemaError, match="schema version 5, this program knows versions up to 4: use the version of Fairlead that"
    ):
        History(database, **how)
    assert (histories.everything(database), histories.schema(database)) == before


def test_commands_refuse_with_the_exit_code_for_that(database, tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    kubeconfig.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "users": users, "current-context": "c"}))

    def refused(*command):
        done = CliRunner().invoke(app, [*command])
        assert done.exit_code == 3, done.output
        return done.output

    histories.made(database, "2", {})
    for command in ("history", "cost"):
        assert "version 2, this program reads 4: an operator of this version upgrades it" in refused(
            command, "--database", database
        )
    History(database).close()
    histories.execute(database, NUMBER)
    operator = ["operator", "--kubeconfig", str(kubeconfig), "--address", "", "--history", database]
    for command in (["history", "--database", database], ["cost", "--database", database], operator):
        assert "schema version 5, this program knows versions up to 4" in refused(*command)


def test_a_database_of_something_else_is_refused(database):
    histories.execute(database, "CREATE TABLE jobs (id INTEGER)")
    with pytest.raises(SchemaError, match="it has a table 'jobs' of something else"):
        History(database)
    assert list(histories.schema(database)) == ["jobs"]


def test_who_only_reads_makes_no_tables(database):
    histories.execute(database, "SELECT 1")
    with pytest.raises(SchemaError, match="is empty: an operator makes its tables when it leads"):
        History(database, create=False)
    History(database, wait=True).close()
    assert histories.schema(database) == {}


def test_programs_before_refuse_what_is_migrated(database):
    """They read the number in the notes, and use no other than theirs."""
    histories.made(database, "3", {})
    History(database).close()
    assert histories.execute(database, "SELECT value FROM notes WHERE name = 'version'") == [("4",)]

"""Two kinds of databases that behave alike: one writer, reading of one moment, texts; a server that goes and comes back."""

import gc
import threading
import warnings

import msgspec
import pytest
import sqlalchemy as sql

from fairlead.observability import database as database_module
from fairlead.observability.database import Database
from fairlead.observability.history import HistoryError, Job, Run, Wanted
from fairlead.observability.store import History
from tests.observability.histories import NOW, execute

JOB = Job(uid="j", namespace="lab", kind="AIJob", name="bert", submitted_at=1.0)
RUN = Run(
    uid="r",
    job="j",
    namespace="lab",
    name="p",
    queue="q",
    service_class="",
    user="ann",
    node="n",
    gpus=1.0,
    cpus=2.0,
    started_at=1.0,
)


@pytest.fixture
def history(database):
    store = History(database)
    yield store
    store.close()


# -- one writer ----------------------------------------------------------------------------------


def test_who_took_over_writes_and_the_one_before_does_not(database, history):
    history.write([JOB], [], 5.0)
    waits = History(database, wait=True)
    history.write([JOB], [RUN], 6.0)  # one that waits has changed nothing
    waits.take_over()
    late = msgspec.structs.replace(RUN, ended_at=7.0, outcome="late")
    for refused in (lambda: history.write([], [late], 7.0), lambda: history.forget(NOW), lambda: history.add_up(0.0, NOW)):
        with pytest.raises(HistoryError, match="another operator has taken the database over; this one writes no more"):
            refused()
    assert waits.open_ends() == ([JOB], [RUN], 6.0)
    waits.write([], [late], 8.0)
    assert history.runs("j") == [late], "it reads as before"
    waits.close()


def test_who_waits_writes_nothing(database, history):
    waits = History(database, wait=True)
    with pytest.raises(HistoryError):
        waits.write([JOB], [], 1.0)
    assert history.open_ends() == ([], [], None)
    waits.close()


def test_what_is_being_written_is_there_for_the_next_writer(database, history):
    taken = []

    def next_one():
        store = History(database)
        taken.append(store.open_ends()[0])
        store.close()

    thread = threading.Thread(target=next_one)
    with history._writing() as connection:
        thread.start()
        connection.execute(sql.text("INSERT INTO notes (name, value) VALUES ('alive_at', '9.0')"))
        connection.execute(sql.text("UPDATE notes SET value = '10.0' WHERE name = 'alive_at'"))
    thread.join()
    assert taken == [[]]
    assert history.open_ends()[2] == 10.0


@pytest.mark.e2e
def test_a_writer_that_is_paused_while_it_writes_does_not_keep_the_next_one_waiting(postgresql, monkeypatch):
    monkeypatch.setattr(database_module, "_IDLE_MS", 300)
    url = postgresql.emptied("paused")
    paused, following = History(url), None

    def write():
        nonlocal following
        with paused._writing() as connection:
            connection.execute(sql.text("INSERT INTO notes (name, value) VALUES ('alive_at', '9.0')"))
            following = History(url)  # waits for the row that is locked, until the server ends that transaction
            following.write([JOB], [], 10.0)
            connection.execute(sql.text("UPDATE notes SET value = '11.0' WHERE name = 'alive_at'"))

    with pytest.raises(HistoryError):
        write()
    assert following.open_ends() == ([JOB], [], 10.0)
    paused.close()
    following.close()


# -- reading -------------------------------------------------------------------------------------


def test_what_is_read_is_of_one_moment(database, history):
    """The jobs are read, a run of theirs is written, and their runs are read: it is not among them."""
    history.write([JOB], [RUN], 2.0)
    other = msgspec.structs.replace(RUN, uid="r2")
    reader = History(database, create=False)
    written = []

    def write(_connection, _cursor, statement, *_):
        if "FROM runs" in statement and not written:
            written.append(history.write([], [other], 3.0))

    sql.event.listen(reader._database.engine, "before_cursor_execute", write)
    [entry] = reader.jobs(Wanted(), NOW)
    assert (entry.runs, len(written)) == (1, 1)
    assert reader.jobs(Wanted(), NOW)[0].runs == 2
    reader.close()


@pytest.mark.parametrize("text", ['Zoë\'s "%s" :x \\ {} 日本語 🚀', "", "a\0b", "ä" * 600])
def test_both_keep_the_same_texts(text, history):
    """Both clean them alike, so that a condition on one finds it."""
    history.write([msgspec.structs.replace(JOB, user=text, message=text)], [])
    [entry] = history.jobs(Wanted(user=text), NOW)
    assert entry.job.user == text.replace("\0", "\ufffd")[:512]
    assert entry.job.message == text.replace("\0", "\ufffd")


def test_names_are_ordered_by_their_bytes(history):
    names = ["b", "B", "a-1", "a1", "ä", "a_1", "Z"]
    history.write([msgspec.structs.replace(JOB, uid=name, name=name) for name in names], [])
    assert [entry.job.name for entry in history.jobs(Wanted(), NOW)] == sorted(names, key=str.encode)


def test_numbers_come_back_as_they_were(history):
    run = msgspec.structs.replace(RUN, gpus=0.1 + 0.2, cpus=1e-9, started_at=1764211200.123456, ended_at=1764211200.1234562)
    run.used, run.measured, run.exit_code = 1e17 + 2.0, 2**53 + 0.0, -(2**31)
    history.write([], [run])
    assert history.runs("j") == [run]


# -- the server ----------------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_server_that_restarts_is_written_to_again(postgresql):
    history = History(postgresql.emptied("restarted"))
    history.write([JOB], [], 1.0)
    postgresql.stop()
    for failing in (lambda: history.write([], [RUN], 2.0), lambda: history.jobs(Wanted(), NOW)):
        with pytest.raises(HistoryError):
            failing()
    postgresql.start()
    history.write([], [RUN], 3.0)
    assert history.open_ends() == ([JOB], [RUN], 3.0)
    history.close()


@pytest.mark.e2e
def test_the_documented_rights_are_enough(postgresql):
    """Who owns the database writes; who may select reads, and nothing else."""
    for statement in (
        "CREATE ROLE app LOGIN PASSWORD 'a'",
        "CREATE ROLE ann LOGIN PASSWORD 'b'",
        "CREATE DATABASE rights OWNER app",
    ):
        postgresql.execute("postgres", statement)
    writer = History(postgresql.url("rights", "app", "a"))
    writer.write([JOB], [RUN], 1.0)
    url = postgresql.url("rights", "ann", "b")
    with pytest.raises(HistoryError, match="permission denied for table history_version"):
        History(url, create=False)
    postgresql.execute("rights", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO ann")
    reader = History(url, create=False)
    assert [each.runs for each in reader.jobs(Wanted(), NOW)] == [1]
    with pytest.raises(HistoryError, match="permission denied"):
        History(url)
    reader.close()
    writer.close()


@pytest.mark.e2e
def test_urls_of_every_spelling_lead_to_it(postgresql):
    url = postgresql.emptied("spelled")
    History(url).close()
    rest = url.partition("://")[2]
    for spelled in (
        f"postgres://{rest}",
        f"postgresql+pg8000://{rest}",
        f"postgresql://{rest}?sslmode=disable",
        f"postgresql://{rest}?sslmode=prefer&application_name=x",
    ):
        History(spelled, create=False).close()
    named = f"{url}?application_name=accounting"
    assert execute(named, "SELECT current_setting('application_name')") == [("accounting",)]
    with pytest.raises(HistoryError, match="Server refuses SSL"):
        History(f"{url}?sslmode=require", create=False)
    password = postgresql.password
    with warnings.catch_warnings(action="ignore"):
        with pytest.raises(HistoryError, match="password authentication failed") as refused:
            History(url.replace(password, "wrong-one"), create=False)
        assert "wrong-one" not in str(refused.value)
        del refused
        gc.collect()  # the driver leaves the socket open


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://u:secret@127.0.0.1:1/h", "Can't create a connection to host 127.0.0.1 and port 1"),
        ("postgresql://u:secret@h/h?sslmode=maybe", "choose disable, prefer, require, verify-ca or verify-full"),
        ("postgresql://u:secret@h/h?sslmode=verify-full&sslrootcert=/nowhere", "No such file"),
        ("postgresql://u:secret@h/h?keepalives=1", "parameter 'keepalives' is unknown"),
        ("mysql://u:secret@h/h", "neither sqlite nor postgresql"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(url, message):
    with pytest.raises(HistoryError, match=message) as refused:
        History(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "verifies", "host"),
    [("require", False, False), ("verify-ca", True, False), ("verify-full", True, True)],
)
def test_modes_of_tls_are_those_of_libpq(mode, verifies, host):
    arguments = Database(f"postgresql://u@h/h?sslmode={mode}")._arguments
    context = arguments["ssl_context"]
    assert (bool(context.verify_mode), context.check_hostname) == (verifies, host)

"""The store of the simulated API server: the past can be read for as long as its history reaches."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.cluster.simulated.store import Store

KEYS = [("a", "x"), ("a", "y"), ("b", "x")]
STEPS = st.lists(st.tuples(st.sampled_from(["t", "u"]), st.sampled_from(KEYS), st.booleans()), max_size=25)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.integers(3, 40), st.sampled_from([None, "a", "b"]))
def test_every_version_of_the_past_is_as_it_was(steps, history, namespace):
    store = Store(history)
    seen = {}
    for table, key, put in steps:
        if put:
            store.put(table, key, {"metadata": {"name": key[1]}})
        elif store.get(table, key) is not None:
            store.remove(table, key)
        seen[store.version] = {table: store.sorted(table, namespace) for table in ("t", "u")}
    for version, tables in seen.items():
        for table, records in tables.items():
            found = store.at(table, version, namespace)
            if version < store.compacted:
                assert found is None
            else:
                assert found is not None
                assert list(found.after(None)) == records
                for key in KEYS:
                    rest = [item for item in records if item[0] > key]
                    if namespace is None or key[0] == namespace:
                        assert list(found.after(key)) == rest
                        assert found.count_after(key) == len(rest)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.sampled_from([None, "a", "b", "c"]))
def test_a_table_is_in_the_order_of_its_keys(steps, namespace):
    store = Store(40)
    for table, key, put in steps:
        if put:
            store.put(table, key, {"metadata": {"name": key[1]}})
        elif store.get(table, key) is not None:
            store.remove(table, key)
    for table in ("t", "u"):
        records = {key: record for key, record in store.records(table) if namespace is None or key[0] == namespace}
        assert store.sorted(table, namespace) == sorted(records.items(), key=lambda item: item[0])
        assert store.count(table, namespace) == len(records)


@pytest.mark.parametrize("seed", range(5))
def test_a_large_table_is_in_order_whether_little_or_much_was_written_since_it_was_read(seed):
    draw, store = random.Random(seed), Store(40)
    for _ in range(30):
        for _ in range(draw.choice((1, 3, 10, 200))):
            key = draw.choice("ab"), f"{draw.randrange(400):03d}"
            if draw.random() < 0.7:
                store.put("t", key, {"metadata": {"name": key[1]}})
            elif store.get("t", key) is not None:
                store.remove("t", key)
        if draw.random() < 0.2:  # nobody lists, and all that there is goes
            for key, _ in list(store.records("t"))[: draw.choice((50, 1000))]:
                store.remove("t", key)
        for namespace in (None, "a"):
            records = {key: record for key, record in store.records("t") if namespace in (None, key[0])}
            assert store.sorted("t", namespace) == sorted(records.items(), key=lambda item: item[0])
            assert store.count("t", namespace) == len(records)


def test_names_that_come_and_go_leave_nothing_behind_where_nobody_lists():
    store = Store(40)
    for number in range(2000):
        store.put("t", ("a", f"{number}"), {"metadata": {"name": f"{number}"}})
        store.remove("t", ("a", f"{number}"))
    assert len(store._tables["t"]._unsorted) <= 2
    assert store.sorted("t") == []

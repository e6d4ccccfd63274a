"""The store of the simulated API server: the past can be read for as long as its history reaches."""

from __future__ import annotations

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
                assert found == records

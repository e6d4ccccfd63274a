"""Bodies in protobuf: whatever bytes come, they are an object or are refused. The contract checks valid ones."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.cluster.simulated import protobuf
from fairlead.cluster.simulated.protobuf import Malformed, decode
from tests.protobuf import envelope, field, varint

KINDS = [
    ("v1", "Pod"),
    ("apps/v1", "Deployment"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("v1", "DeleteOptions"),
]


# Trees of fields: most bytes drawn at random are refused at once.
RAW = st.recursive(
    st.binary(max_size=12)
    | st.builds(lambda number, value: varint(number << 3) + varint(value), st.integers(1, 45), st.integers(0, 1 << 63)),
    lambda inner: st.lists(st.builds(field, st.integers(1, 45), inner), max_size=4).map(b"".join),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KINDS), RAW)
def test_whatever_comes_is_an_object_or_refused(kind: tuple[str, str], raw: bytes) -> None:
    with contextlib.suppress(Malformed):
        found = decode(envelope(*kind, raw), kind)
        assert (found["apiVersion"], found["kind"]) == kind
        assert msgspec.json.decode(msgspec.json.encode(found)) == found


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_so_are_bytes_without_any_order(raw: bytes) -> None:
    for body in (raw, b"k8s\x00" + raw):
        with contextlib.suppress(Malformed):
            assert isinstance(decode(body, ("v1", "Pod")), dict)


def test_a_schema_within_a_schema_within_a_schema_is_refused_before_the_stack_ends() -> None:
    schema = b""
    for _ in range(5000):
        schema = field(28, schema)  # not
    version = field(4, field(1, schema))  # schema.openAPIV3Schema
    with pytest.raises(Malformed):
        decode(envelope(*KINDS[2], field(2, field(7, version))), KINDS[2])


def test_every_type_that_the_table_names_is_in_it() -> None:
    known = protobuf._table()
    named = {each.type for fields in known.values() for each in fields.values()}
    assert {name for name in named if "." in name} <= set(known)
    assert {name for name in named if "." not in name} == {"string", "bytes", "int", "bool", "double"}

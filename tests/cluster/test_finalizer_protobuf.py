"""A finalizer or a user added in protobuf: all else stays as it is, and what is no protobuf is refused. The judge is Google's parser."""

import contextlib
import random

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fairlead.cluster.kubernetes.protobuf import Malformed, Outdated, with_finalizer, with_user, without_user
from tests.protobuf import envelope, field, varint

FINALIZER = "resource.kubernetes.io/delete-protection"
ODD = b'{"kind": "ComputeDomainChannelConfig",  "domainID":"d1", "apiVersion": "x/v1"}'
MAGIC = b"k8s\x00"


def message(name, *fields):
    """A class of messages: (number, name, kind) of each field; `text`: strings, each of them kept."""
    kinds = {"bytes": (12, 1), "many": (12, 3), "text": (9, 3), "one": (9, 1), "whole": (3, 1)}
    file = descriptor_pb2.FileDescriptorProto(name=name, package="tests", syntax="proto2")
    made = file.message_type.add(name=name)
    for number, called, kind in fields:
        of, many = kinds[kind]
        made.field.add(name=called, number=number, type=of, label=many)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tests.{name}"))


ENVELOPE = message("Unknown", (1, "about", "bytes"), (2, "raw", "bytes"), (3, "encoding", "bytes"), (4, "type", "bytes"))
CLAIM = message("Claim", (2, "spec", "bytes"), (3, "status", "bytes"))
METADATA = message("Metadata", (5, "uid", "text"), (7, "generation", "whole"), (11, "labels", "text"), (14, "finalizers", "text"))
STATUS = message("Status", (2, "users", "many"))
USER = message("User", (3, "resource", "one"), (4, "name", "one"), (5, "uid", "one"))


def text(number, value):
    return field(number, value.encode())


def spec(parameters):
    opaque = text(1, "compute-domain.nvidia.com") + field(2, field(1, parameters))
    return field(1, field(3, text(1, "channel") + field(2, field(1, opaque))))


def entry(name):
    return field(2, text(3, "pods") + text(4, name) + text(5, f"uid-{name}"))


def claim(finalizers=(), labels=0, parameters=ODD, uid="uid-c", users=(), status=b"", version="7"):
    """A ResourceClaim as the API server has it: whole numbers, long messages, embedded JSON."""
    metadata = text(1, "c") + text(3, "ns") + text(5, uid) + text(6, version) + varint(7 << 3) + varint(300)
    metadata += b"".join(text(11, f"key-{each}={'v' * each}") for each in range(labels))
    metadata += b"".join(text(14, each) for each in finalizers)
    status = field(3, b"".join(map(entry, users)) + status)
    return envelope("resource.k8s.io/v1", "ResourceClaim", field(1, metadata) + field(2, spec(parameters)) + status)


def read(body):
    """What Google's parser finds: about, spec and metadata, whose parts it merges."""
    assert body.startswith(MAGIC)
    found = ENVELOPE.FromString(body[4:])
    whole = CLAIM.FromString(found.raw)
    head = METADATA()
    rest = found.raw
    while rest:  # each part of the metadata, merged as a parser of the whole message does it
        number, value, rest = split(rest)
        if number == 1:
            head.MergeFromString(value)
    return found.about, whole.spec, list(head.uid), head.generation, list(head.labels), list(head.finalizers)


def status_in(body):
    """The status of a claim, its parts merged."""
    status, raw = b"", ENVELOPE.FromString(body[4:]).raw
    while raw:
        number, value, raw = split(raw)
        status += value if number == 3 else b""
    return status


def users_in(body):
    """UIDs of the pods for which a claim is reserved."""
    return [USER.FromString(each).uid for each in STATUS.FromString(status_in(body)).users]


def split(data):
    """The first field of a message of which all are bytes."""
    size, at = 0, 1
    while True:
        size |= (data[at] & 0x7F) << 7 * (at - 1)
        at += 1
        if data[at - 1] < 0x80:
            return data[0] >> 3, data[at : at + size], data[at + size :]


@pytest.mark.parametrize("labels", [0, 1, 200])
@pytest.mark.parametrize("finalizers", [(), ("other",), ("other", "more")])
def test_one_finalizer_more_and_nothing_else(labels, finalizers):
    before = claim(finalizers, labels)
    uid, after = with_finalizer(before, FINALIZER)
    assert uid == "uid-c"
    about, specified, uids, generation, named, had = read(before)
    assert read(after) == (about, specified, uids, generation, named, [*had, FINALIZER])
    assert specified == spec(ODD)
    assert with_finalizer(after, FINALIZER) == (uid, after), "it has it"


@pytest.mark.parametrize("users", [(), ("p",), ("p", "q")])
def test_one_user_more_and_nothing_else(users):
    before = claim(("other",), 3, users=users)
    uid, after = with_user(before, "new", "uid-new")
    assert uid == "uid-c"
    assert read(after) == read(before)
    assert status_in(after) == b"".join(map(entry, (*users, "new")))
    assert users_in(after) == [f"uid-{each}" for each in (*users, "new")]
    assert with_user(after, "new", "uid-new") == (uid, after), "it is"


@pytest.mark.parametrize("seed", range(60))
def test_a_user_is_taken_away_and_nothing_else(seed):
    draw = random.Random(seed)
    users = draw.sample(["p", "q", "r", "s"], draw.randint(0, 4))
    devices = [(4, bytes(draw.randrange(256) for _ in range(draw.randrange(200)))) for _ in range(draw.randrange(3))]
    allocated = field(1, ODD)
    parts = [*(entry(each) for each in users), *(field(*each) for each in devices), allocated]
    draw.shuffle(parts)
    before = claim(("other",), draw.randrange(4), status=b"".join(parts))
    gone, deallocated = draw.choice("pqrst"), draw.random() < 0.5
    uid, after = without_user(before, f"uid-{gone}", "7", deallocated=deallocated)
    assert uid == "uid-c"
    assert read(after) == read(before), "specification and metadata stay, byte for byte"
    kept = [each for each in parts if each != entry(gone) and not (deallocated and each == allocated)]
    assert status_in(after) == b"".join(kept)
    assert users_in(after) == [f"uid-{each}" for each in users_of(parts) if each != gone]


def users_of(parts):
    return [name for part in parts for name in "pqrst" if part == entry(name)]


def test_a_claim_that_changed_meanwhile_is_outdated():
    with pytest.raises(Outdated):
        without_user(claim(users=("p",)), "uid-p", "6", deallocated=False)


def test_bytes_that_are_no_object_are_refused():
    rnd = random.Random(1)
    whole = claim(labels=3)
    for wrong in (b"", b"{}", b"k8s", whole[:-30], MAGIC + b"\x12\x02\x0a\x7f", MAGIC + b"\x0b", MAGIC + b"\xff" * 11):
        with pytest.raises(Malformed):
            with_finalizer(wrong, FINALIZER)
    for _ in range(2000):
        odd = bytearray(whole)
        odd[rnd.randrange(len(odd))] = rnd.randrange(256)
        cut = bytes(odd[: rnd.randint(0, len(odd))])
        for added in (
            lambda cut=cut: with_finalizer(cut, FINALIZER),
            lambda cut=cut: with_user(cut, "p", "uid-p"),
            lambda cut=cut: without_user(cut, "uid-p", "7", deallocated=True),
        ):
            with contextlib.suppress(Malformed, Outdated):
                added()

"""Reasons as data: the gang that one names is a field of it, and its sentence is rendered."""

from fairlead.api.reasons import Reason, ReasonCode


def test_the_name_of_a_gang_is_data_and_its_sentence_is_rendered():
    one = Reason(ReasonCode.RESOURCES, "needs 3 pods at once: node gang ns/a of 2", {"needed": 3}, "ns/a")
    assert one.message == "gang ns/a needs 3 pods at once: node gang ns/a of 2"
    assert one.of("ns/b").message == "gang ns/b needs 3 pods at once: node gang ns/a of 2"
    assert one.of("ns/b") == Reason(ReasonCode.RESOURCES, one.text, one.numbers, "ns/b")
    assert one.of("") is one
    assert one.of("ns/a") is one


def test_a_reason_without_a_gang_is_a_whole_sentence_for_all():
    plain = Reason(ReasonCode.RESOURCES, "0/4 nodes are available.")
    assert plain.message == plain.text
    assert plain.of("ns/b") is plain

"""Objects that cannot be decoded reach the translation as their metadata alone."""

import msgspec
import pytest

from fairlead.cluster import views
from fairlead.cluster.port import Gone, Judged
from fairlead.cluster.translate import Change, Translator


def undecoded(name, namespace=""):
    return Change(name, views.OnlyMetadata(views.Metadata(name=name, namespace=namespace, uid=name)), "Expected `int`, got `str`")


@pytest.mark.parametrize("kind", ["queues", "classes", "node_pools", "reservations"])
def test_policies_that_cannot_be_decoded_are_complained_of(kind):
    (event,) = getattr(Translator(), kind)([undecoded("x")])
    assert isinstance(event, Judged)
    assert "got `str`" in event.complaint


def test_a_budget_that_cannot_be_decoded_protects_as_before():
    translator = Translator()
    budget = msgspec.convert({"metadata": {"name": "b", "namespace": "ns"}, "spec": {"selector": {}}}, views.Budget)
    assert len(translator.budgets([Change("ns/b", budget)])) == 1
    assert translator.budgets([undecoded("b", "ns")]) == []
    assert translator.budgets([Change("ns/b", None)]) == [Gone("budget", "ns/b")]


@pytest.mark.parametrize("kind", ["namespaces", "priorities", "nodes", "groups", "pods"])
def test_nothing_else_fails(kind):
    getattr(Translator(), kind)([undecoded("x", "ns")])

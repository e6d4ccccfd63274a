"""The figure of the architecture shows the layers that the linter enforces, and modules that exist."""

from __future__ import annotations

import pytest

from testbed import architecture

CONTRACTS = architecture.CONTRACTS.read_text()
TEXTS = architecture.TEXTS.read_text()
MODULES = architecture.ROOT / "src" / "fairlead"


def test_the_figure_is_drawn_from_the_present_texts():
    assert architecture.PICTURE.read_text() == architecture.current(), "run `make architecture`"


def test_every_layer_is_drawn_once():
    picture = architecture.current()
    structure = architecture.read(CONTRACTS, TEXTS, MODULES)
    for name in (name for layer in structure.packages + structure.core for name in layer):
        assert picture.count(f">{name}<") == 1, name


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('api = "custom', 'api2 = "custom', "api has no caption"),
        ('nodes = "nodes', 'nodes2 = "nodes', "core.nodes has no caption"),
        ("core/allocation.py", "core/allocate.py", "core/allocate.py, which does not exist"),
        ('at = "core.state"', 'at = "core.sate"', "core.sate, which is in no layer"),
    ],
)
def test_texts_that_do_not_agree_with_the_code_are_named(old, new, told):
    assert old in TEXTS
    with pytest.raises(architecture.StructureError, match=told):
        architecture.read(CONTRACTS, TEXTS.replace(old, new, 1), MODULES)

"""What is taken can be released, once; an inventory does not keep everything that it was asked."""

import pytest

from fairlead.core.dra import inventory
from fairlead.core.dra.held import Held, NotHeld
from fairlead.core.dra.model import Allocation, Capacity, Chosen, DeviceId
from tests.core.dra.worlds import DRIVER, ask, claim, device, names, pool, solve, state

ALONE = Chosen("r", DeviceId(DRIVER, "n0", "d0"))
SHARE = Chosen("r", DeviceId(DRIVER, "n0", "d1"), shared=True, consumed=(("m", 3),))
MORE = Chosen("r", DeviceId(DRIVER, "n0", "d1"), shared=True, consumed=(("m", 4),))


@pytest.mark.parametrize("wrong", [(ALONE, ALONE), (SHARE, SHARE), (MORE,), (Chosen("r", DeviceId(DRIVER, "n1", "d0")),)])
def test_what_is_not_held_is_not_released_and_nothing_changes(wrong):
    held = Held()
    held.take([Allocation((ALONE, SHARE))])
    with pytest.raises(NotHeld, match="is not held"):
        held.release([Allocation((SHARE,)), Allocation(wrong)] if SHARE not in wrong else [Allocation(wrong)])
    here = state(pool(device("d0"), device("d1", multiple=True, capacity={"m": Capacity(10)})), held=held)
    assert (here.alone, here.sharing, here.shares) == (1, 2, {1: {"m": 3}})
    held.release([Allocation((SHARE, ALONE))])
    assert state(pool(device("d0")), held=held).alone == 0


def test_an_inventory_keeps_a_bounded_number_of_answers(monkeypatch):
    monkeypatch.setattr(inventory, "_MOST_KEPT", 3)
    here = state(pool(*[device(f"d{at}", attributes={"model": f"m{at}"}) for at in range(10)]))
    for at in range(10):
        assert names(solve(here, claim(ask("r", 1, f"model=m{at}")))) == [[f"d{at}"]]
    assert max(len(here.inventory._selected), len(here.inventory._matching), len(here.inventory._least)) <= 3

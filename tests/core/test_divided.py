"""Resources of which there is enough are left out of a division: it is the same as with all of them."""

import pytest

from fairlead.core.queues.sibling_shares import SiblingShares
from tests.core.worlds import World


@pytest.mark.parametrize("seed", range(20))
def test_what_there_is_enough_of_changes_no_share(seed, monkeypatch):
    world, compared = World(seed), 0
    known = SiblingShares._capped
    for _ in range(40):
        world.arrive()
        world.step(30.0)
        world.disturb()
        fair = world.state.queues.fair
        found = fair._divided(world.now)
        monkeypatch.setattr(SiblingShares, "_capped", lambda *_: {"none"})  # so that all demands are compared
        assert fair._divided(world.now) == found
        monkeypatch.setattr(SiblingShares, "_capped", known)
        compared += bool(found.share)
    assert compared

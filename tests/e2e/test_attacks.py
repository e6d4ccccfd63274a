"""What a tenant tries on the real API server: some of each subject here, everything in `make soak`."""

import pytest

from testbed import attacks
from testbed.attacks import innocent

pytestmark = pytest.mark.e2e


def judged(result):
    assert [(each.id, each.evidence) for each in result.attacks if each.outcome == "works"] == []
    assert {what: said for what, said in result.innocent.items() if said} == {}


def test_some_attacks_of_each_subject_come_to_nothing_and_ordinary_use_goes_on():
    quick = [each for each in attacks.catalogue() if each.quick]
    judged(attacks.run(quick, print, uses=innocent.QUICK))


@pytest.mark.slow
def test_no_attack_works():
    result = attacks.run(attacks.catalogue(), print)
    judged(result)
    assert result.tried >= 80

"""A user of one namespace asks at random: nothing leaks, nothing is wrongly refused; and the probes find what they are there for."""

import pytest

from testbed import probes

TENANT = probes.Tenant("t1", "u1", {"j1": "j1-worker-0"})
MINE = probes.Tenant(probes.OURS, probes.USER, {"ann-0": "ann-0-worker-0"})


@pytest.mark.e2e
def test_a_user_of_one_namespace_gets_what_is_hers_and_nothing_else():
    result = probes.run(24, 7, lambda done, total: None)
    assert (result.leaks, result.wrongly_refused, result.wrongly_allowed) == ([], [], [])
    assert 0 < result.allowed < result.count


class Fake:
    """A cluster that answers all questions alike."""

    tenants, mine, secrets = [TENANT], MINE, ["t1", "u1", "j1"]

    def __init__(self, refused, answer):
        self.answer = refused, answer

    def __call__(self, draw):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def asks(self, probe):
        return self.answer


def judged(monkeypatch, refused, answer):
    monkeypatch.setattr(probes, "_Lab", Fake(refused, answer))
    return probes.run(300, 1, lambda done, total: None)


def test_what_comes_out_wrong_is_found(monkeypatch):
    silent = judged(monkeypatch, True, "")
    assert (len(silent.wrongly_refused), silent.wrongly_allowed, silent.leaks) == (silent.allowed, [], [])
    generous = judged(monkeypatch, False, "")
    assert (len(generous.wrongly_allowed), generous.wrongly_refused) == (generous.count - generous.allowed, [])
    leaking = judged(monkeypatch, False, "u1 runs something")
    assert len(leaking.leaks) == leaking.count
    assert not leaking.clean


def test_what_a_question_names_itself_is_no_leak(monkeypatch):
    echoed = judged(monkeypatch, False, "t1")
    assert {each.probe for each in echoed.leaks if "t1" in each.probe} == set()
    assert len(echoed.leaks) < echoed.count

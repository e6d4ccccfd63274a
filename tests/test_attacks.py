"""The catalogue of attacks is whole: what `fairlead bench attacks` tries without `--only`."""

from testbed import attacks


def test_every_subject_has_attacks_and_one_of_them_is_quick():
    found = attacks.catalogue()
    assert len(found) >= 80
    subjects = {each.subject for each in found}
    assert subjects == {"identity", "belonging", "placement", "leaks", "operator", "blocking", "poison", "flooding"}
    assert {each.subject for each in found if each.quick} >= subjects - {"operator"}

"""What of an object a policy's expression is given: all that it may read, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.cluster.simulated.admission import mentioned


@pytest.mark.parametrize(
    ("expression", "members"),
    [
        ("object == oldObject", {}),
        ("size(object) > 2", {}),
        ("object['spec'].a == 1", {}),
        ("object.?spec.orValue({}) == {}", {}),
        ("object.size() > 2", {}),
        ("object.spec.a.b == 1 && object.spec.a.c == 2", {"spec": {"a": {"b": {}, "c": {}}}}),
        ("object.spec.a.b == 1 && object.spec.a == {}", {"spec": {"a": {}}}),
        ("object.spec == {} || object.spec.a == 1", {"spec": {}}),
        ("object.spec.size() > 1 || has(object.metadata.labels)", {"spec": {}, "metadata": {"labels": {}}}),
        ("object.spec.each.all(one, one.at == object.metadata.name)", {"spec": {"each": {}}, "metadata": {"name": {}}}),
        ("'a/b' in object.metadata.annotations", {"metadata": {"annotations": {}}}),
        ("request.object.x == 1 || myobject.y == 2", None),
        ("oldObject.x == params.object", None),
    ],
)
def test_what_an_expression_speaks_of(expression: str, members: dict[str, Any] | None) -> None:
    assert mentioned(expression, "object") == members

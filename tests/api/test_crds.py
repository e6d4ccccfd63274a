from pathlib import Path

import pytest
import yaml

from fairlead.api import crds, policies

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("file", "objects"), [("fairlead.yaml", crds.definitions), ("policies.yaml", policies.policies)])
def test_the_yaml_in_the_repository_is_what_is_generated(file, objects):
    assert (ROOT / "crds" / file).read_text() == crds.render(objects()), "run `make crds`"


def schemas(node):
    yield node
    for child in node.get("properties", {}).values():
        yield from schemas(child)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from schemas(node[key])


def test_schemas_are_structural():
    for definition in crds.definitions():
        root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for node in schemas(root):
            assert "$ref" not in node
            assert "anyOf" not in node
            assert "type" in node or node.get("x-kubernetes-int-or-string")


def test_renders_one_document_each():
    assert len(list(yaml.safe_load_all(crds.render(crds.definitions())))) == len(crds.definitions())


def test_what_of_a_class_may_move_is_one_of_three():
    definition = next(each for each in crds.definitions() if each["spec"]["names"]["kind"] == "ServiceClass")
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    allowed = spec["preemption"]["properties"]["consolidation"]["pattern"]
    assert allowed == "^(Pods|Whole|Never)$", "the server's message shows it"

"""The chart, without Helm: it is what `fairlead.install` makes, and so is what Helm made of it."""

import re

import jsonschema_rs
import pytest
import yaml

from fairlead.install import Values, ValuesError, kinds
from fairlead.install.objects import PARTS
from fairlead.install.values import parse
from testbed.chart import files, nodes, render, rendered, symbols, write

VALID = {"image": "f", "history": {"storage": "1Gi"}, "requests": {"cpu": "500m"}, "configuration": {"preemption": False}}
MISSPELT = [
    {"image": "f", "replica": 3},
    {"image": "f", "Replicas": 3},
    {"image": "f", "crd": False},
    {"image": "f", "aggregatedAPI": False},
    {"image": "f", "externalmetrics": True},
    {"image": "f", "networkPolicy": False},
    {"image": "f", "trust": ["a"]},
    {"image": "f", "provisioningClass": ["a"]},
    {"image": "f", "history": {"secretname": "s"}},
    {"image": "f", "history": {"storage": "1Gi", "size": 1}},
    {"image": "f", "monitoring": {"servicemonitor": True}},
    {"image": "f", "monitoring": {"labels": {"release": "a b"}}},
    {"image": "f", "configuration": {"profile": []}},
    {"image": "f", "configuration": {"profiles": [{"name": "gpus", "profile": "ai"}]}},
    {"image": "f", "configuration": {"placement": {"strategie": "ai"}}},
    {"image": "f", "configuration": {"placement": {"keepPerFreeGpu": {"pod": 1}}}},
    {"image": "f", "configuration": {"consolidation": {"defragmentation": {"every": 1}}}},
    {"image": "f", "configuration": {"leaderElection": {"duration": 15}}},
    {"image": "f", "configuration": {"kind": "SchedulerConfiguration"}},
    {"image": "f", "configuration": {"name": "blue"}},
    {"image": "f", "name": "Blue"},
    {"image": "f", "nameOverride": "blue"},
    {"image": "f", "replicas": "2"},
    {"image": "f", "replicas": 0},
    {"image": "f", "apiServerPorts": []},
    {"image": "f", "prometheus": "prometheus:9090"},
    {"image": "f", "requests": {"cpu": "much"}},
    {"image": "f", "history": {"secretName": "s", "storage": "1Gi"}},
    {"image": "a b"},
    {"Image": "f"},
]


@pytest.fixture(scope="module")
def made():
    return files.files()


@pytest.fixture(scope="module")
def defaults(made):
    return yaml.safe_load(made["values.yaml"])


def test_the_chart_is_what_make_charts_writes(made):
    there = {str(path.relative_to(files.FOLDER)): path.read_text() for path in files.FOLDER.rglob("*") if path.is_file()}
    assert sorted(there) == sorted(made)
    for path, text in made.items():
        assert there[path] == text, f"{path}: run `make charts`"


@pytest.mark.parametrize("name", rendered.SETS)
def test_what_helm_made_of_it_is_what_fairlead_installs(name):
    values = rendered.SETS[name]
    text = (rendered.FOLDER / f"{name}.yaml").read_text()
    head = rendered.head(name)
    assert text.startswith(head), "the chart has changed: run `make rendered`"
    assert text == head + render.text(render.expected(parse(values, name)))


def test_the_schema_refuses_what_is_misspelt_and_so_does_the_command(defaults):
    check = jsonschema_rs.validator_for(files.schema())
    assert check.is_valid(defaults | VALID)
    assert parse(VALID, "valid")
    for document in MISSPELT:
        assert not check.is_valid(defaults | document), document
        with pytest.raises(ValuesError):
            parse(document, "values")


def test_nothing_may_be_added_at_any_level_of_the_schema():
    free = {"requests", "strategyOptions", "labels", "global"}

    def objects(name, node):
        if isinstance(node, dict):
            if node.get("type") == "object" and name not in free:
                yield name, node
            for key, value in node.items():
                yield from objects(key, value)
        elif isinstance(node, list):
            for each in node:
                yield from objects(name, each)

    found = list(objects("", files.schema()))
    assert len(found) > 10
    assert [name for name, node in found if node.get("additionalProperties") is not False] == []


def test_the_defaults_of_the_chart_are_those_of_the_command(defaults):
    assert parse({**defaults, "image": "f"}, "values.yaml") == Values(image="f")


def test_definitions_and_the_history_stay_when_the_release_goes():
    found = render.expected(parse({"image": "f", "history": {"storage": "1Gi"}}, "values"))
    kept = {each["kind"] for each in found if "helm.sh/resource-policy" in each["metadata"].get("annotations", {})}
    assert kept == {each.kind for each in kinds.ORDER if each.stays}


def test_few_objects_are_needed_in_the_whole_cluster():
    found = render.expected(parse({**rendered.SETS["everything"], "crds": True}, "values"))
    assert sum(each["kind"] in ("ClusterRole", "ClusterRoleBinding") for each in found) <= 12


# How templates are made of objects.


def test_a_tree_of_two_has_what_both_have_and_conditions_for_the_rest():
    then = {"name": "a", "on": 1, "list": [{"name": "x", "v": 1}, "y"], "only": []}
    other = {"name": "a", "on": 2, "list": [{"name": "x", "v": 2}, "y", "z"]}
    assert nodes.merged("c", then, other, {}) == {
        "name": "a",
        "on": nodes.If("c", 1, 2),
        "list": [{"name": "x", "v": nodes.If("c", 1, 2)}, "y", nodes.If("c", nodes.ABSENT, "z")],
        "only": nodes.If("c", [], nodes.ABSENT),
    }


def test_lists_and_mappings_that_may_be_empty_are_not_left_without_a_value():
    assert nodes.merged("c", {"env": ["a"]}, {"env": []}, {}) == {"env": nodes.If("c", ["a"], [])}
    assert nodes.merged("c", ["a"], ["b"], {}) == nodes.If("c", ["a"], ["b"])


def test_conditions_that_decide_on_the_same_are_one():
    inner = nodes.merged("b", "x", "y", {})
    assert nodes.merged("a", "x", inner, {}) == nodes.If("or a b", "x", "y")
    assert nodes.merged("eq a 1", inner, "y", {}) == nodes.If("and (eq a 1) b", "x", "y")


def test_what_a_marker_stands_for_otherwise_makes_no_difference():
    then = {"in": "«namespace»", "other": ["of «namespace»", 7]}
    assert nodes.merged("c", then, {"in": "here", "other": ["of here", 7]}, {"«namespace»": "here"}) is then


def test_trees_are_written_as_templates():
    tree = {
        "image": "«image»",
        "flag": True,
        "on": nodes.If("c", "yes", nodes.ABSENT),
        "too": nodes.If("c", 1, nodes.ABSENT),
        "text": "{{ $value }} 'x' in ['«class»'], for «class»",
        "who": "a || request.userInfo.username == '«trusted»'",
        "list": [nodes.If("not c", nodes.ABSENT, {"a": nodes.If("d", [], "e")}), "--class=«class»"],
    }
    trusted, quoted = 'include "fairlead.trusted" $ | fromJsonArray', '{{ include "fairlead.quoted" . }}'
    joined = '{{ $.Values.provisioningClasses | join ", " }}'
    assert write.documents([tree]).splitlines() == [
        "---",
        "image: {{ $.Values.image | toRawJson }}",
        "flag: true",
        "{{- if c }}",
        '"on": "yes"',
        "too: 1",
        "{{- end }}",
        "text: |-",
        '  {{ "{{" }} $value }} \'x\' in [{{ include "fairlead.listed" ($.Values.provisioningClasses) }}], for ' + joined,
        "who: |-",
        f"  a{{{{ range {trusted} }}}} || request.userInfo.username == {quoted}{{{{ end }}}}",
        "list:",
        "  {{- if not (not c) }}",
        "  -",
        "    {{- if d }}",
        "    a: []",
        "    {{- else }}",
        "    a: e",
        "    {{- end }}",
        "  {{- end }}",
        "  {{- range $.Values.provisioningClasses }}",
        "  - |-",
        "    --class={{ . }}",
        "  {{- end }}",
    ]


def test_a_value_that_no_template_can_write_is_refused():
    with pytest.raises(ValueError, match="«trusted»"):
        write.documents([{"name": nodes.If("c", "«trusted»«unknown»", "")}])
    with pytest.raises(ValueError, match="nothing is repeated"):
        write.documents([{"names": ["«trusted»"]}])
    with pytest.raises(KeyError, match="undescribed"):
        symbols.objects(lambda values: [{"kind": values.undescribed}], lambda each: each)


def test_every_value_is_documented_with_its_default(defaults):
    rows = (files.FOLDER.parents[1] / "docs" / "install.md").read_text().partition("## Values")[2].splitlines()
    documented = {}
    for row in rows:
        if row.startswith("| `"):
            names, default = row.split("|")[1:3]
            documented |= dict.fromkeys(re.findall(r"`([\w.]+)`", names), default.strip().strip("`"))
    schema = files.schema()
    sections = {"history": "History", "monitoring": "Monitoring"}
    values = {name for name in schema["properties"] if name not in sections and name != "global"}
    values |= {f"{name}.{field}" for name, kind in sections.items() for field in schema["$defs"][kind]["properties"]}
    assert set(documented) == values
    for name, value in defaults.items():
        if isinstance(value, bool | int):
            assert documented[name] == str(value).lower(), name


def test_every_value_decides_on_something(made):
    """A value without a place in the templates would be ignored by the chart."""
    text = "".join(text for path, text in made.items() if path.startswith("templates/"))
    for name in files.schema()["properties"]:
        assert name == "global" or re.search(rf"\$\.Values\.{name}\b", text), name
    assert set(PARTS) - {"namespace"} <= {path.stem for path in (files.FOLDER / "templates").iterdir()}

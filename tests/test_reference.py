"""The reference is generated from the code, so all that is missing in it is a description in the code."""

import re
from pathlib import Path

import pytest

from fairlead.observability import metrics, rules
from testbed import reference

ROOT = Path(__file__).parents[1]
# Read where Fairlead is developed, set for jobs, or meant for the terminal: other pages have them.
ELSEWHERE = {"TERM", "PATH", "HOME", "USER"}


@pytest.mark.parametrize("command", reference.commands(), ids=lambda command: command.path)
def test_every_command_and_every_flag_is_described(command):
    assert command.text
    assert [flag.spelling for flag in command.flags if not flag.text] == []
    page = reference.commands_page()
    assert f"## {command.path}\n" in page
    assert all(f"`{flag.spelling}".replace("|", "\\|") in page for flag in command.flags)


@pytest.mark.parametrize("kind", reference.kinds())
def test_every_field_of_a_kind_is_described(kind):
    fields = reference.kinds()[kind]
    assert {"spec", "status"} < {each.path for each in fields}
    assert [each.path for each in fields if not each.text] == []
    assert all(f"| `{each.path}` |" in reference.kinds_page() for each in fields)


def test_every_field_of_the_configuration_is_described():
    fields = reference.settings()
    assert {"profiles[].profile", "preemption.enabled", "consolidation.defragmentation.moves"} < {each.path for each in fields}
    assert [each.path for each in fields if not each.text] == []
    page = reference.settings_page()
    assert all(f"| `{each.path}` |" in page for each in fields)


def test_every_alert_is_described():
    page = reference.alerts_page()
    for each in rules.ALERTS:
        assert each.summary, each.name
        assert each.description, each.name
        assert f"[{each.name}](../runbook.md#{each.anchor})" in page
    assert "{{" not in page


def test_every_metric_and_every_reason_is_described():
    assert [name for name, metric in metrics.TABLE.items() if not metric.text] == []
    rows = [line.split(" | ") for line in (ROOT / "docs/reasons.md").read_text().splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if not row[1].strip(" |")] == []


def test_every_variable_that_the_code_reads_is_in_the_reference():
    code = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
    read = set(re.findall(r'environ(?:\.get\(|\[)"(\w+)"', code))
    assert read - ELSEWHERE <= reference.variables().keys()
    assert all(reference.variables().values())
    assert {"FAIRLEAD_CONFIG", "FAIRLEAD_DATABASE"} < reference.variables().keys()


def test_each_generated_text_has_its_page():
    pages = {path.stem: path.read_text() for path in (ROOT / "docs/reference").glob("*.md")}
    assert pages.keys() == reference.PAGES.keys()
    for name, text in pages.items():
        assert f"```{{reference}} {name}\n```" in text


@pytest.mark.parametrize("name", reference.PAGES)
def test_rows_have_as_many_cells_as_their_head(name):
    width = 0
    for line in reference.PAGES[name]().splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (width and cells) or cells == width, line
        width = cells

"""Code blocks of the documentation: commands exist with their flags, YAML is read and has fields that exist, files are there."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fairlead.cli.main import app
from testbed import reference
from tests import pages
from tests.pages import PAGES, ROOT, Block

PROGRAMS = {
    *("fairlead", "kubectl", "make", "export", "cat", "cd", "pip", "python", "createdb", "pg_dump", "psql", "sqlite3", "git"),
    *("helm", "uv", "curl", "pytest", "pulumi", "pg_restore", "podman"),
}
# Drawings, layouts of folders and other texts that no program reads.
DRAWINGS = {
    "architecture.md": 2,
    "design/cluster-in-a-box.md": 1,
    "design/core-layers.md": 1,
    "design/expressions.md": 1,
    "design/history-databases.md": 1,
    "design/install.md": 1,
    "design/mig-manager.md": 1,
    "design/simulated-devices.md": 1,
    "design/standby.md": 1,
    "traces.md": 1,
}
FIELDS = {kind: {each.path for each in fields} for kind, fields in reference.kinds().items()}
BLOCKS = [block for page in PAGES for block in pages.blocks(page) if block.text.strip()]


def sort(block: Block) -> str:
    """What a block is: yaml, shell, python, a directive of the site, or a drawing."""
    first = next(line for line in block.text.split("\n") if line.strip() and not line.lstrip().startswith("#"))
    if block.language:
        return (
            "directive"
            if block.language.startswith("{")
            else {"sh": "shell", "bash": "shell"}.get(block.language, block.language)
        )
    if re.match(r"\s*(- )?[\w./-]+:( |$)|\s*- \{", first):
        return "yaml"
    word = re.sub(r"^(\w+=\S*\s+)+", "", first).split()[0]
    return "shell" if word in PROGRAMS else "python" if first.startswith(("with ", "import ", "from ")) else "drawing"


def of(*sorts: str) -> list[Any]:
    return [pytest.param(each, id=f"{each.page.relative_to(ROOT)}:{each.line}") for each in BLOCKS if sort(each) in sorts]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists_with_its_flags(page):
    for text, words in pages.invocations(page):
        try:
            pages.check(words)
        except pages.Unknown as unknown:
            pytest.fail(f"{text}: {unknown}")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("fairlead queu -n vision", "no command queu"),
        ("fairlead queue --states", "no flag --states"),
        ("fairlead simulate jbs", "fairlead simulate has no command jbs"),
        ("fairlead run --gpus 1 -- python --no-such-flag", ""),
        ("fairlead submit|run", ""),
    ],
)
def test_a_command_that_does_not_exist_is_found(text, wrong):
    if wrong:
        with pytest.raises(pages.Unknown, match=wrong):
            pages.check(text.split()[1:])
    else:
        pages.check(text.split()[1:])


@pytest.mark.parametrize("block", of("shell"))
def test_lines_of_a_shell_block_are_commands_of_known_programs(block):
    text = re.sub(r"<<-?'?(\w+)'?\n(?:.*\n)*?\s*\1\b", "", re.sub(r"\\\n\s*", "", block.text))
    for line in filter(None, (re.sub(r"(^|\s)#.*", "", each).strip() for each in text.split("\n"))):
        for part in re.split(r"\s\|\s|;\s|\s&&\s", line):
            word = re.sub(r"^(\w+=\S*\s+)+", "", part.strip()).split()[0]
            assert word in PROGRAMS or re.fullmatch(r"\w+=\S*", word), part
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)) <= targets
    for file in re.findall(r"(?<=[ =])(?:charts|crds|examples)/[\w./-]+", text):
        assert (ROOT / file).exists(), file


@pytest.mark.parametrize("block", of("yaml"))
def test_a_block_of_yaml_is_read_and_has_fields_that_exist(block):
    for document in yaml.safe_load_all(block.text):
        for each in document.get("items", [document]) if isinstance(document, dict) else []:
            if each.get("kind") in FIELDS and "fairlead" in each.get("apiVersion", "fairlead"):
                here = {part: value for part, value in each.items() if part in ("spec", "status")}
                assert [path for path in paths(here, FIELDS[each["kind"]]) if path] == []


def paths(value: Any, known: set[str], path: str = "") -> Iterator[str]:
    """Fields that are not known."""
    if isinstance(value, dict):
        for name, each in value.items():
            here = f"{path}.{name}" if path else name
            if f"{path}.NAME" in known or (not any(other.startswith((f"{path}.", f"{path}[")) for other in known) and path):
                continue  # a map, or what Fairlead passes on, such as a pod template
            if here not in known:
                yield here
            yield from paths(each, known, here)
    elif isinstance(value, list):
        for each in value:
            yield from paths(each, known, f"{path}[]")


def test_a_field_that_does_not_exist_is_found():
    spec = {"spec": {"resources": [{"name": "cpu", "qouta": 1}], "namespaceSelector": {"matchLabels": {"a": "b"}}}}
    assert list(paths(spec, FIELDS["Queue"])) == ["spec.resources[].qouta"]
    job = {"spec": {"roles": [{"name": "worker", "template": {"spec": {"containers": []}}}], "retries": 3}}
    assert list(paths(job, FIELDS["AIJob"])) == ["spec.retries"]


@pytest.mark.parametrize("source", ["kueue", "kai", "volcano"])
def test_an_example_of_import_is_what_the_command_prints(source, tmp_path):
    given, made, notes = (each.text for each in pages.blocks(ROOT / f"docs/coming-from-{source}.md") if each.language)
    (tmp_path / "queues.yaml").write_text(given)
    done = CliRunner().invoke(app, ["import", source, str(tmp_path / "queues.yaml")])
    assert (done.exit_code, done.stdout, done.stderr) == (0, made, notes)


@pytest.mark.parametrize("block", of("python"))
def test_a_block_of_python_compiles(block):
    compile(block.text, str(block.page), "exec")


def test_what_is_neither_is_a_drawing_that_is_known():
    found: dict[str, int] = {}
    for block in BLOCKS:
        if sort(block) == "drawing":
            name = str(block.page.relative_to(ROOT / "docs")) if "docs" in block.page.parts else block.page.name
            found[name] = found.get(name, 0) + 1
    assert found == DRAWINGS

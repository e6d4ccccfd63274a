"""`fairlead install` without a cluster: what it prints, and what it refuses before it asks one."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.install import Values, installed

IMAGE = ("--image", "registry.example/fairlead:1")


def run(*arguments):
    return CliRunner().invoke(app, ["install", *arguments])


def test_the_objects_are_printed_as_they_would_be_applied():
    printed = run(*IMAGE, "--dry-run")
    assert printed.exit_code == 0
    assert list(yaml.safe_load_all(printed.stdout)) == installed(Values(image=IMAGE[1]))
    assert run(*IMAGE, "--dry-run").stdout == printed.stdout
    assert json.loads(run(*IMAGE, "--dry-run", "-o", "json").stdout)["items"] == installed(Values(image=IMAGE[1]))


def test_values_are_read_from_a_file(tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text("image: one\nnamespace: ai\n")
    printed = run("--values", str(file), "--dry-run").stdout
    assert list(yaml.safe_load_all(printed)) == installed(Values(image="one", namespace="ai"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dry-run"], "no image: give --image"),
        ([*IMAGE, "--check", "--dry-run"], "exclude each other"),
        ([*IMAGE, "--values", "/nowhere.yaml"], "cannot read /nowhere.yaml"),
        (["--image", "a b", "--dry-run"], "image"),
    ],
)
def test_mistakes_end_with_the_exit_code_of_usage(arguments, message):
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert message in refused.output


def test_a_misspelt_value_is_named(tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text("image: one\nnamespcae: ai\n")
    refused = run("--values", str(file), "--dry-run")
    assert (refused.exit_code, "unknown field `namespcae`" in refused.output) == (2, True)


def test_a_cluster_that_does_not_answer_has_an_exit_code_of_its_own(tmp_path):
    absent = str(tmp_path / "absent.kubeconfig")
    assert run(*IMAGE, "--kubeconfig", absent).exit_code == 5
    assert CliRunner().invoke(app, ["uninstall", "--kubeconfig", absent]).exit_code == 5

"""The configuration file: what it may contain, and the errors of a wrong one."""

import json

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.scheduler import configuration

HEAD = "apiVersion: config.fairlead.dev/v1alpha1\nkind: SchedulerConfiguration\n"


def read(tmp_path, text):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return configuration.read(file)


def test_the_smallest_file_is_the_defaults(tmp_path):
    given = read(tmp_path, HEAD)
    assert given == configuration.default()
    assert given.options().schedulers == {"fairlead": "ai", "fairlead-kubernetes": "kubernetes"}


def test_everything_can_be_said(tmp_path):
    text = (
        HEAD
        + """
profiles:
- {schedulerName: default-scheduler, profile: kubernetes}
- {schedulerName: gpus, profile: ai}
placement: {strategy: fgd, strategyOptions: {}, headBlocks: true}
preemption: false
retries: {backoffSeconds: 2, backoffLimitSeconds: 30, searchBackoffLimitSeconds: 5, gangGraceSeconds: 0, recheckSeconds: 90}
leaderElection: {enabled: false, durationSeconds: 30, renewSeconds: 20, retrySeconds: 4}
events: false
address: ""
writers: 32
chargeForeignPods: true
"""
    )
    options = read(tmp_path, text).options()
    assert options.schedulers == {"default-scheduler": "kubernetes", "gpus": "ai"}
    policy = options.policy
    assert (policy.charge_foreign, configuration.default().options().policy.charge_foreign) == (True, False)
    assert (policy.strategy, policy.head_blocks, policy.preempt, policy.gang_grace) == ("fgd", True, False, 0)
    assert (policy.backoff, policy.backoff_limit, policy.search_backoff_limit, policy.recheck) == (2, 30, 5, 90)
    assert (options.leader_elect, options.lease_duration, options.lease_renew, options.lease_retry) == (False, 30, 20, 4)
    assert (options.events, options.address, options.writers) == (False, "", 32)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "begin with `apiVersion"),
        ("- a list", "begin with `apiVersion"),
        ("kind: [", "is not YAML"),
        ("kind: SchedulerConfiguration", "missing required field `apiVersion`"),
        ("apiVersion: v1\nkind: SchedulerConfiguration", "$.apiVersion"),
        (HEAD + "profile: []", "unknown field `profile`"),
        (HEAD + "profiles: []", "$.profiles"),
        (HEAD + "profiles: [{schedulerName: x, profile: fast}]", "$.profiles[0].profile"),
        (HEAD + "profiles: [{schedulerName: x, profile: ai}, {schedulerName: x, profile: kubernetes}]", "'x' is listed twice"),
        (HEAD + 'profiles: [{schedulerName: "a b", profile: ai}]', "$.profiles[0].schedulerName"),
        (HEAD + "profiles: [{schedulerName: -a, profile: ai}]", "$.profiles[0].schedulerName"),
        (HEAD + "address: nonsense", "address: 'nonsense' is not HOST:PORT, such as 127.0.0.1:10259"),
        (HEAD + 'address: ":70000"', "address: ':70000' is not HOST:PORT"),
        (HEAD + 'visibilityAddress: "a b:80"', "visibilityAddress: 'a b:80' is not HOST:PORT"),
        (HEAD + "externalMetricsAddress: http://x:80/", "externalMetricsAddress: 'http://x:80/' is not HOST:PORT"),
        (HEAD + "placement: {strategy: best}", "'best' is not one of"),
        (HEAD + "placement: {strategyOptions: {target: 1}}", "placement.strategyOptions: strategy 'ai' has no option 'target'"),
        (HEAD + "backfill: {reservations: 1}\nbackfill: {reservations: 2}", "key 'backfill' is there twice"),
        (HEAD + "backfill: {reservations: 1, reservations: 1}", "key 'reservations' is there twice"),
        (HEAD + "writers: many", "$.writers"),
        (HEAD + "writers: 0", "$.writers"),
        (HEAD + "chargeForeignPods: maybe", "Expected `bool`, got `str` - at `$.chargeForeignPods`"),
        (HEAD + "chargeForeignPods: 1", "Expected `bool`, got `int` - at `$.chargeForeignPods`"),
        (HEAD + "retries: {backoffSeconds: 90}", "backoffLimitSeconds is less"),
        (HEAD + "leaderElection: {renewSeconds: 20}", "renewSeconds"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, text, told):
    with pytest.raises(configuration.ConfigurationError) as refused:
        read(tmp_path, text)
    assert told in str(refused.value)
    assert "config.yaml" in str(refused.value)


@pytest.mark.parametrize("address", ["", ":8080", "0.0.0.0:0", "localhost:65535", "[::1]:10259", ":::80", "fe80::1%eth0:80"])
def test_addresses_that_can_be_served_on(tmp_path, address):
    assert read(tmp_path, HEAD + f'address: "{address}"').options().address == address


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path):
    done = CliRunner().invoke(app, ["scheduler", "--config", str(tmp_path / "none.yaml")])
    assert done.exit_code == 2
    assert "cannot read" in done.stderr


def test_the_schema_is_printed():
    done = CliRunner().invoke(app, ["scheduler", "--config-schema"])
    assert done.exit_code == 0
    assert "schedulerName" in json.dumps(json.loads(done.stdout))

"""Decision logs on purpose: recorded alike twice, replayed byte for byte, and different where a decision is."""

import json

import msgspec
import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.core.model.transactions import PodRef
from fairlead.scheduler.decision_log import Player
from fairlead.simulation import lab
from fairlead.simulation.decisions import logs, recordings, renames
from fairlead.simulation.traces import TraceJob

QUICK = ("limits-of-time", "moves-whole")


def chosen(*names):
    return [each for each in recordings.recordings() if each.name in names]


def bench(*options):
    return CliRunner().invoke(app, ["bench", "decisions", *map(str, options), "-o", "json"])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    logs.record(folder, chosen(*QUICK))
    return folder


def test_the_same_code_records_the_same_bytes_and_replays_them(recorded, tmp_path):
    done = bench("--record", tmp_path, "--replay", tmp_path, "--only", QUICK[0], "--only", QUICK[1])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["logs"], result["identical"], result["differing"]) == (2, 2, [])
    for name in QUICK:
        assert (tmp_path / f"{name}.jsonl").read_bytes() == (recorded / f"{name}.jsonl").read_bytes()
    assert sorted(each["name"] for each in result["contents"]) == sorted(QUICK)
    assert all(each["decisions"]["Place"] > 50 for each in result["contents"])


def test_a_decision_that_differs_is_found_by_log_and_pass(recorded, tmp_path):
    for name in QUICK:
        first, _, rest = (recorded / f"{name}.jsonl").read_text().partition("\n")
        header = json.loads(first)
        if name == QUICK[1]:
            header["policy"]["strategy"] = "spread"
        (tmp_path / f"{name}.jsonl").write_text(f"{json.dumps(header)}\n{rest}")
    done = bench("--replay", tmp_path)
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    assert (result["logs"], result["identical"]) == (2, 1)
    (difference,) = result["differing"]
    assert difference["log"] == QUICK[1]
    assert difference["recorded"] != difference["replayed"]


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    """The recordings of forms, claims and pairs; `record` refuses one without its subject."""
    folder = tmp_path_factory.mktemp("subjects")
    logs.record(folder, chosen("forms", "claims", "pairs"))
    assert all(each.identical for each in logs.replay(sorted(folder.glob("*.jsonl"))).values())
    return folder


def lines_of(log):
    """The events and the decisions of each line; one of both is empty."""
    for content in log.read_bytes().splitlines()[1:]:
        line = json.loads(content)
        yield line.get("events", ()), line.get("outputs", ())


def test_pods_are_made_anew_in_the_form_that_is_chosen(subjects):
    groups, pods, chosen_for, ran = {}, {}, {}, set()
    for events, outputs in lines_of(subjects / "forms.jsonl"):
        for event in events:
            made = event.get("object", {})
            if event["type"] == "Gone" and event["kind"] == "pod":
                del pods[event["key"]]
            elif made.get("type") == "Group":
                groups[made["name"]] = made
            elif made.get("type") == "Pod":
                pods[made["uid"]] = made
        for name in {each["group"] for each in pods.values() if each.get("group")}:
            index, pool = groups[name].get("current", [0, ""])
            form = next(each for each in groups[name]["choices"] if (each["index"], each["pool"]) == (index, pool))
            mates = [each for each in pods.values() if each.get("group") == name]
            assert {each["spec"]["gpus"] for each in mates} == {form["amount"]}
            if any(each.get("node") for each in mates) and chosen_for.get(name) == (index, pool, mates[0].get("attempt", 0) - 1):
                ran.add(name)
        for each in outputs:
            if each["type"] == "Choose":
                now = each["chosen"]
                chosen_for[each["group"].partition("/")[2]] = (now["index"], now["pool"], now["attempt"])
    assert len(ran) >= 5


def test_devices_that_are_given_back_are_held_by_one_claim_each_and_other_ones_are_had(subjects):
    claims, given_back, elsewhere = {}, {}, 0
    for events, outputs in lines_of(subjects / "claims.jsonl"):
        for event in events:
            made = event.get("object", {})
            if event["type"] == "Gone" and event["kind"] == "resourceclaim":
                del claims[event["key"]]
            elif made.get("type") == "DeviceClaim":
                found = made.get("allocation") or {"devices": []}
                claims[made["key"]] = [(each["device"]["pool"], each["device"]["device"]) for each in found["devices"]]
                if claims[made["key"]] and made["uid"] in given_back:
                    elsewhere += given_back.pop(made["uid"]) != claims[made["key"]]
        held = [device for each in claims.values() for device in each]
        assert len(held) == len(set(held))
        for each in outputs:
            for binding in each["bindings"] if each["type"] == "Deallocate" else ():
                (claim,) = binding["claims"]
                assert claims[claim["claim"]]
                given_back[f"claim-{binding['pod']['uid']}"] = claims[claim["claim"]]
    assert elsewhere >= 2


def test_what_is_learned_of_pairs_is_recorded_as_it_is_written(subjects):
    written = [
        each["speeds"] for _, outputs in lines_of(subjects / "pairs.jsonl") for each in outputs if each["type"] == "PairSpeeds"
    ]
    assert len(written) >= 3
    known = [{(first, second) for first, second, _ in each.get("beside", ())} for each in written]
    assert len(known[-1]) > len(known[0])
    assert {each[0].split("/")[-1] for each in written[-1]["kinds"]} <= {"bert-job", "gcn-job", "lstm-job", "resnet-job"}


def test_a_recording_that_lacks_its_subject_is_refused(tmp_path):
    (each,) = chosen(QUICK[0])
    with pytest.raises(logs.Refused, match=r"holds 0 x Resume, not 1"):
        logs.record(tmp_path, [each._replace(least={"Resume": 1})])


def test_there_are_thirty_recordings_of_different_names_and_each_asks_for_something():
    found = recordings.recordings()
    assert len({each.name for each in found}) == len(found) >= 30
    assert all(each.least and each.subject for each in found)


def test_each_kind_of_decision_is_declared_by_a_recording():
    """All logs together are recorded only by `make decisions`; each of them is refused without what it declares."""
    declared = {kind for each in recordings.recordings() for kind, least in each.least.items() if least}
    assert declared >= logs.KINDS


def test_jobs_of_a_trace_are_one_more(tmp_path):
    jobs = [TraceJob(f"j{number}", 60.0 * number, 3 * 3600.0, 1 + number % 16, "q") for number in range(130)]
    (each,) = [each for each in recordings.recordings(jobs) if each.name == "trace"]
    (contents,) = logs.record(tmp_path, [each]).logs
    assert contents.decisions["Place"] >= 100


@pytest.mark.parametrize("options", [(), ("--record", "x", "--only", "nothing")])
def test_what_is_asked_wrongly_is_said(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert bench(*options).exit_code == 2
    assert bench("--replay", tmp_path).exit_code == 4


def test_what_no_recording_holds_is_told_and_a_kind_of_decision_is_refused(tmp_path):
    few = chosen("limits-of-time", "schema-5")
    summary = logs.record(tmp_path, few)
    assert {"Unread", "Resume"} <= set(summary.lacking_decisions)
    assert not {"Place", "Overdue", "Kept"} & set(summary.lacking_decisions)
    assert "Volumes" in summary.lacking_reasons
    assert "Devices" not in summary.lacking_reasons
    assert summary.bytes == sum(path.stat().st_size for path in tmp_path.glob("*.jsonl"))
    with pytest.raises(logs.Refused, match="Unread"):
        logs.record(tmp_path, few, complete=True)
    assert not (tmp_path / logs.SUMMARY).exists()


@pytest.mark.parametrize("harm", ["cut", "missing"])
def test_a_log_that_was_cut_off_or_is_missing_does_not_pass_for_identical(harm, tmp_path):
    logs.record(tmp_path, chosen("schema-1", "schema-2"))
    assert bench("--replay", tmp_path).exit_code == 0
    log = tmp_path / "schema-2.jsonl"
    log.unlink() if harm == "missing" else log.write_bytes(log.read_bytes()[:-200])
    done = bench("--replay", tmp_path)
    assert done.exit_code == 2
    assert "schema-2" in done.output


def test_a_log_with_old_names_is_compared_in_present_ones(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    lab.record(folder / "lab.jsonl", nodes=2, jobs=4, seed=1, hours=0.2)
    present = (folder / "lab.jsonl").read_bytes()
    old = present
    for before, now in renames.RENAMED:
        old = old.replace(now, before)
    assert old.count(b'"InForce"') == present.count(b'"reason":"Accepted"') > 0
    (folder / "lab.jsonl").write_bytes(old)
    assert bench("--replay", folder).exit_code == 0
    assert not Player(folder / "lab.jsonl").play().identical, "a log of a bug report is compared as it is"


def test_no_present_name_would_be_renamed_again():
    for old, new in renames.RENAMED:
        assert renames.renamed(old) == new == renames.renamed(new)


def test_a_reference_to_a_placeholder_says_that_it_is_one():
    old = b'{"uid":"suspended/ns/job/0","namespace":"ns","name":"job-0"}'
    new = msgspec.json.encode(PodRef("suspended/ns/job/0", "ns", "job-0", placeholder=True))
    assert renames.renamed(old) == new == renames.renamed(new)
    for other in (
        b'{"uid":"u","namespace":"ns","name":"job-0"}',
        b'{"type":"Pod","uid":"suspended/x","namespace":"ns","name":"x"}',
    ):
        assert renames.renamed(other) == other


def test_messages_are_compared_unless_they_are_to_be_ignored(recorded, tmp_path):
    content = (recorded / f"{QUICK[0]}.jsonl").read_bytes()
    assert b"nodes are available" in content
    log = tmp_path / "log.jsonl"
    log.write_bytes(content.replace(b"nodes are available", rb"\"nodes\" would do"))
    assert bench("--replay", tmp_path).exit_code == 1
    assert bench("--replay", tmp_path, "--ignore-texts").exit_code == 0
    log.write_bytes(content.replace(b'"code":"Resources"', b'"code":"Taints"'))
    assert bench("--replay", tmp_path, "--ignore-texts").exit_code == 1, "codes are compared"

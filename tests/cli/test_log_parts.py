"""Logs that are followed: each line once, whenever a kubelet begins a new file."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.cli.log_parts import LogParts

ZONES = (0, 120, -330)


class Kubelet:
    """A container's log as a kubelet keeps it and answers for it. zone: minutes; it may change, as with daylight saving."""

    def __init__(self, timed=True):
        self.timed = timed
        self.file = []
        self.now = 1_700_000_000_000_000_000
        self.zone = 0
        self.unfinished = ""

    def print(self, text, nanoseconds):
        self.now += nanoseconds
        self.file.append((self.now, self._stamp(self.now), text))

    def rotate(self):
        self.file = []

    def answer(self, query):
        assert query["timestamps"] == "true"
        since = 0
        if "sinceTime" in query:
            since = int(datetime.fromisoformat(query["sinceTime"]).timestamp()) * 10**9
        if not self.timed:
            return "".join(f"{text}\n" for _, _, text in self.file) + self.unfinished
        found = [f"{stamp} {text}\n" for at, stamp, text in self.file if at >= since]
        return "".join(found) + (f"{self._stamp(self.now)} {self.unfinished}" if self.unfinished else "")

    def _stamp(self, at):
        here = datetime.fromtimestamp(at // 10**9, UTC) + timedelta(minutes=self.zone)
        sign, rest = ("+" if self.zone >= 0 else "-"), abs(self.zone)
        zone = "Z" if not self.zone else f"{sign}{rest // 60:02}:{rest % 60:02}"
        return f"{here:%Y-%m-%dT%H:%M:%S}.{at % 10**9:09}{zone}"


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_each_line_is_printed_once_and_in_order(data):
    kubelet, parts, printed, wanted = Kubelet(), LogParts(), [], []
    for number in range(data.draw(st.integers(1, 40))):
        event = data.draw(st.sampled_from(["print", "print", "read", "rotate", "zone"]))
        if event == "print":
            line = data.draw(st.sampled_from([f"step {number}", "", "same", "2026-01-01T00:00:00.000000000Z its own"]))
            kubelet.print(line, data.draw(st.sampled_from([1, 1000, 10**9, 3 * 10**9])))
            wanted.append(line)
        else:  # nothing is lost only where a file is read to its end before the next one
            printed += parts.new(kubelet.answer(parts.query()), ended=False)
            if event == "rotate":
                kubelet.rotate()
            elif event == "zone":
                kubelet.zone = data.draw(st.sampled_from(ZONES))
    printed += parts.new(kubelet.answer(parts.query()), ended=True)
    assert printed == wanted


def test_only_what_may_be_new_is_asked_for():
    kubelet, parts = Kubelet(), LogParts()
    for second in range(100):
        kubelet.print(f"step {second}", 10**9)
    assert len(parts.new(kubelet.answer(parts.query()), ended=False)) == 100
    kubelet.print("last", 10**9)
    assert kubelet.answer(parts.query()).count("\n") == 2
    assert parts.new(kubelet.answer(parts.query()), ended=False) == ["last"]


@pytest.mark.parametrize("timed", [False, True])
def test_a_line_that_is_unfinished_waits_for_its_end(timed):
    kubelet, parts = Kubelet(timed), LogParts()
    kubelet.print("one", 1)
    kubelet.unfinished = "half of a"
    assert parts.new(kubelet.answer(parts.query()), ended=False) == ["one"]
    assert parts.new(kubelet.answer(parts.query()), ended=False) == []
    assert parts.new(kubelet.answer(parts.query()), ended=True) == ["half of a"]


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize(("tail", "first"), [(0, []), (2, ["b", "c"]), (9, ["a", "b", "c"])])
def test_of_what_was_there_only_the_last_lines_are_printed(timed, tail, first):
    kubelet, parts = Kubelet(timed), LogParts(tail)
    assert parts.new(kubelet.answer(parts.query()), ended=False) == []
    for line in "abc":
        kubelet.print(line, 1)
    assert parts.new(kubelet.answer(parts.query()), ended=False) == first
    kubelet.print("d", 1)
    assert parts.new(kubelet.answer(parts.query()), ended=False) == ["d"]

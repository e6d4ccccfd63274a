"""The kubelet's own managers as a program, built once (`modules/numa`)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec

from testbed import build
from testbed.numa import cases


def ask(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kubelet's verdicts on each step of these jobs."""
    program: Path = build.binary(f"numa-{build.KUBERNETES_VERSION}")
    lines = b"\n".join(msgspec.json.encode(each) for each in jobs)
    answer = subprocess.run([program], input=lines, stdout=subprocess.PIPE, check=True).stdout
    return cases.judged(jobs, answer)

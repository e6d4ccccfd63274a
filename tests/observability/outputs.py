"""What the commands print of a history, at a fixed time.

`python -m tests.observability.outputs URL`, with the source of an earlier version on PYTHONPATH, prints what that version's program
printed: so `printed_by_version_3.json` was made of the histories of `histories.drawn`, days added up by that program included.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any
from unittest import mock

from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.observability.store import History

DAY = 86_400
NOW = 9.6 * DAY
COMMANDS = {
    **{f"cost by {by}": ["cost", "--by", by, "--since", "8d"] for by in ("queue", "job", "class", "scaler")},
    "cost of some days": ["cost", "--since", "7.3d", "--until", "1970-01-08T03:04:05"],
    "history": ["history", "--since", "10d"],
    "history of ann": ["history", "--since", "6d", "--user", "ann", "--state", "Failed", "--state", "Running"],
    "runs": ["history", "job-0-0", "--since", "10d", "--runs"],
}


def printed(url: str) -> dict[str, Any]:
    """By command."""
    found = {}
    with mock.patch.dict("os.environ", {"TZ": "UTC"}), mock.patch.object(time, "time", return_value=NOW):
        time.tzset()
        for name, command in COMMANDS.items():
            done = CliRunner().invoke(app, [*command, "--database", url, "-o", "json"])
            assert done.exit_code == 0, done.output
            found[name] = json.loads(done.stdout)
    time.tzset()
    return found


def add_up(store: History) -> None:
    """All days but the first ones, so that a window has some that are added up and some that are not."""
    while store.add_up(2.5 * DAY, NOW):
        pass


if __name__ == "__main__":
    import sqlite3

    file = sys.argv[1]
    written = History(f"sqlite:///{file}")
    add_up(written)
    written.close()
    totals = sqlite3.connect(file).execute("SELECT day, total FROM days ORDER BY day").fetchall()
    print(json.dumps({"printed": printed(f"sqlite:///{file}"), "days": [(day, total.decode()) for day, total in totals]}))

"""The project's wheel, and the locked requirements beside it: `python -m testbed.wheel FOLDER`, which the Containerfile reads.

The same source gives the same bytes: hatchling (of the lock file) sorts the files and sets their times and permissions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EPOCH = 1580601600
"""The time of everything that is built, where SOURCE_DATE_EPOCH does not give another one: hatchling's own."""


def epoch() -> int:
    """The time of everything that is built, in seconds."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or EPOCH)


def build(folder: Path, source: Path = ROOT, *, umask: int = -1) -> Path:
    """Build the wheel of a source tree into a folder, where it replaces older ones; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for older in folder.glob("fairlead-*.whl"):
        older.unlink()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder.resolve())],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch())},
        stdout=subprocess.DEVNULL,
        check=True,
        umask=umask,
    )
    [wheel] = folder.glob("fairlead-*.whl")
    return wheel


def requirements() -> str:
    """What Fairlead depends on, with the hashes of the lock file, as pip reads it."""
    return export("requirements.txt", "--no-header", "--no-annotate", "--no-emit-project")


def export(form: str, *options: str) -> str:
    """The lock file, without what only development needs, in another form."""
    command = [uv(), "export", "--frozen", "--offline", "--no-default-groups", "--format", form, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def uv() -> str:
    """The program: that which runs us, else the one on PATH, else that of the Makefile."""
    return os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".cache/uv/bin/uv")


def write(folder: Path) -> None:
    """All that the Containerfile reads."""
    build(folder)
    (folder / "requirements.txt").write_text(requirements())


if __name__ == "__main__":
    write(Path(sys.argv[1]))

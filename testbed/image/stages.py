"""Runs the stages of a Containerfile by chroot. What they make is kept below the testbed's cache, by content."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.build import cache
from testbed.image.containerfile import Containerfile, Copied, Stage, Step
from testbed.image.layout import Layer, pack

_SUITES = {"docker.io/library/debian:trixie-slim": "trixie"}
_ARCHIVE = "http://deb.debian.org"
_SOURCES = "".join(
    f"deb {_ARCHIVE}/{archive} {suite} main\n"
    for archive, suite in (("debian", "trixie"), ("debian", "trixie-updates"), ("debian-security", "trixie-security"))
)
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_PASSED = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL")
# As a builder of containers gives its steps: the devices, the network, and this machine's certificates of authorities.
_STEP = """
set -e
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
touch "$ROOT/etc/resolv.conf" "$ROOT/run/authorities"
mount --bind /etc/resolv.conf "$ROOT/etc/resolv.conf"
test ! -e "$AUTHORITIES" || mount --bind "$AUTHORITIES" "$ROOT/run/authorities"
exec env -i $ENVIRONMENT chroot "$ROOT" sh -c "cd '$FOLDER'; $0"
"""


class Builder:
    """Builds layers. context: the folder that COPY reads. kept: where results are kept."""

    def __init__(self, file: Containerfile, context: Path, kept: Path | None = None) -> None:
        self._file = file
        self._context = context
        self._kept = kept or cache() / "image"

    def layers(self) -> list[Layer]:
        """The layers of the image, of which those that are missing are built."""
        self._kept.mkdir(parents=True, exist_ok=True)
        with _locked(self._kept / "lock"):
            return [self._layer(each) for each in self._file.layers]

    def anew(self, copied: Copied, folder: Path) -> Layer:
        """Build one layer into a folder, as if no earlier one was kept."""
        with _locked(self._kept / "lock"):
            self._build(copied, folder)
        return Layer.read(folder)

    def _layer(self, copied: Copied) -> Layer:
        key = self._key(self._file.stages[copied.stage])
        folder = self._kept / f"{copied.stage}-{_digest(key, copied.source, copied.target)}"
        if not (folder / "layer.json").exists():
            self._forget(f"{copied.stage}-*")
            self._build(copied, folder)
        return Layer.read(folder)

    def _build(self, copied: Copied, folder: Path) -> None:
        stage = self._file.stages[copied.stage]
        root = self._kept / f"scratch-{stage.name}"
        try:
            self._fill(stage, root)
            pack(root / copied.source.lstrip("/"), copied.target, folder)
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def _fill(self, stage: Stage, root: Path) -> None:
        """Put the files of a stage into a folder, which is replaced."""
        print(f"testbed: image: {stage.name}", file=sys.stderr, flush=True)
        shutil.rmtree(root, ignore_errors=True)
        if stage.parent in _SUITES:
            _debootstrap(_SUITES[stage.parent], root)
        else:
            _copy(self._root(self._file.stages[stage.parent]), root)
        folder = "/"
        for step in stage.steps:
            if step.word == "WORKDIR":
                folder = step.text
                (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
            elif step.word == "COPY":
                for file in self._sources(step):
                    into = root / step.text.split()[-1].lstrip("/")
                    into.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, into)
            else:
                _run(step.text, root, folder)

    def _root(self, stage: Stage) -> Path:
        """The folder of a stage that others begin with."""
        root = self._kept / f"root-{stage.name}-{self._key(stage)}"
        if not root.exists():
            self._forget(f"root-{stage.name}-*")
            scratch = self._kept / f"scratch-{stage.name}"
            self._fill(stage, scratch)
            scratch.rename(root)
        return root

    def _forget(self, pattern: str) -> None:
        """Remove what older contents of a stage made."""
        for older in self._kept.glob(pattern):
            shutil.rmtree(older)

    def _key(self, stage: Stage) -> str:
        """What decides on a stage's content, in short. Debian's versions do not: they are those of the day of the build."""
        parent = self._file.stages.get(stage.parent)
        parts = [self._key(parent) if parent else stage.parent]
        for step in stage.steps:
            parts += [step.word, step.text]
            if step.word == "COPY":
                parts += [hashlib.sha256(file.read_bytes()).hexdigest() for file in self._sources(step)]
        return _digest(*parts)

    def _sources(self, step: Step) -> list[Path]:
        pattern, target = step.text.split()
        found = sorted(self._context.glob(pattern))
        if not found or not target.endswith("/"):
            raise ValueError(f"COPY {step.text}: nothing to copy, or not to a folder")
        return found


def _run(command: str, root: Path, folder: str) -> None:
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "DEBIAN_FRONTEND": "noninteractive",
        **({"PIP_CERT": "/run/authorities"} if _AUTHORITIES.exists() else {}),
        **{name: os.environ[name] for name in _PASSED if name in os.environ},
    }
    outer = {
        **os.environ,
        "ROOT": str(root),
        "FOLDER": folder,
        "AUTHORITIES": str(_AUTHORITIES),
        "ENVIRONMENT": " ".join(f"{name}={value}" for name, value in environment.items()),
    }
    _checked(["unshare", "--mount", "--propagation", "private", "sh", "-c", _STEP, command], env=outer)


def _debootstrap(suite: str, root: Path) -> None:
    """Debian's smallest system, in the place of the image of the same release, with the same sources of packages."""
    program, environment = "debootstrap", {**os.environ}
    if shutil.which(program) is None:
        unpacked = _unpacked_debootstrap()
        program = str(unpacked / "usr/sbin/debootstrap")
        environment["DEBOOTSTRAP_DIR"] = str(unpacked / "usr/share/debootstrap")
    _checked([program, "--variant=minbase", suite, str(root), f"{_ARCHIVE}/debian"], env=environment)
    (root / "etc/apt/sources.list").write_text(_SOURCES)


def _unpacked_debootstrap() -> Path:
    """The program from its package, which is not installed for it."""
    target = cache() / "debootstrap"
    if not (target / "usr/sbin/debootstrap").exists():
        target.mkdir(parents=True, exist_ok=True)
        _checked(["apt-get", "update"], env={**os.environ})
        _checked(["apt-get", "download", "debootstrap"], env={**os.environ}, cwd=target)
        [package] = target.glob("debootstrap_*.deb")
        _checked(["dpkg-deb", "--extract", str(package), str(target)], env={**os.environ})
    return target


def _copy(source: Path, target: Path) -> None:
    _checked(["cp", "--archive", str(source), str(target)], env={**os.environ})


def _checked(command: list[str], *, env: dict[str, str], cwd: Path | None = None) -> None:
    """Run a program; what it prints is shown only if it fails."""
    done = subprocess.run(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-5000:]}")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two builds must not make the same thing at once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

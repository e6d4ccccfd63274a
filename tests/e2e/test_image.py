"""The image, built by the Containerfile's lines, run as a pod runs it: read-only, as its user, without rights. Needs root."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tarfile

import pytest
import yaml

from fairlead import __version__
from testbed import image, sbom, wheel
from testbed.image import containerfile
from testbed.image.running import Image
from testbed.image.stages import Builder
from testbed.objects import node, pod
from tests.e2e.planes import USER

pytestmark = pytest.mark.e2e
PYTHON = ["/opt/fairlead/bin/python", "-c"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image") / "dist"
    wheel.write(folder)
    return folder


@pytest.fixture(scope="module")
def layout(dist):
    return image.build(dist)


@pytest.fixture(scope="module")
def built(layout, tmp_path_factory):
    return Image(layout, tmp_path_factory.mktemp("unpacked") / "root")


def test_its_configuration_is_the_containerfiles(built):
    config = built.configuration["config"]
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["/opt/fairlead/bin/fairlead"]
    assert len(built.configuration["rootfs"]["diff_ids"]) == len(built.manifest["layers"]) == 3


def test_commands_run_without_writing_anywhere(built):
    assert built.output("--version").split() == ["fairlead", __version__]
    assert {each["kind"] for each in yaml.safe_load_all(built.output("crds"))} == {"CustomResourceDefinition"}
    assert "--kubeconfig" in built.output("scheduler", "--help")
    install = ("install", "--image", "registry.example/fairlead:1", "--dry-run")
    here = subprocess.run([sys.executable, "-m", "fairlead", *install], capture_output=True, text=True, check=True).stdout
    assert built.output(*install) == here


def test_it_has_no_shell_and_no_right(built):
    found = json.loads(
        built.output(
            """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
kept = ("/proc", "/dev")
seen = [os.path.join(folder, name) for folder, folders, files in os.walk("/") if not folder.startswith(kept) for name in folders + files]
print(json.dumps({
    "ids": [os.getuid(), os.getgid(), os.getgroups()],
    "capabilities": status["CapEff"].strip(),
    "confined": status["NoNewPrivs"].strip(),
    "written": [path for path in seen if os.access(path, os.W_OK) and not path.startswith(kept)],
    "elevating": [path for path in seen if os.path.isfile(path) and os.stat(path).st_mode & 0o6000],
    "programs": sorted(os.listdir("/usr/bin")),
}))
""",
            entry=PYTHON,
        )
    )
    assert found["ids"] == [65532, 65532, []]
    assert (int(found["capabilities"], 16), found["confined"]) == (0, "1")
    assert found["written"] == ["/tmp"]  # noqa: S108
    assert found["elevating"] == []
    assert {name for name in found["programs"] if not name.startswith(("python3", "pdb3", "pydoc3", "pygettext3"))} <= {
        "py3versions"
    }


def test_what_is_installed_is_what_the_bill_of_materials_has(built):
    printed = built.output(
        "import importlib.metadata as m, json; print(json.dumps([[d.name, d.version] for d in m.distributions()]))", entry=PYTHON
    )
    installed = {(re.sub(r"[-_.]+", "-", name).lower(), version) for name, version in json.loads(printed)}
    document = sbom.document()
    listed = {(each["name"], each["version"]): each.get("properties", []) for each in document["components"]}
    assert installed - set(listed) == {("fairlead", __version__)}
    missing = [listed[each] for each in set(listed) - installed]
    markers = [{one["value"] for one in each if one["name"] == "uv:package:marker"} for each in missing]
    assert all(markers), "what is not installed is for other systems or other versions of Python"


def test_every_library_is_found(built):
    """ELF files load what they need, as ctypes opens each of them."""
    printed = built.output(
        """
import ctypes, json, os, sysconfig
failed = {}
import numpy
for top in (os.path.dirname(os.path.dirname(numpy.__file__)), sysconfig.get_path("stdlib")):
    for folder, _, files in os.walk(top):
        for name in files:
            if name.endswith(".so"):
                try:
                    ctypes.CDLL(os.path.join(folder, name))
                except OSError as error:
                    failed[os.path.join(folder, name)] = str(error)
print(json.dumps(failed))
""",
        entry=PYTHON,
    )
    assert json.loads(printed) == {}


def test_fairleads_layer_has_the_same_bytes_when_it_is_built_again(dist, layout, tmp_path):
    file = containerfile.read(image.FILE.read_text())
    again = Builder(file, dist.parent).anew(file.layers[-1], tmp_path / "again")
    assert (layout / "blobs/sha256" / again.digest).read_bytes() == again.file.read_bytes()
    with tarfile.open(again.file) as archive:
        assert all(entry.uid == entry.gid == 0 and entry.mtime == wheel.epoch() for entry in archive)


def test_its_scheduler_binds_pods_and_leaves_on_request(built, cluster, tmp_path):
    cluster.create(node("n"))
    cluster.create(pod("p", gpus=1))
    log = tmp_path / "log"
    with log.open("wb") as file:
        arguments = ("--kubeconfig", "/run/given/kubeconfig", "--address", "")
        given = {"/run/given": readable(cluster.plane.user(USER, USER), tmp_path / "given")}
        process = built.start("scheduler", *arguments, given=given, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        cluster.until(lambda: cluster.placed() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, log.read_text()
        assert cluster.placed() == {"p": "n"}
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def readable(kubeconfig, folder):
    """A kubeconfig and the files that it names, for another user, as they are at /run/given."""
    folder.mkdir()
    folder.chmod(0o755)
    for file in kubeconfig.parent.glob("*.*"):
        if file.suffix in {".crt", ".key"}:
            shutil.copy(file, folder)
            (folder / file.name).chmod(0o644)
    (folder / "kubeconfig").write_text(kubeconfig.read_text().replace(str(kubeconfig.parent), "/run/given"))
    return folder

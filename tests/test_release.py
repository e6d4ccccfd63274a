"""What is released: the wheel has the same bytes wherever it is built, and what it depends on is stated as the lock file has it."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from fairlead import __version__
from fairlead.install import processes
from testbed import image, sbom, wheel
from testbed.image import containerfile
from testbed.image.layout import Layer, pack

ROOT = Path(__file__).parents[1]
BUILT_FROM = ("src", "pyproject.toml", "README.md", "LICENSE", ".gitignore")


@pytest.fixture(scope="module")
def packages():
    """Name -> the packages of that name in the lock file: their entries."""
    found = {}
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]:
        found.setdefault(package["name"], []).append(package)
    return found


def copied(folder, time):
    """The source tree in another folder, written in another order and at another time, and used."""
    for name in sorted(BUILT_FROM, reverse=time % 2 == 0):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    (folder / "src/fairlead/__pycache__").mkdir(exist_ok=True)
    (folder / "src/fairlead/__pycache__/left.cpython-311.pyc").write_bytes(bytes(time % 7))
    for path in folder.rglob("*"):
        os.utime(path, (time, time))
    return folder


def test_the_wheel_has_the_same_bytes_from_another_folder_at_another_time_by_another_user(tmp_path):
    made = []
    for number, (time, umask) in enumerate([(1_000_000_000, 0o077), (1_700_000_001, 0o002)]):
        folder = tmp_path / f"{'deep/' * number}tree-{number}"
        folder.mkdir(parents=True)
        before = os.umask(umask)
        try:
            made.append(wheel.build(folder / "dist", copied(folder, time), umask=umask))
        finally:
            os.umask(before)
    first, second = made
    assert first.read_bytes() == second.read_bytes()
    assert first.name == f"fairlead-{__version__}-py3-none-any.whl"


def test_the_wheel_has_every_module_and_nothing_else(tmp_path):
    with zipfile.ZipFile(wheel.build(tmp_path)) as built:
        names = {name for name in built.namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(["git", "ls-files", "src/fairlead"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert names == {name.removeprefix("src/") for name in tracked.split()}


def test_an_older_wheel_is_replaced(tmp_path):
    (tmp_path / "fairlead-0.0.1-py3-none-any.whl").touch()
    built = wheel.build(tmp_path)
    assert list(tmp_path.iterdir()) == [built]


def hashes(package):
    files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
    return sorted(file["hash"].removeprefix("sha256:") for file in files)


def needed(packages):
    """What Fairlead depends on by the lock file, walked from it: package -> the names of what it needs."""
    found, ahead = {}, [("fairlead", packages["fairlead"][0], ())]
    while ahead:
        name, package, extras = ahead.pop()
        wanted = [*package.get("dependencies", ())]
        for extra in extras:
            wanted += package.get("optional-dependencies", {}).get(extra, ())
        known = found.setdefault((name, package.get("version", __version__)), set())
        for each in wanted:
            for target in packages[each["name"]]:
                if each.get("version", target["version"]) != target["version"]:
                    continue
                if (each["name"], target["version"]) not in known:
                    known.add((each["name"], target["version"]))
                    ahead.append((each["name"], target, tuple(each.get("extra", ()))))
    return found


def test_the_bill_of_materials_equals_the_lock_file(packages):
    document = sbom.document()
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    top = document["metadata"]["component"]
    assert (top["name"], top["version"]) == ("fairlead", __version__)
    listed = {
        (each["name"], each["version"], each["purl"]): sorted(
            one["content"] for reference in each["externalReferences"] for one in reference["hashes"] if one["alg"] == "SHA-256"
        )
        for each in document["components"]
    }
    assert len(listed) == len(document["components"])
    graph = needed(packages)
    locked = {
        (name, package["version"], f"pkg:pypi/{name}@{package['version']}"): hashes(package)
        for name, version in graph
        for package in packages[name]
        if name != "fairlead" and package["version"] == version
    }
    assert listed == locked
    by_reference = {each["bom-ref"]: (each["name"], each["version"]) for each in (top, *document["components"])}
    assert {
        by_reference[each["ref"]]: {by_reference[one] for one in each.get("dependsOn", ())} for each in document["dependencies"]
    } == graph


def test_the_same_lock_file_gives_the_same_bill(tmp_path):
    texts = []
    for name in ("first", "second"):
        subprocess.run([sys.executable, "-m", "testbed.sbom", str(tmp_path / name)], cwd=ROOT, check=True)
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]
    assert json.loads(texts[0]) == sbom.document()


def test_the_image_installs_what_the_lock_file_has_by_hash(packages):
    listed = {}
    for line in wheel.requirements().replace("\\\n", "").splitlines():
        requirement, *given = line.split(" --hash=sha256:")
        name, _, version = requirement.partition(";")[0].strip().partition("==")
        listed[name, version] = sorted(text.strip() for text in given)
    names = {name for name, _ in needed(packages)} - {"fairlead"}
    assert {name for name, _ in listed} == names
    for (name, version), given in listed.items():
        [package] = [each for each in packages[name] if each["version"] == version]
        assert given == hashes(package), name


def test_the_image_is_run_as_the_user_of_the_pods():
    file = containerfile.read(image.FILE.read_text())
    assert file.user == f"{processes._USER}:{processes._USER}"
    assert file.entry == ["/opt/fairlead/bin/fairlead"]
    assert [each.stage for each in file.layers] == ["system", "dependencies", "fairlead"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("FROM x AS a\nVOLUME /data\nFROM scratch\nUSER 1\nENTRYPOINT []", "VOLUME is not known"),
        ("FROM x AS a\nFROM scratch\nRUN true\nUSER 1\nENTRYPOINT []", "RUN is not known"),
        ("FROM x AS a\nFROM a\nUSER 1\nENTRYPOINT []", "begins with another"),
        ("FROM x AS a\nFROM scratch\nCOPY here /there\nUSER 1\nENTRYPOINT []", "not a copy from another stage"),
    ],
)
def test_what_the_testbed_would_build_in_another_way_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        containerfile.read(text)


def test_lines_are_joined_and_comments_left_out():
    file = containerfile.read(
        '# one\nFROM x AS a\nRUN first \\\n && second\nFROM scratch\nCOPY --from=a /b /c\nENV A=1 B=2\nUSER 1:2\nENTRYPOINT ["d"]'
    )
    assert file.stages["a"].steps == [containerfile.Step("RUN", "first && second")]
    assert file.layers == [containerfile.Copied("a", "/b", "/c")]
    assert (file.environment, file.user, file.entry) == (["A=1", "B=2"], "1:2", ["d"])


def test_a_layer_has_the_same_bytes_at_another_time_and_with_another_owner(tmp_path):
    for name, time in (("first", 1), ("second", 2)):
        folder = tmp_path / name
        (folder / "b/c").mkdir(parents=True)
        for file in sorted(("b/c/d", "a"), reverse=time == 2):
            (folder / file).write_text(file)
        (folder / "b/link").symlink_to("c/d")
        for path in folder.rglob("*"):
            os.utime(path, (time, time), follow_symlinks=False)
        pack(folder, "/opt/x", tmp_path / f"packed-{name}")
    first, second = (Layer.read(tmp_path / f"packed-{name}") for name in ("first", "second"))
    assert first.file.read_bytes() == second.file.read_bytes()
    assert (first.digest, first.contents) == (second.digest, second.contents)
    listed = subprocess.run(["tar", "-tzf", str(first.file)], capture_output=True, text=True, check=True).stdout
    assert listed.split() == ["opt/", "opt/x/", "opt/x/a", "opt/x/b/", "opt/x/b/c/", "opt/x/b/c/d", "opt/x/b/link"]

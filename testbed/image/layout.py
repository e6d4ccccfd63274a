"""Layers and the OCI layout: the same files give the same bytes. Times are those of the build's epoch, all files are root's."""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
import shutil
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, Self

from testbed.image.containerfile import Containerfile
from testbed.wheel import epoch

_TYPE = "application/vnd.oci.image"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Layer:
    """A layer that is packed. contents: of the archive before it is compressed."""

    file: Path
    digest: str
    size: int
    contents: str

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what `pack` wrote."""
        return cls(folder / "layer.tar.gz", **json.loads((folder / "layer.json").read_text()))

    def write(self) -> None:
        """Complete its folder: a layer without this file is not there."""
        fields = {name: value for name, value in asdict(self).items() if name != "file"}
        (self.file.parent / "layer.json").write_text(json.dumps(fields))


def pack(source: Path, target: str, folder: Path) -> None:
    """Pack a folder of files as the layer that has them at a path."""
    folder.mkdir(parents=True, exist_ok=True)
    archive, packed = folder / "layer.tar", folder / "layer.tar.gz"
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for path, name in _entries(source, PurePosixPath(target.lstrip("/"))):
            entry = _entry(path, name)
            if entry.isreg():
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            else:
                tar.addfile(entry)
    with archive.open("rb") as plain, packed.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, 0) as out:
        shutil.copyfileobj(plain, out)
    contents = _sha256(archive)
    archive.unlink()
    Layer(packed, _sha256(packed), packed.stat().st_size, contents).write()


def write(file: Containerfile, layers: list[Layer], version: str, folder: Path) -> None:
    """Write the image as an OCI layout; the folder is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)
    for layer in layers:
        shutil.copy(layer.file, blobs / layer.digest)
    created = datetime.fromtimestamp(epoch(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    configuration = _blob(
        blobs,
        f"{_TYPE}.config.v1+json",
        {
            "created": created,
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"User": file.user, "Env": file.environment, "Entrypoint": file.entry, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.contents}" for layer in layers]},
            "history": [
                {"created": created, "created_by": f"COPY --from={each.stage} {each.source} {each.target}"}
                for each in file.layers
            ],
        },
    )
    manifest = _blob(
        blobs,
        f"{_TYPE}.manifest.v1+json",
        {
            "schemaVersion": 2,
            "mediaType": f"{_TYPE}.manifest.v1+json",
            "config": configuration,
            "layers": [_descriptor(f"{_TYPE}.layer.v1.tar+gzip", layer.digest, layer.size) for layer in layers],
        },
    )
    named = {**manifest, "annotations": {"org.opencontainers.image.ref.name": version}}
    _write(folder / "index.json", {"schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": [named]})
    _write(folder / "oci-layout", {"imageLayoutVersion": "1.0.0"})


def _entries(source: Path, target: PurePosixPath) -> Iterator[tuple[Path, PurePosixPath]]:
    """Files in order, each below its folder: first the folders above the target."""
    for above in reversed(target.parents[:-1]):
        yield source, above
    if target.parts:
        yield source, target
    for path in sorted(source.rglob("*")):
        yield path, target / path.relative_to(source).as_posix()


def _entry(path: Path, name: PurePosixPath) -> tarfile.TarInfo:
    found = path.lstat()
    entry = tarfile.TarInfo(str(name))
    entry.mode, entry.mtime = stat.S_IMODE(found.st_mode), epoch()
    if stat.S_ISDIR(found.st_mode):
        entry.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif stat.S_ISREG(found.st_mode):
        entry.size = found.st_size
    else:
        raise ValueError(f"{path} is neither a file, nor a folder, nor a link")
    return entry


def _blob(blobs: Path, media: str, content: dict[str, Any]) -> dict[str, Any]:
    text = _text(content)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (blobs / digest).write_text(text)
    return _descriptor(media, digest, len(text.encode()))


def _descriptor(media: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": size}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(_text(content))


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

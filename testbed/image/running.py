"""Runs an image from its OCI layout as a pod does: read-only, as its user, without any right, with `/tmp` in memory."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

_MOUNTED = """
set -e
mount --bind "$ROOT" "$ROOT"
mount -t proc -o ro proc "$ROOT/proc"
mount -t tmpfs -o mode=755 tmpfs "$ROOT/dev"
for device in null zero full random urandom; do
  touch "$ROOT/dev/$device"
  mount --bind "/dev/$device" "$ROOT/dev/$device"
done
mount -o remount,ro "$ROOT/dev"
mount -t tmpfs -o mode=1777,size=16m tmpfs "$ROOT/tmp"
for path in $GIVEN; do mount --bind "${path#*:}" "$ROOT${path%%:*}"; done
mount -o remount,bind,ro "$ROOT"
exec env -i $ENVIRONMENT /usr/bin/unshare --root "$ROOT" --wd / --setgid "${USER#*:}" --setuid "${USER%:*}" -- "$@"
"""


class Image:
    """An image whose layers are unpacked in a folder. given: files of this machine by their path in the image."""

    def __init__(self, layout: Path, root: Path) -> None:
        self.root = root
        self._blobs = layout / "blobs"
        [described] = json.loads((layout / "index.json").read_text())["manifests"]
        self.manifest = self._json(described)
        self.configuration = self._json(self.manifest["config"])
        root.mkdir(mode=0o755)
        for layer in self.manifest["layers"]:
            subprocess.run(
                ["tar", "--extract", "--gzip", "--numeric-owner", "--preserve-permissions", "--directory", str(root)],
                input=self._content(layer),
                check=True,
            )

    def start(self, *arguments: str, entry: list[str] | None = None, given: dict[str, Path] | None = None, **popen: Any) -> Any:
        """Start its entry point, or another one, with arguments; further options are those of Popen."""
        config = self.configuration["config"]
        for path, source in (given or {}).items():  # where something is mounted there is something, as runtimes have it
            place = self.root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.mkdir(exist_ok=True) if source.is_dir() else place.touch()
        environment = {
            "PATH": "/usr/bin:/usr/sbin:/bin:/sbin",
            "ROOT": str(self.root),
            "USER": config["User"],
            "ENVIRONMENT": " ".join(config["Env"]),
            "GIVEN": " ".join(f"{path}:{source}" for path, source in (given or {}).items()),
        }
        command = ["setpriv", "--no-new-privs", "unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNTED, "sh"]
        return subprocess.Popen([*command, *(entry or config["Entrypoint"]), *arguments], env=environment, **popen)

    def output(self, *arguments: str, entry: list[str] | None = None) -> str:
        """What it prints; it must end well."""
        process = self.start(*arguments, entry=entry, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        printed, errors = process.communicate(timeout=60)
        if process.returncode:
            raise RuntimeError(f"{arguments} ended with {process.returncode}:\n{errors.decode()[-3000:]}")
        return str(printed.decode())

    def _json(self, described: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._content(described))
        return found

    def _content(self, described: dict[str, Any]) -> bytes:
        """A blob, which is what its digest and its size say."""
        algorithm, digest = described["digest"].split(":")
        content: bytes = (self._blobs / algorithm / digest).read_bytes()
        if hashlib.new(algorithm, content).hexdigest() != digest or len(content) != described["size"]:
            raise ValueError(f"{described['digest']} is another one")
        return content

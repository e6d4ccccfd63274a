"""What a container is, as a process: its command, environment, directory and files. Nothing is started here.

There is no container around the process: images are not used, and paths at which volumes are mounted are replaced, in the
command, the environment and the working directory, by the folders that stand for them. Names under which members of a job find
each other stand for this host, and their meeting port for one of the job's own, since several jobs share it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fairlead.api.quantity import QuantityError, parse

Manifest = dict[str, Any]
Lookup = Callable[[str, str], Mapping[str, str] | None]
"""(kind, name) -> data of a ConfigMap or Secret of the pod's namespace; None if there is none."""

_INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "TZ")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class RecipeError(ValueError):
    """A container that cannot be run as a process, and why."""


class Recipe(msgspec.Struct):
    """One process. memory: bytes that it may write to, 0 for no limit. tty, stdin: whether users may attach to it, and how."""

    command: list[str]
    env: dict[str, str]
    directory: Path
    memory: int = 0
    tty: bool = False
    stdin: bool = False


def volumes(pod: Manifest, folder: Path, lookup: Lookup) -> dict[str, Path]:
    """Lay out a pod's volumes: name -> folder. Raises `RecipeError`."""
    found: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes") or ():
        name = volume["name"]
        place = folder / "volumes" / name
        if "hostPath" in volume:
            found[name] = Path(volume["hostPath"]["path"])
            continue
        if "configMap" in volume:
            _files(place, "configmaps", volume["configMap"], volume["configMap"].get("name", ""), lookup)
        elif "secret" in volume:
            _files(place, "secrets", volume["secret"], volume["secret"].get("secretName", ""), lookup)
        elif "emptyDir" not in volume and "projected" not in volume:
            kind = next((key for key in volume if key != "name"), "nothing")
            raise RecipeError(f"volume {name!r} is a {kind}: this node supports hostPath, emptyDir, configMap and secret")
        place.mkdir(parents=True, exist_ok=True)
        found[name] = place
    return found


def _files(place: Path, kind: str, source: Manifest, name: str, lookup: Lookup) -> None:
    data = lookup(kind, name)
    if data is None:
        if source.get("optional"):
            return
        raise RecipeError(f"{kind} {name!r} does not exist")
    place.mkdir(parents=True, exist_ok=True)
    wanted = {each["key"]: each["path"] for each in source.get("items") or ()}
    mode = source.get("defaultMode") or 0o644
    for key, value in data.items():
        if wanted and key not in wanted:
            continue
        file = place / wanted.get(key, key)
        if not file.resolve().is_relative_to(place.resolve()):
            raise RecipeError(f"{kind} {name!r}: {wanted.get(key, key)!r} points outside of its volume")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(value) if kind == "secrets" else value.encode())
        file.chmod(mode)


def recipe(
    pod: Manifest,
    container: Manifest,
    folder: Path,
    mounted: Mapping[str, Path],
    lookup: Lookup,
    outside: Mapping[str, str],
    port: int,
) -> Recipe:
    """A container as a process. Raises `RecipeError`.

    mounted: folders of the pod's volumes. outside: the agent's own environment. port: where members of the pod's job meet.
    """
    if not container.get("command"):
        raise RecipeError(f"container {container['name']!r} has no command: this node runs commands, not images")
    places = sorted(
        (
            (mount["mountPath"].rstrip("/"), mounted[mount["name"]], mount.get("subPath", ""))
            for mount in container.get("volumeMounts") or ()
        ),
        key=lambda each: -len(each[0]),
    )
    env = {key: outside[key] for key in _INHERITED if key in outside}
    env |= _environment(pod, container, lookup)

    def here(text: str) -> str:
        for path, place, within in places:
            text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?=/|$|[\s:;,\"'=])", str(place / within if within else place), text)
        return _at_home(pod, text, port)

    env = {key: here(value) for key, value in env.items()}
    command = [here(_expanded(part, env)) for part in [*container["command"], *(container.get("args") or ())]]
    if "MASTER_PORT" in env:
        env["MASTER_PORT"] = str(port)
    directory = here(container["workingDir"]) if container.get("workingDir") else str(folder)
    limits = (container.get("resources") or {}).get("limits") or {}
    tty, stdin = bool(container.get("tty")), bool(container.get("stdin"))
    if tty:
        env.setdefault("TERM", "xterm-256color")
    return Recipe(command, env, Path(directory), _bytes(limits.get("memory", "0")), tty, stdin)


def _environment(pod: Manifest, container: Manifest, lookup: Lookup) -> dict[str, str]:
    env: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        for kind, field in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
            if field in source:
                for key, value in _data(kind, source[field], lookup).items():
                    env[source.get("prefix", "") + key] = value
    for each in container.get("env") or ():
        origin = each.get("valueFrom")
        given = str(each.get("value", "")) if origin is None else _from(pod, origin, lookup)
        if given is not None:
            env[each["name"]] = _expanded(given, env)
    return env


def _data(kind: str, reference: Manifest, lookup: Lookup) -> dict[str, str]:
    data = lookup(kind, reference.get("name", ""))
    if data is None:
        if reference.get("optional"):
            return {}
        raise RecipeError(f"{kind} {reference.get('name', '')!r} does not exist")
    return {key: base64.b64decode(value).decode(errors="replace") if kind == "secrets" else value for key, value in data.items()}


def _from(pod: Manifest, origin: Manifest, lookup: Lookup) -> str | None:
    for kind, field in (("configmaps", "configMapKeyRef"), ("secrets", "secretKeyRef")):
        if field in origin:
            value = _data(kind, origin[field], lookup).get(origin[field].get("key", ""))
            if value is None and not origin[field].get("optional"):
                raise RecipeError(f"{kind} {origin[field].get('name', '')!r} has no key {origin[field].get('key', '')!r}")
            return value
    path = (origin.get("fieldRef") or {}).get("fieldPath", "")
    metadata = pod["metadata"]
    keyed = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if keyed:
        return str((metadata.get(keyed[1]) or {}).get(keyed[2], ""))
    known = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "status.podIP": "127.0.0.1",
        "status.hostIP": "127.0.0.1",
    }
    if path not in known:
        raise RecipeError(f"an environment variable refers to {path or sorted(origin)!r}, which this node does not support")
    return str(known[path])


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` as Kubernetes replaces it: what is not known stays, `$$` is `$`."""
    return _REFERENCE.sub(lambda match: "$" if match[0] == "$$" else env.get(match[1], match[0]), text)


def _at_home(pod: Manifest, text: str, port: int) -> str:
    """Members of the pod's job are on this host."""
    spec = pod["spec"]
    subdomain = spec.get("subdomain")
    if not subdomain:
        return text
    namespace = re.escape(pod["metadata"]["namespace"])
    name = rf"[a-z0-9]([-a-z0-9]*[a-z0-9])?\.{re.escape(subdomain)}(\.{namespace}(\.svc(\.cluster\.local)?)?)?"
    text = re.sub(rf"(?<![\w.-]){name}:29500(?!\d)", f"127.0.0.1:{port}", text)
    return re.sub(rf"(?<![\w.-]){name}(?![\w.-])", "127.0.0.1", text)


def _bytes(text: str | int) -> int:
    try:
        return int(parse(text))
    except QuantityError as error:
        raise RecipeError(f"the memory limit {text!r} cannot be read: {error}") from error

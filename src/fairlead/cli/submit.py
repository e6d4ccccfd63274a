"""`fairlead submit`: a script with `#SBATCH` lines, a command, or manifests, as jobs of the cluster."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from fairlead.cli.connection import KubeconfigOption, run
from fairlead.cli.output import Exit, Output, OutputOption, console, emit, fail

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.client import Client
    from fairlead.submission import jobs

QueueOption = Annotated[str, typer.Option("--queue", "-p", help="Its queue.")]
ClassOption = Annotated[str, typer.Option("--class", "-q", help="ServiceClass of the job.")]
NodesOption = Annotated[str, typer.Option("--nodes", "-N", help="Number of members.")]
GpusOption = Annotated[str, typer.Option("--gpus", "-G", help="GPUs of all members together, optionally MODEL:COUNT.")]
CpusOption = Annotated[str, typer.Option("--cpus-per-task", "-c", help="CPUs of each member.")]
MemOption = Annotated[str, typer.Option("--mem", help="Memory of each member, such as 64G.")]
TimeOption = Annotated[str, typer.Option("--time", "-t", help="Time limit: 90, 1:30:00, 2-12:00:00 or 36h.")]
ImageOption = Annotated[str, typer.Option(help="Container image; default: that of the namespace's submit profile.")]
EnvOption = Annotated[list[str] | None, typer.Option(help="NAME=VALUE; may be repeated.")]

_POLL_INTERVAL = 1.0
_ATTEMPTS = 5
_MANIFESTS = (".yaml", ".yml", ".json")


class Submitted(msgspec.Struct, frozen=True):
    """What was submitted: `namespace/name` of each job; left_out: what of the script has no meaning here.

    phases, exit_codes: with --wait; the exit code of a job that failed is the highest of its members.
    """

    jobs: list[str]
    left_out: list[str]
    phases: dict[str, str]
    exit_codes: dict[str, int] = {}


def submit(
    file: Annotated[str, typer.Argument(metavar="[SCRIPT|JOB.YAML|-]", help="A script, manifests, or - for stdin.")] = "",
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="The command, or the arguments of the script.")
    ] = None,
    name: Annotated[str, typer.Option("--name", "-J", help="Name of the job; default: from the script.")] = "",
    queue: QueueOption = "",
    service_class: ClassOption = "",
    nodes: NodesOption = "",
    gpus: GpusOption = "",
    cpus: CpusOption = "",
    mem: MemOption = "",
    time: TimeOption = "",
    dependency: Annotated[
        str, typer.Option("--dependency", "-d", help="afterok:JOB, afterany:JOB, afternotok:JOB, singleton.")
    ] = "",
    image: ImageOption = "",
    env: EnvOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-W", help="Wait for the jobs to end; the exit code is the highest of the jobs that failed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Print the manifests and the expected start; submit nothing.")] = False,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Default: the kubeconfig's.")] = "",
    kubeconfig: KubeconfigOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a job: a script with #SBATCH or #FAIRLEAD lines, a command after --, or manifests."""
    from fairlead.cluster.kubernetes.config import ConfigError, load
    from fairlead.submission import directives

    demanded = namespace
    try:
        namespace = namespace or load(kubeconfig or None).namespace
    except ConfigError as error:
        fail(str(error), Exit.UNREACHABLE)
    given = as_given(
        env,
        {
            "job-name": name,
            "queue": queue,
            "class": service_class,
            "nodes": nodes,
            "gpus": gpus,
            "cpus-per-task": cpus,
            "mem": mem,
            "time": time,
            "dependency": dependency,
            "image": image,
        },
    )
    words = list(command or ())
    if file and not _is_file(file):
        words, file = [file, *words], ""
    try:
        manifests, left_out = _manifests(file, words, given, namespace, kubeconfig)
        _check(manifests, file, demanded)
    except directives.DirectiveError as error:
        fail(str(error), Exit.USAGE)
    if dry_run:
        _dry_run(manifests, left_out, kubeconfig, output)
        return
    result = run(kubeconfig, lambda client: _submit(client, manifests, left_out, wait=wait), writes=True)

    def table() -> None:
        for job in result.jobs:
            phase = f": {result.phases[job]}" if job in result.phases else ""
            console().print(f"submitted {job}{phase}")
        _report(result.left_out)

    emit(result, output, table)
    worst = max(result.exit_codes.values(), default=0)
    if worst:
        raise typer.Exit(worst)


def as_given(env: list[str] | None, options: dict[str, str]) -> list[tuple[str, str, str]]:
    """Options of the command line as a script's lines give them: (option, value, where it is from)."""
    return [(option, value, f"--{option}") for option, value in options.items() if value] + [
        ("env", each, "--env") for each in env or ()
    ]


def _is_file(text: str) -> bool:
    if text == "-" or text.endswith(_MANIFESTS) or text.endswith((".sh", ".py", ".bash", ".sbatch")):
        return True
    return Path(text).is_file() or Path(text).is_dir()  # no command is a directory


def _manifests(
    file: str, words: list[str], given: list[tuple[str, str, str]], namespace: str, kubeconfig: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """What is to be created, and what could not be carried over. Raises `DirectiveError`."""
    from fairlead.submission import directives, jobs

    if file.endswith(_MANIFESTS):
        return _documents(_read(file), file, namespace), []
    if not file and not words:
        raise directives.DirectiveError("give a script, a manifest, or a command after `--`")
    script = jobs.check_script(_read(file), file) if file else ""
    options = directives.options_of(script) + given if script else given
    asked = directives.asked(options)
    name = asked.name or _name_for(file or words[0])
    profile = profile_of(namespace, kubeconfig)
    made = [jobs.ai_job(name, namespace, asked, profile, words, scripted=bool(script))]
    if script:
        made.append(jobs.script_map(name, namespace, script))
    return made, asked.left_out


def _read(file: str) -> bytes:
    from fairlead.submission.jobs import MOST_BYTES

    try:
        if file == "-":
            return sys.stdin.buffer.read(MOST_BYTES + 1)
        with Path(file).open("rb") as opened:
            return opened.read(MOST_BYTES + 1)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}", Exit.USAGE)


def _documents(data: bytes, file: str, namespace: str) -> list[dict[str, Any]]:
    import yaml

    try:
        found = [each for each in yaml.safe_load_all(data.decode()) if each is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fail(f"{file} is not YAML: {error}", Exit.USAGE)
    for each in found:
        if not isinstance(each, dict) or each.get("kind") != "AIJob" or not isinstance(each.get("metadata"), dict):
            fail(f"{file}: only AIJobs can be submitted; for other kinds use `kubectl apply -f {file}`", Exit.USAGE)
        each["metadata"]["namespace"] = each["metadata"].get("namespace") or namespace
    return found


def _check(manifests: list[dict[str, Any]], file: str, demanded: str) -> None:
    """What is refused before the API server is asked. demanded: the namespace of the command line. Raises `DirectiveError`."""
    from fairlead.submission.directives import DirectiveError

    if not manifests:
        raise DirectiveError(f"{file} has no AIJob in it")
    for manifest in manifests:
        metadata = manifest["metadata"]
        if not metadata.get("name") and not metadata.get("generateName"):
            raise DirectiveError(f"{file}: an AIJob has no metadata.name")
        if demanded and metadata["namespace"] != demanded:
            name, own = metadata.get("name", "an AIJob"), metadata["namespace"]
            raise DirectiveError(f"{file}: {name} is of namespace {own}, and --namespace is {demanded}")


def _name_for(text: str) -> str:
    from fairlead.submission.directives import label

    return label(Path(text).stem) or "job"


def profile_of(namespace: str, kubeconfig: str) -> jobs.Profile:
    """What a namespace's jobs have in common. Raises `DirectiveError`."""
    from fairlead.submission import jobs

    return jobs.Profile(run(kubeconfig, lambda client: _profile(client, namespace)))


async def _profile(client: Client, namespace: str) -> dict[str, str] | None:
    from fairlead.cluster.kubernetes.client import ApiError
    from fairlead.submission.jobs import PROFILE

    try:
        found = msgspec.json.decode(await client.get(f"/api/v1/namespaces/{namespace}/configmaps/{PROFILE}"))
    except ApiError as error:
        if error.code in (403, 404):
            return None
        raise
    return found.get("data") or {}


async def _submit(client: Client, manifests: list[dict[str, Any]], left_out: list[str], *, wait: bool) -> Submitted:
    from fairlead.api import names

    made: dict[str, dict[str, Any]] = {}
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap":
            namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
            job = made[f"{namespace}/{name.removesuffix('-script')}"]
            owner = {
                "apiVersion": names.API_VERSION,
                "kind": "AIJob",
                "name": job["metadata"]["name"],
                "uid": job["metadata"]["uid"],
            }
            manifest["metadata"]["ownerReferences"] = [owner]
            await _give_script(client, manifest, job)
            continue
        job = await _create(client, manifest)
        made[f"{job['metadata']['namespace']}/{job['metadata']['name']}"] = job
    if not wait:
        return Submitted(list(made), left_out, {})
    for key in made:
        typer.echo(f"{key} is submitted", err=True)
    phases = dict(zip(made, await asyncio.gather(*(ended(client, key) for key in made)), strict=True))
    codes = {key: await _exit_code(client, key, phase) for key, phase in phases.items()}
    return Submitted(list(made), left_out, phases, codes)


async def _exit_code(client: Client, key: str, phase: str) -> int:
    """The highest exit code in the last attempts of a job's members; 1 where it failed without one."""
    from fairlead.api import names
    from fairlead.cli.logs import exit_codes

    if phase == "Succeeded":
        return int(Exit.DONE)
    namespace, _, name = key.partition("/")
    answer = await client.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"{names.JOB_LABEL}={name}")
    last: dict[tuple[str, ...], tuple[int, int]] = {}
    for pod in msgspec.json.decode(answer)["items"]:
        labels = pod["metadata"]["labels"]
        place = tuple(labels.get(each, "") for each in (names.ELEMENT_LABEL, names.ROLE_LABEL, names.INDEX_LABEL))
        attempt = int(labels.get(names.ATTEMPT_LABEL, "0")), max(exit_codes(pod), default=0)
        last[place] = max(attempt, last.get(place, attempt))
    return max((code for _, code in last.values()), default=0) or int(Exit.FAILED)


async def _create(client: Client, manifest: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
    """Create an AIJob or a ConfigMap, as it is written: a field that does not exist is refused, not left out."""
    from fairlead.api import names
    from fairlead.cluster.kubernetes.client import encode

    prefix, plural = ("/api/v1", "configmaps") if manifest["kind"] == "ConfigMap" else (f"/apis/{names.API_VERSION}", "aijobs")
    path = f"{prefix}/namespaces/{manifest['metadata']['namespace']}/{plural}"
    made: dict[str, Any] = msgspec.json.decode(await client.post(path, encode(manifest), dry_run=dry_run, strict=True))
    return made


async def _give_script(client: Client, manifest: dict[str, Any], job: dict[str, Any]) -> None:
    """Create the ConfigMap of a job's script.

    That of a deleted job of the same name may not have been collected yet: it becomes this job's, with this script.
    """
    from fairlead.api import names
    from fairlead.cluster.kubernetes.client import ApiError, encode

    metadata, name = manifest["metadata"], job["metadata"]["name"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/configmaps/{metadata['name']}"
    for _ in range(_ATTEMPTS):  # it may be collected between two requests
        try:
            await _create(client, manifest)
            return
        except ApiError as error:
            if error.code != 409:
                raise
        try:
            found = msgspec.json.decode(await client.get(path))["metadata"]
            if not any((each["kind"], each["name"]) == ("AIJob", name) for each in found.get("ownerReferences") or ()):
                break
            body = {**manifest, "metadata": {**metadata, "resourceVersion": found["resourceVersion"]}}
            await client.put(path, encode(body))
            return
        except ApiError as error:
            if error.code not in (404, 409):
                raise
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": job["metadata"]["uid"]}}
    await client.delete(f"/apis/{names.API_VERSION}/namespaces/{metadata['namespace']}/aijobs/{name}", encode(body))
    problem = f"ConfigMap {metadata['name']} exists in namespace {metadata['namespace']} and is of no job {name}"
    fail(f"{problem}: delete it, or give the job another name (--name)", Exit.REFUSED)


async def ended(client: Client, key: str) -> str:
    """The phase in which a job ends. On stderr, once: that no operator runs, which is to begin it, and why it is not accepted."""
    from fairlead.api import names
    from fairlead.cli import aijobs
    from fairlead.cluster.kubernetes.client import ApiError

    namespace, _, name = key.partition("/")
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/aijobs/{name}"
    last, reported, refusal = "Pending", False, ""
    begun = asyncio.get_running_loop().time()
    while True:
        try:
            found = msgspec.json.decode(await client.get(path))
        except ApiError as error:
            if error.code == 404:
                return last if last in ("Succeeded", "Failed") else "Deleted"
            raise
        last = str((found.get("status") or {}).get("phase", last))
        waits = asyncio.get_running_loop().time() - begun
        if not found.get("status") and waits >= aijobs.SOON and not reported:
            reported = True
            typer.echo(f"{key}: {aijobs.unseen(waits)}", err=True)
        if last in ("Succeeded", "Failed"):
            return last
        if (why := _not_accepted(found)) not in ("", refusal):
            refusal = why
            typer.echo(f"{key} waits: {why}", err=True)
        await asyncio.sleep(_POLL_INTERVAL)


def _not_accepted(job: dict[str, Any]) -> str:
    """Why an AIJob is not accepted; empty: it is, or that is not known yet."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    found = (str(each.get("message", "")) for each in conditions if (each["type"], each["status"]) == ("Accepted", "False"))
    return next(found, "")


def _dry_run(manifests: list[dict[str, Any]], left_out: list[str], kubeconfig: str, output: Output) -> None:
    """Show the manifests, and when the jobs would start; where the API server would refuse one, end as its submission would."""
    import yaml

    from fairlead.cli import dry_run

    if output is Output.TABLE:  # also of what is refused then
        typer.echo("---\n".join(yaml.safe_dump(each, sort_keys=False, allow_unicode=True) for each in manifests), nl=False)
        _report(left_out)

    async def work(client: Client) -> list[dry_run.Expected]:
        for manifest in manifests:
            made = await _create(client, manifest, dry_run=True)
            manifest["metadata"].setdefault("name", made["metadata"]["name"])  # of generateName
        return await dry_run.expected(client, manifests)

    result = dry_run.DryRun(manifests, left_out, run(kubeconfig, work, writes=True))

    def table() -> None:
        for each in result.expected:
            typer.echo(f"# {dry_run.line(each)}")

    emit(result, output, table)


def _report(left_out: list[str]) -> None:
    for each in left_out:
        typer.echo(f"left out: {each}", err=True)

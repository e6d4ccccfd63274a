"""How large a job's members are, from sbatch's options: nodes, tasks, and what each node, task, GPU or CPU gets.

A member is a node's part of the job: one pod, with what all tasks of that node get together. Without `--nodes` or
`--ntasks-per-node` all tasks are on one node, as Slurm places them where one has enough free capacity.
"""

from __future__ import annotations

import msgspec

MIB = 1 << 20


class SizeError(ValueError):
    """Options that give no valid size; the message states the remedy."""


class Sizes(msgspec.Struct):
    """Sizes as given by options; None: not given. memory: in bytes; 0 is all that a node has."""

    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    tasks_per_gpu: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    cpus_per_task: int | None = None
    cpus_per_gpu: int | None = None
    cpus_at_least: int | None = None
    memory: int | None = None
    memory_per_cpu: int | None = None
    memory_per_gpu: int | None = None


class Member(msgspec.Struct, frozen=True):
    """What each of `count` members asks for. cpus, memory: None where nothing is asked. notes: how it was understood."""

    count: int
    gpus: int = 0
    cpus: int | None = None
    memory: int | None = None
    notes: tuple[str, ...] = ()


def member(sizes: Sizes) -> Member:
    """The members. Raises `SizeError`."""
    notes: list[str] = []
    sizes = _with_tasks_of_gpus(sizes)
    count, tasks = _tasks(sizes, notes)
    gpus = _gpus(sizes, count, tasks)
    cpus = _cpus(sizes, tasks, gpus)
    if sizes.cpus_at_least is not None:
        cpus = max(cpus or 1, sizes.cpus_at_least)
    memory = _memory(sizes, cpus, gpus, notes)
    return Member(count, gpus, cpus, memory, tuple(notes))


def _with_tasks_of_gpus(sizes: Sizes) -> Sizes:
    """With `--ntasks-per-gpu` the number of GPUs follows from the tasks, or the number of tasks from the GPUs."""
    each = sizes.tasks_per_gpu
    if each is None:
        return sizes
    if sizes.gpus_per_task is not None or sizes.tasks_per_node is not None:
        raise SizeError("--ntasks-per-gpu goes with neither --gpus-per-task nor --ntasks-per-node: give one of them")
    gpus = sizes.gpus
    if gpus is None and sizes.gpus_per_node is not None:
        gpus = sizes.gpus_per_node * (sizes.nodes or 1)
    if sizes.tasks is None:
        if not gpus:
            raise SizeError("--ntasks-per-gpu needs tasks (--ntasks) or GPUs")
        return msgspec.structs.replace(sizes, tasks=gpus * each)
    if sizes.tasks % each or (gpus is not None and gpus * each != sizes.tasks):
        raise SizeError(f"--ntasks={sizes.tasks} are not --ntasks-per-gpu={each} on each of whole GPUs, or of those asked for")
    return msgspec.structs.replace(sizes, gpus=sizes.tasks // each)


def _tasks(sizes: Sizes, notes: list[str]) -> tuple[int, int]:
    """(members, tasks of each)."""
    nodes, tasks, each = sizes.nodes, sizes.tasks, sizes.tasks_per_node
    if tasks is None:
        return nodes or 1, each or 1
    if nodes is None and each is None:
        if tasks > 1:
            notes.append(f"--ntasks={tasks} without --nodes: one member has what all tasks need; give --nodes for more members")
        return 1, tasks
    if nodes is None:
        nodes = -(-tasks // (each or 1))
    if each is not None and tasks > nodes * each:
        raise SizeError(f"--ntasks={tasks} are more than --nodes={nodes} with --ntasks-per-node={each} hold")
    nodes = min(nodes, tasks)
    if tasks % nodes and any((sizes.gpus_per_task, sizes.cpus_per_task)):
        raise SizeError(
            f"--ntasks={tasks} cannot be divided evenly among {nodes} nodes, and members are alike: change one of them"
        )
    return nodes, -(-tasks // nodes)


def _gpus(sizes: Sizes, count: int, tasks: int) -> int:
    """The GPUs of a member."""
    found: dict[str, int] = {}
    if sizes.gpus_per_node is not None:
        found["--gpus-per-node"] = sizes.gpus_per_node
    if sizes.gpus_per_task is not None:
        found["--gpus-per-task"] = sizes.gpus_per_task * tasks
    if sizes.gpus is not None:
        if sizes.gpus % count:
            raise SizeError(f"--gpus={sizes.gpus} cannot be divided among {count} nodes; use --gpus-per-node")
        found["--gpus"] = sizes.gpus // count
    if len(set(found.values())) > 1:
        shown = ", ".join(f"{option}: {amount}" for option, amount in found.items())
        raise SizeError(f"the options give different numbers of GPUs for a member ({shown}): give one of them")
    return next(iter(found.values()), 0)


def _cpus(sizes: Sizes, tasks: int, gpus: int) -> int | None:
    """The CPUs of a member; None: none are requested. By default several tasks have one each, as in Slurm."""
    if sizes.cpus_per_gpu is not None:
        if sizes.cpus_per_task is not None:
            raise SizeError("--cpus-per-task and --cpus-per-gpu: give one of them")
        if not gpus:
            raise SizeError("--cpus-per-gpu needs GPUs, and none are requested")
        return sizes.cpus_per_gpu * gpus
    if sizes.cpus_per_task is not None:
        return sizes.cpus_per_task * tasks
    return tasks if tasks > 1 else None


def _memory(sizes: Sizes, cpus: int | None, gpus: int, notes: list[str]) -> int | None:
    """The memory of a member in bytes; None: nothing is asked."""
    given = [each for each in (sizes.memory, sizes.memory_per_cpu, sizes.memory_per_gpu) if each is not None]
    if len(given) > 1:
        raise SizeError("--mem, --mem-per-cpu and --mem-per-gpu: give one of them")
    if 0 in given:
        notes.append("all memory of a node cannot be requested. Without a size the members use the free memory of their nodes")
        return None
    if sizes.memory_per_cpu is not None:
        return sizes.memory_per_cpu * (cpus or 1)
    if sizes.memory_per_gpu is not None:
        if not gpus:
            raise SizeError("--mem-per-gpu needs GPUs, and none are requested")
        return sizes.memory_per_gpu * gpus
    return sizes.memory


def shown(amount: int) -> str:
    """Bytes as Kubernetes writes them, in the largest unit that needs no fraction."""
    for unit, size in (("Ti", MIB << 20), ("Gi", MIB << 10), ("Mi", MIB), ("Ki", 1 << 10)):
        if amount % size == 0 and amount:
            return f"{amount // size}{unit}"
    return str(amount)

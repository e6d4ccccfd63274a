"""The options of sbatch and our own, by what becomes of each: a table."""

from __future__ import annotations

SHORT = {
    "J": "job-name",
    "N": "nodes",
    "n": "ntasks",
    "G": "gpus",
    "c": "cpus-per-task",
    "t": "time",
    "a": "array",
    "d": "dependency",
    "o": "output",
    "e": "error",
    "p": "partition",
    "q": "qos",
    "D": "chdir",
    "H": "hold",
    "W": "wait",
    "Q": "quiet",
    "v": "verbose",
    "s": "oversubscribe",
    "O": "overcommit",
    "k": "no-kill",
    "A": "account",
    "B": "extra-node-info",
    "C": "constraint",
    "F": "nodefile",
    "I": "immediate",
    "L": "licenses",
    "M": "clusters",
    "S": "core-spec",
    "V": "version",
    "b": "begin",
    "h": "help",
    "i": "input",
    "m": "distribution",
    "w": "nodelist",
    "x": "exclude",
}
"""Letters -> options."""
SAME = {"queue": "partition", "class": "qos", "name": "job-name", "tasks": "ntasks", "workdir": "chdir"}
"""Options -> the one that they are another word for."""
COUNTS = {
    "ntasks": "tasks",
    "ntasks-per-node": "tasks_per_node",
    "tasks-per-node": "tasks_per_node",
    "ntasks-per-gpu": "tasks_per_gpu",
    "cpus-per-task": "cpus_per_task",
    "cpus-per-gpu": "cpus_per_gpu",
    "mincpus": "cpus_at_least",
}
"""Options that are counts -> the fields of `Sizes`."""
DEVICES = {"gpus": "gpus", "gpus-per-node": "gpus_per_node", "gpus-per-task": "gpus_per_task"}
"""Options that are numbers of GPUs -> the fields of `Sizes`."""
MEMORY = {"mem": "memory", "mem-per-cpu": "memory_per_cpu", "mem-per-gpu": "memory_per_gpu"}
"""Options that are amounts of memory -> the fields of `Sizes`."""
KNOWN = (
    frozenset(["job-name", "nodes", "time", "array", "dependency", "output", "error", "partition", "qos", "chdir", "hold"])
    | COUNTS.keys()
    | DEVICES.keys()
    | MEMORY.keys()
    | {"gres", "export", "requeue", "no-requeue", "exclusive", "nodelist", "exclude", "begin", "licenses"}
)
"""Options of sbatch that are read."""
ALTERNATIVES = {
    "gpus-per-socket": "give --gpus-per-node: the number of sockets of a node is unknown",
    "tres-per-task": "give --gpus-per-task and --cpus-per-task",
    "constraint": "nodes have no features: request a GPU model (--gres=gpu:MODEL:N) or nodes by name (--nodelist, "
    "--exclude), or submit an AIJob with a nodeSelector on labels of the nodes",
    "nodefile": "files of names are not read: give --nodelist",
}
"""Options of sbatch that are refused -> what to write instead."""
OURS = frozenset({"image", "env", "checkpoint", "restarts", "ttl"})
"""Options that sbatch does not have."""
FLAGS = frozenset(
    {
        "requeue",
        "no-requeue",
        "hold",
        "exclusive",
        "contiguous",
        "get-user-env",
        "help",
        "ignore-pbs",
        "immediate",
        "nice",
        "no-kill",
        "no-rotate",
        "oom-kill-step",
        "overcommit",
        "oversubscribe",
        "parsable",
        "propagate",
        "quiet",
        "reboot",
        "resv-ports",
        "share",
        "spread-job",
        "stepmgr",
        "test-only",
        "usage",
        "use-min-nodes",
        "verbose",
        "version",
        "wait",
    }
)
"""Options of sbatch that stand alone; some take a value, after `=` only."""
IDLE = frozenset(
    [
        "account",
        "acctg-freq",
        "batch",
        "bb",
        "bbf",
        "burst-buffer",
        "cluster",
        "cluster-constraint",
        "clusters",
        "comment",
        "consolidate-segments",
        "container",
        "container-id",
        "core-spec",
        "cores-per-socket",
        "cpu-freq",
        "deadline",
        "delay-boot",
        "distribution",
        "export-file",
        "extra",
        "extra-node-info",
        "gid",
        "gpu-bind",
        "gpu-freq",
        "gres-flags",
        "hint",
        "input",
        "kill-on-invalid-dep",
        "mail-type",
        "mail-user",
        "mcs-label",
        "mem-bind",
        "mincores",
        "minsockets",
        "minthreads",
        "network",
        "ntasks-per-core",
        "ntasks-per-socket",
        "open-mode",
        "power",
        "prefer",
        "priority",
        "profile",
        "reservation",
        "segment",
        "signal",
        "sockets-per-node",
        "switches",
        "thread-spec",
        "threads-per-core",
        "time-min",
        "tmp",
        "tres-bind",
        "uid",
        "umask",
        "wait-all-nodes",
        "wckey",
        "wrap",
    ]
)
"""Options of sbatch, each with a value, that change nothing of what a job asks for here."""
OF_SBATCH = sorted(KNOWN | FLAGS | IDLE | ALTERNATIVES.keys() | {"tasks", "workdir"})
"""All options of sbatch."""

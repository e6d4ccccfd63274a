"""What scripts request, and the errors for what makes no sense."""

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.submission.directives import DirectiveError, asked, duration, label, options_of
from fairlead.submission.jobs import MOST_BYTES, Profile, ai_job, check_script

SCRIPT = """#!/bin/bash
#SBATCH --job-name=Bert_Large --nodes=2
#SBATCH -G 16 -c 8 --mem=64G   # for all
# a remark
#SBATCH -t 1-12:00:00 -p vision --qos batch
#SBATCH --dependency=afterok:prepare:download,afterany:old
#SBATCH --output=%j.out --mail-type=END
#FAIRLEAD --image registry/train:1 --env LR=0.1,SEED=7 --checkpoint=/ckpt --restarts 5 --ttl 7d

srun train
#SBATCH --nodes=99
"""


def read(text):
    return asked(options_of(text))


def test_a_whole_script():
    found = read(SCRIPT)
    assert (found.name, found.nodes, found.gpus, found.cpus, found.memory) == ("bert-large", 2, 8, "8", "64Gi")
    assert (found.time, found.queue, found.service_class) == ("129600s", "vision", "batch")
    assert found.dependencies == [("prepare", "afterok"), ("download", "afterok"), ("old", "afterany")]
    assert (found.image, found.env, found.checkpoint) == ("registry/train:1", {"LR": "0.1", "SEED": "7"}, "/ckpt")
    assert (found.restarts, found.ttl) == (5, "7d")
    assert found.left_out == [
        "line 7: --output has no effect: the output of members is in their logs",
        "line 7: --mail-type has no meaning here",
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", "5400s"), ("1:30", "90s"), ("01:30:00", "5400s"), ("2-0", "172800s"), ("1-1:30", "91800s"), ("36h", "36h")],
)
def test_times(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("#SBATCH --nodes=many", "line 2: --nodes 'many' is not a whole number from 1 to 1000000"),
        ("#SBATCH --time=soon", "is not a time such as"),
        ("#SBATCH --time=0", "is an empty time: give at least one second. Without --time, the limit of its class"),
        ("#SBATCH --time=0s", "'0s' is an empty time: give at least one second"),
        ("#SBATCH --time=365000000d", "'365000000d' is longer than a century (36500d)"),
        ("#SBATCH --time=99999-00:00:00", "'99999-00:00:00' is longer than a century (36500d)"),
        ("#SBATCH --time=UNLIMITED", "is not a time: without --time, the limit of its class"),
        ("#SBATCH --array=9-0", "--array: '9-0' ends before it begins"),
        ("#SBATCH --array=0-9,a", "--array: 'a' is not an index or a range such as 3, 0-9 or 0-9:3"),
        ("#SBATCH --array=0-9:0", "--array: '0-9:0': its step is at least 1"),
        ("#SBATCH --array=", "--array: '' is not an index"),
        ("#SBATCH --depenency=afterok:a", "is not an option of sbatch: correct it, to --dependency perhaps"),
        ("#SBATCH --tme=5", "to --time perhaps"),
        ("#FAIRLEAD --checkpont=/c", "to --checkpoint perhaps"),
        ("#SBATCH --mem=lots", "is not a size such as 64G"),
        ("#SBATCH --gpus=3 --nodes=2", "cannot be divided among 2 nodes"),
        ("#SBATCH --dependency=after:x", "is not one of afterok"),
        ("#SBATCH --dependency=afterok", "with names of jobs"),
        ("#SBATCH --image=x", "is not an option of sbatch: write it in a #FAIRLEAD line"),
        ("#SBATCH nodes=2", "is not an option"),
        ("#SBATCH --nodes", "needs a value"),
        ("#SBATCH --comment='open", "cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_said_with_its_line(line, told):
    with pytest.raises(DirectiveError) as refused:
        read(f"#!/bin/sh\n{line}\n")
    assert told in str(refused.value)
    assert "line 2" in str(refused.value) or "--gpus" in str(refused.value)


def test_an_option_of_the_command_line_is_named_once():
    for option, value, told in (
        ("gpus", "99999999999", "--gpus '99999999999' is not a whole number from 0 to 1000000"),
        ("mem", "1X", "--mem '1X' is not a size such as 64G"),
    ):
        with pytest.raises(DirectiveError) as refused:
            asked([(option, value, f"--{option}")])
        assert str(refused.value) == told


def test_gpus_in_all_their_forms():
    assert read("#SBATCH --gres=gpu:a100:4").gpu_model == "a100"
    assert read("#SBATCH --gres=gpu:4").gpus == 4
    assert read("#SBATCH --gpus-per-node=h100:8 -N 3").gpus == 8
    assert read("#SBATCH --gres=fpga:1").left_out == ["line 1: --gres=fpga:1: only gpu is supported"]
    assert read("#SBATCH --array=0-99%10").parallelism == 10
    assert read("#SBATCH --array=1,3-5,0-10:4%2").array == "1,3-5,0,4,8"


def test_a_job_of_it():
    profile = Profile(
        {
            "image": "base",
            "env": "HOME=/data\nLR=1",
            "volumes": "[{name: data}]",
            "volumeMounts": "[{name: data, mountPath: /data}]",
        }
    )
    made = ai_job("bert", "vision", read(SCRIPT), profile, ["--fast"], scripted=True)
    (role,) = made["spec"]["roles"]
    pod = role["template"]["spec"]
    (container,) = pod["containers"]
    assert (role["replicas"], container["image"]) == (2, "registry/train:1")
    assert container["command"] == ["/fairlead/script", "--fast"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8, "memory": "64Gi"}
    assert {each["name"]: each["value"] for each in container["env"]} == {"HOME": "/data", "LR": "0.1", "SEED": "7"}
    assert [each["name"] for each in pod["volumes"]] == ["data", "fairlead-script"]
    assert made["spec"]["dependsOn"][0] == {"job": "prepare", "when": "afterok"}


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (b"echo hello", "its first line must be such as #!/bin/bash"),
        (b"\x7fELF\xff", "is not text"),
        (b"#!/bin/bash\r\n#SBATCH --gpus=1\r\n", r"train.sh has DOS line breaks (\r\n): convert it"),
        (b"#!" + b"x" * MOST_BYTES, "more than 1 MiB: put data and programs on a volume"),
    ],
)
def test_scripts_that_are_refused(script, told):
    with pytest.raises(DirectiveError, match=r".*") as refused:
        check_script(script, "train.sh")
    assert told in str(refused.value)


def test_jobs_that_are_refused():
    for name, profile, told in (
        ("Bert", Profile({"image": "i"}), "is not a job name"),
        ("bert", Profile(), "no image: use"),
        ("bert", Profile({"image": "i", "env": f"A={'x' * MOST_BYTES}"}), "larger than 1 MiB"),
    ):
        with pytest.raises(DirectiveError) as refused:
            ai_job(name, "vision", asked([]), profile, ["true"], scripted=False)
        assert told in str(refused.value)
    with pytest.raises(DirectiveError, match="is not a list"):
        Profile({"volumes": "a: b"})


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(DirectiveError):
        read(f"#SBATCH {text}")
    name = label(text)
    assert name == "" or (name[0].isalnum() and name[-1].isalnum() and len(name) <= 40)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["--nodes=1 --ntasks=4 --gres=gpu:4"], (1, 4, "4", "")),
        (["--ntasks=4 --gpus-per-task=1"], (1, 4, "4", "")),
        (["--gpus-per-task=1"], (1, 1, "", "")),
        (["-N 2 -n 8 --gpus-per-task=1 -c 6"], (2, 4, "24", "")),
        (["-n 28"], (1, 0, "28", "")),
        (["-n 28 -c 2"], (1, 0, "56", "")),
        (["-n 8 --ntasks-per-node=4 --gpus-per-node=4"], (2, 4, "4", "")),
        (["-N 2 --ntasks-per-node=4"], (2, 0, "4", "")),
        (["--mem=0", "--gpus=2"], (1, 2, "", "")),
        (["--mem-per-cpu=2G -n 4 -N 1"], (1, 0, "4", "8Gi")),
        (["--mem-per-gpu=64G --gpus-per-node=8"], (1, 8, "", "512Gi")),
        (["--cpus-per-gpu=12 --gpus-per-node=4"], (1, 4, "48", "")),
        (["--mem=1500"], (1, 0, "", "1500Mi")),
        (["--mem=2K"], (1, 0, "", "2Ki")),
        (["--tasks=8"], (1, 0, "8", "")),
        (["--gres=gpu:2,nvme:1"], (1, 2, "", "")),
        (["--gres=gres:gpu:2"], (1, 2, "", "")),
        (["--gres=gpu:4", "--gres=none"], (1, 0, "", "")),
        (["--ntasks=4 --ntasks-per-gpu=1 -N 2"], (2, 2, "2", "")),
        (["--gpus=8 -N 2 --ntasks-per-gpu=2 -c 4"], (2, 4, "32", "")),
        (["--gpus-per-node=2 -N 2 --ntasks-per-gpu=1"], (2, 2, "2", "")),
        (["--mincpus=8 -c 2"], (1, 0, "8", "")),
        (["--gpus-per-n=4 --cpus-per-t=6"], (1, 4, "6", "")),
    ],
)
def test_the_amounts_are_those_that_slurm_gives(lines, expected):
    found = read("\n".join(f"#SBATCH {line}" for line in lines))
    assert (found.nodes, found.gpus, found.cpus, found.memory) == expected


def test_what_stands_alone_swallows_nothing():
    found = read("#SBATCH --hold\n#SBATCH -H --nodes=2\n#SBATCH --contiguous --gpus-per-node=1\n#SBATCH -v -Q -n 2")
    assert (found.held, found.nodes, found.gpus) == (True, 2, 1)
    assert [each for each in found.left_out if "contiguous" in each] == ["line 3: --contiguous has no meaning here"]
    made = ai_job("held", "vision", found, Profile({"image": "i"}), ["run"], scripted=False)
    assert made["spec"]["suspend"] is True


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--exclusive", "whole nodes cannot be requested"),
        ("--exclusive=user", "whole nodes cannot be requested"),
        ("-N 2 -n 3 --gpus-per-task=1", "cannot be divided evenly"),
        ("-N 1 -n 9 --ntasks-per-node=4", "are more than"),
        ("--mem=4G --mem-per-cpu=1G", "give one of them"),
        ("--mem-per-gpu=4G", "needs GPUs, and none are requested"),
        ("--cpus-per-gpu=4", "needs GPUs, and none are requested"),
        ("--gpus=4 --gpus-per-node=8", "different numbers of GPUs"),
        ("--gpus=volta:3,kepler:5", "members have GPUs of one model"),
        ("--gres=gpu:a100:2,gpu:v100:1", "members have GPUs of one model"),
        ("--gpus=a100:4 --gpus-per-node=h100:4", "GPUs of several models"),
        ("--gres=GPU:2", "--gres=GPU:2 cannot be read: write gpu:N or gpu:MODEL:N"),
        ("--gres=gpu=2", "cannot be read"),
        ("--gres=gpu/a100:2", "cannot be read"),
        ("--gres=gpu:1,shard:2", "gpu-fraction"),
        ("--gpus=many", "is not a whole number"),
        ("--gpus-per-socket=2", "give --gpus-per-node"),
        ("--tres-per-task=gres/gpu:1 -n 4", "give --gpus-per-task"),
        ("--ntasks-per-gpu=2 -n 3", "whole GPUs"),
        ("--ntasks-per-gpu=2 -n 8 --gpus=8", "of those asked for"),
        ("--ntasks-per-gpu=2", "needs tasks (--ntasks) or GPUs"),
        ("--ntasks-per-gpu=2 --gpus-per-task=1 -n 2", "goes with neither"),
        ("--gpu-per-node=4", "is not an option of sbatch"),
        ("--mem_per_cpu=4G", "is not an option of sbatch"),
        ("--cpus=4", "may be --cpus-per-gpu, --cpus-per-task"),
        ("--nodes=²", "is not a whole number"),
        ("-d afterok:a?afterany:b", "alternatives are not supported"),
    ],
)
def test_what_cannot_be_given_is_refused_by_name(line, told):
    with pytest.raises(DirectiveError) as refused:
        read(f"#SBATCH {line}")
    assert told in str(refused.value)


@pytest.mark.parametrize("seed", range(300))
def test_random_scripts_get_the_devices_and_cpus_that_they_ask_for_together(seed):
    chance = random.Random(seed)
    nodes, tasks = chance.choice([None, 1, 2, 3, 4]), chance.choice([None, 1, 2, 4, 6, 12])
    per_task, cpus = chance.choice([None, 1, 2]), chance.choice([None, 1, 6])
    lines = [f"#SBATCH --nodes={nodes}"] * (nodes is not None) + [f"#SBATCH -n {tasks}"] * (tasks is not None)
    lines += [f"#SBATCH --gpus-per-task={per_task}"] * (per_task is not None) + [f"#SBATCH -c {cpus}"] * (cpus is not None)
    chance.shuffle(lines)
    if tasks is not None and nodes is not None and tasks % min(nodes, tasks) and (per_task or cpus):
        with pytest.raises(DirectiveError):
            read("\n".join(lines))
        return
    found = read("\n".join(lines))
    in_all = tasks if tasks is not None else (nodes or 1)  # without --ntasks there is one task a node
    assert found.nodes * found.gpus == in_all * (per_task or 0)
    if cpus is not None:
        assert found.nodes * int(found.cpus) == in_all * cpus
    assert found.nodes == (1 if nodes is None else nodes if tasks is None else min(nodes, tasks))


def test_the_lines_are_those_that_sbatch_reads():
    assert read(" #SBATCH --nodes=4\n#SBATCHED --nodes=4\n##SBATCH --nodes=4").nodes == 1
    assert read("#SBATCH--nodes=4").nodes == 4


def test_the_last_of_a_kind_holds_and_a_model_stays_with_its_option():
    assert read("#SBATCH -d afterok:a\n#SBATCH --depend=afterany:b,afterok:c").dependencies == [
        ("b", "afterany"),
        ("c", "afterok"),
    ]
    for line in ("--gres=gpu:a100:4 --gpus=4", "--gpus=4 --gres=gpu:a100:4", "--gres=gpu:a100 --gpus-per-task=1"):
        assert read(f"#SBATCH {line}").gpu_model == "a100"
    assert read("#SBATCH --gres=gpu:a100:4\n#SBATCH --gres=gpu:2").gpu_model == ""


@pytest.mark.parametrize("flag", ["--oom-kill-step", "--no-container-mount-home", "--container-writable", "-I", "--resv-ports"])
def test_what_a_plugin_adds_swallows_no_option(flag):
    found = read(f"#SBATCH {flag} --nodes=4\n#SBATCH {flag}")
    assert (found.nodes, len(found.left_out)) == (4, 2)
    assert read("#SBATCH --container-image img:1 --nodes=4").nodes == 4
    assert read("#SBATCH -j job --nodes=4").name == "", "only long names may be cut short"


HOSTNAME = "kubernetes.io/hostname"


def pod_of(text):
    made = ai_job("train", "vision", read(text), Profile({"image": "i"}), ["run"], scripted=False)
    (role,) = made["spec"]["roles"]
    return role["replicas"], role["template"]["spec"]


def required(spec):
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return {(each["key"], each["operator"]): each["values"] for each in term["matchExpressions"]}


@pytest.mark.parametrize(
    "line", ["--nodelist=node[01-02],b", "-w node[01-02],b", "-w node[01-02],b -N 3", "-w b,node[01-02],b -N 1-4"]
)
def test_a_list_of_nodes_is_one_member_on_each_of_them(line):
    count, spec = pod_of(f"#SBATCH {line} --gpus-per-node=8")
    assert count == 3
    assert sorted(required(spec)[HOSTNAME, "In"]) == ["b", "node01", "node02"]
    (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart == {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"fairlead.dev/job": "train"}}}


def test_gpus_and_tasks_are_divided_among_the_nodes_that_are_listed():
    found = read("#SBATCH -w node[1-4] --gpus=8 -n 8")
    assert (found.nodes, found.gpus, found.cpus) == (4, 2, "2")


def test_elements_of_an_array_keep_no_distance_from_each_other():
    _, spec = pod_of("#SBATCH -w node[1-2] --array=0-9")
    (apart,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["matchLabelKeys"] == ["fairlead.dev/array-index"]


def test_one_node_and_nodes_that_are_left_out():
    count, spec = pod_of("#SBATCH -w node1 -x bad[1-2]")
    assert (count, required(spec)) == (1, {(HOSTNAME, "In"): ["node1"], (HOSTNAME, "NotIn"): ["bad1", "bad2"]})
    assert "podAntiAffinity" not in spec["affinity"]
    count, spec = pod_of("#SBATCH --exclude=bad[1-2] -N 2")
    assert (count, required(spec), list(spec["affinity"])) == (2, {(HOSTNAME, "NotIn"): ["bad1", "bad2"]}, ["nodeAffinity"])
    assert "affinity" not in pod_of("#SBATCH -N 2")[1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-w node[1-4] -N 2", "--nodelist names 4 nodes and the job has 2: give --nodes=4"),
        ("-w node[1-4] -N 1-3", "--nodelist names 4 nodes and the job has 1"),
        ("-w node[1-2] -n 1", "--nodelist names 2 nodes and the job has 1"),
        ("-w node[1-2] -N 4", "--nodelist names 2 nodes and the job has 4: name all of them"),
        ("-w node[1-2", "--nodelist: 'node[1-2': its brackets do not match"),
        ("-x /etc/bad", "--exclude: '/etc/bad' is a file of names"),
        ("-w node[1-2] -x node2", "--nodelist and --exclude both name node2"),
        ("-C a100", "--constraint: nodes have no features"),
        ("--constraint='intel&gpu'", "nodeSelector"),
        ("-F nodes.txt", "--nodefile: files of names are not read: give --nodelist"),
        ("--begin=16:00", "--begin: start times are not supported. Submit the job at that time"),
        ("-b now+1hour", "--hold"),
    ],
)
def test_where_and_when_are_never_left_out(line, said):
    with pytest.raises(DirectiveError) as refused:
        read(f"#SBATCH {line}")
    assert said in str(refused.value)
    assert "line 1" in str(refused.value) or "--nodelist" in str(refused.value)


def test_to_begin_now_is_no_wish():
    assert read("#SBATCH --begin=now").left_out == []

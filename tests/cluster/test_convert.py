import msgspec
import pytest

from fairlead.api.names import ALTERNATIVES_ANNOTATION, GPU_SHARING_LABEL, GPU_TOPOLOGY_ANNOTATION, OWN_AGENT
from fairlead.api.quantity import QuantityError
from fairlead.api.reasons import ReasonCode
from fairlead.cluster import convert, pod_specs, policies, views
from fairlead.cluster.requests import pod_requests
from fairlead.core.model.pods import Closeness, Pod, PodSpec, SliceRule
from tests.builders import cluster, placed, run


def view(**pod):
    pod.setdefault("metadata", {"name": "p", "namespace": "ns", "uid": "u"})
    return msgspec.convert(pod, views.Pod)


def container(**requests):
    return {"resources": {"requests": requests}}


def test_requests_as_kube_scheduler_counts_them():
    spec = {
        "containers": [container(cpu="1", memory="1Gi"), container(cpu="500m")],
        "initContainers": [
            container(cpu="3"),
            {**container(cpu="200m"), "restartPolicy": "Always"},
            container(cpu="1", memory="4Gi"),
        ],
        "overhead": {"cpu": "10m"},
    }
    requests = pod_requests(view(spec=spec))
    assert requests == {"cpu": 3010, "memory": 4 << 30}


ALWAYS = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("first", "milli"),
    [
        ([], 1000),
        ([container(cpu="3")], 3000),
        ([{**container(cpu="2"), **ALWAYS}], 3000),
        ([{**container(cpu="2"), **ALWAYS}, container(cpu="3")], 5000),
        ([container(cpu="3"), {**container(cpu="2"), **ALWAYS}], 3000),
        ([{**container(cpu="2"), **ALWAYS}, {**container(cpu="1"), **ALWAYS}, container(cpu="3")], 6000),
        ([{**container(cpu="2"), **ALWAYS}, container(cpu="3"), {**container(cpu="1"), **ALWAYS}], 5000),
    ],
)
def test_an_init_container_runs_beside_the_sidecars_before_it_and_before_the_others(first, milli):
    assert pod_requests(view(spec={"containers": [container(cpu="1")], "initContainers": first})) == {"cpu": milli}


def test_every_pod_counts_as_one_of_those_that_its_node_takes():
    assert dict(convert.pod(view(spec={"containers": [container()]}), "default").spec.requests) == {"pods": 1}
    given = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "2"}}}
    state = cluster([convert.node(msgspec.convert(given, views.Node))])
    for name in "abc":
        metadata, spec = (
            {"name": name, "namespace": "ns", "uid": name},
            {"schedulerName": "fairlead", "containers": [container()]},
        )
        state.upsert_pod(convert.pod(view(metadata=metadata, spec=spec), "default"))
    assert set(placed(run(state))) == {"a", "b"}


@pytest.mark.parametrize(
    ("labels", "shares"), [({}, False), ({GPU_SHARING_LABEL: OWN_AGENT}, True), ({GPU_SHARING_LABEL: "x"}, False)]
)
def test_a_node_shares_its_gpus_where_it_names_an_agent_that_is_known(labels, shares):
    assert convert.node(msgspec.convert({"metadata": {"name": "n", "labels": labels}}, views.Node)).shares_gpus == shares


def test_pod_level_resources_replace_cpu_and_memory():
    spec = {"containers": [container(cpu="1", **{"nvidia.com/gpu": "2"})], "resources": {"requests": {"cpu": "8"}}}
    assert pod_requests(view(spec=spec)) == {"cpu": 8000, "nvidia.com/gpu": 2}


def test_only_requests_count_since_the_api_server_has_filled_them_from_limits():
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "4", "cpu": "2"}, "requests": {"cpu": "1"}}}]}
    assert pod_requests(view(spec=spec)) == {"cpu": 1000}


def test_amounts_are_rounded_up_once_at_the_end():
    spec = {"containers": [container(cpu="100u", memory="100m"), container(cpu="100u", memory="100m")]}
    assert pod_requests(view(spec=spec)) == {"cpu": 1, "memory": 1}


def test_names_that_nodes_do_not_count_are_left_out():
    asked = {"storage": "1", "pods": "5", "example.com/thing": "1", "hugepages-2Mi": "2Mi", "requests.cpu": "1"}
    assert pod_requests(view(spec={"containers": [container(**asked)]})) == {"example.com/thing": 1, "hugepages-2Mi": 2 << 20}


def resizing(reason):
    status = {"name": "c", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}}
    spec = {"containers": [{"name": "c", **container(cpu="8")}], "nodeName": "n"}
    condition = {"type": "PodResizePending", "status": "True", "reason": reason}
    return view(spec=spec, status={"containerStatuses": [status], "conditions": [condition]})


def test_while_it_is_resized_the_greatest_amount_counts():
    assert pod_requests(resizing("Deferred")) == {"cpu": 8000}
    assert pod_requests(resizing("Infeasible")) == {"cpu": 3000}


@pytest.mark.parametrize(
    ("resource", "quantity", "code"),
    [
        ("memory", "10E", ReasonCode.TOO_LARGE),
        ("cpu", str(2**63 - 1), ReasonCode.TOO_LARGE),
        ("memory", "1e1000", ReasonCode.TOO_LARGE),
        ("cpu", "-1", ReasonCode.INVALID_SPEC),
        ("memory", "lots", ReasonCode.INVALID_SPEC),
        ("nvidia.com/gpu", str(2**40), ReasonCode.TOO_LARGE),
    ],
)
def test_bad_quantities_become_the_pods_error(resource, quantity, code):
    pod = convert.pod(view(spec={"containers": [container(**{resource: quantity})]}), "default")
    assert pod.error.code is code
    assert "ns/p" in pod.error.message


def test_containers_that_add_up_to_too_much():
    many = [container(memory="1152921504606846976")] * 3
    assert convert.pod(view(spec={"containers": many}), "default").error.code is ReasonCode.TOO_LARGE


@pytest.mark.parametrize("text", ["1.5", "0", "-0.5", "half", "", "1", "x" * (1 << 20)])
def test_absurd_fractions(text):
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "annotations": {"fairlead.dev/gpu-fraction": text}}
    assert (
        convert.pod(view(metadata=metadata, spec={"containers": [container()]}), "default").error.code is ReasonCode.INVALID_SPEC
    )


FRACTION, LIMIT, EXPECTED = "fairlead.dev/gpu-fraction", "fairlead.dev/time-limit", "fairlead.dev/expected-duration"


@pytest.mark.parametrize("text", ["banana", "1h30", "", "0s", "-5m", "90", "200000d", "x" * 100_000])
@pytest.mark.parametrize("name", [LIMIT, EXPECTED])
def test_a_span_that_cannot_be_read_is_said_and_never_silently_none(name, text):
    pod = convert.pod(view(metadata={"annotations": {name: text}}, spec={"containers": [container(cpu="2")]}), "default")
    assert pod.error.code is ReasonCode.INVALID_SPEC
    assert f"annotation {name}: " in pod.error.message
    assert text[:60] in pod.error.message
    assert "write 90s" in pod.error.message
    assert len(pod.error.message) < 500
    assert (pod.unsized, dict(pod.spec.requests)["cpu"]) == (False, 2000)


def test_everything_that_is_wrong_is_said_at_once():
    metadata = {
        "annotations": {FRACTION: "banana", LIMIT: "soon", EXPECTED: "1h"},
        "labels": {"fairlead.dev/elastic-replica": "perhaps", "fairlead.dev/pod-group": "g"},
    }
    pod = convert.pod(view(metadata=metadata, spec={"containers": [container(cpu="10m")]}), "default")
    for part in ("gpu-fraction: 'banana'", "such as 0.5", "time-limit: 'soon'", "elastic-replica: 'perhaps'"):
        assert part in pod.error.message
    assert (pod.expected, pod.time_limit) == (3600.0, 0.0)
    both = view(metadata={"annotations": {FRACTION: "0.5"}}, spec={"containers": [container(**{"nvidia.com/gpu": "2"})]})
    pod = convert.pod(both, "default")
    assert "exclude each other" in pod.error.message
    assert (pod.spec.gpus, pod.spec.gpu_milli, pod.unsized) == (2, 1000, False), "it counts by its requests"


def test_only_amounts_beyond_exact_integers_leave_a_size_unknown():
    for amounts in ({"memory": "10E"}, {"nvidia.com/gpu": "2000"}):
        pod = convert.pod(view(spec={"containers": [container(**amounts)]}), "default")
        assert (pod.unsized, pod.error.code) == (True, ReasonCode.TOO_LARGE)


def absurd(**spec):
    return convert.pod(view(spec={"containers": [container(cpu="1")], **spec}), "default")


def test_what_is_absurdly_long_is_refused_and_not_remembered():
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    constraint = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    terms = [{"matchExpressions": [{"key": f"k{n}", "operator": "In", "values": ["v"]}]} for n in range(1200)]
    for what, spec in {
        "200 terms of pod affinity": {"affinity": {"podAntiAffinity": {required: [term] * 200}}},
        "40 topology spread constraints": {"topologySpreadConstraints": [constraint] * 40},
        "2400 expressions and values of node affinity": {"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}},
        "1500 tolerations": {"tolerations": [{"key": f"t{n}"} for n in range(1500)]},
    }.items():
        pod = absurd(**spec)
        assert what in pod.error.message
        assert pod.error.code is ReasonCode.INVALID_SPEC
        assert (pod.unsized, dict(pod.spec.requests)["cpu"], pod.spec.pod_anti_affinity, pod.spec.affinity) == (
            False,
            1000,
            (),
            None,
        )
    assert absurd(affinity={"podAntiAffinity": {required: [term] * 100}}).error is None

    before = len(pod_specs._known_amounts)
    for number in range(20):
        metadata = {"annotations": {FRACTION: f"{number}" * 100_000}}
        convert.pod(view(metadata=metadata, spec={"containers": [container()]}), "default")
    assert len(pod_specs._known_amounts) == before


def test_fractions_round_up():
    assert pod_specs.gpu_fraction("0.3333") == 334
    with pytest.raises(QuantityError):
        pod_specs.gpu_fraction("2")


def test_labels_queue_gang_and_owner():
    metadata = {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"fairlead.dev/pod-group": "g"},
        "ownerReferences": [{"kind": "Job", "name": "j", "controller": True}],
    }
    pod = convert.pod(view(metadata=metadata, spec={"schedulerName": "fairlead", "priority": 7}), "team")
    assert (pod.queue, pod.group, pod.ours, pod.priority, pod.controlled) == ("team", "g", True, 7, True)
    assert pod.created == 1767225600.0


def test_affinity_tolerations_gates():
    spec = {
        "schedulingGates": [{"name": "wait"}],
        "tolerations": [{"operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
                }
            }
        },
    }
    pod = convert.pod(view(spec=spec), "default")
    assert pod.gated
    assert pod.spec.affinity[0].fields[0].values == ("n",)
    assert pod.spec.tolerations[0].operator == "Exists"


def test_a_gpu_topology_that_cannot_be_read_closes_no_node():
    def of(text):
        return convert.node(
            msgspec.convert({"metadata": {"name": "n", "annotations": {GPU_TOPOLOGY_ANNOTATION: text}}}, views.Node)
        )

    good = of("\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV1\tX\n")
    assert (good.links.weights, good.links_fault) == (((0, 100), (100, 0)), "")
    bad = of("\tGPU0\tGPU1\nGPU0\tX\tNV1\n")
    assert (bad.links, bad.error) == (None, None)
    assert bad.links_fault == "WrongSize: its rows are GPU0, and its columns GPU0, GPU1"


def test_nodes_with_unreadable_capacity_are_closed():
    node = convert.node(msgspec.convert({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "many"}}}, views.Node))
    assert node.error.code is ReasonCode.INVALID_SPEC


def test_queue_amounts_percentages_and_what_is_not_acted_on():
    spec = {
        "resources": [
            {"name": "nvidia.com/gpu", "quota": 4, "limit": "50%", "weight": 2},
            {"name": "nvidia.com/gpu", "pool": "h100", "quota": 1},
        ]
    }
    seen = msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, views.Queue)
    resource, of_pool = policies.queue(seen).resources
    assert (resource.quota, resource.limit_percent) == (4000, 50_000)
    assert resource.weight == 2
    assert (of_pool.pool, of_pool.quota) == ("h100", 1000)


def test_a_class_of_service():
    spec = {
        "preemption": {"mode": "Suspend", "scope": "Parent", "minRuntime": "1h30m"},
        "checkpointInterval": "30m",
        "timeSlicing": {"levels": [0.5, 4], "express": 1},
        "namespaceSelector": {"matchLabels": {"team": "vision"}},
    }
    seen = msgspec.convert({"metadata": {"name": "batch"}, "spec": spec}, views.ServiceClass)
    made = policies.service_class(seen)
    assert (made.mode, made.scope, made.min_runtime, made.checkpoint_interval) == ("Suspend", "Parent", 5400, 1800)
    assert (made.levels, made.express) == ((1800, 14_400), 1)
    assert made.level(1799) == 0
    assert made.level(1800) == 1


@pytest.mark.parametrize(
    ("said", "pods", "whole"), [(None, True, False), ("Pods", True, False), ("Whole", True, True), ("Never", False, False)]
)
def test_what_of_a_class_may_move(said, pods, whole):
    spec = {"preemption": {"consolidation": said}} if said else {}
    made = policies.service_class(msgspec.convert({"metadata": {"name": "c"}, "spec": spec}, views.ServiceClass))
    assert (made.movable, made.moves_whole) == (pods, whole)


@pytest.mark.parametrize(
    "spec",
    [
        {"preemption": {"mode": "Kill"}},
        {"preemption": {"scope": "World"}},
        {"preemption": {"consolidation": "Allow"}},
        {"preemption": {"minRuntime": "soon"}},
        {"checkpointInterval": "1000000d"},
        {"timeSlicing": {"levels": [4, 1]}},
        {"timeSlicing": {"levels": [0]}},
        {"timeSlicing": {"levels": [-1]}},
        {"timeLimit": {"default": "10h", "max": "1h"}},
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
    ],
)
def test_classes_that_cannot_be_read(spec):
    with pytest.raises(QuantityError):
        policies.service_class(msgspec.convert({"metadata": {"name": "c"}, "spec": spec}, views.ServiceClass))


@pytest.mark.parametrize(
    ("annotations", "stays"),
    [
        ({}, False),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, True),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, False),
        ({"karpenter.sh/do-not-disrupt": "true"}, True),
        ({"karpenter.sh/do-not-disrupt": "false"}, False),
    ],
)
def test_what_asks_autoscalers_to_leave_it_alone_is_not_moved_by_us(annotations, stays):
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations}
    seen = convert.pod(view(metadata=metadata, spec={"schedulerName": "fairlead", "containers": [container()]}), "default")
    assert seen.stays is stays


@pytest.mark.parametrize(("deleted", "moves_to"), [("2027-01-31T08:00:00Z", "n7"), (None, "")])
def test_where_the_replacement_of_a_pod_is_to_run_counts_once_it_is_on_its_way_out(deleted, moves_to):
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "deletionTimestamp": deleted}
    conditions = [{"type": "fairlead.dev/MovesTo", "status": "True", "reason": "Rescheduled", "message": "n7"}]
    spec = {"schedulerName": "fairlead", "containers": [container()], "nodeName": "n1"}
    seen = convert.pod(view(metadata=metadata, spec=spec, status={"conditions": conditions}), "default")
    assert seen.moves_to == moves_to


@pytest.mark.parametrize(("given", "counts"), [(1, 1), (100, 100), (101, 100), (1 << 70, 100), (-1, None), (-(1 << 70), None)])
def test_a_preference_weighs_no_more_than_an_api_server_admits(given, counts):
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    nodes = [{"weight": given, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}]
    pods = [{"weight": given, "podAffinityTerm": term}]
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": nodes},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": pods},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": pods},
    }
    spec = pod_specs.pod_spec(view(spec={"containers": [container(cpu="1")], "affinity": affinity}))
    assert [weight for weight, _ in spec.preferred_nodes] == ([counts] if counts else [])
    assert [weight for weight, _ in spec.preferred_pods] == [counts or 0, -(counts or 0)]


@pytest.mark.parametrize(
    ("given", "counts"), [(1, 1), (3, 3), (1 << 31, (1 << 31) - 1), (1 << 70, (1 << 31) - 1), (0, 1), (-5, 1)]
)
def test_spread_counts_no_further_than_an_api_server_admits(given, counts):
    """Beyond 31 bits sums of it would not fit the integers that nodes are scored in."""
    term = {"topologyKey": "zone", "labelSelector": {}, "maxSkew": given, "minDomains": given}
    terms = [{**term, "whenUnsatisfiable": each} for each in ("DoNotSchedule", "ScheduleAnyway")]
    spec = pod_specs.pod_spec(view(spec={"containers": [container(cpu="1")], "topologySpreadConstraints": terms}))
    assert [(each.max_skew, each.min_domains) for each in (*spec.spread, *spec.preferred_spread)] == [(counts, counts)] * 2


def test_an_image_is_no_larger_than_can_be_summed():
    images = [
        {"names": ["huge"], "sizeBytes": 1 << 70},
        {"names": ["usual"], "sizeBytes": 5},
        {"names": ["odd"], "sizeBytes": -1},
    ]
    given = msgspec.convert({"metadata": {"name": "n"}, "status": {"images": images}}, views.Node)
    assert dict(convert.node(given).images) == {"huge": 1 << 50, "usual": 5, "odd": 0}


@pytest.mark.parametrize(("count", "labels", "needed"), [(1, True, 1), (3, True, 3), (0, True, 2), (1, False, 2)])
def test_a_group_made_for_a_target_state_has_as_many_members_as_the_target_state_has_now(count, labels, needed):
    """It outlives its target state for as long as no operator runs, and serves the next one."""
    record = msgspec.json.encode(Pod("", "ns", "", PodSpec())).decode()
    members = [{"count": count, "pod": record}] if count else []
    labels = {"fairlead.dev/made-for": "Job"} if labels else {}
    manifest = {
        "metadata": {"name": "job-x", "namespace": "ns", "labels": labels},
        "spec": {"minMember": 2},
        "status": {"target": {"state": "Suspended", "epoch": 7, "members": members}},
    }
    assert convert.group(msgspec.convert(manifest, views.PodGroup)).min_member == needed


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 10_001},
        {"replicas": 0},
        {"amount": 1 << 63},
        {"index": -1},
        {"nodes": [{"key": "a b", "operator": "In", "values": ["x"]}]},
        {"nodes": [{"key": "pool", "operator": "Like", "values": ["x"]}]},
    ],
)
def test_a_form_that_no_operator_writes_is_left_out_and_the_others_stay(wrong):
    form = {"index": 0, "pool": "", "replicas": 2, "resource": "nvidia.com/gpu", "amount": 8}
    text = msgspec.json.encode({"choices": [form, {**form, "index": 1, **wrong}, {**form, "index": 2}]}).decode()
    owner = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "AIJob", "name": "job", "uid": "u"}
    metadata = {"name": "job", "namespace": "ns", "annotations": {ALTERNATIVES_ANNOTATION: text}, "ownerReferences": [owner]}
    read = convert.group(msgspec.convert({"metadata": metadata, "spec": {"minMember": 2}}, views.PodGroup))
    assert [each.index for each in read.choices] == [0, 2]


def test_where_on_the_network_a_gang_is_to_be():
    def asked(**topology):
        manifest = {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"minMember": 2, "topology": topology}}
        return convert.group(msgspec.convert(manifest, views.PodGroup)).closeness

    assert asked(required="rack", preferred="nvlink") == Closeness(("rack",), "nvlink")
    assert asked(preferred="rack") == Closeness((), "rack")
    assert asked() is None


def test_annotations_of_kueue_say_where_a_gang_is_to_be():
    annotations = {"kueue.x-k8s.io/podset-required-topology": "net/rack"}
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations}
    grouped = {**metadata, "labels": {"fairlead.dev/pod-group": "g"}}
    ours = {"fairlead": "ai"}
    assert convert.pod(view(metadata=grouped, spec={"schedulerName": "fairlead"}), "q", ours).closeness == Closeness(
        ("net/rack",)
    )
    assert convert.pod(view(metadata=metadata, spec={"schedulerName": "fairlead"}), "q", ours).closeness is None


def test_slices_and_roles_of_a_group():
    slices = [{"level": "block", "size": 8}, {"level": "rack", "sizes": [4, 2]}]
    roles = [{"name": "server", "topology": {"required": "rack"}}, {"name": "worker"}]
    spec = {"minMember": 2, "topology": {"slices": slices, "balanced": True}, "roles": roles}
    made = msgspec.convert({"metadata": {"name": "g", "namespace": "ns"}, "spec": spec}, views.PodGroup)
    rules = (SliceRule("block", (8,)), SliceRule("rack", (4, 2)))
    special = (("server", Closeness(("rack",))),)
    assert convert.group(made).closeness == Closeness(slices=rules, balanced=True, roles=special)


SLICE = "kueue.x-k8s.io/podset-slice-required-topology"


@pytest.mark.parametrize(
    ("annotations", "slices", "complaint"),
    [
        ({SLICE: "net/rack", "kueue.x-k8s.io/podset-slice-size": "4"}, (SliceRule("net/rack", (4,)),), ""),
        (
            {f"{SLICE}-constraints": '[{"topology": "b", "size": 8}, {"topology": "r", "size": 4}]'},
            (SliceRule("b", (8,)), SliceRule("r", (4,))),
            "",
        ),
        ({SLICE: "net/rack"}, (), "are not a label of nodes and a number of pods"),
        ({SLICE: "net/rack", "kueue.x-k8s.io/podset-slice-size": "0"}, (), "are not a label of nodes and a number of pods"),
        ({f"{SLICE}-constraints": "["}, (), "write"),
        ({f"{SLICE}-constraints": '[{"topology": "", "size": 8}]'}, (), "at most 3 slices"),
    ],
)
def test_annotations_of_kueue_for_slices(annotations, slices, complaint):
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations}
    metadata["labels"] = {"fairlead.dev/pod-group": "g"}
    pod = convert.pod(view(metadata=metadata, spec={"schedulerName": "fairlead"}), "q", {"fairlead": "ai"})
    assert pod.closeness == (Closeness(slices=slices) if slices else None)
    assert (complaint in pod.error.message) if complaint else pod.error is None


@pytest.mark.parametrize("second", [{"name": "rack", "label": "b"}, {"name": "row", "label": "a"}])
def test_levels_of_a_pool_differ_by_name_and_label(second):
    levels = [{"name": "rack", "label": "a"}, second]
    pool = msgspec.convert({"metadata": {"name": "p"}, "spec": {"topologyLevels": levels}}, views.NodePool)
    with pytest.raises(QuantityError, match="two levels have the"):
        policies.node_pool(pool)
    assert [
        each.name for each in policies.node_pool(msgspec.convert({"spec": {"topologyLevels": levels[:1]}}, views.NodePool)).levels
    ] == ["rack"]

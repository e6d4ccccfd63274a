"""What each process and each group of people may do: one table of rules, each with its reason.

A rule grants exactly what the code of the process asks for. `rights.py` makes roles and bindings of them; `charts/` has them for
administrators who write their own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fairlead.api import names

_WATCH, _READ = "list watch", "get list watch"
_WRITE = "create update patch delete deletecollection"
_OF_USERS = "aijobs podgroups"
_OF_ADMINISTRATORS = "queues serviceclasses nodepools reservations"
_AGGREGATED = "apiregistration.k8s.io"
_AUTOSCALER = "autoscaling.x-k8s.io"
_HISTORY, _PROVISIONING = "history", "provisioning_classes"


class Rule(NamedTuple):
    """A right and its reason. resources, verbs and names (of objects; empty: all) are separated by blanks.

    needs: the value of an installation without which no process makes use of it; empty: none.
    """

    why: str
    group: str
    resources: str
    verbs: str
    names: str = ""
    needs: str = ""

    def manifest(self) -> dict[str, Any]:
        """As a role has it."""
        named = {"resourceNames": self.names.split()} if self.names else {}
        return {"apiGroups": [self.group], "resources": self.resources.split(), **named, "verbs": self.verbs.split()}


OF_SCHEDULER = (
    Rule("nodes to place on; default queues and labels of namespaces", "", "nodes namespaces", _WATCH),
    Rule(
        "NUMA nodes of nodes, where an exporter publishes them: no pod is sent where its kubelet would refuse it",
        "topology.node.k8s.io",
        "noderesourcetopologies",
        _WATCH,
    ),
    Rule("pods that wait and run; a preempted one is deleted, as by kube-scheduler", "", "pods", f"{_READ} delete"),
    Rule("to place and to evict", "", "pods/binding pods/eviction", "create"),
    Rule("why a pod waits, and that it is preempted", "", "pods/status", "patch"),
    Rule(
        "volumes, from the first pod on that has one: to bind them",
        "",
        "persistentvolumeclaims persistentvolumes",
        f"{_READ} patch",
    ),
    Rule(
        "where volumes can be attached, from the first pod on that has one",
        "storage.k8s.io",
        "storageclasses csinodes csidrivers csistoragecapacities volumeattachments",
        _WATCH,
    ),
    Rule(
        "devices, once there are slices, or pods with ResourceClaims or resources that a DeviceClass may serve",
        "resource.k8s.io",
        "resourceslices deviceclasses resourceclaimtemplates",
        _WATCH,
    ),
    Rule(
        "claims of such pods, kept from deletion while allocated; updated where a patch would rewrite opaque parameters;"
        " made and deleted for extended resources",
        "resource.k8s.io",
        "resourceclaims",
        f"{_READ} create patch update delete",
    ),
    Rule(
        "what claims are allocated, and for which pods they are reserved; the API server asks for both",
        "resource.k8s.io",
        "resourceclaims/status resourceclaims/binding",
        "patch update",
    ),
    Rule("default topology spread in profile kubernetes", "", "services replicationcontrollers", _WATCH),
    Rule("the same", "apps", "replicasets statefulsets", _WATCH),
    Rule("victims whose budgets allow it are preferred", "policy", "poddisruptionbudgets", _WATCH),
    Rule("priorities of service classes", "scheduling.k8s.io", "priorityclasses", _WATCH),
    Rule("the policy", names.GROUP, "queues serviceclasses reservations nodepools", _WATCH),
    Rule("gangs; one is made for the target state of a job that has none", names.GROUP, "podgroups", f"{_READ} create"),
    Rule(
        "what is observed and decided",
        names.GROUP,
        "queues/status podgroups/status serviceclasses/status reservations/status nodepools/status",
        "patch",
    ),
    Rule("starts, preemptions, missed deadlines", "events.k8s.io", "events", "create"),
)

OF_OPERATOR = (
    Rule("target states of jobs; groups of workloads", names.GROUP, "podgroups", f"{_READ} create patch delete"),
    Rule("jobs to run; finished ones are deleted after their ttl", names.GROUP, "aijobs", f"{_WATCH} delete"),
    Rule("time limits and defaults", names.GROUP, "serviceclasses", _WATCH),
    Rule("reconfiguration of nodes through mig-manager; prices, for the history", names.GROUP, "nodepools", _WATCH),
    Rule("whether that is possible", names.GROUP, "nodepools/status", "patch"),
    Rule("which queues this release serves; budgets", names.GROUP, "queues", _WATCH),
    Rule("states of jobs", names.GROUP, "aijobs/status", "patch"),
    Rule("whether queues keep to their budgets, by the history", names.GROUP, "queues/status", "patch", needs=_HISTORY),
    Rule("objects that are created for a job are owned by it", names.GROUP, "aijobs/finalizers", "update"),
    Rule("members of jobs", "", "pods", f"{_WATCH} create patch delete"),
    Rule("requests for nodes of Cluster Autoscaler", _AUTOSCALER, "provisioningrequests", _WATCH),
    Rule("to make them for gangs", _AUTOSCALER, "provisioningrequests", "create delete", needs=_PROVISIONING),
    Rule("templates that those requests name", "", "podtemplates", "create delete", needs=_PROVISIONING),
    Rule("conditions of gangs, and that they are provisioned", names.GROUP, "podgroups/status", "patch"),
    Rule(
        "a headless Service per job; one that exists may be another's; its own, as the endpoint of an API",
        "",
        "services",
        "get create",
    ),
    Rule("default queues: which jobs this release serves; for the history", "", "namespaces", _WATCH),
    Rule("what a namespace admits, before a gang is created in part", "", "resourcequotas limitranges", _WATCH),
    Rule("the same, for quotas that are of priorities", "scheduling.k8s.io", "priorityclasses", _WATCH),
    Rule("nodes that are lost; quarantines; configurations of MIG", "", "nodes", f"{_READ} patch"),
    Rule("failures, quarantines, idleness", "events.k8s.io", "events", "create"),
    Rule(
        "what growth of autoscaled workloads costs, for the history",
        "autoscaling",
        "horizontalpodautoscalers",
        _WATCH,
        needs=_HISTORY,
    ),
    Rule(
        "devices that nodes publish and claims hold, for the history",
        "resource.k8s.io",
        "resourceslices resourceclaims",
        _WATCH,
        needs=_HISTORY,
    ),
    Rule("Jobs, to group, suspend and resume them", "batch", "jobs", f"{_READ} patch"),
    Rule("the same for JobSets, where they are installed", "jobset.x-k8s.io", "jobsets", f"{_READ} patch"),
    Rule("the same for LeaderWorkerSets, which cannot be suspended", "leaderworkerset.x-k8s.io", "leaderworkersets", _WATCH),
    Rule(
        "the same for Kubeflow's training jobs",
        "kubeflow.org",
        "pytorchjobs tfjobs xgboostjobs paddlejobs jaxjobs mpijobs",
        f"{_READ} patch",
    ),
    Rule("the same for TrainJobs", "trainer.kubeflow.org", "trainjobs", f"{_READ} patch"),
    Rule("the same for Ray", "ray.io", "rayclusters rayjobs", f"{_READ} patch"),
    Rule("gangs in Kubernetes' own PodGroups", "scheduling.k8s.io", "podgroups", _READ),
    Rule("their conditions", "scheduling.k8s.io", "podgroups/status", "patch"),
)

OF_PROCESS = {"scheduler": OF_SCHEDULER, "operator": OF_OPERATOR}
"""In the whole cluster."""


def of_lease(process: str, release: str = names.FIRST_RELEASE) -> tuple[Rule, ...]:
    """In the namespace of the leases."""
    found = (
        Rule("the Lease of the leader, the first time", "coordination.k8s.io", "leases", "create"),
        Rule("to hold it", "coordination.k8s.io", "leases", "get update", names.lease(release, process)),
    )
    if process != "scheduler":
        return found
    why = "what was learned of jobs that share GPUs, for the next leader"
    return (*found, Rule(why, "coordination.k8s.io", "leases", "get update", names.lease_of_speeds(release)))


def of_server(api_service: str) -> Rule:
    """In the whole cluster, of a process that serves an aggregated API."""
    return Rule("its authority, by which the API server knows it", _AGGREGATED, "apiservices", "patch", api_service)


OF_SERVERS = Rule("the authority of the front proxy", "", "configmaps", "get", "extension-apiserver-authentication")
"""In kube-system, of a process that serves an aggregated API."""


def of_endpoints(services: tuple[str, ...], process: str) -> tuple[Rule, ...]:
    """In the namespace of a process that serves aggregated APIs. The operator may read Services anyway."""
    slices = ("discovery.k8s.io", "endpointslices")
    read = Rule("its Services, with which their endpoint is removed", "", "services", "get", " ".join(services))
    return (
        *([] if process == "operator" else [read]),
        Rule("the endpoint of its Services, the first time", *slices, "create"),
        Rule("to be that endpoint while it leads", *slices, "patch", " ".join(services)),
    )


OF_VISIBILITY = (
    Rule(
        "why one of the namespace's jobs waits",
        names.VISIBILITY_GROUP,
        "pods/explanation podgroups/explanation jobs/explanation aijobs/explanation",
        "get",
    ),
    Rule("the jobs of the namespace", names.VISIBILITY_GROUP, "pendingjobs jobs", "list"),
    Rule(
        "the cluster's nodes, queues and quotas, with work of other namespaces as counts",
        names.VISIBILITY_GROUP,
        "nodes queues quotas",
        "list",
    ),
    Rule(
        "what would become of the namespace's jobs, a question that makes nothing; work of others as counts",
        names.VISIBILITY_GROUP,
        "whatifs",
        "create",
    ),
)
OF_HISTORY = (
    Rule("finished jobs of the namespace", f"history.{names.GROUP}", "jobs", "list"),
    Rule("on what they ran, and when", f"history.{names.GROUP}", "jobs/runs", "get"),
)

OF_VIEWERS = (
    Rule("Fairlead's objects", names.GROUP, f"{_OF_USERS} {_OF_ADMINISTRATORS}", _READ),
    *OF_VISIBILITY,
    *OF_HISTORY,
)
OF_USERS = (Rule("to run jobs and gangs", names.GROUP, _OF_USERS, _WRITE),)
OF_ADMINISTRATORS = (Rule("to share the cluster", names.GROUP, _OF_ADMINISTRATORS, _WRITE),)


def of_autoscalers(metrics: tuple[str, ...]) -> Rule:
    """Of the HorizontalPodAutoscaler controller, which lists a metric's values."""
    return Rule("what waits in queues", "external.metrics.k8s.io", " ".join(metrics), "list")

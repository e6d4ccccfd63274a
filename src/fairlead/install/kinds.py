"""The kinds that an installation consists of, in the order in which they are applied; they are removed in the opposite one."""

from __future__ import annotations

from typing import Any

import msgspec

DEFINITION = "CustomResourceDefinition"


class Kind(msgspec.Struct, frozen=True):
    """One kind. stays: `fairlead uninstall` leaves it."""

    version: str
    kind: str
    plural: str
    namespaced: bool = False
    stays: bool = False

    def collection(self, namespace: str = "") -> str:
        """The path of its objects: of a namespace, or of the cluster."""
        prefix = f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"
        return f"{prefix}/namespaces/{namespace}/{self.plural}" if self.namespaced and namespace else f"{prefix}/{self.plural}"

    def path(self, metadata: dict[str, Any]) -> str:
        """The path of one of them."""
        return f"{self.collection(metadata.get('namespace', ''))}/{metadata['name']}"


NAMESPACE = Kind("v1", "Namespace", "namespaces")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments", namespaced=True)
_ADMISSION, _FLOW, _RBAC = "admissionregistration.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1", "rbac.authorization.k8s.io/v1"
PROMETHEUS = "monitoring.coreos.com/v1"
"""The kinds of the Prometheus operator, which is no part of Kubernetes."""

ORDER = (
    Kind("apiextensions.k8s.io/v1", DEFINITION, "customresourcedefinitions", stays=True),
    NAMESPACE,
    Kind(_FLOW, "PriorityLevelConfiguration", "prioritylevelconfigurations"),
    Kind(_FLOW, "FlowSchema", "flowschemas"),
    Kind("v1", "ServiceAccount", "serviceaccounts", namespaced=True),
    Kind(_RBAC, "ClusterRole", "clusterroles"),
    Kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings"),
    Kind(_RBAC, "Role", "roles", namespaced=True),
    Kind(_RBAC, "RoleBinding", "rolebindings", namespaced=True),
    Kind("v1", "ConfigMap", "configmaps", namespaced=True),
    Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", namespaced=True, stays=True),
    Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", namespaced=True),
    Kind("v1", "Service", "services", namespaced=True),
    Kind("apiregistration.k8s.io/v1", "APIService", "apiservices"),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True),
    Kind(PROMETHEUS, "ServiceMonitor", "servicemonitors", namespaced=True),
    Kind(PROMETHEUS, "PrometheusRule", "prometheusrules", namespaced=True),
    DEPLOYMENT,
    # Until the API server has read the objects that a policy reads, it refuses all that the policy is about: Deployments, too.
    Kind(_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    Kind(_ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    Kind(_ADMISSION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
    Kind(_ADMISSION, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
)
_BY_NAME = {(each.version, each.kind): each for each in ORDER}
_RANK = {each: number for number, each in enumerate(ORDER)}


def of(manifest: dict[str, Any]) -> Kind:
    """The kind of an object."""
    return _BY_NAME[manifest["apiVersion"], manifest["kind"]]


def rank(manifest: dict[str, Any]) -> int:
    """Where its kind is in the order."""
    return _RANK[of(manifest)]


def path(manifest: dict[str, Any]) -> str:
    """Where an object is."""
    return of(manifest).path(manifest["metadata"])

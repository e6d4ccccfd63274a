"""The Pod Security Standard `restricted`, control by control, as Kubernetes documents it: written without our own code in mind."""

from __future__ import annotations

_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def violations(pod: dict) -> list[str]:
    """What of the standard a pod's spec does not meet, `baseline` included."""
    whole = pod.get("securityContext", {})
    found = [f"{each} is set" for each in ("hostNetwork", "hostPID", "hostIPC") if pod.get(each)]
    found += [f"volume {each['name']}" for each in pod.get("volumes", ()) if set(each) - {"name"} - _VOLUMES]
    found += [f"{each} is set" for each in ("sysctls", "seLinuxOptions", "windowsOptions", "appArmorProfile") if each in whole]
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        found += [f"{container['name']}: {each}" for each in _of_container(container, whole)]
    return found


def _of_container(container: dict, whole: dict):
    own = container.get("securityContext", {})
    effective = {**whole, **own}
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if own.get("capabilities", {}).get("drop") != ["ALL"]:
        yield "capabilities are not dropped"
    if set(own.get("capabilities", {}).get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "capabilities are added"
    if effective.get("runAsNonRoot") is not True:
        yield "runAsNonRoot is not true"
    if effective.get("runAsUser") == 0:
        yield "runAsUser is 0"
    if effective.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "no seccomp profile"
    if own.get("procMount", "Default") != "Default":
        yield "procMount"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield "hostPort"

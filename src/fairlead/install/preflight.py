"""What an installation needs of a cluster, asked before anything is written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import yaml

from fairlead.api import names
from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.times import seconds
from fairlead.install import kinds
from fairlead.install.accounts import LEASES, PROCESSES, account, usernames
from fairlead.install.kinds import Kind
from fairlead.install.objects import MANAGED_BY, MANAGER, release_of
from fairlead.install.values import INSTANCE, PART_OF
from fairlead.scheduler import configuration as configurations

Manifest = dict[str, Any]
OLDEST = (1, 36)
"""The first version with MutatingAdmissionPolicy."""
_VERBS = ("get", "list", "create", "patch", "delete")
_GRANTS = {"clusterroles": "escalate", "roles": "escalate", "clusterrolebindings": "bind", "rolebindings": "bind"}
"""Who applies these needs every right in them, or this verb on the roles."""
_PART_OF = ",".join(f"{key}={value}" for key, value in PART_OF.items())
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_STAMPS = "fairlead-user-immutable"
"""A policy that names those whom it trusts."""
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_OTHERS = {"kueue": "Kueue", "kai-": "KAI", "volcano": "Volcano", "vc-scheduler": "Volcano", "yunikorn": "YuniKorn"}
"""Parts of the names of Leases and their namespaces -> whose they are."""


class Check(msgspec.Struct):
    """One answer. result: `failed`, the installation would not work; `note`, what to know."""

    name: str
    result: Literal["passed", "note", "failed"]
    message: str


class Preflight(msgspec.Struct):
    """All answers. ready: none of them failed."""

    checks: list[Check]
    ready: bool


async def preflight(client: Client, manifests: Sequence[Manifest]) -> Preflight:
    """Ask the cluster. Raises `ApiError` and `Unreachable` where it does not answer at all."""
    version = msgspec.json.decode(await client.get("/version"))
    wanted = sorted({kinds.of(each) for each in manifests}, key=kinds.ORDER.index)
    checks = [
        of_version(version),
        await _served(client, wanted),
        *[each async for each in _definitions(client, manifests)],
        await _rights(client, wanted),
        *[each async for each in _namespaces(client, manifests)],
        *[each async for each in _servers(client, manifests)],
        *[each async for each in _others(client, manifests)],
        *await _leases(client, release_of(manifests)),
    ]
    return Preflight(checks, all(each.result != "failed" for each in checks))


def of_version(version: dict[str, Any]) -> Check:
    """Whether the API server is recent enough."""
    found = tuple(int(re.sub(r"\D.*", "", str(version.get(part, ""))) or 0) for part in ("major", "minor"))
    text = f"Kubernetes {version.get('gitVersion', '.'.join(map(str, found)))}"
    if found < OLDEST:
        return Check("version", "failed", f"{text}: at least {OLDEST[0]}.{OLDEST[1]} is needed")
    return Check("version", "passed", text)


def of_leases(leases: Sequence[Manifest], now: float, *, deployed: bool, release: str = names.FIRST_RELEASE) -> Iterator[Check]:
    """Other schedulers that lead, by their Leases. deployed: processes of the release are those of `fairlead install`."""
    seen = set()
    ours = {f"{LEASES}/{account(process, release)}" for process in PROCESSES}
    for lease in leases:
        metadata, spec = lease["metadata"], lease["spec"]
        holder, length = spec.get("holderIdentity"), spec.get("leaseDurationSeconds") or 0
        if not holder or seconds(spec.get("renewTime")) + length < now:
            continue
        where = f"{metadata['namespace']}/{metadata['name']}"
        if where in ours:
            if not deployed:
                message = f"{where} is held by {holder}: end that process, which was not installed by `fairlead install`"
                yield Check("leases", "failed", message)
            continue
        other = next((whose for part, whose in _OTHERS.items() if part in where), None)
        if other is not None and other not in seen:
            seen.add(other)
            yield Check(
                "leases", "note", f"{other} runs here ({where}): pods are of the scheduler that they name, nodes are shared"
            )


async def _served(client: Client, wanted: Sequence[Kind]) -> Check:
    missing = []
    for version in sorted({each.version for each in wanted} - {"v1"}):
        try:
            found = msgspec.json.decode(await client.get(f"/apis/{version}"))["resources"]
        except ApiError as error:
            if error.code != 404:
                raise
            found = []
        names = {each["name"] for each in found}
        missing += [f"{each.plural}.{version}" for each in wanted if each.version == version and each.plural not in names]
    if missing:
        message = f"not served: {', '.join(missing)}; enable them on kube-apiserver (--runtime-config, --feature-gates)"
        if any(each.endswith(kinds.PROMETHEUS) for each in missing):
            message += f", install the Prometheus operator for {kinds.PROMETHEUS}, or set `monitoring` otherwise"
        return Check("apis", "failed", message)
    return Check("apis", "passed", "all kinds of the installation are served")


async def _definitions(client: Client, manifests: Sequence[Manifest]) -> Any:
    """Whether definitions that are not installed are there."""
    if any(each["kind"] == kinds.DEFINITION for each in manifests):
        return
    if await _found(client, f"/apis/{names.API_VERSION}") is None:
        message = f"{names.API_VERSION} is not served, and `crds` is false: apply what `fairlead crds` prints first"
        yield Check("definitions", "failed", message)


async def _rights(client: Client, wanted: Sequence[Kind]) -> Check:
    """What the caller may not do of what an installation needs, by SelfSubjectAccessReviews."""
    asked = [(each, verb) for each in wanted for verb in _VERBS]
    asked += [(each, _GRANTS[each.plural]) for each in wanted if each.plural in _GRANTS]
    roles = {"clusterrolebindings": "clusterroles", "rolebindings": "roles"}

    async def may(kind: Kind, verb: str) -> str:
        resource = roles.get(kind.plural, kind.plural) if verb == "bind" else kind.plural
        attributes = {"verb": verb, "group": kind.version.rpartition("/")[0], "resource": resource}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = msgspec.json.decode(await client.post(_REVIEWS, encode(body)))
        return "" if answer["status"].get("allowed") else f"{verb} {resource}"

    refused = [each for each in await asyncio.gather(*(may(*each) for each in asked)) if each]
    if refused:
        return Check("rights", "failed", f"you may not: {', '.join(refused)}; install as an administrator of the cluster")
    return Check("rights", "passed", "you may apply and remove all objects")


async def _namespaces(client: Client, manifests: Sequence[Manifest]) -> Any:
    """Whether the namespace is another's: it would be restricted, and removed with the installation."""
    for manifest in manifests:
        if manifest["kind"] != kinds.NAMESPACE.kind:
            continue
        found, name = await _found(client, kinds.path(manifest)), manifest["metadata"]["name"]
        if found is not None and (found["metadata"].get("labels") or {}).get(MANAGED_BY) != MANAGER:
            message = f"{name} exists, and others may use it: choose another, or label it {MANAGED_BY}={MANAGER}"
            yield Check("namespace", "failed", message)
        elif found is not None and (other := _release_of(found)) != release_of(manifests):
            message = f"{name} is that of the release {other}, and would be removed with it: choose another namespace"
            yield Check("namespace", "failed", message)


async def _others(client: Client, manifests: Sequence[Manifest]) -> Any:
    """Other releases of Fairlead: what they have to know of this one, and whether a scheduler name is of two."""
    release = release_of(manifests)
    ours = _schedulers(manifests, release)
    for each in await _deployments(client, _PART_OF):
        other, namespace = _release_of(each), each["metadata"]["namespace"]
        if other == release or each["metadata"]["name"] != account("scheduler", other):
            continue
        path = f"/api/v1/namespaces/{namespace}/configmaps/{other}-configuration"
        configured = await _found(client, path)
        if twice := sorted(set(ours) & set(_schedulers([configured] if configured is not None else [], other))):
            message = f"scheduler name {twice[0]} is that of the release {other}, too, in namespace {namespace}: each has its own"
            yield Check("releases", "failed", message)
        elif release == names.FIRST_RELEASE and (unknown := _untrusted(_named(manifests, _STAMPS), namespace, other)):
            message = f"the release {other} would not be trusted any more: keep {', '.join(unknown)} in `trusted`"
            yield Check("releases", "failed", message)
        else:
            yield Check("releases", "note", f"the release {other} runs in namespace {namespace}: each queue names its release")
    if release != names.FIRST_RELEASE:
        async for each in _of_first(client, manifests, release):
            yield each
        async for each in _taken(client, manifests, release):
            yield each


async def _of_first(client: Client, manifests: Sequence[Manifest], release: str) -> Any:
    """Whether the policies of the first release, which are those of the cluster, let another one work."""
    fencing = await _found(client, f"{_POLICIES}/{names.FIRST_RELEASE}-fencing")
    if fencing is not None and names.LEASE_ANNOTATION not in str(fencing["spec"]):
        message = f"policy {names.FIRST_RELEASE}-fencing judges all bindings by one lease: upgrade the release first"
        yield Check("policies", "failed", message)
    stamps = await _found(client, f"{_POLICIES}/{_STAMPS}")
    if stamps is None:
        message = f"policy {_STAMPS} is not there: users are not stamped until the release {names.FIRST_RELEASE} has its policies"
        yield Check("policies", "note", message)
        return
    namespaces = {each["metadata"]["namespace"] for each in manifests if each["kind"] == kinds.DEPLOYMENT.kind}
    if unknown := [user for each in namespaces for user in _untrusted(stamps, each, release)]:
        message = (
            f"the policies of the release {names.FIRST_RELEASE} do not trust {', '.join(unknown)}: add to its value `trusted`"
        )
        yield Check("policies", "failed", message)


async def _taken(client: Client, manifests: Sequence[Manifest], release: str) -> Any:
    """Whether others have objects of these names, which would be overwritten."""
    wanted = [each for each in manifests if each["kind"] != kinds.NAMESPACE.kind]
    found = await asyncio.gather(*(_found(client, kinds.path(each)) for each in wanted))
    for each in found:
        ours = each is None or (
            _release_of(each) == release and PART_OF.items() <= (each["metadata"].get("labels") or {}).items()
        )
        if each is not None and not ours:
            name = f"{wanted[found.index(each)]['kind']}/{each['metadata']['name']}"
            yield Check("names", "failed", f"{name} is another's: choose another name than {release}")
            return


def _named(manifests: Sequence[Manifest], name: str) -> Manifest | None:
    return next((each for each in manifests if each["metadata"]["name"] == name and "validations" in each.get("spec", {})), None)


def _untrusted(stamps: Manifest | None, namespace: str, release: str) -> list[str]:
    """The accounts of a release that a policy does not know; those of the system's namespace are trusted anyway."""
    if stamps is None or namespace == LEASES:
        return []
    return [user for user in usernames(namespace, release) if user not in str(stamps["spec"])]


def _release_of(found: Manifest) -> str:
    return str((found["metadata"].get("labels") or {}).get(INSTANCE, names.FIRST_RELEASE))


def _schedulers(manifests: Sequence[Manifest], release: str) -> list[str]:
    """The scheduler names of a release, by its configuration among manifests."""
    for each in manifests:
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == f"{release}-configuration":
            try:
                document = yaml.safe_load("".join((each.get("data") or {}).values()))
                return [profile.scheduler_name for profile in configurations.parse(document, release).profiles]
            except (yaml.YAMLError, configurations.ConfigurationError):
                return []  # of another version: which names it has is not known
    return [profile.scheduler_name for profile in configurations.default().profiles]


async def _deployments(client: Client, selector: str) -> list[Manifest]:
    try:
        found: list[Manifest] = msgspec.json.decode(await client.get(kinds.DEPLOYMENT.collection(), labelSelector=selector))[
            "items"
        ]
    except ApiError as error:
        if error.code != 403:
            raise
        return []
    return found


async def _servers(client: Client, manifests: Sequence[Manifest]) -> Any:
    """Whether another server has one of the aggregated APIs."""
    for manifest in manifests:
        if manifest["kind"] != "APIService":
            continue
        found = await _found(client, kinds.path(manifest))
        if found is None or (found["metadata"].get("labels") or {}).get(MANAGED_BY) == MANAGER:
            continue
        service = found["spec"].get("service") or {}
        wanted = manifest["spec"]["service"]
        if (service.get("namespace"), service.get("name")) != (wanted["namespace"], wanted["name"]):
            whose = f"{service.get('namespace')}/{service.get('name')}"
            message = f"{manifest['metadata']['name']} is served by {whose}: set externalMetrics or aggregatedApi to false"
            yield Check("aggregated APIs", "failed", message)


async def _leases(client: Client, release: str) -> list[Check]:
    try:
        path, selector = "/apis/coordination.k8s.io/v1/leases", "metadata.namespace!=kube-node-lease"
        leases = msgspec.json.decode(await client.get(path, fieldSelector=selector))["items"]
    except ApiError as error:
        if error.code != 403:
            raise
        return [Check("leases", "note", "you may not list Leases: other schedulers are not known")]
    deployments = await _deployments(client, f"{MANAGED_BY}={MANAGER}")
    deployed = any(_release_of(each) == release for each in deployments)
    checks = list(of_leases(leases, client.clock(), deployed=deployed, release=release))
    return checks or [Check("leases", "passed", "no other scheduler leads here")]


async def _found(client: Client, path: str) -> Manifest | None:
    try:
        found: Manifest = msgspec.json.decode(await client.get(path))
    except ApiError as error:
        if error.code in (403, 404):
            return None
        raise
    return found

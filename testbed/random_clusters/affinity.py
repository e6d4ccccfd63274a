"""Where pods want to run: nodes by their labels and taints, other pods, spread."""

from __future__ import annotations

from testbed.random_clusters.draw import APPS, HOSTNAME, NAMESPACES, REGION, TIERS, ZONE, Draw, Object

_KEYS = (ZONE, ZONE, HOSTNAME, HOSTNAME, REGION, "rack", "missing")


def give_node_choice(draw: Draw, spec: Object) -> None:
    """Node selector, node affinity and tolerations."""
    if draw.often("nodes", 0.2, 0.04):
        spec["nodeSelector"] = {draw.pick(("disk", ZONE)): draw.pick(("ssd", "z1", "z2", ""))}
    affinity: Object = {}
    if draw.often("nodes", 0.35, 0.06):
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": draw.several(_node_term, 0, 3)}
    if draw.often("nodes", 0.5, 0.1):
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": draw.pick((1, 5, 50, 100)), "preference": _node_term(draw)} for _ in range(draw.random.randint(1, 3))
        ]
    if affinity:
        spec["affinity"] = {"nodeAffinity": affinity}
    if draw.often("taints", 0.6, 0.15):
        spec["tolerations"] = draw.several(_toleration, 1, 3)


def _node_term(draw: Draw) -> Object:
    term: Object = {}
    if draw.chance(0.8):
        term["matchExpressions"] = draw.several(_node_requirement, 1, 2)
    if draw.chance(0.2):
        operator = draw.pick(("In", "In", "NotIn"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [draw.pick(draw.node_names)]}]
        if draw.chance(0.2):
            term["matchFields"].append({"key": "metadata.name", "operator": "In", "values": [draw.pick(draw.node_names)]})
    return term


def _node_requirement(draw: Draw) -> Object:
    key = draw.pick((ZONE, REGION, "rack", "disk", "missing", HOSTNAME))
    operator = draw.pick(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    made: Object = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        made["values"] = draw.some(("z1", "z2", "r1", "1", "2", "ssd", "", *draw.node_names[:2]), 1, 3)
    elif operator in ("Gt", "Lt"):
        made["values"] = [draw.pick(("1", "10", "-3", "2"))]
    if draw.often("mistakes", 0.3, 0.0):
        made |= draw.pick(
            (
                {"operator": "Near"},
                {"values": ["not a value!"]},
                {"key": "not a key!"},
                {"operator": "In", "values": []},
                {"operator": "Gt", "values": ["many"]},
                {"operator": "Exists", "values": ["x"]},
            )
        )
    return made


def _toleration(draw: Draw) -> Object:
    made: Object = {}
    if draw.chance(0.85):
        made["key"] = draw.pick(("dedicated", "gpu", "node.kubernetes.io/unschedulable"))
    if draw.chance(0.7):
        made["operator"] = draw.pick(("Exists", "Equal", "Equal", "Lt") if draw.dwells["mistakes"] else ("Exists", "Equal"))
    if draw.chance(0.5):
        made["value"] = draw.pick(("", "x", "y"))
    if draw.chance(0.5):
        made["effect"] = draw.pick(("NoSchedule", "NoExecute", "PreferNoSchedule"))
    return made


def selector(draw: Draw) -> Object | None:
    """A label selector; None: there is none."""
    if draw.chance(0.05):
        return None
    if draw.chance(0.05):
        return {}
    made: Object = {}
    if draw.chance(0.7):
        made["matchLabels"] = {"app": draw.pick(APPS)}
    if draw.chance(0.4) or not made:
        made["matchExpressions"] = draw.several(_label_requirement, 1, 2)
    return made


def _label_requirement(draw: Draw) -> Object:
    operator = draw.pick(("In", "In", "NotIn", "Exists", "DoesNotExist"))
    made: Object = {"key": draw.pick(("app", "tier", "version", "missing")), "operator": operator}
    if operator in ("In", "NotIn"):
        made["values"] = draw.some((*APPS, *TIERS, "1", "2"), 1, 3)
    if draw.often("mistakes", 0.15, 0.0):
        made |= draw.pick(({"operator": "Gt", "values": ["1"]}, {"values": []}, {"values": ["no value!"]}, {"key": "no key!"}))
    return made


def _term(draw: Draw) -> Object:
    made: Object = {"topologyKey": draw.pick(_KEYS)}
    chosen = selector(draw)
    if chosen is not None:
        made["labelSelector"] = chosen
    if draw.chance(0.25):
        made["namespaces"] = draw.some(NAMESPACES, 1, 2)
    if draw.chance(0.25):
        made["namespaceSelector"] = draw.pick(
            (
                {},
                {"matchLabels": {"team": "a"}},
                {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
                {"matchExpressions": [{"key": "missing", "operator": "DoesNotExist"}]},
            )
        )
    return made


def _weighted(draw: Draw) -> Object:
    return {"weight": draw.pick((1, 10, 50, 100)), "podAffinityTerm": _term(draw)}


def give_pod_affinity(draw: Draw, spec: Object) -> None:
    """Affinity and anti-affinity to other pods."""
    affinity = spec.setdefault("affinity", {})
    for kind in ("podAffinity", "podAntiAffinity"):
        made: Object = {}
        if draw.chance(0.3 if kind == "podAffinity" else 0.4):
            made["requiredDuringSchedulingIgnoredDuringExecution"] = draw.several(_term, 1, 2)
        if draw.chance(0.5):
            made["preferredDuringSchedulingIgnoredDuringExecution"] = draw.several(_weighted, 1, 2)
        if made:
            affinity[kind] = made


def constraint(draw: Draw, labels: Object) -> Object:
    """A constraint on spread of a pod with these labels."""
    made: Object = {
        "topologyKey": draw.pick(_KEYS),
        "maxSkew": draw.pick((1, 1, 2, 3)),
        "whenUnsatisfiable": draw.pick(("DoNotSchedule", "ScheduleAnyway")),
    }
    chosen = {"matchLabels": {"app": labels["app"]}} if labels.get("app") and draw.chance(0.6) else selector(draw)
    if chosen is not None:
        made["labelSelector"] = chosen
    if draw.chance(0.2) and made["whenUnsatisfiable"] == "DoNotSchedule":
        made["minDomains"] = draw.pick((1, 2, 3, 5))
    if draw.chance(0.3):
        made["nodeAffinityPolicy"] = draw.pick(("Honor", "Ignore"))
    if draw.chance(0.3):
        made["nodeTaintsPolicy"] = draw.pick(("Honor", "Ignore"))
    if draw.chance(0.2):
        made["matchLabelKeys"] = draw.some(("version", "tier", "missing"), 1, 2)
    return made

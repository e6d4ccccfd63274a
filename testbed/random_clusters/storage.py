"""Volumes, claims, classes and drivers, and what pods mount of them."""

from __future__ import annotations

from testbed.random_clusters.draw import DRIVERS, HOSTNAME, IMAGES, ZONE, Draw, Object

_CLASSES = ("wait", "wait", "wait-zoned", "wait-capacity", "manual", "now")


class Storage:
    """The storage of one cluster; claims come with pods, too."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._claims: list[Object] = []
        self._volumes: list[Object] = []

    def made(self) -> Object:
        """Storage objects, by the field of the case."""
        draw = self._draw
        self._volumes = [self._volume(number) for number in range(draw.random.randint(2, 8))]
        self._claims = [self._claim(number) for number in range(draw.random.randint(3, 9))]
        return {
            "storageClasses": [
                {"metadata": {"name": "wait"}, "provisioner": DRIVERS[0], "volumeBindingMode": "WaitForFirstConsumer"},
                {
                    "metadata": {"name": "wait-zoned"},
                    "provisioner": DRIVERS[1],
                    "volumeBindingMode": "WaitForFirstConsumer",
                    "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": draw.some(("z1", "z2"), 1, 2)}]}],
                },
                {
                    "metadata": {"name": "wait-capacity"},
                    "provisioner": "room.csi.example",
                    "volumeBindingMode": "WaitForFirstConsumer",
                },
                {
                    "metadata": {"name": "manual"},
                    "provisioner": "kubernetes.io/no-provisioner",
                    "volumeBindingMode": "WaitForFirstConsumer",
                },
                {"metadata": {"name": "now"}, "provisioner": DRIVERS[0], "volumeBindingMode": "Immediate"},
                *([{"metadata": {"name": "modeless"}, "provisioner": DRIVERS[0]}] if draw.dwells["mistakes"] else []),
            ],
            "csiDrivers": [
                {"metadata": {"name": "room.csi.example"}, "spec": {"storageCapacity": draw.chance(0.8)}},
                {"metadata": {"name": DRIVERS[0]}, "spec": {}},
            ],
            "csiNodes": [_csi_node(draw, node) for node in draw.node_names if draw.chance(0.7)],
            "csiStorageCapacities": draw.several(_capacity, 0, 4),
            "persistentVolumes": self._volumes,
            "persistentVolumeClaims": self._claims,
            "volumeAttachments": [
                {
                    "metadata": {"name": f"attachment-{number}"},
                    "spec": {
                        "attacher": draw.pick(DRIVERS),
                        "nodeName": draw.pick(draw.node_names),
                        "source": {"persistentVolumeName": volume["metadata"]["name"]},
                    },
                }
                for number, volume in enumerate(self._volumes)
                if draw.chance(0.3)
            ],
        }

    def _volume(self, number: int) -> Object:
        draw = self._draw
        spec: Object = {
            "capacity": {"storage": draw.pick(("1Gi", "5Gi", "10Gi", "50Gi"))},
            "accessModes": draw.some(("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"), 1, 3),
            "storageClassName": draw.pick(("wait", "wait-zoned", "manual", "manual", "now")),
        }
        if draw.chance(0.7):
            spec["csi"] = {"driver": draw.pick(DRIVERS), "volumeHandle": f"handle-{number}"}
        else:
            spec["hostPath"] = {"path": "/data"}
        if draw.chance(0.4):
            term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": draw.some(("z1", "z2", "z3"), 1, 2)}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        elif draw.chance(0.2):
            term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [draw.pick(draw.node_names)]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        if draw.chance(0.1):
            spec["volumeMode"] = "Block"
        metadata: Object = {"name": f"volume-{number}", "uid": f"uid-volume-{number}"}
        if draw.chance(0.4):
            metadata["labels"] = {ZONE: draw.pick(("z1", "z2", "z1__z2")), "kind": draw.pick(("a", "b"))}
            if draw.chance(0.3):
                metadata["labels"]["failure-domain.beta.kubernetes.io/region"] = draw.pick(("r1", "r2"))
        return {
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": draw.pick(("Available", "Available", "Available", "Released"))},
        }

    def _claim(self, number: int) -> Object:
        draw = self._draw
        name, namespace = f"claim-{number}", draw.pick(("default", "default", "red"))
        spec: Object = {
            "accessModes": [draw.pick(("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"))],
            "resources": {"requests": {"storage": draw.pick(("1Gi", "4Gi", "10Gi", "60Gi"))}},
            "storageClassName": draw.pick(_CLASSES),
        }
        metadata: Object = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        status: Object = {"phase": "Pending"}
        if self._volumes and draw.chance(0.45):
            self._bind_claim(metadata, spec, status)
        elif draw.chance(0.1):
            metadata["annotations"] = {"volume.kubernetes.io/selected-node": draw.pick(draw.node_names)}
        if draw.chance(0.05):
            metadata.setdefault("annotations", {})["volume.beta.kubernetes.io/storage-class"] = draw.pick(_CLASSES)
        if draw.chance(0.1):
            spec["selector"] = {"matchLabels": {"kind": draw.pick(("a", "b"))}}
        if draw.often("mistakes", 0.3, 0.02):
            _spoil_claim(draw, metadata, spec, status)
        return {"metadata": metadata, "spec": spec, "status": status}

    def _bind_claim(self, metadata: Object, spec: Object, status: Object) -> None:
        draw = self._draw
        volume = draw.pick(self._volumes)
        reference = {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
        if "claimRef" in volume["spec"]:
            return
        volume["spec"]["claimRef"] = reference
        if draw.chance(0.15):
            reference.pop("uid")  # a volume kept for this claim, not bound yet
            return
        volume["status"]["phase"] = "Bound"
        spec["volumeName"] = volume["metadata"]["name"]
        if draw.chance(0.95):
            metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            status["phase"] = "Bound"

    def give_volumes(self, metadata: Object, spec: Object, *, running: bool) -> None:
        """Claims, disks and the like that a pod mounts."""
        draw = self._draw
        volumes: list[Object] = []
        for number in range(draw.random.randint(1, 2)):
            volume: Object = {"name": f"v{number}"}
            kind = draw.random.random()
            if kind < 0.75:
                claim = draw.pick(self._claims)
                metadata["namespace"] = claim["metadata"]["namespace"]
                volume["persistentVolumeClaim"] = {"claimName": claim["metadata"]["name"]}
            elif kind < 0.8:
                volume["ephemeral"] = {"volumeClaimTemplate": {"spec": {}}}
                if draw.chance(0.7):
                    self._claims.append(self._ephemeral_claim(metadata, volume["name"]))
            elif kind < 0.88:
                volume |= _disk(draw)
            elif kind < 0.92:
                volume["image"] = {"reference": draw.pick(IMAGES)}
            else:
                volume["emptyDir"] = {}
            if draw.often("mistakes", 0.1, 0.0) and not running:
                volume = {"name": volume["name"], "persistentVolumeClaim": {"claimName": "unknown"}}
            volumes.append(volume)
        spec["volumes"] = volumes

    def _ephemeral_claim(self, metadata: Object, volume: str) -> Object:
        draw = self._draw
        owner = metadata["uid"] if draw.chance(0.8) else "uid-another"
        return {
            "metadata": {
                "name": f"{metadata['name']}-{volume}",
                "namespace": metadata["namespace"],
                "uid": f"uid-{metadata['name']}-{volume}",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": owner, "controller": True}
                ],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": draw.pick(("wait", "now")),
            },
            "status": {"phase": "Pending"},
        }


def _csi_node(draw: Draw, node: str) -> Object:
    drivers: list[Object] = []
    for driver in DRIVERS:
        if draw.chance(0.8):
            made: Object = {"name": driver, "nodeID": node}
            if draw.chance(0.8):
                made["allocatable"] = {"count": draw.pick((0, 1, 1, 2))}
            drivers.append(made)
    return {"metadata": {"name": node}, "spec": {"drivers": drivers}}


def _capacity(draw: Draw) -> Object:
    made: Object = {
        "metadata": {"name": f"capacity-{draw.random.randrange(1 << 30)}", "namespace": "default"},
        "storageClassName": draw.pick(("wait-capacity", "wait-capacity", "wait")),
        "nodeTopology": {"matchLabels": {ZONE: draw.pick(("z1", "z2", "z3"))}},
    }
    if draw.chance(0.8):
        made["capacity"] = draw.pick(("1Gi", "10Gi", "100Gi"))
    if draw.chance(0.3):
        made["maximumVolumeSize"] = draw.pick(("2Gi", "20Gi"))
    if draw.chance(0.1):
        made.pop("nodeTopology")
    return made


def _spoil_claim(draw: Draw, metadata: Object, spec: Object, status: Object) -> None:
    spoil = draw.random.randrange(5)
    if spoil == 0:
        status["phase"] = "Lost"
    elif spoil == 1:
        metadata["deletionTimestamp"] = "2026-01-01T02:00:00Z"
    elif spoil == 2:
        spec["storageClassName"] = draw.pick(("modeless", "unknown", ""))
    elif spoil == 3:
        spec["volumeName"] = "unknown"
        metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    else:
        spec.pop("storageClassName")


def _disk(draw: Draw) -> Object:
    read_only = draw.chance(0.5)
    made: Object = draw.pick(
        (
            {"gcePersistentDisk": {"pdName": draw.pick(("d1", "d2")), "readOnly": read_only}},
            {"awsElasticBlockStore": {"volumeID": draw.pick(("d1", "d2")), "readOnly": read_only}},
            {"iscsi": {"targetPortal": "p", "iqn": draw.pick(("iqn-1", "iqn-2")), "lun": 0, "readOnly": read_only}},
            {
                "rbd": {
                    "monitors": draw.some(("m1", "m2", "m3"), 1, 2),
                    "image": draw.pick(("i1", "i2")),
                    "pool": "rbd",
                    "readOnly": read_only,
                }
            },
        )
    )
    return made

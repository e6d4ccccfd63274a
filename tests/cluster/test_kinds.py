"""The kinds that are watched: one table, which the port, the API and the permissions agree with."""

from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import yaml

from fairlead.api import crds
from fairlead.cluster import kinds
from fairlead.cluster.port import JUDGED, Upsert
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from testbed.numa.definition import definition

RBAC = Path(__file__).parents[2] / "charts" / "rbac.yaml"


def test_what_the_port_says_is_what_is_watched():
    assert set(kinds.OF_OBJECT) == set(get_args(get_type_hints(Upsert)["object"]))


def test_names_are_unique():
    assert len({kind.name for kind in kinds.KINDS}) == len({kind.path for kind in kinds.KINDS}) == len(kinds.KINDS)
    assert JUDGED == {"class": "serviceclasses", "queue": "queues", "pool": "nodepools", "reservation": "reservations"}


@pytest.fixture(scope="module")
def api():
    api = ApiServer(Clock(start=1.7e9))
    topologies = definition()
    topologies["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object"}}
    for each in (*crds.definitions(), topologies):
        api.create(api.served("apiextensions.k8s.io/v1", "customresourcedefinitions"), "", each)
    return api


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.name)
def test_they_are_served_as_the_table_says(api, kind):
    resource = api.served(kind.api_version, kind.plural)
    assert (resource.kind, resource.table) == (kind.kind, kind.table)
    assert resource.namespaced == (kind.key is kinds.POD_GROUP.key or kind is kinds.POD)


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.name)
def test_the_scheduler_may_watch_them(kind):
    roles = [each for each in yaml.safe_load_all(RBAC.read_text()) if each["kind"] == "ClusterRole"]
    (role,) = [each for each in roles if each["metadata"]["name"] == "fairlead-scheduler"]
    group = kind.api_version.rpartition("/")[0]
    may = [rule for rule in role["rules"] if group in rule["apiGroups"] and kind.plural in rule["resources"]]
    assert {"list", "watch"} <= {verb for rule in may for verb in rule["verbs"]}


def test_a_layer_that_does_not_know_a_kind_ends_the_import():
    known = {kind.name: 1 for kind in kinds.KINDS}
    assert kinds.complete(known, kinds.KINDS) == known
    with pytest.raises(TypeError, match="pod"):
        kinds.complete({name: 1 for name in known if name != "pod"}, kinds.KINDS)
    with pytest.raises(TypeError, match="another"):
        kinds.complete({**known, "another": 1}, kinds.KINDS)

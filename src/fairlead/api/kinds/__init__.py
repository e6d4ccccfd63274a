"""The custom resources of `fairlead.dev/v1alpha1` as typed objects, a module for each kind: spec, status, columns, rules.

The CRD YAML in `crds/` is generated from these types by `fairlead.api.crds`; it is never edited
by hand. Field names follow Kubernetes' camelCase on the wire.
"""

from __future__ import annotations

from fairlead.api.kinds.ai_job import AI_JOB
from fairlead.api.kinds.node_pool import NODE_POOL
from fairlead.api.kinds.pod_group import POD_GROUP
from fairlead.api.kinds.queue import QUEUE
from fairlead.api.kinds.reservation import RESERVATION
from fairlead.api.kinds.service_class import SERVICE_CLASS

KINDS = (QUEUE, POD_GROUP, SERVICE_CLASS, RESERVATION, NODE_POOL, AI_JOB)

"""Three priority tiers. High-priority pods of namespace ai-workloads may ask for 20 CPUs and 100Gi together, others for anything.

The last output goes into a file for kube-apiserver's --admission-control-config-file: with it, namespaces that have no quota for
high-priority cannot use it at all. Without it they use it as they like.
"""

import pulumi

from fairlead.pulumi import PriorityTiers

tiers = PriorityTiers("tiers")

pulumi.export("priority_classes", tiers.priority_class_names)
pulumi.export("quotas", tiers.quota_names)
pulumi.export("admission_configuration", tiers.admission_configuration("high-priority"))

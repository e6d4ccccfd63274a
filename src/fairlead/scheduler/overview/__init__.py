"""The cluster at a glance: jobs, nodes and queues in rows, made from the core's state as it is.

The leader serves them (`served`), so that a question about a large cluster costs one answer and not a list of all pods; `fairlead
queue`, `nodes`, `share` and `top` show them, and make them from lists where no leader answers.
"""

"""Decision logs by which a rebuilt core is compared with the one before: together they hold every kind of decision.

A recording is a stream of events and passes of a `CoreLoop`: days of a lab, days full of faults, days of AIJobs with their
operator, random objects over the whole schema, and small random clusters of which each has one subject (trees, time slicing,
moves ...). All are made from seeds, so the same code writes the same bytes. Each names the decisions that it is
there for, and a recording without them is refused.
"""

"""Attacks of ordinary tenants on a real cluster: the numbers behind `fairlead bench attacks`.

`lab` stands the cluster up, with the policies and the processes under their own roles, and resets it between attacks; each other
file holds the attacks of one subject.
"""

from testbed.attacks.errors import RangeError
from testbed.attacks.model import Attack, Attacks, Outcome
from testbed.attacks.run import catalogue, run

__all__ = ["Attack", "Attacks", "Outcome", "RangeError", "catalogue", "run"]

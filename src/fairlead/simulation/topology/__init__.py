"""Gangs of whole nodes on a real fabric: the choice of places compared with simple rules on the same arrivals."""

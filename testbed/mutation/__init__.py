"""Planted bugs: what schedulers got wrong before, put into Fairlead one by one, to see which of them the tests catch."""

"""Accounting: which jobs ran where and for how long, and which nodes were there at which price, put down in the history."""

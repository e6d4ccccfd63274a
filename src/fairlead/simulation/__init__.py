"""Traces and generators in, metrics out: the production pass on a clock of its own."""

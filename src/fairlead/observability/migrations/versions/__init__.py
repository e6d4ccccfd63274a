"""One module for each version of the schema, as it was then: tables are written out, not taken from `tables`."""

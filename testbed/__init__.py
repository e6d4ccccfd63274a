"""The real parts behind end-to-end tests and benchmarks: built from Go modules, started on loopback."""

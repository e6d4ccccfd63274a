"""Two jobs on one GPU: how fast each would run is estimated from the pairs that were measured, and partners are chosen by it."""

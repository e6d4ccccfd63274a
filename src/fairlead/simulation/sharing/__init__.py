"""Two jobs on one GPU: measured throughputs of pairs, and how much several rules get out of them."""

#!/usr/bin/env python3
#SBATCH --job-name=sweep --array=0-9%4 --gpus-per-node=1 --time=00:10:00
"""A search for a learning rate: each element tries one. `fairlead submit sweep.sh`"""

import os

import numpy as np

rate = 0.01 * 1.6 ** int(os.environ["SLURM_ARRAY_TASK_ID"])
draw = np.random.default_rng(1)
inputs = draw.normal(size=(400, 8))
targets = inputs @ draw.normal(size=8)
weights = np.zeros(8)
for _ in range(50):
    weights -= rate * inputs.T @ (inputs @ weights - targets) / len(targets)
print(f"rate {rate:.4f}: loss {float(np.mean((inputs @ weights - targets) ** 2)):.3g}")

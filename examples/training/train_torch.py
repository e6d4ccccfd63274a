"""The same training with PyTorch, for torchrun: any number of workers, checkpoints, and an orderly end when it is told to go.

    torchrun train_torch.py        # how many workers and where they meet is in the environment (PET_*), which Fairlead sets

Gradients are averaged over equal shares of each batch, so the result is the same for 1, 2, 4 or 8 workers but for rounding.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT = Path(os.environ.get("FAIRLEAD_CHECKPOINT_PATH", ".")) / "model.pt"
STEPS, PAUSE = int(os.environ.get("STEPS", "60")), float(os.environ.get("PAUSE", "0.01"))
BATCH, EVERY = 64, 10
SAVED = 85  # "I have saved my work, start me again"

leaving = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: leaving.set())


def data():
    """The same for everybody."""
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(800, 12, generator=draw)
    return inputs, inputs @ torch.randn(12, 1, generator=draw) + torch.randn(800, 1, generator=draw)


def save(model, optimizer, step):
    """All or nothing: whoever is killed here leaves the last one."""
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    partial = CHECKPOINT.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
    partial.replace(CHECKPOINT)


def main():
    """Train from the last checkpoint on."""
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = torch.nn.Linear(12, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = 0
    if CHECKPOINT.exists():
        found = torch.load(CHECKPOINT, map_location=device)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        step = found["step"]
    parallel = DistributedDataParallel(model)
    inputs, targets = (each.to(device) for each in data())
    print(f"worker {rank} of {size} begins at step {step}", flush=True)
    while step < STEPS:
        batch = torch.arange(step * BATCH, (step + 1) * BATCH) % len(inputs)
        mine = batch[rank::size]
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(parallel(inputs[mine]), targets[mine]).backward()
        optimizer.step()
        step += 1
        time.sleep(PAUSE)
        told = torch.tensor([float(leaving.is_set())], device=device)
        dist.all_reduce(told, op=dist.ReduceOp.MAX)  # all leave after the same step
        if rank == 0 and (step % EVERY == 0 or told.item()):
            save(model, optimizer, step)
        if told.item():
            dist.barrier()
            sys.exit(SAVED)
    if rank == 0:
        save(model, optimizer, step)
        print(f"result {model.weight.sum().item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

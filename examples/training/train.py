"""Data-parallel training that does not mind how many take part: least squares by gradient descent, with checkpoints.

Worker 0 holds the model and deals the micro-batches of each step to whoever is connected; the gradients are summed in the order
of the micro-batches, so the result is the same to the last bit with one worker or ten, whoever comes, goes or dies on the way. It
saves its work every so many steps and when it gets SIGTERM, and goes on from there.

    FAIRLEAD_INDEX, MASTER_ADDR, MASTER_PORT    who this is, and where worker 0 is found
    FAIRLEAD_CHECKPOINT_PATH                    where work is saved
    STEPS, PAUSE                                how long it takes: steps, and seconds for each micro-batch
"""

import os
import pickle
import queue
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import numpy as np

INDEX = int(os.environ.get("FAIRLEAD_INDEX", "0"))
ADDRESS = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500")))
CHECKPOINT = Path(os.environ.get("FAIRLEAD_CHECKPOINT_PATH", ".")) / "model.npz"
STEPS, PAUSE = int(os.environ.get("STEPS", "60")), float(os.environ.get("PAUSE", "0.01"))
BATCHES, EVERY, RATE = 8, 10, 0.05

leaving = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: leaving.set())


def data():
    """The same for everybody."""
    draw = np.random.default_rng(1)
    inputs = draw.normal(size=(800, 12))
    return np.array_split(inputs, BATCHES), np.array_split(inputs @ draw.normal(size=12) + draw.normal(size=800), BATCHES)


def gradient(weights, batch, inputs, targets):
    """Of one micro-batch."""
    time.sleep(PAUSE)
    return inputs[batch].T @ (inputs[batch] @ weights - targets[batch]) / len(targets[batch])


def send(connection, message):
    """One message, with its length before it."""
    content = pickle.dumps(message)
    connection.sendall(struct.pack("!I", len(content)) + content)


def receive(connection):
    """One message. Raises `ConnectionError` where there is nobody any more."""
    (length,) = struct.unpack("!I", _exactly(connection, 4))
    return pickle.loads(_exactly(connection, length))  # from our own workers, on their own port


def _exactly(connection, count):
    content = b""
    while len(content) < count:
        part = connection.recv(count - len(content))
        if not part:
            raise ConnectionError
        content += part
    return content


def work():
    """Any worker but the first: does what it is given until there is no more, or it has to go."""
    inputs, targets = data()
    while not leaving.is_set():
        try:
            connection = socket.create_connection(ADDRESS, timeout=5)
            break
        except OSError:
            time.sleep(0.05)  # the first is not there yet
    else:
        return
    connection.settimeout(None)
    while True:
        message = receive(connection)
        if message is None:
            return  # all is done
        batch, weights = message
        send(connection, gradient(weights, batch, inputs, targets))
        if leaving.is_set():
            print(f"worker {INDEX} leaves after its micro-batch", flush=True)
            return


def lead():
    """The first worker: deals, sums, saves."""
    inputs, targets = data()
    first, weights = load()
    print(f"begins at step {first}", flush=True)
    tasks, done = queue.Queue(), queue.Queue()
    server = socket.create_server(ADDRESS, reuse_port=False)
    threading.Thread(target=accept, args=(server, tasks, done), daemon=True).start()
    threading.Thread(target=serve_self, args=(tasks, done, inputs, targets), daemon=True).start()
    for step in range(first, STEPS):
        for batch in range(BATCHES):
            tasks.put((batch, weights))
        found = dict(done.get() for _ in range(BATCHES))
        weights = weights - RATE * sum(found[batch] for batch in range(BATCHES)) / BATCHES
        if leaving.is_set() or (step + 1) % EVERY == 0 or step + 1 == STEPS:
            save(step + 1, weights)
        if leaving.is_set():
            print(f"saved at step {step + 1}", flush=True)
            sys.exit(0)
    print(f"result {weights.tobytes().hex()}", flush=True)
    for _ in range(64):
        tasks.put(None)
    time.sleep(0.2)


def accept(server, tasks, done):
    """Whoever comes takes part."""
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection, tasks, done), daemon=True).start()


def serve(connection, tasks, done):
    """One connected worker: what it does not deliver is dealt again."""
    while True:
        task = tasks.get()
        try:
            send(connection, task)
            if task is None:
                return
            done.put((task[0], receive(connection)))
        except OSError:
            tasks.put(task)
            return


def serve_self(tasks, done, inputs, targets):
    """The first works, too."""
    while (task := tasks.get()) is not None:
        done.put((task[0], gradient(task[1], task[0], inputs, targets)))


def load():
    """(step, weights) that were saved, or the beginning."""
    if not CHECKPOINT.exists():
        return 0, np.zeros(12)
    saved = np.load(CHECKPOINT)
    return int(saved["step"]), saved["weights"]


def save(step, weights):
    """As a whole or not at all."""
    CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
    part = CHECKPOINT.with_suffix(".part.npz")
    np.savez(part, step=step, weights=weights)
    part.replace(CHECKPOINT)


if __name__ == "__main__":
    try:
        if INDEX == 0:
            lead()
        else:
            work()
    except ConnectionError:
        if not leaving.is_set():
            raise

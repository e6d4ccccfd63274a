"""`python -m testbed build|up|protobuf`: build the real parts, run a control plane until interrupted, print protobuf's table."""

from __future__ import annotations

import argparse
import signal
import threading

from testbed import build, postgresql, protobuf
from testbed.controlplane import ControlPlane


def main() -> None:
    """Parse the command line and do it."""
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("build", help="build everything that is missing")
    make.add_argument("--optimized", action="store_true", help="as it is measured: takes half as long again")
    up = commands.add_parser("up", help="run etcd, kube-apiserver, controllers and KWOK until interrupted")
    up.add_argument("--no-controllers", action="store_true", help="without kube-controller-manager")
    up.add_argument("--no-kwok", action="store_true", help="without KWOK: nodes stay as you make them")
    commands.add_parser("protobuf", help="print the table of protobuf fields that the simulated cluster reads by")
    options = parser.parse_args()
    if options.command == "build":
        build.build_all(optimized=options.optimized)
        postgresql.programs()
        return
    if options.command == "protobuf":
        print("\n".join(protobuf.table()))
        return
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with ControlPlane(controllers="" if options.no_controllers else "*", kwok=not options.no_kwok) as plane:
        print(f"control plane at {plane.url}\nexport KUBECONFIG={plane.kubeconfig}", flush=True)
        stopped.wait()


if __name__ == "__main__":
    main()

"""Ports that the testbed gives to servers which listen a moment later."""

import socket
from pathlib import Path

from testbed.controlplane import free_port

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_differ_and_none_is_one_that_an_outgoing_connection_gets():
    first = int(OUTGOING.read_text().split()[0]) if OUTGOING.exists() else 32_768
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == 200
    assert max(ports) < first


def test_a_port_on_which_a_server_listens_is_passed_over():
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))
        server.listen()
        taken = server.getsockname()[1]
        # One more than the range: the search comes around to the one in use.
        assert taken not in {free_port() for _ in range(20_001)}

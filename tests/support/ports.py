"""Ports for tests whose programs listen: tests/support/ports.h for Python."""

import socket

_held = []


def free_port():
    """A TCP port at which only a program of this test may listen.

    A port that is only found free can be taken before it is used: by another test, or by the end of an outgoing connection. So this process stays
    bound to it until it ends, without listening: the kernel does not choose such a port for another program, but lets a program that asks
    for it with SO_REUSEADDR, as tandem and torch do, listen there.
    """
    try:
        held = _bound(socket.AF_INET6, "::")
    except OSError:  # a machine without IPv6
        held = _bound(socket.AF_INET, "0.0.0.0")
    _held.append(held)
    return held.getsockname()[1]


def _bound(family, address):
    holding = socket.socket(family)
    try:
        holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            holding.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holding.bind((address, 0))
    except OSError:
        holding.close()
        raise
    return holding

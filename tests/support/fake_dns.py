#!/usr/bin/env python3
"""A DNS server for tests: knows one name, which is this host.

    fake_dns.py ADDRESS NAME   # answers on port 53 of ADDRESS (such as 127.0.0.53) that NAME is 127.0.0.1; ends with its parent

Other names do not exist. Prints one line when it listens.
"""

import ctypes
import signal
import socket
import struct
import sys

PR_SET_PDEATHSIG = 1
TYPE_A, NO_SUCH_NAME = 1, 3


def question(request):
    """The name in lower case, its type, and the bytes of the first question."""
    labels, at = [], 12
    while request[at]:
        labels.append(request[at + 1 : at + 1 + request[at]].decode("ascii").lower())
        at += 1 + request[at]
    return ".".join(labels), struct.unpack_from("!H", request, at + 1)[0], request[12 : at + 5]


def answer(request, known):
    name, kind, asked = question(request)
    found = name == known
    records = b"\xc0\x0c" + struct.pack("!HHIH4s", TYPE_A, 1, 60, 4, socket.inet_aton("127.0.0.1")) if found and kind == TYPE_A else b""
    flags = 0x8180 | (0 if found else NO_SUCH_NAME)
    return request[:2] + struct.pack("!HHHHH", flags, 1, 1 if records else 0, 0, 0) + asked + records


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((sys.argv[1], 53))
        print("listening", flush=True)
        while True:
            request, client = server.recvfrom(512)
            server.sendto(answer(request, sys.argv[2]), client)


if __name__ == "__main__":
    main()

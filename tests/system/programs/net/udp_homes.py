"""UDP calls that `udp_cases.py` does not make, with a socket that the protocol server has.

udp_homes.py ADDRESS PORT: the peer is `udp.py serve`. `sendmmsg` and `recvmmsg` by the C library, and after `fork` both processes go on, each asking in
its turn. Says `done` at the end.
"""

import ctypes
import os
import socket
import struct
import sys
import time

ADDRESS, PORT = sys.argv[1], int(sys.argv[2])
WARM = float(os.environ.get("WARM", "0.6"))
C = ctypes.CDLL(None, use_errno=True)
COUNT = 8
WAITFORONE = 0x10000


class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Header(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_len", ctypes.c_uint),
        ("parts", ctypes.POINTER(Part)),
        ("count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_len", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class Message(ctypes.Structure):
    _fields_ = [("header", Header), ("len", ctypes.c_uint)]


def messages(size):
    """Messages with a buffer each, and the buffers."""
    buffers = [ctypes.create_string_buffer(size) for _ in range(COUNT)]
    parts = (Part * COUNT)(*[Part(ctypes.addressof(one), size) for one in buffers])
    pointer = ctypes.POINTER(Part)
    at = [ctypes.cast(ctypes.byref(parts, index * ctypes.sizeof(Part)), pointer) for index in range(COUNT)]
    headers = (Message * COUNT)(*[Message(Header(parts=one, count=1)) for one in at])
    return headers, buffers, parts


def many(udp):
    for _ in range(200):
        headers, buffers, _parts = messages(100)
        for number, one in enumerate(buffers):
            one.raw = bytes([number]) * 100
        assert C.sendmmsg(udp.fileno(), headers, COUNT, 0) == COUNT
        assert all(header.len == 100 for header in headers)
        got = []
        while len(got) < COUNT:
            headers, buffers, _parts = messages(200)
            count = C.recvmmsg(udp.fileno(), headers, COUNT - len(got), WAITFORONE, None)
            assert count > 0, ctypes.get_errno()
            got += [one.raw[: header.len] for header, one in zip(headers[:count], buffers)]
        assert got == [bytes([number]) * 100 for number in range(COUNT)], got


def ask(udp, number):
    text = struct.pack("!Q", number) * 20
    udp.send(text)
    assert udp.recv(1000) == text


def both(udp):
    """Parent and child ask in turns, for a while."""
    to_child, to_parent = os.pipe(), os.pipe()
    child = os.fork()
    mine, theirs = (to_child[0], to_parent[1]) if child == 0 else (to_parent[0], to_child[1])
    for number in range(2000):
        if child == 0 or number > 0:
            assert os.read(mine, 1) == b"x"
        ask(udp, number * 2 + (child == 0))
        os.write(theirs, b"x")
    if child == 0:
        # The parent closes first; the child goes on alone.
        assert os.read(mine, 1) == b"c"
        for number in range(100):
            ask(udp, number)
        os._exit(0)
    assert os.read(mine, 1) == b"x"
    udp.close()
    os.write(theirs, b"c")
    assert os.waitpid(child, 0)[1] == 0, "the child has failed"


udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 10, 0))
udp.connect((ADDRESS, PORT))
ends = time.monotonic() + WARM
while time.monotonic() < ends:
    ask(udp, 0)
many(udp)
both(udp)
print("done")

"""UDP: a server that sends back, and programs that ask it, in the ways that programs wait for datagrams.

Every answer is compared with its question. A datagram may be lost: then it is asked again, a few times. Not the judge of where datagrams went: the
test looks at the host's counters.
"""

import os
import select
import socket
import struct
import sys
import time

PATIENCE = 20.0
TRIES = 8
# Time after which an answer counts as lost (s).
ANSWER = 0.5


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def waiting(way, udp):
    """A function that waits until there may be something; true if there is within the time."""
    if way in ("blocking", "recvmsg"):
        udp.settimeout(None)
        seconds, rest = int(ANSWER), int(ANSWER % 1 * 1e6)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, rest))
        return lambda limit: True
    udp.setblocking(False)
    if way == "nonblocking":
        return lambda limit: True
    if way == "select":
        return lambda limit: bool(select.select([udp], [], [], limit)[0])
    if way == "poll":
        poller = select.poll()
        poller.register(udp, select.POLLIN)
        return lambda limit: bool(poller.poll(limit * 1000))
    edges = select.EPOLLET if way == "epollet" else 0
    poller = select.epoll()
    poller.register(udp, select.EPOLLIN | edges)
    return lambda limit: bool(poller.poll(limit))


def take(way, udp):
    """One datagram and who sent it; nothing if there is none."""
    try:
        if way == "recvmsg":
            data, _, flags, source = udp.recvmsg(65536)
            assert flags == 0, flags
            return data, source
        return udp.recvfrom(65536)
    except (BlockingIOError, InterruptedError):
        return None


def serve(way, address, port):
    udp = socket.socket(family(address), socket.SOCK_DGRAM)
    udp.bind((address, int(port)))
    wait = waiting(way, udp)
    print("ready", flush=True)
    heard = 0
    ends = time.monotonic() + PATIENCE * 3
    while time.monotonic() < ends:
        wait(0.2)
        # All datagrams that came before the last wait are there, in whatever number.
        while (got := take(way, udp)) is not None:
            data, source = got
            if data == b"end":
                print("heard", heard)
                return
            heard += 1
            udp.sendto(data, source)
            if way in ("blocking", "recvmsg"):
                break
    sys.exit("nobody said that it is over")


def question(number, size):
    head = struct.pack("!I", number)
    return head + bytes((number + at) & 0xFF for at in range(size - len(head)))


def ask(way, udp, wait, target, text):
    """Whether the question was answered."""
    for _ in range(TRIES):
        udp.send(text) if target is None else udp.sendto(text, target)
        ends = time.monotonic() + ANSWER
        while (left := ends - time.monotonic()) > 0:
            if not wait(left):
                break
            got = take(way, udp)
            if got is None:
                continue
            data, source = got
            if data == text:
                return True
            # A late answer to an earlier question, which was asked twice.
            assert len(data) >= 4, data
    return False


def call(way, address, port, form, sizes):
    udp = socket.socket(family(address), socket.SOCK_DGRAM)
    target = (address, int(port))
    if form == "connected":
        udp.connect(target)
    wait = waiting(way, udp)
    sizes = [int(size) for size in sizes.split(",")]
    answered, number = None, -1
    ends = time.monotonic() + PATIENCE * 2.5
    while time.monotonic() < ends:
        number += 1
        if answered is None and os.path.exists(os.environ["END"] + ".counts"):
            answered = 0
        if os.path.exists(os.environ["END"]):
            break
        if answered is not None:
            answered += 1
        text = question(number, sizes[number % len(sizes)])
        assert ask(way, udp, wait, None if form == "connected" else target, text), number
    # The number since the test began to count.
    print(answered)
    udp.sendto(b"end", target) if form != "connected" else udp.send(b"end")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

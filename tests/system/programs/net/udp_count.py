"""UDP: asks numbered questions, one after the other, and counts what was lost and what came twice.

Nothing is asked again: the answer to a question that has none after a while is lost, unless it comes later. How many were asked it writes down now
and then, and when it is told to it sets an option that sockets in the kernel have. The other end is `udp.py serve`.
"""

import json
import os
import select
import socket
import struct
import sys
import time

# Longest wait for an answer before the next question is asked (s).
ANSWER = float(os.environ.get("ANSWER", "0.25"))
LIMIT = 280.0


def ready(way, udp):
    """A function that waits until there may be something, and says whether there is."""
    if way == "blocking":
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(ANSWER), int(ANSWER % 1 * 1e6)))
        return lambda limit: True
    udp.setblocking(False)
    if way == "poll":
        poller = select.poll()
        poller.register(udp, select.POLLIN)
        return lambda limit: bool(poller.poll(limit * 1000))
    poller = select.epoll()
    poller.register(udp, select.EPOLLIN | (select.EPOLLET if way == "epollet" else 0))
    return lambda limit: bool(poller.poll(limit))


def main(way, address, port, form):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    udp = socket.socket(family, socket.SOCK_DGRAM)
    target = (address, int(port))
    if form == "connected":
        udp.connect(target)
    wait = ready(way, udp)
    open_ones, seen = set(), {"asked": 0, "late": 0, "twice": 0}
    ends = time.monotonic() + LIMIT
    while time.monotonic() < ends and not os.path.exists(os.environ["END"]):
        with open(os.environ["END"] + ".asked", "w", encoding="ascii") as file:
            file.write(f"{seen['asked']} {os.getpid()}\n")
        if os.path.exists(os.environ["END"] + ".option"):
            os.unlink(os.environ["END"] + ".option")
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 1)
        for _ in range(50):
            number = seen["asked"]
            seen["asked"] += 1
            open_ones.add(number)
            text = struct.pack("!Q", number)
            udp.send(text) if form == "connected" else udp.sendto(text, target)
            until = time.monotonic() + ANSWER
            while number in open_ones and (left := until - time.monotonic()) > 0:
                try:
                    if not wait(left):
                        break
                    (answered,) = struct.unpack("!Q", udp.recv(64))
                except (BlockingIOError, InterruptedError):
                    continue
                kind = None if answered == number else "late" if answered in open_ones else "twice"
                if answered == number and number not in open_ones:
                    kind = "twice"
                open_ones.discard(answered)
                if kind:
                    seen[kind] += 1
    seen["lost"] = sorted(open_ones)
    print(json.dumps(seen), flush=True)
    udp.send(b"end") if form == "connected" else udp.sendto(b"end", target)


if __name__ == "__main__":
    main(*sys.argv[1:])

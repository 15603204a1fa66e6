"""UDP over a bad link: bursts of numbered datagrams, each sent back, and at both ends every byte of every datagram looked at.

serve|call ADDRESS PORT. Nothing is sent again, and what is lost is not for these two to judge: they say how many have come, and the test knows how
many the link has delivered. In END.server and END.client the test writes these numbers once they are final: then so many are awaited, and a
moment more for those that should not come.
"""

import json
import os
import select
import socket
import struct
import sys
import time

END = os.environ["END"]
# Lengths of the datagrams, in turn.
SIZES = (12, 100, 1, 1472, 700, 13, 300, 64, 1200, 40)
HEAD = struct.Struct("!IHBB")
BURST = int(os.environ.get("BURST", "100"))
DATA, MARK = 1, 2
# Longest wait for a mark before another is sent (s).
ANSWER = 0.05
PATIENCE = 30.0


def datagram(number, kind):
    """What is sent under that number: no two are the same, and each says how long it is."""
    size = max(SIZES[number % len(SIZES)], HEAD.size)
    head = HEAD.pack(number, size, kind, number & 0xFF)
    return head + bytes((number * 7 + at) & 0xFF for at in range(size - HEAD.size))


class End:
    def __init__(self, address):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.udp = socket.socket(family, socket.SOCK_DGRAM)
        self.udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.udp.setblocking(False)
        self.poller = select.epoll()
        self.poller.register(self.udp, select.EPOLLIN)
        self.total, self.seen = 0, {}

    def take(self, limit):
        """What comes within the time: number, kind and whence of each."""
        if self.poller.poll(limit):
            while True:
                try:
                    data, source = self.udp.recvfrom(65536)
                except BlockingIOError:
                    return
                number, _, kind, _ = HEAD.unpack_from(data)
                assert data == datagram(number, kind), (len(data), data[:20])
                self.total += 1
                self.seen[number] = self.seen.get(number, 0) + 1
                yield data, number, kind, source

    def finish(self, name, answer):
        """Until as many have come as the link has delivered; then says so."""
        with open(name, encoding="ascii") as file:
            expected = int(file.read())
        ends = time.monotonic() + PATIENCE
        while self.total < expected and time.monotonic() < ends:
            for data, _, _, source in self.take(ANSWER):
                answer(data, source)
        for data, _, _, source in self.take(2 * ANSWER):
            answer(data, source)
        most = max(self.seen.values())
        print(json.dumps({"total": self.total, "distinct": len(self.seen), "most": most}), flush=True)


def serve(address, port):
    end = End(address)
    end.udp.bind((address, int(port)))
    while not os.path.exists(END + ".server"):
        for data, _, _, source in end.take(ANSWER):
            end.udp.sendto(data, source)
    end.finish(END + ".server", end.udp.sendto)


def call(address, port):
    end, number, bursts = End(address), 0, 0
    end.udp.connect((address, int(port)))
    while not os.path.exists(END):
        for _ in range(BURST):
            end.udp.send(datagram(number, DATA))
            number += 1
        first, is_answered = number, False
        while not is_answered:
            end.udp.send(datagram(number, MARK))
            number += 1
            for _, got, kind, _ in end.take(ANSWER):
                is_answered |= kind == MARK and got >= first
        bursts += 1
        with open(END + ".new", "w", encoding="ascii") as file:
            file.write(str(bursts))
        os.rename(END + ".new", END + ".bursts")
    with open(END + ".new", "w", encoding="ascii") as file:
        file.write(str(number))
    os.rename(END + ".new", END + ".sent")
    ends = time.monotonic() + PATIENCE
    while not os.path.exists(END + ".client"):
        assert time.monotonic() < ends, "nobody says how many there are"
        list(end.take(ANSWER))
    end.finish(END + ".client", lambda data, source: None)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

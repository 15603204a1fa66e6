"""What a UDP socket is told beyond a router behind which only short packets fit: printed, to be compared with what the kernel alone answers.

serve|call ADDRESS PORT. Before each case the caller's socket is used until END.N is there, so that under Sojourn it is away; before that it forgets
nothing: the test has both hosts forget what they learnt of the path, and says in END.N that they have.
"""

import errno
import os
import select
import socket
import struct
import sys
import time

END = os.environ["END"]
PATIENCE = 20.0
# Longest wait for an answer (s); the path has two routers.
ANSWER = 0.3
# Number of questions until one that is too long for the path is answered: first the question is
# lost, then its answer on the way back.
TRIES = 4
IP_RECVERR, IPV6_RECVERR, IP_MTU, IPV6_MTU, IPV6_MTU_DISCOVER = 11, 25, 14, 24, 23
IP_MTU_DISCOVER, WANT, DO, PROBE = 10, 1, 2, 3
LONG = 1400
SETTLES = 0.1


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def serve(address, port):
    udp = socket.socket(family(address), socket.SOCK_DGRAM)
    udp.bind((address, int(port)))
    poller = select.epoll()
    poller.register(udp, select.EPOLLIN)
    udp.setblocking(False)
    while not os.path.exists(END):
        if poller.poll(0.1):
            try:
                data, source = udp.recvfrom(65536)
            except BlockingIOError:
                continue
            udp.sendto(data, source)


def say(name, *what):
    print(name, *what, flush=True)


def failing(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]


class Case:
    count = 0

    def __init__(self, address, port, connected=True, options=()):
        self.target = (address, int(port))
        self.udp = socket.socket(family(address), socket.SOCK_DGRAM)
        for level, name, value in options:
            self.udp.setsockopt(level, name, value)
        self.connected = connected
        if connected:
            self.udp.connect(self.target)
        self.poller = select.poll()
        self.poller.register(self.udp, select.POLLIN)
        self.udp.setblocking(False)
        self.number = 0
        Case.count += 1
        with open(f"{END}.asked", "w", encoding="ascii") as file:
            file.write(str(Case.count))
        ends = time.monotonic() + PATIENCE
        while not os.path.exists(f"{END}.{Case.count}"):
            assert time.monotonic() < ends, "nobody says that it is away"
            assert self.ask(50), "no answer"
        # The change of the path makes the server look up routes anew; the socket stays in use
        # meanwhile.
        ends = time.monotonic() + SETTLES
        while time.monotonic() < ends:
            assert self.ask(50), "no answer"

    def text(self, size):
        self.number += 1
        return struct.pack("!I", self.number).ljust(size, bytes([self.number & 0xFF]))

    def send(self, text):
        return self.udp.send(text) if self.connected else self.udp.sendto(text, self.target)

    def ask(self, size):
        """Whether a question is answered; each byte of the answer is looked at. A short one is repeated, for any datagram may be lost."""
        text = self.text(size)
        for _ in range(int(PATIENCE) if size < 100 else 1):
            self.send(text)
            ends = time.monotonic() + (1 if size < 100 else ANSWER)
            while (left := ends - time.monotonic()) > 0 and self.poller.poll(left * 1000):
                got = self.udp.recv(65536)
                if got == text:
                    return True
                # The answer to an earlier question.
                assert got[4:] == bytes([got[3]]) * (len(got) - 4), got[:8]
        return False

    def await_error(self):
        """What the socket says once it has something to say."""
        found = self.poller.poll(PATIENCE * 1000)
        assert found, "nothing is said"
        return bool(found[0][1] & select.POLLERR)

    def errors(self):
        """What is in the queue of errors, and what became of the datagram there."""
        told = []
        while True:
            try:
                data, control, _, _ = self.udp.recvmsg(100, 512, socket.MSG_ERRQUEUE)
            except BlockingIOError:
                return told
            for _, _, message in control:
                number, origin, kind, code, _, info = struct.unpack_from("IBBBBI", message)
                told.append((len(data), errno.errorcode[number], origin, kind, code, info))


def asked_again(case, name):
    """How it goes on: one of some questions of the same length is answered."""
    answers = [failing(lambda: case.ask(LONG)) for _ in range(TRIES)]
    say(name, "answered", True in answers, "short", case.ask(50))


def options_of(address):
    v6 = ":" in address
    level = socket.IPPROTO_IPV6 if v6 else socket.IPPROTO_IP
    return level, IPV6_RECVERR if v6 else IP_RECVERR, IPV6_MTU_DISCOVER if v6 else IP_MTU_DISCOVER, IPV6_MTU if v6 else IP_MTU


def call(address, port):
    level, recverr, discover, mtu = options_of(address)
    case = Case(address, port)
    case.send(case.text(LONG))
    say("connected", case.await_error(), failing(lambda: case.udp.recv(100)), failing(lambda: case.udp.recv(100)))
    say("connected mtu", case.udp.getsockopt(level, mtu))
    asked_again(case, "connected")

    case = Case(address, port)
    case.send(case.text(LONG))
    case.await_error()
    say("option", errno.errorcode[case.udp.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)], case.ask(50))

    case = Case(address, port)
    case.send(case.text(LONG))
    case.await_error()
    say("sent", failing(lambda: case.send(case.text(60))), case.ask(50))

    case = Case(address, port, False)
    case.send(case.text(LONG))
    asked_again(case, "unconnected")

    for connected in (True, False):
        case = Case(address, port, connected, [(level, recverr, 1)])
        case.send(case.text(LONG))
        say("queue", connected, case.await_error(), case.errors(), failing(lambda: case.udp.recv(100)))
        asked_again(case, f"queue {connected}")

    for connected in (True, False):
        case = Case(address, port, connected, [(level, discover, DO)])
        case.send(case.text(LONG))
        if connected:
            say("never cut", case.await_error(), failing(lambda: case.udp.recv(100)))
        else:
            time.sleep(ANSWER)
        say("never cut", connected, failing(lambda: case.send(case.text(LONG))), failing(lambda: case.send(case.text(1200))))
        say("never cut", connected, "short", case.ask(50), case.udp.getsockopt(level, mtu) if connected else "")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

"""A server whose processes end in the middle of a connection, and its client: `serve ADDRESS PORT
COUNT` and `call ADDRESS PORT COUNT`.

Each connection has a process of its own. When the client says so that process makes a child, which
goes on with the connection, and ends at once: by itself, or killed. The client says so on all
connections at once, sends questions while that happens, and expects all answers. Both print `all is well`.
"""

import os
import signal
import socket
import sys
import time

LEN = 64
ASK, LEAVE, KILL = b"a", b"l", b"k"
# Questions that make a session hot, and the time in which it moves.
MANY, MOVING = 200, 1.5
ANSWER_MAX = 5


def receive(connection):
    got = b""
    while len(got) < LEN:
        part = connection.recv(LEN - len(got))
        if not part:
            return None
        got += part
    return got


def answer_all(connection):
    while (question := receive(connection)) is not None:
        what = question[:1]
        if what in (LEAVE, KILL) and os.fork():
            if what == KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)
        connection.sendall(question)


def serve(address, port, count):
    listener = socket.create_server((address, port), backlog=count)
    for _ in range(count):
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            answer_all(connection)
            os._exit(0)
        connection.close()


class Caller:
    def __init__(self, address, port):
        self.connection = socket.create_connection((address, port), timeout=ANSWER_MAX)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.asked = []

    def ask(self, what):
        question = what + bytes(LEN - 1)
        self.connection.sendall(question)
        self.asked.append(question)

    def expect(self):
        for question in self.asked:
            assert receive(self.connection) == question
        self.asked = []


def call(address, port, count):
    callers = [Caller(address, port) for _ in range(count)]
    moved = time.monotonic() + MOVING
    asked = 0
    while asked < MANY or time.monotonic() < moved:
        for caller in callers:
            caller.ask(ASK)
            caller.expect()
        asked += 1
    # All at once: the carrier is busy with the others' returns.
    for number, caller in enumerate(callers):
        caller.ask(LEAVE if number % 2 else KILL)
    for _ in range(20):
        for caller in callers:
            caller.ask(ASK)
        time.sleep(0.0005)
    for _ in range(MANY):
        for caller in callers:
            caller.expect()
            caller.ask(ASK)
    for caller in callers:
        caller.expect()


role, address, port, count = sys.argv[1:]
{"serve": serve, "call": call}[role](address, int(port), int(count))
print("all is well")

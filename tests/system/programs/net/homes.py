"""Questions and answers with an echo, in one of several ways to wait.

homes.py WAY ADDRESS PORT ROUNDS [FILE]: each answer must be the question. `fork` takes turns with a
child that has the same connection; `threads` sends in one thread and receives in another. With FILE
it goes on until that is there. Says `done` at the end.
"""

import os
import select
import signal
import socket
import struct
import sys
import threading

way, address, port, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
end_file = sys.argv[5] if len(sys.argv) > 5 else None


class Waiter:
    """Waits until a socket can be read or written."""

    def __init__(self, sock):
        self.sock = sock
        if way in ("epoll", "edge"):
            self.set = select.epoll()
            edge = select.EPOLLET if way == "edge" else 0
            self.edge = edge
            self.set.register(sock, select.EPOLLIN | edge)

    def wait(self, output):
        fd = self.sock.fileno()
        if way == "select":
            ready = select.select([] if output else [fd], [fd] if output else [], [], 30)
            assert ready[0] or ready[1], "nothing for 30 seconds"
        elif way == "poll":
            poll = select.poll()
            poll.register(fd, select.POLLOUT if output else select.POLLIN)
            assert poll.poll(30_000), "nothing for 30 seconds"
        else:
            wanted = select.EPOLLIN | (select.EPOLLOUT if output else 0) | self.edge
            self.set.modify(fd, wanted)
            assert self.set.poll(30), "nothing for 30 seconds"


class Repeater:
    """Waits for nothing: the call that has found nothing has waited."""

    def wait(self, output):
        pass


def send(sock, waiter, data):
    while data:
        try:
            data = data[sock.send(data) :]
        except BlockingIOError:
            waiter.wait(True)


def receive(sock, waiter, count):
    got = b""
    while len(got) < count:
        try:
            part = sock.recv(count - len(got))
            assert part, f"the end after {len(got)} of {count} bytes"
            got += part
        except BlockingIOError:
            waiter.wait(False)
    return got


def question_of(number, salt=0):
    size = (1, 100, 1460, 9000, 70_000)[number % 5]
    question = bytes((number + salt + at) % 251 for at in range(256)) * (size // 256 + 1)
    return question[:size]


def ask(sock, waiter, number, salt=0):
    question = question_of(number, salt)
    size = len(question)
    send(sock, waiter, question)
    answer = receive(sock, waiter, size)
    assert answer == question, f"round {number}: another answer"


sock = socket.create_connection((address, port))
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
if way in ("blocking", "fork", "threads"):
    waiter = None
elif way == "signals":
    waiter = None
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
elif way == "limit":
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 300))
    waiter = Repeater()
elif way == "timeout":
    sock.settimeout(30)
    waiter = None
else:
    sock.setblocking(False)
    waiter = Waiter(sock)

for number in range(rounds):
    ask(sock, waiter, number)
while end_file and not os.path.exists(end_file):
    ask(sock, waiter, rounds)

if way == "threads":

    def send_all():
        for number in range(rounds):
            send(sock, None, question_of(number))

    sender = threading.Thread(target=send_all)
    sender.start()
    for number in range(rounds):
        answer = receive(sock, None, len(question_of(number)))
        assert answer == question_of(number), f"round {number}: another answer"
    sender.join()

if way == "fork":
    to_child, from_parent = os.pipe(), os.pipe()
    child = os.fork()
    mine, theirs = (from_parent[0], to_child[1]) if child == 0 else (to_child[0], from_parent[1])
    for number in range(rounds):
        if child == 0 or number > 0:
            assert os.read(mine, 1) == b"x"
        ask(sock, None, number, 7 if child == 0 else 3)
        os.write(theirs, b"x")
    if child == 0:
        # The parent closes first; the child goes on alone.
        assert os.read(mine, 1) == b"c"
        ask(sock, None, 4, 9)
        os._exit(0)
    assert os.read(mine, 1) == b"x"
    sock.close()
    os.write(theirs, b"c")
    assert os.waitpid(child, 0)[1] == 0, "the child has failed"
else:
    signal.setitimer(signal.ITIMER_REAL, 0)
    sock.shutdown(socket.SHUT_WR)
    if way == "limit":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
    elif waiter:
        sock.setblocking(True)
    assert sock.recv(1) == b"", "bytes after the end"
    sock.close()
print("done")

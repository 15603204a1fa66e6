"""Questions and answers with an echo, in one of several ways to wait.

homes.py WAY ADDRESS PORT ROUNDS [FILE]: each answer must be the question. `fork` takes turns with a
child that has the same connection. With FILE it goes on until that is there. Says `done` at the end.
"""

import os
import select
import socket
import sys

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


def ask(sock, waiter, number, salt=0):
    size = (1, 100, 1460, 9000, 70_000)[number % 5]
    question = bytes((number + salt + at) % 251 for at in range(256)) * (size // 256 + 1)
    question = question[:size]
    send(sock, waiter, question)
    answer = receive(sock, waiter, size)
    assert answer == question, f"round {number}: another answer"


sock = socket.create_connection((address, port))
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
if way in ("blocking", "fork"):
    waiter = None
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
    sock.shutdown(socket.SHUT_WR)
    if waiter:
        sock.setblocking(True)
    assert sock.recv(1) == b"", "bytes after the end"
    sock.close()
print("done")

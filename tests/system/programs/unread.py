"""Callers that write while they do not read: `greet ADDRESS PORT` and `call`, or `take` and `wait`.

The server says at the end how much it has got; the one that greets says something at the beginning.
Its caller reads nothing until the file $END is there, the other one has a thread that sits in a
receive all the time. Prints `all is well`.
"""

import array
import fcntl
import os
import socket
import sys
import termios
import threading
import time

GREETING = bytes(at * 7 % 251 for at in range(5000))
MESSAGE = bytes(range(200))
# A move that waits for the reader gives up after two seconds.
SILENCE_MAX = 1.5


def greet(address, port):
    take(address, port, GREETING)


def take(address, port, greeting=b""):
    listener = socket.create_server((address, port))
    connection, _ = listener.accept()
    connection.sendall(greeting)
    count = 0
    heard = time.monotonic()
    while True:
        got = connection.recv(65536)
        if not got:
            break
        before, heard = heard, time.monotonic()
        assert heard - before < SILENCE_MAX, heard - before
        assert all(byte == MESSAGE[(count + at) % 200] for at, byte in enumerate(got))
        count += len(got)
    connection.sendall(b"%d" % count)


def unread(connection):
    count = array.array("i", [0])
    fcntl.ioctl(connection, termios.FIONREAD, count)
    return count[0]


def call(address, port):
    connection = socket.create_connection((address, port))
    while unread(connection) < len(GREETING):
        time.sleep(0.001)
    count = 0
    while not os.path.exists(os.environ["END"]):
        connection.sendall(MESSAGE)
        count += len(MESSAGE)
        assert unread(connection) == len(GREETING), unread(connection)
        time.sleep(0.001)
    connection.shutdown(socket.SHUT_WR)
    got = b""
    while True:
        part = connection.recv(65536)
        if not part:
            break
        got += part
    assert got == GREETING + b"%d" % count, (len(got), got[len(GREETING):], count)


def wait(address, port):
    connection = socket.create_connection((address, port))
    got = []

    def read():
        while part := connection.recv(65536):
            got.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(100):
        connection.sendall(MESSAGE)
        time.sleep(0.03)
    connection.shutdown(socket.SHUT_WR)
    reader.join()
    assert b"".join(got) == b"%d" % (100 * len(MESSAGE)), got


{"greet": greet, "call": call, "take": take, "wait": wait}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
print("all is well")

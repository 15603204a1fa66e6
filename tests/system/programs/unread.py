"""A caller that writes before it reads what it has: `serve ADDRESS PORT`, `call ADDRESS PORT`.

The server greets, and says at the end how much it has got. The caller reads nothing until the file
$END is there. Prints `all is well`.
"""

import array
import fcntl
import os
import socket
import sys
import termios
import time

GREETING = bytes(at * 7 % 251 for at in range(5000))
MESSAGE = bytes(range(200))


def serve(address, port):
    listener = socket.create_server((address, port))
    connection, _ = listener.accept()
    connection.sendall(GREETING)
    count = 0
    while True:
        got = connection.recv(65536)
        if not got:
            break
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


{"serve": serve, "call": call}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
print("all is well")

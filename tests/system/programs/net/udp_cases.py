"""What calls on a UDP socket answer: printed, to be compared with what the kernel alone answers.

The peer is `udp.py serve`. Before each case the socket is used for a while, so that under Sojourn it is away.
"""

import errno
import fcntl
import os
import select
import socket
import struct
import sys
import termios
import time

ADDRESS, PORT = sys.argv[1], int(sys.argv[2])
TARGET = (ADDRESS, PORT)
WARM = float(os.environ.get("WARM", "0.6"))


def fresh(connected=True):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.settimeout(None)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 5, 0))
    if connected:
        udp.connect(TARGET)
    warm(udp, connected)
    return udp


def warm(udp, connected=True):
    ends = time.monotonic() + WARM
    while time.monotonic() < ends:
        udp.send(b"warm") if connected else udp.sendto(b"warm", TARGET)
        assert udp.recv(100) == b"warm"


def say(name, *what):
    print(name, *what, flush=True)


def failing(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]


def queued(udp):
    return struct.unpack("i", fcntl.ioctl(udp, termios.FIONREAD, b"\0" * 4))[0]


def await_input(udp):
    return bool(select.select([udp], [], [], 5)[0])


def lengths():
    udp = fresh()
    for size in (0, 1, 1472, 1473, 9000):
        udp.send(b"x" * size)
        say("length", size, len(udp.recv(65536)))
    udp.send(b"0123456789")
    say("cut", udp.recv(4))
    udp.send(b"0123456789")
    say("whole length", len(udp.recv(4, socket.MSG_TRUNC)), failing(lambda: udp.recv(10, socket.MSG_DONTWAIT)))
    udp.send(b"0123456789")
    data, control, flags, source = udp.recvmsg(4, 100)
    say("cut message", data, control, flags == socket.MSG_TRUNC, source == TARGET)
    udp.send(b"0123456789")
    rooms = [bytearray(3), bytearray(2), bytearray(20)]
    say("scattered", udp.recvmsg_into(rooms)[0], rooms)
    udp.send(b"0123456789")
    say("read", os.read(udp.fileno(), 4), os.write(udp.fileno(), b"abc"), os.read(udp.fileno(), 100))
    say("too long", failing(lambda: udp.send(b"x" * 65508)))


def looking():
    udp = fresh()
    udp.send(b"first")
    await_input(udp)
    say("queued", queued(udp))
    say("peeked", udp.recv(100, socket.MSG_PEEK), udp.recv(2, socket.MSG_PEEK), udp.recv(100))
    say("nothing", failing(lambda: udp.recv(100, socket.MSG_DONTWAIT)), queued(udp))
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200000))
    begun = time.monotonic()
    say("late", failing(lambda: udp.recv(100)), 0.15 < time.monotonic() - begun < 3)
    udp.setblocking(False)
    say("not blocking", failing(lambda: udp.recv(100)))


def others():
    udp = fresh(connected=False)
    own = ("127.0.0.1", udp.getsockname()[1])
    udp.setblocking(False)
    # A datagram to the socket itself has arrived when the call returns.
    udp.sendto(b"self", own)
    say("self", udp.recv(100))
    udp.setblocking(True)
    say("no port", failing(lambda: udp.sendto(b"x", (ADDRESS, 0))))
    say("no way", failing(lambda: udp.sendto(b"x", ("203.0.113.1", 9))))
    say("broadcast", failing(lambda: udp.sendto(b"x", ("255.255.255.255", 9))))
    say("nobody", failing(lambda: udp.send(b"x")))
    udp.connect(TARGET)
    udp.send(b"connected")
    say("connected", udp.recv(100), udp.getpeername() == TARGET)


def refused():
    udp = fresh()
    say("before", udp.send(b"a"), udp.recv(10))
    closed = (ADDRESS, 9)
    udp.connect(closed)
    for _ in range(3):
        udp.send(b"x")
        say("refused", failing(lambda: udp.recv(10)))
    for _ in range(50):
        if failing(lambda: udp.send(b"x")) == "ECONNREFUSED":
            break
        time.sleep(0.01)
    else:
        say("a send was never refused")


def children():
    udp = fresh()
    udp.send(b"for the child")
    await_input(udp)
    child = os.fork()
    if child == 0:
        say("child", udp.recv(100))
        udp.send(b"of the child")
        say("child again", udp.recv(100))
        os._exit(0)
    os.waitpid(child, 0)
    udp.send(b"parent")
    say("parent", udp.recv(100))
    udp = fresh()
    udp.send(b"for both")
    await_input(udp)
    other = udp.dup()
    say("duplicate", other.recv(100))
    udp.close()
    other.send(b"left")
    say("left", other.recv(100))
    port = other.getsockname()[1]
    other.close()
    again = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    again.bind(("", port))
    again.sendto(b"again", TARGET)
    say("again", again.recv(100))
    udp = fresh()
    udp.send(b"for another program")
    await_input(udp)
    os.set_inheritable(udp.fileno(), True)
    text = f"import os; print(os.read({udp.fileno()}, 100), flush=True)"
    child = os.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", text])
    os.waitpid(child, 0)


for case in (lengths, looking, others, refused, children):
    case()

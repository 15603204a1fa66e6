"""`apart.py writes|reads FOLDER`: two programs with a pipe between them, which do not see each other.

The writer makes the pipe, hands the reader its end over the socket `way` in FOLDER, warms the pipe up,
writes BYTES and goes on living. The reader has another program read them, which the session goes home for: all of them must come,
once. It prints "moved" if the pipe was away before, and what is wrong. Python cannot be told that a
program has less to read, so files in FOLDER say how far both are.
"""

import array
import fcntl
import os
import socket
import subprocess
import sys
import termios
import time

BYTES = bytes(i * 7 % 251 for i in range(50_000))
WARM = 3000


def until(what, is_so):
    limit = time.monotonic() + 20
    while not is_so():
        if time.monotonic() > limit:
            sys.exit("not in time: " + what)
        time.sleep(0.002)


def queued(fd):
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


def writes(folder):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(folder + "/way")
    listener.listen()
    end, pipe = os.pipe()
    way, _ = listener.accept()
    socket.send_fds(way, [b"x"], [end])
    os.close(end)
    assert way.recv(1) == b"y"
    for _ in range(WARM):
        os.write(pipe, b"x")
        time.sleep(0.0002)
    until("warm", lambda: os.path.exists(folder + "/warm"))
    assert os.write(pipe, BYTES) == len(BYTES)
    until("read", lambda: os.path.exists(folder + "/read"))


def reads(folder):
    until("the way", lambda: os.path.exists(folder + "/way"))
    way = socket.socket(socket.AF_UNIX)
    until("a listener", lambda: way.connect_ex(folder + "/way") == 0)
    _, [pipe], _, _ = socket.recv_fds(way, 1, 1)
    way.send(b"y")
    count = 0
    while count < WARM:
        count += len(os.read(pipe, 10))
    open(folder + "/warm", "w").close()
    until("bytes", lambda: queued(pipe) == len(BYTES))
    with open("/proc/self/maps") as maps:
        has_moved = "sojourn-stream" in maps.read()
    done = subprocess.run(["head", "-c", str(len(BYTES))], stdin=pipe, capture_output=True, check=True)
    # Whoever pays what is owed has done so after a moment.
    time.sleep(0.3)
    left = queued(pipe)
    open(folder + "/read", "w").close()
    print("moved" if has_moved else "in the kernel", "right" if done.stdout == BYTES else "wrong", left)


{"writes": writes, "reads": reads}[sys.argv[1]](sys.argv[2])

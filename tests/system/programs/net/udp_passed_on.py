"""UDP: receives numbered datagrams from one peer, and lets somebody else go on in the middle.

`exec` becomes another program when SIGUSR1 comes, which reads on; `fork` makes a child then, leaves what comes for a while unread, and ends: the child
reads on. Whoever receives the last datagram, whose number is above all others', prints the numbers that nobody has received.
"""

import os
import select
import signal
import socket
import struct
import sys
import time

LAST = 1 << 63
# Longest wait for a datagram that was given back (seconds).
PATIENCE = 5


def receive(udp, file, told=None, passes_on=None):
    """Receives until the last datagram has come, and says what is missing; or passes the socket on once it is told to."""
    poller = select.poll()
    for one in filter(None, (udp, told)):
        poller.register(one, select.POLLIN)
    while True:
        if told and told.fileno() in dict(poller.poll()):
            return passes_on(udp, file)
        number = struct.unpack("!Q", udp.recv(8))[0]
        if number & LAST:
            break
        os.write(file, b"%d\n" % number)
    # Those that were given back to the kernel may come behind the last: what is missing is waited for.
    is_over = time.monotonic() + PATIENCE
    while missing(file, number & ~LAST) and (left := is_over - time.monotonic()) > 0:
        udp.settimeout(left)
        try:
            os.write(file, b"%d\n" % (struct.unpack("!Q", udp.recv(8))[0] & ~LAST))
        except TimeoutError:
            break
    print(missing(file, number & ~LAST), flush=True)


def missing(file, end):
    """Returns the numbers below `end` that nobody has received."""
    with open(f"/proc/self/fd/{file}", encoding="ascii") as text:
        return sorted(set(range(end)) - {int(line) for line in text})


def become_another(udp, file):
    os.execv(sys.executable, [sys.executable, sys.argv[0], "go on", str(udp.fileno()), str(file)])


def leave_to_child(udp, file):
    if os.fork() == 0:
        time.sleep(0.3)
        receive(udp, file)
        os._exit(0)
    time.sleep(0.1)
    os._exit(0)


def main(how, own, port, peer):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    udp.bind((own, int(port)))
    udp.connect((peer, int(port)))
    file = os.memfd_create("seen", 0)
    for number in (udp.fileno(), file):
        os.set_inheritable(number, True)
    passes_on = {"exec": become_another, "fork": leave_to_child}[how]
    # The signal shows in a pipe, so that no datagram is taken and not written down.
    told, tells = socket.socketpair()
    tells.setblocking(False)
    signal.set_wakeup_fd(tells.fileno())
    signal.signal(signal.SIGUSR1, lambda *_: None)
    receive(udp, file, told, passes_on)


if sys.argv[1] == "go on":
    receive(socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3]))
else:
    main(*sys.argv[1:])

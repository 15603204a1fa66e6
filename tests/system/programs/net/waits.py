"""TCP: asks some questions, or answers them, and then only waits: what it hears of the session's end.

`serve ADDRESS PORT` answers each question, of one byte. `ask ADDRESS PORT QUESTIONS PAUSE` asks that many, or with 0 until it is told to stop, and sleeps
for that many seconds before it waits. Its last question is `.`. Both print what ends their wait: `end`, `reset`, or `nothing` after a while.
"""

import os
import socket
import struct
import sys
import time

# Longest wait for the end (s).
LIMIT = 20


def wait(tcp, answers):
    """Waits until the session ends, and says how."""
    try:
        while heard := tcp.recv(16):
            if answers:
                tcp.sendall(heard)
        return "end"
    except (ConnectionResetError, BrokenPipeError):
        return "reset"
    except BlockingIOError:
        return "nothing"


def prepare(tcp):
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", LIMIT, 0))
    return tcp


def serve(address, port):
    with socket.create_server((address, int(port))) as listener:
        print(wait(prepare(listener.accept()[0]), True))


def ask(address, port, questions, pause):
    tcp = prepare(socket.create_connection((address, int(port))))
    asked, is_last = 0, False
    while not is_last:
        asked += 1
        is_last = asked == int(questions) or questions == "0" and asked % 50 == 0 and os.path.exists(os.environ["END"])
        tcp.sendall(b"." if is_last else b"?")
        tcp.recv(1)
    time.sleep(float(pause))
    print(wait(tcp, False))


{"serve": serve, "ask": ask}[sys.argv[1]](*sys.argv[2:])

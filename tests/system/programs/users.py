"""Programs of several users that talk over TCP; every byte is checked. Ordinary Python, nothing of Sojourn.

`serve PORT-FILE COUNT`: answers COUNT connections from one epoll set until all have ended.
`call PORT COUNT STOP-FILE`: asks over COUNT connections until STOP-FILE is there.
"""

import os
import select
import socket
import sys


def serve(port_file, count):
    listener = socket.create_server(("127.0.0.1", 0))
    with open(port_file + ".new", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename(port_file + ".new", port_file)
    sockets = [listener.accept()[0] for _ in range(count)]
    by_number = {sock.fileno(): sock for sock in sockets}
    waiting = select.epoll()
    for number in by_number:
        waiting.register(number, select.EPOLLIN)
    while by_number:
        for number, _ in waiting.poll():
            try:
                data = by_number[number].recv(65536)
            except ConnectionResetError:
                data = b""
            if data:
                by_number[number].sendall(data)
            else:
                waiting.unregister(number)
                by_number.pop(number).close()
    print("served")


def call(port, count, stop_file):
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    step = 0
    while not os.path.exists(stop_file):
        step += 1
        question = os.urandom(1 + step * 37 % 3000)
        for sock in sockets:
            sock.sendall(question)
        for sock in sockets:
            answer = b""
            while len(answer) < len(question):
                part = sock.recv(65536)
                assert part, "the end in the middle"
                answer += part
            assert answer == question, "other bytes"
    print("asked", step, "times")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        call(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])

"""CONNECTIONS CALLS: a server for short connections and its client, one connection after the other, with so many calls at each end."""
import os, socket, sys

PIECE = 64


def read_piece(sock):
    got = b""
    while len(got) < PIECE:
        new = sock.recv(PIECE - len(got))
        if not new:
            return None
        got += new
    return got


def serve(listener, connections):
    for _ in range(connections):
        sock, _ = listener.accept()
        with sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (piece := read_piece(sock)) is not None:
                sock.sendall(piece)


def ask(address, connections, calls):
    for number in range(connections):
        with socket.create_connection(address) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for call in range(calls // 2):
                question = b"%032d%032d" % (number, call)
                sock.sendall(question)
                assert read_piece(sock) == question


def main(connections, calls):
    listener = socket.create_server(("127.0.0.1", 0))
    server = os.fork()
    if server == 0:
        serve(listener, connections)
        os._exit(0)
    address = listener.getsockname()
    listener.close()
    ask(address, connections, calls)
    assert os.waitpid(server, 0)[1] == 0


main(*map(int, sys.argv[1:]))

"""serve|call PORT COUNT FILE: many connections, busy until FILE is there, then idle for ever."""
import os, selectors, socket, sys

side, port, count, file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
selector = selectors.DefaultSelector()
if side == "serve":
    listener = socket.create_server(("127.0.0.1", port), backlog=2000)
    for _ in range(count):
        selector.register(listener.accept()[0], selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            data = key.fileobj.recv(100)
            if not data:
                sys.exit(0)
            key.fileobj.send(data)
socks = []
for _ in range(count):
    socks.append(socket.create_connection(("127.0.0.1", port)))
    selector.register(socks[-1], selectors.EVENT_READ)
while not os.path.exists(file):
    for sock in socks:
        sock.send(b"question")
    waiting = count
    while waiting:
        for key, _ in selector.select():
            assert key.fileobj.recv(100) == b"question"
            waiting -= 1
open(file + ".seen", "w").close()
selector.select()

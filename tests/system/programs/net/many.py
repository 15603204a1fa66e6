"""serve|call WAY COUNT: connections between two hosts, and how they end. ADDRESS, PORT, END are in the environment.

ask: COUNT of them, questions and answers until END is there. Others: one, with some talk first, then the caller closes (close),
resets (reset), closes one direction (half), closes while much is on its way to it (late), does not read for seconds (window), says nothing
for long with keepalive (idle), is killed (killed).
"""
import os, selectors, signal, socket, struct, sys, time

side, way, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
place = (os.environ["ADDRESS"], int(os.environ["PORT"]))
end = os.environ["END"]
pattern = bytes(range(251)) * 4000


def receive(sock, size):
    got = b""
    while len(got) < size:
        part = sock.recv(size - len(got))
        assert part, "ended early"
        got += part
    return got


def talk(sock, is_first):
    """Until END is there. The first word of the last one is 1."""
    is_last = False
    while not is_last:
        text = struct.pack("!II", os.path.exists(end), 7) * 8
        if is_first:
            sock.sendall(text)
            assert receive(sock, 64) == text
        else:
            text = receive(sock, 64)
            sock.sendall(text)
        is_last = text[3] == 1


def rest(sock):
    """What still comes, and how it ends."""
    got = b""
    try:
        while part := sock.recv(65536):
            got += part
        how = "end"
    except ConnectionResetError:
        how = "reset"
    return got, how


def keep_alive(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)


def serve(sock):
    if way == "idle":
        keep_alive(sock)
    talk(sock, False)
    if way in ("late", "window"):
        # More bytes than all buffers on the path hold, so that the call still sends when the peer's
        # end is noticed.
        try:
            sock.sendall(pattern * (32 if way == "late" else 4))
            print("sent")
        except (ConnectionResetError, BrokenPipeError):
            print("gone")
            return
    got, how = rest(sock)
    print(len(got), got == pattern[: len(got)], how)
    if way == "half":
        sock.sendall(pattern)


def call(sock):
    if way == "idle":
        keep_alive(sock)
    talk(sock, True)
    if way == "idle":
        time.sleep(3.5)
        sock.sendall(pattern[:1000])
    elif way == "reset":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif way == "half":
        sock.sendall(pattern)
        sock.shutdown(socket.SHUT_WR)
        got, how = rest(sock)
        print(got == pattern, how)
    elif way == "late":
        receive(sock, 1000)
    elif way == "window":
        time.sleep(2.5)
        print(receive(sock, len(pattern) * 4) == pattern * 4)
    elif way == "killed":
        sock.sendall(pattern[:1000])
        os.kill(os.getpid(), signal.SIGKILL)
    sock.close()


def ask_all():
    selector = selectors.DefaultSelector()
    if side == "serve":
        listener = socket.create_server(place, backlog=2000)
        socks = [listener.accept()[0] for _ in range(count)]
        for sock in socks:
            selector.register(sock, selectors.EVENT_READ)
        left = count
        while left:
            for key, _ in selector.select():
                data = key.fileobj.recv(100)
                if data:
                    key.fileobj.send(data)
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    left -= 1
        return
    socks = [socket.create_connection(place) for _ in range(count)]
    for sock in socks:
        selector.register(sock, selectors.EVENT_READ)
    number = 0
    while not os.path.exists(end):
        number += 1
        questions = {sock: struct.pack("!II", number, index) * 4 for index, sock in enumerate(socks)}
        for sock, question in questions.items():
            sock.send(question)
        while questions:
            found = selector.select(30)
            assert found, "no answer for thirty seconds"
            for key, _ in found:
                assert key.fileobj.recv(100) == questions.pop(key.fileobj), "another answer"


if way == "ask":
    ask_all()
elif side == "serve":
    serve(socket.create_server(place).accept()[0])
elif way == "killed":
    # A child is killed, so that this process ends as in the other cases.
    if os.fork() == 0:
        call(socket.create_connection(place))
    print(os.waitstatus_to_exitcode(os.wait()[1]))
else:
    call(socket.create_connection(place))

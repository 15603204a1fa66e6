"""serve PORT idle|use: an epoll server that forks a child, and says "forked" when it has. A file `use` lets the child wait on the set that it
inherited, `leave` ends it. call PORT N NAME: N connections that ask and are answered until there is a file NAME."""
import os, select, socket, sys, time


def served(sock):
    data = sock.recv(100)
    if data:
        sock.sendall(data)
    return bool(data)


def child(poll, how):
    while how == "use" and not os.path.exists("use"):
        time.sleep(0.01)
    if how == "use":
        # The set is level-triggered: whatever the parent does, every event must carry a registered
        # number.
        seen = set()
        for _ in range(200):
            seen.update(fd for fd, _ in poll.poll(0.01))
        with open("seen", "w") as out:
            out.write("strange" if any(fd > 5000 or fd < 0 for fd in seen) else "some" if seen else "none")
    while not os.path.exists("leave"):
        time.sleep(0.01)
    os._exit(0)


def serve(port, how):
    listener = socket.create_server(("127.0.0.1", port))
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    open("listens", "w").close()
    socks, pid = {}, 0
    while not os.path.exists("end"):
        for fd, _ in poll.poll(0.05):
            if fd == listener.fileno():
                sock, _ = listener.accept()
                socks[sock.fileno()] = sock
                poll.register(sock, select.EPOLLIN)
            elif fd in socks and not served(socks[fd]):
                poll.unregister(fd)
                socks.pop(fd).close()
        if pid == 0 and os.path.exists("fork"):
            pid = os.fork()
            if pid == 0:
                child(poll, how)
            open("forked", "w").close()
        if pid > 0 and os.path.exists("leave"):
            os.waitpid(pid, 0)
            pid = -1
            open("left", "w").close()


def call(port, count, end):
    socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    rounds = 0
    while not os.path.exists(end):
        for sock in socks:
            question = b"%d" % rounds
            sock.sendall(question)
            answer = b""
            while len(answer) < len(question):
                answer += sock.recv(100)
            assert answer == question, (answer, question)
        rounds += 1
        time.sleep(0.001)
    print("rounds", rounds > 0)


if sys.argv[1] == "serve":
    serve(int(sys.argv[2]), sys.argv[3])
else:
    call(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])

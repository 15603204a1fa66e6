"""urllib, http.client, asyncio, multiprocessing, subprocess, a socket passed to another process."""
import array, asyncio, hashlib, http.client, multiprocessing, os, socket, subprocess, sys, threading, urllib.request

PORT = int(sys.argv[1])


def web():
    for name in ["small", "large"]:
        data = urllib.request.urlopen(f"http://127.0.0.1:{PORT}/{name}").read()
        print(name, hashlib.sha256(data).hexdigest())
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=20)
    digest = hashlib.sha256()
    for n in range(60):
        connection.request("GET", "/large" if n % 10 == 9 else "/small")
        digest.update(connection.getresponse().read())
    connection.close()
    print("keep-alive", digest.hexdigest())


async def echoes():
    async def echo(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def client(n):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i in range(40):
            message = bytes([n]) * (1 + i * 50)
            writer.write(message)
            assert await reader.readexactly(len(message)) == message
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        return 40

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print("echoes", sum(await asyncio.gather(*[client(n) for n in range(50)])))
    server.close()


def answer(end):
    while (got := end.recv()) is not None:
        end.send((len(got), hashlib.sha256(got).hexdigest()))
    end.close()


def processes(method):
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=answer, args=(there,))
    child.start()
    there.close()
    digest = hashlib.sha256()
    for n in range(100):
        here.send(b"x" * (n * n * 20))
        digest.update(repr(here.recv()).encode())
    here.send(None)
    child.join()
    try:
        here.recv()
    except EOFError:
        print(method, digest.hexdigest(), child.exitcode)


def passed():
    """A connection in use goes to another process, which goes on with it."""
    listener = socket.create_server(("127.0.0.1", 0))
    ours, theirs = socket.socketpair()
    caller = os.fork()
    if caller == 0:
        sock = socket.create_connection(listener.getsockname())
        listener.close()
        total = hashlib.sha256()
        for n in range(400):
            sock.sendall(b"%08d" % n)
            total.update(sock.recv(8, socket.MSG_WAITALL))
        os._exit(0 if sock.recv(1) == b"" else 1)
    worker = os.fork()
    if worker == 0:
        ours.close()
        sock = socket.socket(fileno=socket.recv_fds(theirs, 1, 1)[1][0])
        for _ in range(200):
            sock.sendall(sock.recv(8, socket.MSG_WAITALL))
        os._exit(0)
    theirs.close()
    sock, _ = listener.accept()
    for _ in range(200):
        sock.sendall(sock.recv(8, socket.MSG_WAITALL))
    socket.send_fds(ours, [b"!"], [sock.fileno()])
    sock.close()
    print("passed", os.waitpid(worker, 0)[1], os.waitpid(caller, 0)[1])


def pipelines():
    first = subprocess.Popen(["seq", "1", "100000"], stdout=subprocess.PIPE)
    second = subprocess.Popen(["sort", "-rn"], stdin=first.stdout, stdout=subprocess.PIPE)
    first.stdout.close()
    print(hashlib.sha256(second.communicate()[0]).hexdigest(), first.wait(), second.wait())
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as cat:
        got = b""
        for n in range(300):
            cat.stdin.write(b"line %d\n" % n)
            while not got.endswith(b"line %d\n" % n):
                got += cat.stdout.read(4096)
        cat.stdin.close()
    print(hashlib.sha256(got).hexdigest(), cat.returncode)
    print(subprocess.run("cat; echo err >&2; exit 3", shell=True, input=b"in" * 300000, capture_output=True).returncode)


if __name__ == "__main__":
    web()
    asyncio.run(echoes())
    processes("fork")
    processes("spawn")
    passed()
    pipelines()

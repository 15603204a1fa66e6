"""serve|call ADDRESS PORT: asyncio streams that are echoed and hashed; on PORT + 1 a threaded HTTP server."""
import asyncio, hashlib, http.client, http.server, sys, threading

side, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
data = bytes((i * i >> 7) & 255 for i in range(1 << 20))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        size = int(self.path[1:])
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(data[:size])

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = hashlib.sha256(body).hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


async def echo(reader, writer):
    while part := await reader.read(50_000):
        writer.write(part)
        await writer.drain()
    writer.write_eof()
    writer.close()


async def serve():
    web = http.server.ThreadingHTTPServer((address, port + 1), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    async with await asyncio.start_server(echo, address, port) as server:
        await server.serve_forever()


async def one(number):
    reader, writer = await asyncio.open_connection(address, port)
    size = 1000 + number * 37_777

    async def send():
        for at in range(0, size, 7_000):
            writer.write(data[at : min(at + 7_000, size)])
            await writer.drain()
        writer.write_eof()

    sender = asyncio.create_task(send())
    got = await reader.read(-1)
    await sender
    writer.close()
    return got == data[:size]


async def call():
    answers = await asyncio.gather(*(one(number) for number in range(20)))
    print("echoed", all(answers), len(answers))


def ask():
    connection = http.client.HTTPConnection(address, port + 1)
    for size in [0, 1, 1000, 1448, 65536, 1 << 20] * 4:
        connection.request("GET", f"/{size}")
        assert connection.getresponse().read() == data[:size], size
        connection.request("POST", "/", body=data[:size])
        assert connection.getresponse().read().decode() == hashlib.sha256(data[:size]).hexdigest(), size
    connection.close()


if side == "serve":
    asyncio.run(serve())
asyncio.run(call())
threads = [threading.Thread(target=ask) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("asked")

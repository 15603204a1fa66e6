# gRPC between two processes, over TCP and a Unix socket: unary calls and both kinds of streams.
#: deb=python3-venv pip=grpcio
cat >serve.py <<'END'
import grpc, sys
from concurrent import futures
def one(q, c): return q
def many(q, c):
    for i in range(200): yield q + b"%d" % i
def both(qs, c):
    for q in qs: yield q[::-1]
class H(grpc.GenericRpcHandler):
    def service(self, d):
        return {"/e/One": grpc.unary_unary_rpc_method_handler(one), "/e/Many": grpc.unary_stream_rpc_method_handler(many), "/e/Both": grpc.stream_stream_rpc_method_handler(both)}.get(d.method)
s = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
s.add_generic_rpc_handlers((H(),))
for at in sys.argv[1:]: s.add_insecure_port(at)
s.start(); open("ready", "w").close(); s.wait_for_termination(40)
END
cat >call.py <<'END'
import grpc, sys, zlib
with grpc.insecure_channel(sys.argv[1]) as c:
    crc = 0; one = c.unary_unary("/e/One")
    for i in range(800): crc = zlib.crc32(one(b"%d" % i * (i % 300), timeout=30), crc)
    for i in range(4): crc = zlib.crc32(one(bytes([i]) * 2000000, timeout=30), crc)
    for m in c.unary_stream("/e/Many")(b"abc", timeout=30): crc = zlib.crc32(m, crc)
    for m in c.stream_stream("/e/Both")((b"%d" % i * 50 for i in range(500)), timeout=30): crc = zlib.crc32(m, crc)
    print(crc)
END
"$py" serve.py "127.0.0.1:$PORT" "unix:$D/g" &
S=$!
await test -e ready
timeout 40 "$py" call.py "127.0.0.1:$PORT"
echo "tcp $?"
timeout 40 "$py" call.py "unix:$D/g"
echo "unix $?"
kill $S

# beanstalkd: producers and consumers by a small client.
#: deb=beanstalkd,python3
beanstalkd -l 127.0.0.1 -p "$PORT" &
await connects "$PORT"
cat >b.py <<'END'
import socket, sys, zlib
f = socket.create_connection(("127.0.0.1", int(sys.argv[1]))).makefile("rwb")
def say(line, body=None):
    f.write(line + b"\r\n" + (b"" if body is None else body + b"\r\n")); f.flush(); return f.readline().split()
if sys.argv[2] == "put":
    for i in range(1500): assert say(b"put 0 0 60 %d" % (i % 300), b"j" * (i % 300))[0] == b"INSERTED"
else:
    n = 0
    for i in range(1500):
        a = say(b"reserve-with-timeout 20"); body = f.read(int(a[2]) + 2); n += len(body); assert say(b"delete " + a[1])[0] == b"DELETED"
    print(n)
END
timeout 40 python3 b.py "$PORT" put &
P=$!
timeout 40 python3 b.py "$PORT" get
echo "got $?"
wait $P
echo "put $?"

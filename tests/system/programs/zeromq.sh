# ZeroMQ between processes, over Unix sockets and TCP: requests, pipelines, publications, messages of 3 MB.
#: deb=python3-venv pip=pyzmq
cat >z.py <<'END'
import sys, zmq, zlib
c = zmq.Context()
kind, at, side = sys.argv[1:4]
def wait(s):
    if not s.poll(30000): sys.exit("nothing came")
    return s.recv()
if side == "serve":
    if kind == "req":
        s = c.socket(zmq.REP); s.bind(at)
        while True:
            m = wait(s); s.send(m)
            if m == b"stop": break
    else:
        s = c.socket(zmq.PULL); s.bind(at); n = crc = 0
        while (m := wait(s)) != b"stop": n += 1; crc = zlib.crc32(m, crc)
        print(kind, n, crc)
else:
    s = c.socket(zmq.REQ if kind == "req" else zmq.PUSH); s.connect(at); crc = 0
    if kind == "req":
        for i in range(600):
            s.send(b"%d" % i * (i % 200)); crc = zlib.crc32(wait(s), crc)
        for i in range(6):
            s.send(bytes([i]) * 3000000); crc = zlib.crc32(wait(s), crc)
        s.send(b"stop"); wait(s); print(crc)
    else:
        for i in range(20000): s.send(b"%d" % i * (i % 40))
        s.send(b"stop")
s.close(); c.term() # What was sent last is on its way before the process ends.
END
for p in "ipc://$D/" "tcp://127.0.0.1:"; do
    for kind in req push; do
        case $p$kind in tcp*req) at=$p$PORT ;; tcp*) at=$p$PORT2 ;; *) at=$p$kind ;; esac
        timeout 40 "$py" z.py $kind "$at" serve &
        S=$!
        case $at in ipc*) await test -S "$D/$kind" ;; esac
        timeout 40 "$py" z.py $kind "$at" call
        wait $S
        echo "$kind $?"
    done
done

# Python at both ends of pipes: buffered lines, binary writes, json, its file objects.
#: deb=python3 limit=90
cat >w.py <<'END'
import sys
for i in range(150000):
    print(i)
b = bytes(range(256)) * 256
for _ in range(500):
    sys.stdout.buffer.write(b)
END
cat >r.py <<'END'
import sys, zlib
n = c = 0
for line in sys.stdin.buffer:
    n += 1
    c = zlib.crc32(line, c)
print(n, c)
END
cat >both.py <<'END'
import os, sys, threading, zlib
r, w = os.pipe()
def fill():
    with os.fdopen(w, "w", buffering=8192) as f:
        for i in range(80000):
            f.write("%d\n" % i)
t = threading.Thread(target=fill)
t.start()
with os.fdopen(r) as f:
    print(sum(int(x) for x in f))
t.join()
p = os.popen("seq 1 200000")
print(sum(map(int, p)), p.close())
q = os.popen("wc -c", "w")
q.write("x" * 1000000)
print(q.close())
END
both() {
    python3 w.py | python3 r.py
    python3 w.py | wc -c
    seq 1 150000 | python3 r.py
    python3 both.py
}
busy both

# Python's multiprocessing: pools, queues, pipes, managers; concurrent.futures; subprocess; asyncio's processes.
#: deb=python3 limit=90
cat >m.py <<'END'
import asyncio, concurrent.futures, hashlib, multiprocessing as mp, subprocess, sys
def square(x): return x * x
def text(n): return "m" * n
def worker(q, r):
    while (x := q.get()) is not None: r.put(x[::-1])
def pipe(c):
    while (x := c.recv()) is not None: c.send(x + 1)
async def both():
    p = await asyncio.create_subprocess_exec("sort", "-rn", stdin=-1, stdout=-1)
    out, _ = await p.communicate(b"".join(b"%d\n" % i for i in range(50000)))
    return hashlib.md5(out).hexdigest()
if __name__ == "__main__":
    for way in ("fork", "spawn"):
        c = mp.get_context(way)
        with c.Pool(3) as p: print(way, sum(p.map(square, range(3000), chunksize=5)), sum(map(len, p.imap(text, range(0, 300000, 3000)))))
        q, r = c.Queue(), c.Queue(); ws = [c.Process(target=worker, args=(q, r)) for _ in range(2)]
        for w in ws: w.start()
        for i in range(400): q.put(b"%d" % i * (i % 90))
        h = sorted(r.get(timeout=30) for _ in range(400)); print(hashlib.md5(b"".join(h)).hexdigest())
        for _ in ws: q.put(None)
        for w in ws: w.join()
        a, b = c.Pipe(); w = c.Process(target=pipe, args=(b,)); w.start(); x = 0
        for _ in range(1000): a.send(x); x = a.recv()
        a.send(None); w.join(); print(x, w.exitcode)
    with mp.Manager() as m:
        d = m.dict(); l = m.list()
        for i in range(200): d[i] = i; l.append(i)
        print(sum(d.values()), len(l))
    with concurrent.futures.ProcessPoolExecutor(2) as e: print(sum(e.map(square, range(200))))
    print(asyncio.run(both()))
    print(len(subprocess.run(["seq", "1", "30000"], capture_output=True).stdout))
END
timeout 80 python3 m.py
echo "python $?"

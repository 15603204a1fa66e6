# aiohttp: server and client, keep-alive, WebSockets, streams.
#: deb=python3-venv pip=aiohttp
cat >s.py <<'END'
import sys
from aiohttp import web
async def post(q): return web.Response(body=(await q.read())[::-1])
async def ws(q):
    w = web.WebSocketResponse(max_msg_size=0); await w.prepare(q)
    async for m in w: await (w.send_bytes(m.data) if m.type.name == "BINARY" else w.send_str(m.data.upper()))
    return w
a = web.Application(client_max_size=1 << 24); a.add_routes([web.post("/", post), web.get("/ws", ws)])
web.run_app(a, host="127.0.0.1", port=int(sys.argv[1]), print=None)
END
cat >c.py <<'END'
import aiohttp, asyncio, sys, zlib
async def main():
    crc = 0; u = "http://127.0.0.1:" + sys.argv[1]
    async with aiohttp.ClientSession(read_bufsize=1 << 20) as s:
        for i in range(250):
            b = b"%d" % i * (i * 9 % 4000)
            async with s.post(u, data=b) as r: crc = zlib.crc32(await r.read(), crc)
        async with s.ws_connect(u + "/ws", max_msg_size=0) as w:
            for i in range(600):
                await w.send_str("abc%d" % i * (i % 70)); crc = zlib.crc32((await w.receive_str()).encode(), crc)
            for i in range(4): await w.send_bytes(bytes([i]) * 1000000); crc = zlib.crc32(await w.receive_bytes(), crc)
    print(crc)
asyncio.run(main())
END
"$py" s.py "$PORT" &
await connects "$PORT"
timeout 40 "$py" c.py "$PORT"
echo "client $?"

# Node with ws and express: WebSockets and requests at once; piscina's threads.
#: deb=nodejs npm=ws,express,piscina
cat >s.js <<'END'
const http = require("http"), express = require("express"), { WebSocketServer } = require("ws"); const a = express();
a.use(express.text({ limit: "9mb", type: "*/*" })); a.post("/", (q, r) => r.send(q.body.toUpperCase())); a.get("/:n", (q, r) => r.json({ n: +q.params.n, x: "e".repeat(+q.params.n) }));
const s = http.createServer(a); new WebSocketServer({ server: s }).on("connection", w => w.on("message", (d, b) => w.send(d, { binary: b }))); s.listen(+process.argv[2], "127.0.0.1");
END
cat >w.js <<'END'
module.exports = n => { let s = 0; for (let i = 0; i < n; i++) s += i; return s; };
END
cat >c.js <<'END'
const WebSocket = require("ws"), crypto = require("crypto"), u = "127.0.0.1:" + process.argv[2]; const { Piscina } = require("piscina");
const ws = new Promise((ok, no) => { const w = new WebSocket("ws://" + u), h = crypto.createHash("sha256"); let n = 0; const next = () => { if (++n > 400) { w.close(); ok(h.digest("hex")); } else w.send("m".repeat(n * 31 % 9000)); };
  w.on("open", next); w.on("error", no); w.on("message", d => { h.update(d); next(); }); });
(async () => { const h = crypto.createHash("sha256");
  for (let i = 0; i < 150; i++) { h.update(await (await fetch("http://" + u + "/" + i * 10)).text()); if (i % 10 === 0) h.update(await (await fetch("http://" + u + "/", { method: "POST", body: "b".repeat(i * 1000) })).text()); }
  console.log(h.digest("hex"), await ws); const p = new Piscina({ filename: __dirname + "/w.js", maxThreads: 2 }); const all = await Promise.all(Array.from({ length: 30 }, (_, i) => p.run(i * 100))); console.log(all.reduce((a, b) => a + b)); process.exit(0); })().catch(e => { console.log("" + e); process.exit(1); });
END
node s.js "$PORT" &
await connects "$PORT"
timeout 40 node c.js "$PORT"
echo "client $?"

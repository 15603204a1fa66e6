# Node's cluster: workers that share a port, messages between them, keep-alive clients.
#: deb=nodejs
cat >m.js <<'END'
const cluster = require("cluster"), http = require("http"), port = +process.argv[2];
if (cluster.isPrimary) {
  let ready = 0, sum = 0, done = 0;
  for (let i = 0; i < 2; i++) cluster.fork();
  cluster.on("message", (w, m) => { if (m.n !== undefined) { sum += m.n; w.send({ ok: m.n }); } if (m.done) done += m.done; });
  cluster.on("listening", () => { if (++ready === 2) require("fs").writeFileSync("ready", ""); });
  process.on("SIGTERM", () => { for (const w of Object.values(cluster.workers)) w.send({ end: 1 }); });
  let left = 2; cluster.on("exit", (w, c) => { if (--left === 0) { console.log("served", done, "sum", sum, "last exit", c); process.exit(0); } });
} else {
  let n = 0, told = 0;
  const s = http.createServer((q, a) => { n++; process.send({ n: 1 }); a.end("c".repeat(+q.url.slice(1))); }).listen(port, "127.0.0.1");
  process.on("message", m => { if (m.ok) told++; if (m.end) { s.close(); s.closeAllConnections && s.closeAllConnections(); process.send({ done: n }, () => process.exit(n === told ? 0 : 4)); } });
}
END
node m.js "$PORT" &
S=$!
await test -e ready
for k in 1 2 3; do (for i in $(seq 80); do echo "url = http://127.0.0.1:$PORT/$((i * 60))"; done) >urls; curl -sS -K urls | sum; done
sleep 0.3
kill $S
wait $S
echo "primary $?"

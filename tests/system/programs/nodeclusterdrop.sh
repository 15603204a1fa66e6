# Node's cluster where a worker takes few connections and drops the others.
#: deb=nodejs
cat >m.js <<'END'
const cluster = require("cluster"), net = require("net");
if (cluster.isPrimary) {
  let ready = 0, asked = 0, ended = 0, left = 2; const exits = [];
  const ok = c => new Promise(r => { c.setTimeout(1500, () => r("waits")); c.on("data", () => r("answered")); c.on("close", () => r("closed")); c.on("error", () => r("closed")); c.write("x"); });
  const go = async port => {
    const keep = [];
    for (let i = 0; i < 2; i++) { const c = net.connect(port, "127.0.0.1"); if (await ok(c) === "answered") asked++; c.setTimeout(0); keep.push(c); }
    const more = net.connect(port, "127.0.0.1"); if (await ok(more) !== "answered") ended++; more.destroy();
    for (let i = 0; i < 200; i++) await new Promise(r => { keep[i % 2].once("data", r); keep[i % 2].write("y" + i); });
    keep.forEach(c => c.destroy()); for (const w of Object.values(cluster.workers)) w.kill("SIGTERM");
  };
  for (let i = 0; i < 2; i++) cluster.fork();
  cluster.on("listening", (w, at) => { if (++ready === 2) go(at.port); });
  cluster.on("exit", (w, c, signal) => { exits.push(signal || c); if (--left === 0) console.log("answered", asked, "not served", ended, "exits", exits.join()); });
} else {
  const s = net.createServer(c => { c.on("error", () => {}); c.on("data", d => c.write(d)); }); s.maxConnections = 1; s.on("drop", () => {}); s.listen(0, "127.0.0.1");
}
END
timeout 40 node m.js
echo "node $?"

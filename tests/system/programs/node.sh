# A server and a client, each a process of its own, with keep-alive.
#: deb=nodejs
cat >server.js <<'END'
require("http").createServer((q, a) => {
  const parts = []; q.on("data", d => parts.push(d)).on("end", () => {
    const body = Buffer.concat(parts); a.end(q.method === "POST" ? body : "x".repeat(+q.url.slice(1))); });
}).listen(+process.argv[2], "127.0.0.1");
END
cat >client.js <<'END'
const http = require("http"), crypto = require("crypto"), port = +process.argv[2];
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
const ask = (method, path, body) => new Promise((ok, no) => {
  const h = crypto.createHash("sha256"); let n = 0;
  const q = http.request({ port, host: "127.0.0.1", method, path, agent }, a => a.on("data", d => { n += d.length; h.update(d); })
    .on("end", () => ok(n + " " + h.digest("hex"))));
  q.on("error", no); q.end(body); });
(async () => {
  const all = crypto.createHash("sha256");
  for (let i = 0; i < 100; i++)
    for (const got of await Promise.all([ask("GET", "/" + i * 10), ask("GET", "/" + (i % 10) * 30000),
      ask("POST", "/", Buffer.alloc(i * 500, i)), ask("GET", "/5")])) all.update(got);
  console.log(all.digest("hex")); agent.destroy();
})().catch(e => { console.log("" + e); process.exit(1); });
END
node server.js "$PORT" &
await connects "$PORT"
timeout 30 node client.js "$PORT"
echo "client $?"

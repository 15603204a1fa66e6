# Node, a child that is given a server and sockets, which both then serve.
#: deb=nodejs
cat >m.js <<'END'
const net = require("net"), { fork } = require("child_process");
if (process.argv[2] === "child") {
  let mine = 0;
  const serve = c => { mine++; c.on("error", () => {}); c.on("data", d => c.write("child " + d)); };
  process.on("message", (m, h) => {
    if (m === "server") { h.on("connection", serve); process.send("listening"); process.once("message", () => {}); h2 = h; }
    if (m === "socket") { serve(h); process.send("socket"); }
    if (m === "close") { h2.close(() => { process.send("closed"); process.disconnect(); }); }
  });
  let h2;
} else {
  const child = fork(__filename, ["child"]); const seen = { child: 0, parent: 0, handed: 0 };
  const server = net.createServer(c => { c.on("error", () => {}); c.on("data", d => c.write("parent " + d)); }).listen(0, "127.0.0.1", () => child.send("server", server));
  const ask = (port, times) => new Promise((ok, no) => { const c = net.connect(port, "127.0.0.1"); let n = 0, who;
    c.on("error", no); c.on("connect", () => c.write("1")); c.on("data", d => { who = ("" + d).split(" ")[0]; if (("" + d) !== who + " " + (n + 1)) return no(new Error("got " + d)); if (++n === times) { c.end(); ok(who); } else c.write("" + (n + 1)); }); });
  const door = net.createServer({ pauseOnConnect: true }, c => child.send("socket", c));
  child.on("message", async m => {
    if (m === "listening") {
      for (let i = 0; i < 40; i++) seen[await ask(server.address().port, 30)]++;
      door.listen(0, "127.0.0.1", async () => {
        for (let i = 0; i < 30; i++) if (await ask(door.address().port, 40) === "child") seen.handed++;
        door.close(); server.close(); child.send("close"); });
    }
  });
  child.on("exit", c => console.log("answered", seen.child + seen.parent, "handed over", seen.handed, "exit", c));
}
END
timeout 40 node m.js
echo "node $?"

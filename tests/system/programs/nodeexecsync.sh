# Node's execSync: shells, errors, encodings, working folders, children that go on.
#: deb=nodejs
cat >m.js <<'END'
const { execSync, exec, spawn } = require("child_process");
const quiet = { stdio: ["pipe", "pipe", "pipe"] };
console.log(execSync("seq 1 5 | tail -2", { encoding: "utf8" }).trim(), execSync("pwd", { cwd: "/" }).toString().trim());
for (const c of ["exit 7", "kill -9 $$", "no_such_command_here 2>/dev/null", "echo out; echo err >&2; exit 1"])
  try { execSync(c, quiet); console.log("fine"); } catch (e) { console.log(c, e.status, e.signal, "" + e.stdout, "" + e.stderr); }
const start = Date.now();
try { execSync("sleep 20", { timeout: 200 }); } catch (e) { console.log(e.code, e.signal, Date.now() - start < 15000); }
console.log(execSync("cat", { input: "i".repeat(400000) }).length, execSync("seq 1 100000 | sort -rn | wc -l").toString().trim());
let n = 0; for (let i = 0; i < 25; i++) n += +execSync("echo " + i); console.log(n);
const p = spawn("sh", ["-c", "while read x; do echo $((x * 2)); done"]); let got = 0, i = 0;
p.stdout.on("data", d => { for (const l of ("" + d).trim().split("\n")) got += +l; if (++i < 200) p.stdin.write(i + "\n"); else p.stdin.end(); });
p.stdin.write("0\n"); p.on("close", c => { console.log(got > 0, c); exec("seq 1 3000", (e, out) => console.log(e, out.length)); });
END
timeout 50 node m.js
echo "node $?"

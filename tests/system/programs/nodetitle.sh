# Node's process.title, as ps shows it, with children.
#: deb=nodejs,procps
cat >m.js <<'END'
const { execSync, exec, fork } = require("child_process");
if (process.argv[2] === "child") { process.title = "the child's"; process.send(process.title); process.once("message", () => process.disconnect()); }
else {
  process.title = "short"; const ps = () => execSync("ps -p " + process.pid + " -o args=").toString().trim();
  const shown = [ps()]; process.title = "t".repeat(40); shown.push(ps()); console.log(shown.map(s => s.length > 0 && process.title.length > 0));
  exec("ps -p " + process.pid + " -o args=", (e, out) => { console.log(e, out.trim() === process.title.slice(0, out.trim().length));
    const c = fork(__filename, ["child"]); c.on("message", t => { console.log(t, execSync("ps -p " + c.pid + " -o args=").toString().trim()); c.send("end"); }); c.on("exit", x => console.log("exit", x)); });
}
END
timeout 40 node m.js
echo "node $?"

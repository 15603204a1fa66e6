//! Real programs, if they are installed: their output is the same with and without the library.

mod common;

use std::process::Command;

fn is_there(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).exists())
    })
}

/// Runs a shell script with and without the library, and compares. Does nothing if a program of
/// `needs` is missing.
#[track_caller]
fn same(needs: &[&str], script: &str) {
    if let Some(missing) = needs.iter().find(|program| !is_there(program)) {
        eprintln!("not tested: no {missing}");
        return;
    }
    let shell = || {
        let mut command = Command::new("bash");
        command.args(["-c", script]);
        command
    };
    let plain = common::run(shell());
    let with = common::run(common::preloaded(shell()));
    assert!(plain.status.success(), "plain: {}", String::from_utf8_lossy(&plain.stderr));
    assert_eq!(String::from_utf8_lossy(&plain.stdout), String::from_utf8_lossy(&with.stdout));
    assert_eq!(
        (plain.status, String::from_utf8_lossy(&plain.stderr)),
        (with.status, String::from_utf8_lossy(&with.stderr))
    );
}

#[test]
fn bash() {
    same(
        &["bash"],
        r#"trap 'echo caught' USR1; kill -USR1 $$
           for i in 1 2 3; do echo $i | cat | (read x; echo "got $x"); done
           coproc tr a-z A-Z; echo hello >&${COPROC[1]}; exec {COPROC[1]}>&-; cat <&${COPROC[0]}
           x=$(seq 1000 | wc -l); echo $x; (exit 7); echo $?; cat <(echo sub); exec 5<>/dev/null; exec 5>&-
           sleep 5 & kill %1; wait %1; echo $?"#,
    );
}

#[test]
fn archives() {
    same(
        &["tar", "gzip"],
        "cd /usr/include; tar c linux | gzip -1 | gzip -d | tar t | sort | sha256sum; tar cz linux | wc -c",
    );
}

#[test]
fn python() {
    same(
        &["python3"],
        r#"python3 - <<'EOF'
import os, select, signal, socket, subprocess, sys, threading, multiprocessing, asyncio, time
print(subprocess.run(["sh", "-c", "cat; echo err >&2; exit 3"], input=b"in", capture_output=True))
print(subprocess.check_output("echo $((6*7))", shell=True, close_fds=False))
print(os.popen("echo popen").read())
a, b = socket.socketpair()
t = threading.Thread(target=lambda: [b.sendall(b"x" * 100000), b.close()]); t.start()
n = 0
while True:
    d = a.recv(4096)
    if not d: break
    n += len(d)
t.join(); print(n)
signal.signal(signal.SIGALRM, lambda *x: print("alarm")); signal.setitimer(signal.ITIMER_REAL, 0.05)
print(select.select([a], [], [], 5)[0] == [a]); time.sleep(0.1)
def work(q): q.put(sum(range(1000)))
q = multiprocessing.get_context("fork").Queue()
p = multiprocessing.get_context("fork").Process(target=work, args=(q,)); p.start(); print(q.get()); p.join()
async def echo(r, w):
    w.write(await r.readline()); await w.drain(); w.close()
async def main():
    s = await asyncio.start_server(echo, "127.0.0.1", 0)
    r, w = await asyncio.open_connection(*s.sockets[0].getsockname())
    w.write(b"async\n"); print(await r.readline()); w.close(); s.close()
    p = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE); print(await p.communicate())
asyncio.run(main())
EOF"#,
    );
}

#[test]
fn node() {
    same(
        &["node"],
        r#"node -e '
const {execSync, spawn} = require("child_process"), net = require("net");
console.log(execSync("echo sync").toString());
const c = spawn("cat"); c.stdout.on("data", d => console.log("cat " + d)); c.stdin.end("piped");
const s = net.createServer(k => k.end("bye")).listen(0, "127.0.0.1", () => {
  let n = ""; const k = net.connect(s.address().port); k.on("data", d => n += d).on("end", () => { s.close(); setTimeout(() => console.log(n), 200); }); });'"#,
    );
}

#[test]
fn perl() {
    same(
        &["perl"],
        r#"perl -MSocket -e '$|=1; print `echo backtick`; open(F,"-|","echo","list"); print <F>; close F; socketpair(A,B,AF_UNIX,SOCK_STREAM,0);
           if (!fork) { syswrite B,"kid"; exit 4 } wait; print $?>>8,"\n"; sysread A,$x,9; print "$x\n";
           $SIG{ALRM}=sub{die "late\n"}; alarm 1; eval{sysread A,$x,9}; print $@; system("exit 5"); print $?>>8,"\n"'"#,
    );
}

#[test]
fn java() {
    same(
        &["java"],
        r#"d=$(mktemp -d); cat >$d/T.java <<'EOF'
import java.io.*; import java.net.*;
public class T { public static void main(String[] a) throws Exception {
  ServerSocket s = new ServerSocket(0);
  Thread t = new Thread(() -> { try (Socket c = s.accept()) { c.getOutputStream().write("hello".getBytes()); } catch (IOException e) { System.out.println(e); } });
  t.start(); Socket c = new Socket("localhost", s.getLocalPort());
  System.out.println(new String(c.getInputStream().readAllBytes())); t.join();
  Process p = new ProcessBuilder("echo", "child").start(); System.out.println(new String(p.getInputStream().readAllBytes()) + p.waitFor());
  Thread b = new Thread(() -> { try { s.accept(); } catch (IOException e) { System.out.println("closed"); } });
  b.start(); Thread.sleep(200); s.close(); b.join();
  try { Object o = null; o.hashCode(); } catch (NullPointerException e) { System.out.println("null"); }
} }
EOF
if [ -x "$(command -v javac)" ]; then java $d/T.java; else java -version; fi; rc=$?; rm -r $d; exit $rc"#,
    );
}

#[test]
fn redis() {
    same(
        &["redis-server", "redis-cli"],
        r#"d=$(mktemp -d); cd $d; redis-server --port 0 --unixsocket $d/s --save '' --logfile $d/log --daemonize no & p=$!
           for i in $(seq 100); do redis-cli -s $d/s ping 2>/dev/null | grep -q PONG && break; sleep 0.1; done
           redis-cli -s $d/s set k v; redis-cli -s $d/s get k; for i in $(seq 200); do echo "rpush l $i"; done | redis-cli -s $d/s | tail -1
           redis-cli -s $d/s save; redis-cli -s $d/s bgsave; redis-cli -s $d/s shutdown nosave; wait $p; echo $?; cd /; rm -r $d"#,
    );
}

#[test]
fn nginx_and_curl() {
    same(
        &["nginx", "curl"],
        r#"d=$(mktemp -d); chmod 755 $d; head -c 300000 /dev/zero | tr '\0' 'n' >$d/file
           cat >$d/conf <<EOF
daemon off; worker_processes 2; pid $d/pid; error_log $d/err; events {}
http { access_log off; client_body_temp_path $d; proxy_temp_path $d; fastcgi_temp_path $d; uwsgi_temp_path $d; scgi_temp_path $d;
  server { listen unix:$d/s; root $d; } }
EOF
           nginx -e $d/err -c $d/conf & p=$!
           for i in $(seq 100); do [ -S $d/s ] && break; sleep 0.1; done
           for i in 1 2 3; do curl -s --unix-socket $d/s http://x/file | sha256sum; done
           curl -s -o /dev/null -w '%{http_code}\n' --unix-socket $d/s http://x/none
           kill $p; wait $p; echo $?; rm -r $d"#,
    );
}

//! The command with the real session server and preload library, as they were built for release.
//!
//! Each test has a server's address of its own: in a runtime directory, or for root, whose server
//! is the system's, in a `/run` of its own mount name space.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Scratch, cc};
use serde_json::Value;
use sojourn_lab::Built;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A process that is killed when the test is over, and its output.
struct Process(Child, BufReader<ChildStdout>);

impl Process {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self(child, output)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The folders of one test.
struct World {
    scratch: Scratch,
    built: Built,
    /// Keeps the mount name space.
    holder: Option<Process>,
}

impl World {
    fn new(name: &str) -> Self {
        let mut world =
            Self { scratch: Scratch::new(name), built: Built::find().unwrap(), holder: None };
        if rustix::process::geteuid().is_root() {
            let mut holder = Command::new("unshare");
            let script = "mount -t tmpfs none /run && echo ready && exec sleep 100";
            holder.args(["--mount", "sh", "-c", script]);
            let mut holder = Process::start(holder);
            assert_eq!(holder.line(), "ready");
            world.holder = Some(holder);
        } else {
            std::fs::create_dir(world.scratch.path("run")).unwrap();
        }
        world
    }

    /// Returns a command that runs `sojourn` with these arguments in this world, with a watchdog.
    fn sojourn(&self, words: &[&str]) -> Command {
        let mut command = match &self.holder {
            Some(holder) => {
                let mut enter = Command::new("nsenter");
                enter.arg(format!("--mount=/proc/{}/ns/mnt", holder.0.id()));
                enter.args(["timeout", "--foreground", "-s", "KILL", "60"]);
                enter
            }
            None => {
                let mut timeout = Command::new("timeout");
                timeout.args(["--foreground", "-s", "KILL", "60"]);
                timeout
            }
        };
        command.arg(self.built.path("sojourn")).args(words);
        command.env("XDG_RUNTIME_DIR", self.scratch.path("run"));
        command.env("SOJOURN_CONFIG", "/dev/null").env_remove("SOJOURN_SERVER");
        command.env_remove("SOJOURN_PRELOAD").stdin(Stdio::null());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.sojourn(words).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.output(words);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    /// Runs the command again and again until `will_do` accepts its answer.
    fn until(&self, words: &[&str], will_do: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = self.json(words);
            if will_do(&answer) {
                return answer;
            }
            assert!(Instant::now() < deadline, "{words:?}: {answer:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.output(&["server", "stop", "--force"]);
    }
}

#[test]
fn the_first_program_starts_a_server_and_the_next_ones_find_it() {
    let world = World::new("first");
    assert_eq!(world.json(&["server", "status", "--json"])["server"], Value::Null);
    // The programs start at once, as in a pipeline, and only one server is started.
    let script =
        "wc -w < /proc/$$/task/$$/children; tr '\\0' '\\n' < /proc/$$/maps | grep -c preload";
    let start = || world.sojourn(&["run", "--strict", "--", "sh", "-c", script]);
    let both: Vec<_> = [start(), start()]
        .map(|mut command| command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .into_iter()
        .map(|child| child.wait_with_output().unwrap())
        .collect();
    for output in both {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("1"), "only wc is a child, not the server: {output:?}");
        assert_ne!(lines.next(), Some("0"), "the library is mapped: {output:?}");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    let first = world.json(&["server", "status", "--json"])["pid"].clone();
    assert!(first.is_u64(), "{first}");
    assert!(world.output(&["run", "true"]).status.success());
    assert_eq!(world.json(&["server", "status", "--json"])["pid"], first);
    let stopped = world.output(&["server", "stop"]);
    assert!(String::from_utf8_lossy(&stopped.stdout).contains("ended"), "{stopped:?}");
    assert!(!world.output(&["server", "status"]).status.success());
}

#[test]
fn a_connection_moves_is_listed_and_can_be_sent_home() {
    let world = World::new("moves");
    // Root's list has other programs of the machine, too, such as those of tests beside this one.
    let name = format!("talk-{}", std::process::id());
    let program = world.scratch.path(&name);
    cc(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/talk.c")), &program, &[]);
    let program = program.to_str().unwrap();
    let mut server = Process::start(world.sojourn(&["run", "--strict", program, "listen"]));
    let port = server.line();
    let mut client = Process::start(world.sojourn(&["run", "--strict", program, &port]));
    assert_eq!(client.line(), "ready");

    let own = |list: &Value| -> Vec<Value> {
        let rows = list["sessions"].as_array().unwrap().iter();
        rows.filter(|row| row["program"] == *name).cloned().collect()
    };
    let is_joined =
        |list: &Value| own(list).iter().filter(|row| row["home"] == "library").count() == 2;
    let list = world.until(&["ss", "--json", "--kind", "tcp"], is_joined);
    let rows = own(&list);
    assert_eq!(rows[0]["stream"], rows[1]["stream"]);
    assert_eq!((&rows[0]["from"], &rows[0]["to"]), (&rows[1]["to"], &rows[1]["from"]));
    assert_eq!(rows[0]["peer_pid"], rows[1]["pid"]);
    assert_eq!(rows[0]["peer_program"], *name);
    assert_eq!(rows.len(), 2, "listed by the server and found in /proc are one: {list:#}");

    let stream = rows[0]["stream"].as_str().unwrap();
    let moved = world.output(&["move", stream, "kernel"]);
    assert!(moved.status.success(), "{moved:?}");
    let has_returned = |stats: &Value| stats["returns_by_reason"]["user"].is_u64();
    world.until(&["stats", "--json"], has_returned);
    assert!(!world.output(&["move", "1", "kernel"]).status.success());
    let library = world.output(&["move", stream, "library"]);
    // Sessions in the kernel have other names.
    assert!(
        String::from_utf8_lossy(&library.stderr).contains("there is no session"),
        "{library:?}"
    );
    assert!(!library.status.success());
}

/// Sessions that are never offered, of a program with no other calls to the server.
#[test]
fn what_a_program_keeps_in_the_kernel_says_why() {
    let world = World::new("kept");
    let name = format!("kept-{}", std::process::id());
    let program = world.scratch.path(&name);
    cc(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/talk.c")), &program, &[]);
    let program = program.to_str().unwrap();
    for (how, reason) in [("option", "option"), ("stdio", "stdio"), ("sets", "set")] {
        let mut server = Process::start(world.sojourn(&["run", "--strict", program, "listen"]));
        let port = server.line();
        let run = ["run", "--strict", program, &port, how];
        let mut client = Process::start(world.sojourn(&run));
        assert_eq!(client.line(), "ready");
        let to = format!("127.0.0.1:{port}");
        let is_told = |list: &Value| {
            let mut rows = list["sessions"].as_array().unwrap().iter();
            rows.any(|row| row["to"] == *to && row["reason"] == reason)
        };
        world.until(&["ss", "--json", "--kind", "tcp"], is_told);
    }
}

#[test]
fn the_doctor_finds_nothing_missing() {
    let world = World::new("doctor");
    assert!(world.output(&["run", "--strict", "true"]).status.success());
    let found = world.json(&["doctor", "--json"]);
    let items = found["items"].as_array().unwrap();
    for name in ["library", "preload", "server-program", "server", "sealed-memory"] {
        let item = items.iter().find(|item| item["name"] == name).unwrap();
        assert_eq!(item["state"], "ok", "{item:#}");
    }
    assert_ne!(found["state"], "missing", "{found:#}");
}

#[test]
fn a_server_is_started_at_the_address_that_is_named() {
    let world = World::new("named");
    let places = ["first", "second"].map(|name| world.scratch.path(name));
    let start = |words: &[&str]| {
        let mut command = world.sojourn(&["server", "start", "--idle-exit", "60"]);
        command.args(words).env("SOJOURN_SERVER", &places[0]).output().unwrap()
    };
    for (at, words) in [vec![], vec!["--server", places[1].to_str().unwrap()]].iter().enumerate() {
        let output = start(words);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, format!("serving at {}\n", places[at].display()), "{output:?}");
        let stop = ["server", "stop", "--force", "--server", places[at].to_str().unwrap()];
        assert!(world.output(&stop).status.success());
    }
    let nowhere = start(&["--server", "/no/such/folder/server"]);
    let err = String::from_utf8_lossy(&nowhere.stderr);
    assert!(!nowhere.status.success() && err.contains("/no/such/folder"), "{err}");
    assert!(err.contains("name a folder that is there"), "{err}");
}

#[test]
fn a_server_of_another_process_namespace_is_no_failure() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root makes process namespaces");
        return;
    }
    let world = World::new("elsewhere");
    assert!(world.output(&["server", "start"]).status.success());
    let inside = |words: &[&str]| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", world.holder.as_ref().unwrap().0.id()));
        command.args(["timeout", "-s", "KILL", "60", "unshare", "--pid", "--fork", "--mount-proc"]);
        command.arg(world.built.path("sojourn")).args(words).env("SOJOURN_CONFIG", "/dev/null");
        command.env_remove("SOJOURN_SERVER").env_remove("SOJOURN_PRELOAD").output().unwrap()
    };
    let output = inside(&["run", "--strict", "/bin/true"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let said = String::from_utf8(inside(&["server", "status"]).stdout).unwrap();
    assert!(said.contains("of another process namespace, user 0"), "{said}");
    let json: Value =
        serde_json::from_slice(&inside(&["server", "status", "--json"]).stdout).unwrap();
    assert!(json["pid"].is_null() && json["uid"] == 0, "{json}");
}

#[test]
fn a_server_of_root_is_stopped_by_nobody_else() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root's server serves others");
        return;
    }
    let world = World::new("stop");
    let mount = format!("--mount=/proc/{}/ns/mnt", world.holder.as_ref().unwrap().0.id());
    let mut serve = Command::new("nsenter");
    serve.arg(&mount).arg(world.built.path("sojournd")).args(["--system", "--idle-exit", "60"]);
    let mut server = serve.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("ready "), "{said:?}");
    // The other user may not read the build folder.
    let copy = world.scratch.path("sojourn");
    std::fs::copy(world.built.path("sojourn"), &copy).unwrap();
    for words in [&["stop"][..], &["stop", "--force"]] {
        let mut stop = Command::new("nsenter");
        stop.args([mount.as_str(), "setpriv", "--reuid=65531", "--regid=65531", "--clear-groups"]);
        stop.arg(&copy).arg("server").args(words);
        let output = stop.env("SOJOURN_CONFIG", "/dev/null").current_dir("/").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("user 0's server, which only that user and root may stop"), "{said}");
    }
    assert!(world.output(&["server", "status"]).status.success());
    server.kill().unwrap();
    server.wait().unwrap();
}

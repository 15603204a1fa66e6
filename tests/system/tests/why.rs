//! Tests that `sojourn ss` names the true reason why programs under Sojourn stay in the kernel, for
//! each way in which this comes about.
//!
//! The programs are `c/why`: two ends of one connection. Name spaces, other users and filters need
//! root; without it those tests are skipped with a message. Not here: reasons that the server or
//! the library finds for a single session (`crates/cli/tests`, `crates/preload/tests`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use serde_json::Value;
use sojourn_lab::net::{End, Host, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::compile::compile;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// Number of questions after which both ends are hot, where `MOVE_AFTER_CALLS` is [`FEW`].
const MANY: &str = "100";
const FEW: &str = "4";
/// A user that nothing else here runs as.
const USER: u32 = 65_530;

fn compiled(name: &str, options: &[&str]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    compile(&path, &["why/why.c"], &[&["-Wall"], options].concat()).unwrap();
    path
}

fn program() -> &'static str {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| compiled("why", &[])).to_str().unwrap()
}

fn static_program() -> &'static str {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| compiled("why-static", &["-static"])).to_str().unwrap()
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root() && sojourn_lab::net::is_possible();
    if !is_root {
        eprintln!("skipped: not root with network namespaces");
    }
    is_root
}

/// A sandbox, and the programs in it.
struct Stage {
    sandbox: Sandbox,
    running: Vec<Running>,
}

impl Stage {
    fn new() -> Self {
        Self { sandbox: Sandbox::new().unwrap(), running: Vec::new() }
    }

    /// Makes a stage whose sessions become hot soon.
    fn hot() -> Self {
        let mut stage = Self::new();
        stage.sandbox.set("MOVE_AFTER_CALLS", FEW);
        stage
    }

    fn start(&mut self, command: Command) {
        self.running.push(Running::start(command).unwrap());
    }

    /// Runs the program under Sojourn, with arguments.
    fn run(&mut self, words: &[&str]) {
        let mut command = self.sandbox.command(Mode::Sojourn, program());
        command.args(words);
        self.start(command);
    }

    /// Runs a shell under Sojourn, which starts a child.
    fn run_child(&mut self, line: &str, words: &[&str]) {
        let mut command = self.sandbox.command(Mode::Sojourn, "sh");
        command.args(["-c", line]).args(words);
        self.start(command);
    }

    /// Waits until `serve` or `call` has done its part; returns its process number.
    fn pid(&self, role: &str) -> u64 {
        let path = self.sandbox.folder().join(format!("{role}.pid"));
        let begun = Instant::now();
        loop {
            match std::fs::read_to_string(&path) {
                Ok(text) => return text.trim().parse().unwrap(),
                Err(_) => assert!(begun.elapsed() < PATIENCE, "{role} is not done"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn list(&self) -> Value {
        self.sandbox.sessions().unwrap()
    }

    /// Waits until both ends have these reasons.
    fn expect(&self, serve: &str, call: &str) {
        self.expect_in(serve, call, || self.list());
    }

    fn expect_in(&self, serve: &str, call: &str, list: impl Fn() -> Value) {
        self.expect_one_of(&[[serve, call]], list);
    }

    /// Waits until the ends have one of these pairs of reasons.
    fn expect_one_of(&self, pairs: &[[&str; 2]], list: impl Fn() -> Value) {
        let pids = [self.pid("serve"), self.pid("call")];
        let begun = Instant::now();
        loop {
            let list = list();
            let found = pids.map(|pid| reason(&list, pid).unwrap_or_default());
            if pairs.iter().any(|pair| found == *pair) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{found:?}, not one of {pairs:?}: {list:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the reason of a process's only session.
fn reason(list: &Value, pid: u64) -> Option<String> {
    let all = list["sessions"].as_array()?;
    let is_it = |row: &&Value| row["pid"] == pid && (row["kind"] == "unix" || row["kind"] == "tcp");
    let mut own = all.iter().filter(is_it);
    let reason = own.next()?["reason"].as_str()?.to_owned();
    assert!(own.next().is_none(), "one session: {list:#}");
    Some(reason)
}

#[test]
fn nothing_is_wrong_with_what_is_not_hot() {
    let mut stage = Stage::new();
    stage.run(&["serve", "place", "2"]);
    stage.run(&["call", "place", "2"]);
    stage.expect("not-hot", "not-hot");
}

/// Two ends that ask 1,000 times with the default thresholds, the last `slow` times seldom.
fn paced(slow: &str, spin: &str) -> Stage {
    let mut stage = Stage::new();
    stage.sandbox.set("SPIN", spin);
    let slow = format!("slow={slow}");
    stage.run(&["serve", "place", "1000"]);
    stage.run(&[&slow, "call", "place", "1000"]);
    stage
}

#[test]
fn what_is_used_seldom_is_not_hot_unless_its_threads_stay_awake() {
    paced("1000", "always").expect("none", "none");
    paced("1000", "adaptive").expect("not-hot", "not-hot");
}

#[test]
fn what_is_used_seldom_from_now_on_goes_home() {
    paced("0", "adaptive").expect("none", "none");
    // The end that takes the samples leaves, and the other one follows.
    let pairs = [["not-hot", "peer-left"], ["peer-left", "not-hot"]];
    let stage = paced("300", "adaptive");
    stage.expect_one_of(&pairs, || stage.list());
}

#[test]
fn who_waits_for_an_end_that_is_not_hot_says_so() {
    let mut stage = Stage::new();
    let mut patient = stage.sandbox.command(Mode::Sojourn, program());
    patient.args(["serve", "place", MANY]).env("SOJOURN_MOVE_AFTER_CALLS", "1000000");
    stage.start(patient);
    stage.sandbox.set("MOVE_AFTER_CALLS", FEW);
    stage.run(&["call", "place", MANY]);
    stage.expect("not-hot", "peer-not-hot");
}

#[test]
fn an_emptied_environment_loses_the_library() {
    let mut stage = Stage::hot();
    stage.run_child("env -i \"$0\" serve place $1 & wait", &[program(), MANY]);
    stage.run(&["call", "place", MANY]);
    stage.expect("lost-library", "peer-stays");
}

#[test]
fn a_static_program_does_not_load_it() {
    let mut stage = Stage::hot();
    stage.sandbox.set("LOAD", "off");
    stage.run_child("\"$0\" serve place $1 & wait", &[static_program(), MANY]);
    stage.run(&["call", "place", MANY]);
    stage.expect("not-loaded", "peer-stays");
}

#[test]
fn a_program_without_sojourn_is_no_peer() {
    let mut stage = Stage::hot();
    let mut plain = stage.sandbox.command(Mode::Plain, program());
    plain.args(["serve", "place", MANY]);
    stage.start(plain);
    stage.run(&["call", "place", MANY]);
    let call = stage.pid("call");
    stage.pid("serve");
    assert_eq!(reason(&stage.list(), call).as_deref(), Some("no-peer"));
}

#[test]
fn who_looks_for_a_server_elsewhere_does_not_find_this_one() {
    let mut stage = Stage::hot();
    let mut lost = stage.sandbox.command(Mode::Plain, program());
    lost.args(["serve", "place", MANY]).env("SOJOURN_SERVER", "/nonexistent/server");
    lost.env("LD_PRELOAD", stage.sandbox.built().path("libsojourn_preload.so"));
    stage.start(lost);
    stage.run(&["call", "place", MANY]);
    stage.expect("unreachable", "peer-stays");
    let name = format!("@{}", inode(&stage.list(), stage.pid("call")));
    let output = stage.sandbox.sojourn(&["move", &name, "library"]).unwrap_err().to_string();
    assert!(output.contains("SOJOURN_SERVER"), "`move` gives the same reason: {output}");
}

/// Returns the inode of a process's end of the connection.
fn inode(list: &Value, pid: u64) -> String {
    let all = list["sessions"].as_array().unwrap();
    let own = all.iter().find(|row| row["pid"] == pid && row["kind"] == "unix").unwrap();
    own["inode"].as_str().unwrap().to_owned()
}

#[test]
fn who_may_not_enter_the_servers_folder_does_not_find_it() {
    if !is_root() {
        return;
    }
    let mut stage = Stage::hot();
    let folder = stage.sandbox.folder().to_owned();
    open_to_all(&stage.sandbox);
    std::fs::create_dir(folder.join("open")).unwrap();
    std::fs::set_permissions(folder.join("open"), PermissionsExt::from_mode(0o777)).unwrap();
    // The server's socket is for root only.
    let alone = PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(stage.sandbox.address(), alone).unwrap();
    let mut lost = stage.sandbox.command(Mode::Plain, folder.join("why"));
    lost.args(["serve", "open/place", MANY]).uid(USER).gid(USER);
    lost.env("LD_PRELOAD", folder.join("libsojourn_preload.so"));
    stage.start(lost);
    stage.run(&["call", "open/place", MANY]);
    stage.expect("unreachable", "peer-stays");
}

/// Copies the program and the files that it needs, for all users; all users may write files in the
/// sandbox's folder.
fn open_to_all(sandbox: &Sandbox) {
    let folder = sandbox.folder();
    let open = || PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder, open()).unwrap();
    std::fs::copy(program(), folder.join("why")).unwrap();
    for name in ["sojourn", "sojournd", "libsojourn_preload.so"] {
        std::fs::copy(sandbox.built().path(name), folder.join(name)).unwrap();
        std::fs::set_permissions(folder.join(name), open()).unwrap();
    }
}

#[test]
fn without_a_server_nothing_moves() {
    let mut stage = Stage::new();
    stage.run(&["serve", "place", "2"]);
    stage.run(&["call", "place", "2"]);
    stage.expect("not-hot", "not-hot");
    stage.sandbox.kill_server();
    stage.expect("server-gone", "server-gone");
}

#[test]
fn ends_of_two_servers_do_not_meet() {
    let (mut stage, other) = (Stage::new(), Sandbox::new().unwrap());
    let mut apart = stage.sandbox.command(Mode::Sojourn, program());
    apart.args(["serve", "place", "2"]).env("SOJOURN_SERVER", other.address());
    stage.start(apart);
    stage.run(&["call", "place", "2"]);
    stage.expect("other-server", "other-server");
}

#[test]
fn a_library_that_has_stood_down_says_why() {
    let ways = [("sandbox", "sandbox"), ("clone", "stood-down"), ("numbers", "stood-down")];
    for (word, reason_of_it) in ways {
        let mut stage = Stage::hot();
        stage.run(&[word, "serve", "place", MANY]);
        stage.run(&["call", "place", MANY]);
        let serve = stage.pid("serve");
        stage.pid("call");
        let list = stage.list();
        assert_eq!(reason(&list, serve).as_deref(), Some(reason_of_it), "{word}: {list:#}");
    }
}

#[test]
fn what_is_forbidden_to_the_library_is_told() {
    let mut stage = Stage::hot();
    let mut forbidden = stage.sandbox.command(Mode::Plain, program());
    let sojourn = stage.sandbox.built().path("sojourn");
    forbidden.arg("forbid").arg(sojourn).args(["run", "--", program(), "serve", "place", MANY]);
    stage.start(forbidden);
    stage.run(&["call", "place", MANY]);
    stage.expect("prohibited", "peer-stays");
}

#[test]
fn a_users_server_does_not_look_into_other_networks() {
    if !is_root() {
        return;
    }
    let mut stage = Stage::new();
    open_to_all(&stage.sandbox);
    let folder = stage.sandbox.folder().to_owned();
    let own = folder.join("own");
    let mut server = Command::new(folder.join("sojournd"));
    server.arg("--address").arg(&own).uid(USER).gid(USER).current_dir(&folder);
    stage.start(server);
    let begun = Instant::now();
    while !own.exists() {
        assert!(begun.elapsed() < PATIENCE, "the server does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let host = Host::new().unwrap();
    let command = |words: &[&str]| {
        // The command begins as root, so that it can enter the host, and then changes to the user.
        let mut command = Command::new("setpriv");
        let user = USER.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "./sojourn"]);
        command.args(words).env("SOJOURN_SERVER", &own).env("HOME", "/").current_dir(&folder);
        command
    };
    for role in ["serve", "call"] {
        let mut program = command(&["run", "--", "./why", role, "place", "2"]);
        host.place(&mut program);
        stage.start(program);
    }
    let list = || {
        let running = Running::start(command(&["ss", "--json"])).unwrap();
        let output = running.finish(PATIENCE).unwrap().success("ss").unwrap();
        serde_json::from_str(&output).unwrap()
    };
    stage.expect_in("namespace", "namespace", list);
}

#[test]
fn a_server_in_a_process_namespace_sees_nothing_outside() {
    if !is_root() {
        return;
    }
    for questions in ["1", MANY] {
        let mut stage = Stage::hot();
        let inner = stage.sandbox.folder().join("inner");
        let mut server = Command::new("unshare");
        server.args(["--pid", "--fork", "--kill-child"]);
        server.arg(stage.sandbox.built().path("sojournd")).arg("--address").arg(&inner);
        stage.start(server);
        let ask = |words: &[&str]| {
            let mut command =
                stage.sandbox.command(Mode::Plain, stage.sandbox.built().path("sojourn"));
            command.args(words).env("SOJOURN_SERVER", &inner);
            Running::start(command).unwrap().finish(PATIENCE).unwrap()
        };
        let begun = Instant::now();
        while ask(&["stats"]).status != 0 {
            assert!(begun.elapsed() < PATIENCE, "the server does not begin");
        }
        let mut programs = Vec::new();
        for role in ["serve", "call"] {
            let mut command = stage.sandbox.command(Mode::Sojourn, program());
            command.args([role, "place", questions]).env("SOJOURN_SERVER", &inner);
            programs.push(Running::start(command).unwrap());
        }
        stage.expect_in("namespace", "namespace", || {
            serde_json::from_str(&ask(&["ss", "--json"]).success("ss").unwrap()).unwrap()
        });
    }
}

#[test]
fn what_is_inside_a_process_namespace_is_one_with_what_the_server_outside_knows() {
    if !is_root() {
        return;
    }
    let mut stage = Stage::hot();
    let sojourn = stage.sandbox.built().path("sojourn").to_str().unwrap().to_owned();
    // The list is made inside, where processes have other numbers, after both ends are done.
    let script = "\"$0\" run -- \"$1\" serve place $2 & \"$0\" run -- \"$1\" call place $2 &
        until [ -e serve.pid ] && [ -e call.pid ]; do sleep 0.01; done
        while [ -e serve.pid ]; do \"$0\" ss --json > list.new; mv list.new list; sleep 0.05; done";
    let mut inside = stage.sandbox.command(Mode::Plain, "unshare");
    inside.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]);
    inside.args([&sojourn, program(), MANY]);
    stage.start(inside);
    let path = stage.sandbox.folder().join("list");
    stage.expect_in("none", "none", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or(Value::Null)
    });
}

#[test]
fn two_networks_of_one_host_are_told_from_two_hosts() {
    if !is_root() {
        return;
    }
    for questions in ["1", MANY] {
        let mut stage = Stage::hot();
        let (a, b) = (Host::new().unwrap(), Host::new().unwrap());
        let link = Link::direct(&a, &b, 1500).unwrap();
        let address = format!("{}:4711", link.v4(End::A));
        for (role, host) in [("serve", &a), ("call", &b)] {
            let mut command = stage.sandbox.command(Mode::Sojourn, program());
            command.args([role, &address, questions]);
            host.place(&mut command);
            stage.start(command);
        }
        stage.expect("other-network", "other-network");
    }
}

//! Unmodified programs see the same under Sojourn as without it: call by call, answer and `errno`.
//!
//! The programs are in `c/conform`; `conform.h` says how they are built. Each runs twice, plain and under Sojourn with sessions that
//! move at the first call, and the two transcripts must be the same, line by line. A case whose session had
//! to move and did not says so in its transcript, which then differs. What differs and may, docs/linux-differences.md says.
//!
//! `CONFORM_CASE="nonblocking_read tcp4 m"` runs one case (kind and phase may be left out).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::Admin;
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long one program may run with all its cases.
const LIMIT: Duration = Duration::from_secs(180);

fn compile(out: &Path, options: &[&str], files: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/conform");
    let mut command = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    // Calls that no compiler believes are meant: bad pointers are what is tested.
    command.args(["-O1", "-g", "-w", "-pthread"]).args(options).arg("-o").arg(out);
    let done = command.args(files.iter().map(|file| folder.join(file))).status().unwrap();
    assert!(done.success(), "{files:?} do not compile");
}

/// The static program that cases run.
fn static_program() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conform-static");
        compile(&path, &["-static"], &["static.c"]);
        path
    })
}

/// What the programs under Sojourn ask for: that their sessions go home, that the server dies or comes back.
struct Harness {
    sandbox: Mutex<Sandbox>,
    socket: UnixDatagram,
    is_over: AtomicBool,
}

impl Harness {
    fn start(sandbox: Sandbox) -> Arc<Self> {
        let socket = UnixDatagram::bind(sandbox.folder().join("harness")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let harness =
            Self { sandbox: Mutex::new(sandbox), socket, is_over: AtomicBool::new(false) };
        let harness = Arc::new(harness);
        // Several, for recalls wait.
        for _ in 0..4 {
            let harness = Arc::clone(&harness);
            std::thread::spawn(move || harness.serve());
        }
        harness
    }

    fn serve(&self) {
        let mut admin = Admin::new(&self.sandbox.lock().unwrap()).ok();
        let mut text = [0; 200];
        while !self.is_over.load(Ordering::Relaxed) {
            let Ok((len, from)) = self.socket.recv_from(&mut text) else { continue };
            let words = String::from_utf8_lossy(&text[..len]).into_owned();
            let words: Vec<&str> = words.split(' ').collect();
            let answer = match words[0] {
                "recall" => self.recall(&mut admin, &words[1..]),
                "kill" => {
                    self.sandbox.lock().unwrap().kill_server();
                    true
                }
                "start" => self.sandbox.lock().unwrap().start_server().is_ok(),
                _ => false,
            };
            let answer: &[u8] = if answer { b"ok" } else { b"no" };
            // It may have ended meanwhile.
            let _ = self.socket.send_to_addr(answer, &from);
        }
    }

    /// Sends the sessions of these processes home. `strict`: and waits until they are.
    fn recall(&self, admin: &mut Option<Admin>, words: &[&str]) -> bool {
        let pids: Vec<u32> = words.iter().filter_map(|word| word.parse().ok()).collect();
        let is_strict = words.last() == Some(&"strict");
        let wait = if is_strict { Duration::from_secs(5) } else { Duration::from_millis(100) };
        let deadline = Instant::now() + wait;
        let Some(streams) = self.asked(admin, |admin| admin.recall_of(&pids)) else { return false };
        loop {
            let left = self.asked(admin, |admin| admin.streams_of(&pids)).unwrap_or_default();
            if !streams.iter().any(|stream| left.contains(stream)) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Asks the server; another one if the first is gone.
    fn asked<T>(
        &self,
        admin: &mut Option<Admin>,
        ask: impl Fn(&mut Admin) -> anyhow::Result<T>,
    ) -> Option<T> {
        for _ in 0..2 {
            if admin.is_none() {
                *admin = Admin::new(&self.sandbox.lock().unwrap()).ok();
            }
            match ask(admin.as_mut()?) {
                Ok(answer) => return Some(answer),
                Err(_) => *admin = None,
            }
        }
        None
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

struct Stop(Arc<Harness>);

/// Lines by case, in order of appearance within each.
fn by_case(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut cases: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let (case, rest) = line.split_once(": ").unwrap_or(("?", line));
        cases.entry(case.to_owned()).or_default().push(rest.to_owned());
    }
    cases
}

fn show(case: &str, plain: &[String], under: &[String]) -> String {
    let same = plain.iter().zip(under).take_while(|(a, b)| a == b).count();
    let part = |lines: &[String]| {
        let end = lines.len().min(same + 4);
        let lines = lines.get(same..end).unwrap_or_default();
        if lines.is_empty() { "(nothing more)".into() } else { lines.join("\n          ") }
    };
    let before = same.checked_sub(1).map_or("", |at| &plain[at]);
    format!("{case}\n  after   {before}\n  plain   {}\n  sojourn {}\n", part(plain), part(under))
}

fn surround(command: &mut Command, at_once: u32) {
    command.env("CONFORM_STATIC", static_program());
    command.env("CONFORM_AT_ONCE", at_once.to_string());
    if let Ok(case) = std::env::var("CONFORM_CASE") {
        command.args(case.split(' '));
    }
}

/// Runs the program both ways and compares. What differs must differ twice: on a busy machine single cases meet the
/// moments that `docs/linux-differences.md` lists under known defects, and these are printed.
fn conform(name: &str, at_once: u32) {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conform-{name}"));
    compile(&program, &[], &["conform.c", "driver.c", &format!("{name}.c")]);
    let first = run_both(name, &program, at_once);
    if first.is_empty() {
        return;
    }
    println!("once: {}", first.values().cloned().collect::<String>());
    let mut second = run_both(name, &program, at_once);
    second.retain(|case, _| first.contains_key(case));
    let text: String = second.values().cloned().collect();
    assert!(second.is_empty(), "{} cases of {name} twice\n{text}", second.len());
}

/// Runs the program plain and under Sojourn: the cases that differ, with how.
fn run_both(name: &str, program: &Path, at_once: u32) -> BTreeMap<String, String> {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "1");
    let mut plain = sandbox.command(Mode::Plain, program);
    surround(&mut plain, at_once);
    let mut under = sandbox.command(Mode::Sojourn, program);
    surround(&mut under, at_once);
    under.env("CONFORM_HARNESS", sandbox.folder().join("harness"));
    let stop = Stop(Harness::start(sandbox));
    let plain = Running::start(plain).unwrap().finish(LIMIT).unwrap().success("plain").unwrap();
    let under = Running::start(under).unwrap().finish(LIMIT).unwrap().success("sojourn").unwrap();
    drop(stop);
    compare(name, &plain, &under)
}

fn compare(name: &str, plain: &str, under: &str) -> BTreeMap<String, String> {
    let (plain, under) = (by_case(plain), by_case(under));
    assert!(!plain.is_empty(), "{name}: nothing was run");
    let broken = |lines: &&Vec<String>| lines.iter().any(|line| line.starts_with("BROKEN"));
    let none = Vec::new();
    let mut differ = BTreeMap::new();
    for (case, lines) in &plain {
        let others = under.get(case).unwrap_or(&none);
        if broken(&lines) {
            let text = format!("{case}\n  does not work without Sojourn: {lines:#?}\n");
            differ.insert(case.clone(), text);
        } else if others != lines {
            differ.insert(case.clone(), show(case, lines, others));
        }
    }
    println!("{name}: {} cases, {} differ", plain.len(), differ.len());
    differ
}

#[test]
fn data() {
    conform("data", 4);
}

#[test]
fn ends() {
    conform("ends", 4);
}

#[test]
fn descriptors() {
    conform("descriptors", 4);
}

#[test]
fn process() {
    conform("process", 4);
}

#[test]
fn signals() {
    conform("signals", 4);
}

#[test]
fn readiness() {
    conform("readiness", 4);
}

#[test]
fn kernel() {
    conform("kernel", 4);
}

/// The server dies and comes back: for one case at a time.
#[test]
fn server() {
    conform("server", 1);
}

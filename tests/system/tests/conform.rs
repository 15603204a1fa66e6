//! Unmodified programs see the same under Sojourn as without it: call by call, answer and `errno`.
//!
//! The programs are in `c/conform`; `conform.h` says how they are built. Each runs twice, plain and
//! under Sojourn with sessions that move at the first call, and the two transcripts must be the
//! same, line by line. A case whose session had to move and did not says so in its transcript,
//! which then differs. What differs and may, docs/use/linux-differences.md says.
//!
//! `CONFORM_CASE="nonblocking_read tcp4 m"` runs one case (kind and phase may be left out).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::Admin;
use sojourn_system::compile::compile;
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long one program may run with all its cases.
const LIMIT: Duration = Duration::from_secs(180);

fn compiled(out: &Path, options: &[&str], files: &[&str]) {
    let files: Vec<String> = files.iter().map(|file| format!("conform/{file}")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    // Calls that no compiler believes are meant: bad pointers are what is tested.
    let options = [&["-g", "-w", "-pthread"], options].concat();
    compile(out, &files, &options).unwrap();
}

/// The static program that cases run.
fn static_program() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conform-static");
        compiled(&path, &["-static"], &["static.c"]);
        path
    })
}

/// What the programs under Sojourn ask for: that their sessions go home, that the server dies or
/// comes back.
struct Harness {
    sandbox: Mutex<Sandbox>,
    socket: UnixDatagram,
    is_over: AtomicBool,
}

impl Harness {
    fn start(sandbox: Sandbox) -> Serving {
        let socket = UnixDatagram::bind(sandbox.folder().join("harness")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let harness =
            Self { sandbox: Mutex::new(sandbox), socket, is_over: AtomicBool::new(false) };
        let harness = Arc::new(harness);
        // Several, for recalls wait.
        let threads = std::iter::repeat_with(|| Arc::clone(&harness)).take(4);
        let threads = threads.map(|harness| std::thread::spawn(move || harness.serve())).collect();
        Serving { harness, threads }
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

/// A harness and who serves for it. When this is gone nobody does, and the sandbox is gone with its
/// server.
struct Serving {
    harness: Arc<Harness>,
    threads: Vec<JoinHandle<()>>,
}

impl Serving {
    /// The server ends as it does for an administrator, if there is one: cases may have killed it.
    fn end(self) {
        let mut sandbox = self.harness.sandbox.lock().unwrap();
        if sandbox.server_pid().is_some() {
            sandbox.stop_server().unwrap().success("the server's end").unwrap();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.harness.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // What it panicked of has been printed.
            let _ = thread.join();
        }
    }
}

/// How a case differs.
struct Difference {
    text: String,
    /// It hung, crashed or was given a byte that nobody sent: no busy machine explains that.
    is_grave: bool,
}

/// Whether the line is of a case that hung, was ended by a signal, or got a wrong byte (`EBADMSG`:
/// its peer did).
fn is_grave(line: &str) -> bool {
    line == "HANGS"
        || line.starts_with("ended by signal")
        || line.starts_with("WRONG BYTE")
        || line.ends_with(" EBADMSG")
}

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

/// Runs the program both ways and compares. What differs must differ twice: on a busy machine
/// single cases meet the moments that `docs/use/linux-differences.md` lists under known defects,
/// and these are printed. What is grave fails at once.
fn conform(name: &str, at_once: u32) {
    conform_linked(name, at_once, Linked::Dynamic);
}

/// How a program is linked, and so by which door it comes to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linked {
    /// It is preloaded into.
    Dynamic,
    /// It makes its own system calls: the loader loads it.
    Static,
}

/// As [`conform`], with a program that is linked so.
fn conform_linked(name: &str, at_once: u32, linked: Linked) {
    let (suffix, options) = match linked {
        Linked::Dynamic => ("", &[][..]),
        Linked::Static => ("-static", &["-static"][..]),
    };
    let program = format!("conform-{name}{suffix}");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
    compiled(&program, options, &["conform.c", "driver.c", &format!("{name}.c")]);
    let first = run_both(name, &program, at_once);
    if first.is_empty() {
        return;
    }
    println!("once: {}", text_of(first.values()));
    let grave = text_of(first.values().filter(|difference| difference.is_grave));
    assert!(grave.is_empty(), "{name}: hung, crashed, or were given wrong bytes\n{grave}");
    let mut second = run_both(name, &program, at_once);
    second.retain(|case, difference| difference.is_grave || first.contains_key(case));
    let text = text_of(second.values());
    assert!(second.is_empty(), "{} cases of {name} twice, or gravely\n{text}", second.len());
}

fn text_of<'d>(differences: impl Iterator<Item = &'d Difference>) -> String {
    differences.map(|difference| difference.text.as_str()).collect()
}

/// Runs the program plain and under Sojourn: the cases that differ, with how.
fn run_both(name: &str, program: &Path, at_once: u32) -> BTreeMap<String, Difference> {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "1");
    let mut plain = sandbox.command(Mode::Plain, program);
    surround(&mut plain, at_once);
    let mut under = sandbox.command(Mode::Sojourn, program);
    surround(&mut under, at_once);
    if program.to_string_lossy().ends_with("-static") {
        under.env("SOJOURN_LOAD", "on");
    }
    under.env("CONFORM_HARNESS", sandbox.folder().join("harness"));
    let serving = Harness::start(sandbox);
    let plain = Running::start(plain).unwrap().finish(LIMIT).unwrap().success("plain").unwrap();
    let under = Running::start(under).unwrap().finish(LIMIT).unwrap().success("sojourn").unwrap();
    serving.end();
    compare(name, &plain, &under)
}

fn compare(name: &str, plain: &str, under: &str) -> BTreeMap<String, Difference> {
    let (plain, under) = (by_case(plain), by_case(under));
    assert!(!plain.is_empty(), "{name}: nothing was run");
    let none = Vec::new();
    let differ: BTreeMap<_, _> = plain
        .iter()
        .filter_map(|(case, lines)| {
            Some((case.clone(), difference(case, lines, under.get(case).unwrap_or(&none))?))
        })
        .collect();
    println!("{name}: {} cases, {} differ", plain.len(), differ.len());
    differ
}

fn difference(case: &str, plain: &[String], under: &[String]) -> Option<Difference> {
    if plain.iter().any(|line| line.starts_with("BROKEN")) {
        let text = format!("{case}\n  does not work without Sojourn: {plain:#?}\n");
        return Some(Difference { text, is_grave: false });
    }
    // Cases that a signal ends in the plain run, too, are meant so.
    let is_grave = under.iter().any(|line| is_grave(line) && !plain.contains(line));
    (plain != under).then(|| Difference { text: show(case, plain, under), is_grave })
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

/// The same by the other door: programs whose own system calls are rewritten. Not `kernel`, which
/// is about calls past the C library, nor `server`, which is about the server.
mod by_the_loader {
    use super::{Linked, conform_linked};

    #[test]
    fn data() {
        conform_linked("data", 4, Linked::Static);
    }

    #[test]
    fn ends() {
        conform_linked("ends", 4, Linked::Static);
    }

    #[test]
    fn descriptors() {
        conform_linked("descriptors", 4, Linked::Static);
    }

    #[test]
    fn process() {
        conform_linked("process", 4, Linked::Static);
    }

    #[test]
    fn signals() {
        conform_linked("signals", 4, Linked::Static);
    }

    #[test]
    fn readiness() {
        conform_linked("readiness", 4, Linked::Static);
    }
}

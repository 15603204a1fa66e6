//! Tests that unmodified programs see the same under Sojourn as without it: call by call, result
//! and `errno`.
//!
//! The programs are in `c/conform`; `conform.h` describes their structure. Each runs twice, plain
//! and under Sojourn with sessions that move at the first call, and the two transcripts must be the
//! same, line by line. A case whose session should have moved and did not writes this into its
//! transcript, which then differs. `docs/use/linux-differences.md` lists the allowed differences.
//!
//! `CONFORM_CASE="nonblocking_read tcp4 m"` runs one case (kind and phase may be left out).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::compile::compile;
use sojourn_system::harness::Harness;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Longest time of one program with all its cases.
const LIMIT: Duration = Duration::from_secs(180);

/// Returns the files of a program: `NAME.c` and those whose names go on with a part of it.
fn files_of(name: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/conform");
    let files = std::fs::read_dir(folder).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let is_part = |file: &String| {
        let rest = file.strip_suffix(".c").and_then(|stem| stem.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let files: Vec<String> = files.filter(is_part).collect();
    assert!(!files.is_empty(), "{name} has no file");
    files
}

fn compiled(out: &Path, options: &[&str], files: &[String]) {
    let files: Vec<String> = files.iter().map(|file| format!("conform/{file}")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    // Without warnings: the tests make calls with bad pointers on purpose.
    // With tables for unwinding, as C++ has them: clean-up in cancelled threads is observed.
    let options = [&["-g", "-w", "-pthread", "-fexceptions"], options].concat();
    compile(out, &files, &options).unwrap();
}

/// Returns the static program that cases run.
fn static_program() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conform-static");
        compiled(&path, &["-static"], &["static.c".to_owned()]);
        path
    })
}

/// The difference of a case.
struct Difference {
    text: String,
    /// True if the case hung, crashed or received a wrong byte, which no load of the machine
    /// explains.
    is_grave: bool,
}

/// Returns true if the line shows that a case hung, was ended by a signal, or got a wrong byte
/// (`EBADMSG` if its peer got it).
fn is_grave(line: &str) -> bool {
    line == "HANGS"
        || line.starts_with("ended by signal")
        || line.starts_with("WRONG BYTE")
        || line.ends_with(" EBADMSG")
}

/// Groups lines by case, and keeps their order within each.
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

/// Runs the program both ways and compares. A case fails if it differs twice. On a busy machine
/// single cases meet the short moments that `docs/use/linux-differences.md` lists under known
/// defects; these are printed. Grave differences fail at once.
fn conform(name: &str, at_once: u32) {
    conform_linked(name, at_once, Linked::Dynamic);
}

/// The linking of a program, which decides by which door its calls come to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linked {
    /// The library is preloaded.
    Dynamic,
    /// The program makes its own system calls, and the loader loads it.
    Static,
}

/// Runs [`conform`] with a program that is linked as `linked` says.
fn conform_linked(name: &str, at_once: u32, linked: Linked) {
    let (suffix, options) = match linked {
        Linked::Dynamic => ("", &[][..]),
        Linked::Static => ("-static", &["-static", "-DBY_THE_LOADER"][..]),
    };
    let program = format!("conform-{name}{suffix}");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
    let files = [&["conform.c".to_owned(), "driver.c".to_owned()][..], &files_of(name)].concat();
    compiled(&program, options, &files);
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

/// Runs the program plain and under Sojourn; returns the cases that differ.
fn run_both(name: &str, program: &Path, at_once: u32) -> BTreeMap<String, Difference> {
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "1");
    if name == "spinning" {
        sandbox.set("SPIN", "always");
    }
    let mut plain = sandbox.command(Mode::Plain, program);
    surround(&mut plain, at_once);
    let mut under = sandbox.command(Mode::Sojourn, program);
    surround(&mut under, at_once);
    if program.to_string_lossy().ends_with("-static") {
        under.env("SOJOURN_LOAD", "on");
    }
    under.env("CONFORM_HARNESS", sandbox.folder().join("harness"));
    let serving = Harness::start(sandbox).unwrap();
    let plain = Running::start(plain).unwrap();
    let (plain, under) = if at_once > 1 {
        // Plain cases mostly sleep, so they take little time from the others.
        let under = Running::start(under).unwrap();
        (plain.finish(LIMIT).unwrap(), under.finish(LIMIT).unwrap())
    } else {
        let plain = plain.finish(LIMIT).unwrap();
        (plain, Running::start(under).unwrap().finish(LIMIT).unwrap())
    };
    serving.end().unwrap();
    compare(name, &plain.success("plain").unwrap(), &under.success("sojourn").unwrap())
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
    // A case that a signal also ends in the plain run is meant to end so.
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

/// One case at a time: each of them keeps processors busy.
#[test]
fn spinning() {
    conform("spinning", 1);
}

#[test]
fn asynchronous() {
    conform("asynchronous", 4);
}

#[test]
fn readiness() {
    conform("readiness", 4);
}

#[test]
fn kernel() {
    conform("kernel", 4);
}

/// Tests with a server that dies and comes back; one case at a time, as all share the server.
#[test]
fn server() {
    conform("server", 1);
}

/// The same tests with the loader: programs whose own system calls are rewritten. `kernel` is left
/// out, because it tests calls past the C library, and so is `server`, which tests the server.
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
    fn asynchronous() {
        conform_linked("asynchronous", 4, Linked::Static);
    }

    #[test]
    fn readiness() {
        conform_linked("readiness", 4, Linked::Static);
    }
}

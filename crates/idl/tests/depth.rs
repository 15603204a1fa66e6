//! Deep and wide inputs by way of the program itself: every subcommand ends soon, in output or a
//! diagnostic, and never by a signal.
//!
//! Each run has the stack that a thread usually has, and a watchdog. Not here: what doubles in size
//! with each type (`nesting.rs`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A run of a debug build on a busy machine. It only ends the test: what takes a step for each pair
/// of types takes longer.
const LIMIT: Duration = Duration::from_secs(120);

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("sojourn-idl-depth-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The exit status, and what is said; fails for a signal.
fn run(folder: &Path, words: &[&str]) -> (i32, String) {
    let err = folder.join("err");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -s 8192; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_sojourn-idl")]);
    command.args(words).current_dir(folder).stdout(Stdio::null());
    let mut child = command.stderr(std::fs::File::create(&err).unwrap()).spawn().unwrap();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{words:?}: still at it");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let said = std::fs::read_to_string(err).unwrap();
    let said: String = said.chars().take(2000).collect();
    (status.code().unwrap_or_else(|| panic!("{words:?}: {status}: {said}")), said)
}

/// Everything that can be done with an interface; each has the same outcome. `refused`: the
/// diagnostic of those that look at types.
fn everything(name: &str, idl: &str, refused: Option<&str>) {
    let folder = Folder::new(name);
    let write = |file: &str, text: &str| std::fs::write(folder.0.join(file), text).unwrap();
    write("x.idl", idl);
    write("old.idl", "interface k { error_status_t g(); }");
    let dump = Command::new(env!("CARGO_BIN_EXE_sojourn-idl"))
        .args(["dump", "old.idl"])
        .current_dir(&folder.0)
        .output()
        .unwrap();
    std::fs::write(folder.0.join("old.dump"), dump.stdout).unwrap();
    for words in [
        &["x.idl", "-o", "."][..],
        &["--tests", "x.idl", "-o", "."],
        &["doc", "x.idl"],
        &["dump", "x.idl"],
        &["check", "--against", "old.dump", "x.idl"],
    ] {
        let (status, said) = run(&folder.0, words);
        match refused {
            Some(code) => {
                assert!(status == 1 && said.contains(code), "{name} {words:?}: {status} {said}")
            }
            // That it keeps no promises is for `check` to say.
            None => {
                assert!(status == 0 || words[0] == "check", "{name} {words:?}: {status} {said}")
            }
        }
    }
    assert_eq!(run(&folder.0, &["fmt", "x.idl"]).0, 0, "{name}: fmt looks at no types");
}

fn chain(first: &str, count: usize, next: impl Fn(usize, usize) -> String, use_of: &str) -> String {
    let types: String = (1..=count).map(|at| next(at, at - 1)).collect();
    format!("{first}{types}interface k {{ error_status_t f([in] t{count} {use_of}a); }}\n")
}

#[test]
fn pointers_to_pointers() {
    let next = |at, before| format!("typedef [unique] t{before} *t{at};\n");
    everything("pointers", &chain("typedef long t0;\n", 300, next, ""), Some("SJ0104"));
    everything("few", &chain("typedef long t0;\n", 16, next, ""), None);
}

#[test]
fn a_row_of_structures() {
    let next = |at, before| format!("typedef struct {{ t{before} a; long b; }} t{at};\n");
    everything("values", &chain("typedef long t0;\n", 20_000, next, "*"), Some("SJ0104"));
}

#[test]
fn a_row_of_structures_by_pointers() {
    let next = |at, before| format!("typedef struct {{ [unique] t{before} *a; long b; }} t{at};\n");
    let first = "typedef struct { long z; } t0;\n";
    everything("pointing", &chain(first, 20_000, next, "*"), Some("SJ0104"));
    everything("short", &chain(first, 100, next, "*"), None);
}

#[test]
fn a_row_of_structures_that_point_to_what_comes_later() {
    let structures: String = (0..20_000)
        .map(|at| format!("struct s{at} {{ [unique] struct s{} *n; }};\n", at + 1))
        .collect();
    let last = "struct s20000 { long z; };\n";
    let interface = "interface k { error_status_t f([in] struct s0 *a); }\n";
    everything("later", &format!("{structures}{last}{interface}"), Some("SJ0104"));
}

#[test]
fn unions_in_unions() {
    let next = |at, before| {
        format!("typedef union switch (long w) u {{ case 1: t{before} a; default: ; }} t{at};\n")
    };
    everything("unions", &chain("typedef long t0;\n", 20_000, next, "*"), Some("SJ0104"));
}

#[test]
fn each_twice_the_one_before() {
    let value = |at, before| format!("typedef struct {{ t{before} a; t{before} b; }} t{at};\n");
    everything("twice", &chain("typedef long t0;\n", 60, value, "*"), Some("SJ0322"));
    let pointer = |at, before| {
        format!("typedef struct {{ [unique] t{before} *a; [ref] t{before} *b; }} t{at};\n")
    };
    let first = "typedef struct { long z; } t0;\n";
    let folder = Folder::new("pointed");
    std::fs::write(folder.0.join("x.idl"), chain(first, 60, pointer, "*")).unwrap();
    for words in
        [&["x.idl", "-o", "."][..], &["doc", "x.idl"], &["dump", "x.idl"], &["fmt", "x.idl"]]
    {
        run(&folder.0, words);
    }
}

#[test]
fn many_operations_beside_one_another() {
    let operations: String = (0..400).map(|at| format!("void f{at}([in] long a);\n")).collect();
    everything("wide", &format!("interface k {{\n{operations}}}\n"), None);
}

#[test]
fn deep_expressions_and_declarators() {
    for (name, text) in [
        ("parentheses", format!("const long c = {}1{};\n", "(".repeat(20_000), ")".repeat(20_000))),
        ("signs", format!("const long c = {}1;\n", "-".repeat(20_001))),
        ("stars", format!("interface j {{ void f([in] long {}a); }}\n", "*".repeat(20_000))),
        (
            "structures",
            format!("typedef {}long a;{} t;\n", "struct { ".repeat(5000), " } x;".repeat(5000)),
        ),
    ] {
        let folder = Folder::new(name);
        std::fs::write(folder.0.join("x.idl"), format!("{text}interface k {{ void f(); }}\n"))
            .unwrap();
        for words in
            [&["x.idl", "-o", "."][..], &["doc", "x.idl"], &["dump", "x.idl"], &["fmt", "x.idl"]]
        {
            let (status, said) = run(&folder.0, words);
            assert!(status == 0 || said.contains("SJ"), "{name} {words:?}: {status} {said}");
        }
    }
}

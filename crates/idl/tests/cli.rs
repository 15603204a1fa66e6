//! The command as a user runs it: exit status, what is printed, what is written.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, reason = "a failed helper fails its test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("sojourn-idl-{name}-{}", std::process::id()));
        // Left over from a run that was killed.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_sojourn-idl"))
            .args(args)
            .current_dir(&self.0)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const GOOD: &str = "[version(1.0)]\ninterface i {\n    long f([in] long a);\n};\n";
const BAD: &str = "interface i {\n    long f([in] lnog a);\n    void g(long b);\n};\n";

#[test]
fn generates_and_names_what_it_read() {
    let place = ScratchFolder::new("generate");
    place.write("a.idl", &format!("import \"b.idl\";\n{GOOD}"));
    fs::create_dir(place.0.join("inc")).unwrap();
    place.write("inc/b.idl", "typedef long b_t;\n");
    place.write("a.acf", "[timeout(5)] interface i { }");
    let args = ["a.idl", "-I", "inc", "--out-dir", "gen", "--depend", "a.d", "--rust"];
    let (status, stdout, stderr) = place.run(&args);
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (0, "", ""));
    let rule = place.read("a.d");
    for part in ["a.rs", "a.idl", "b.idl", "a.acf"] {
        assert!(rule.contains(part), "{rule}");
    }
    assert!(Path::new(&place.0.join("gen/a.rs")).exists());
    assert!(!Path::new(&place.0.join("gen/a.h")).exists());
}

#[test]
fn writes_nothing_when_there_are_mistakes() {
    let place = ScratchFolder::new("nothing");
    place.write("a.idl", BAD);
    let (status, stdout, stderr) = place.run(&["a.idl", "--out-dir", "gen", "--depend", "a.d"]);
    assert_eq!(status, 1);
    assert_eq!(stdout, "");
    for part in [
        "error[SJ0203]: there is no type `lnog`\n --> a.idl:2:17\n",
        "2 |     long f([in] lnog a);\n  |                 ^^^^\n",
        "= help: did you mean `long`?",
        "error[SJ0501]",
        "a.idl:3:12",
        "2 errors; nothing has been written",
        "--explain SJ0203",
    ] {
        assert!(stderr.contains(part), "{part}\n---\n{stderr}");
    }
    assert!(!place.0.join("gen").exists() && !place.0.join("a.d").exists());
}

#[test]
fn json_has_one_object_a_line() {
    let place = ScratchFolder::new("json");
    place.write("a.idl", BAD);
    let (status, stdout, stderr) = place.run(&["a.idl", "--json"]);
    assert_eq!((status, stderr.as_str()), (1, ""));
    let all: Vec<serde_json::Value> =
        stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(all.len(), 2);
    assert_eq!(all[0]["code"], "SJ0203");
    assert_eq!(all[0]["place"]["line"], 2);
    assert_eq!(all[0]["place"]["column"], 17);
    assert_eq!(all[0]["place"]["end_column"], 21);
    assert_eq!(all[0]["help"][0], "did you mean `long`?");
}

#[test]
fn explains_and_lists() {
    let place = ScratchFolder::new("explain");
    let (status, stdout, _) = place.run(&["--explain", "sj0501"]);
    assert!(status == 0 && stdout.starts_with("SJ0501: "), "{stdout}");
    let (status, _, stderr) = place.run(&["--explain", "SJ9999"]);
    assert!(status == 1 && stderr.contains("no diagnostic SJ9999"), "{stderr}");
    let (status, stdout, _) = place.run(&["--list-codes"]);
    assert!(status == 0 && stdout.lines().count() > 100);
}

#[test]
fn formats_and_checks_format() {
    let place = ScratchFolder::new("fmt");
    place.write("a.idl", "interface i{long f([in]long a);};");
    assert_eq!(place.run(&["fmt", "--check", "a.idl"]).0, 1);
    assert_eq!(place.read("a.idl"), "interface i{long f([in]long a);};");
    assert_eq!(place.run(&["fmt", "a.idl"]).0, 0);
    assert_eq!(place.read("a.idl"), "interface i {\n    long f([in] long a);\n};\n");
    assert_eq!(place.run(&["fmt", "--check", "a.idl"]).0, 0);
}

#[test]
fn holds_an_interface_to_its_dump() {
    let place = ScratchFolder::new("dump");
    place.write("a.idl", GOOD);
    assert_eq!(place.run(&["dump", "a.idl", "-o", "a.dump"]).0, 0);
    let check = ["check", "a.idl", "--against", "a.dump"];
    assert_eq!(place.run(&check), (0, String::new(), String::new()));
    place.write("a.idl", &GOOD.replace("1.0", "1.1").replace("};", "    void g(void);\n};"));
    assert_eq!(place.run(&check).0, 0, "an addition with a higher minor version");
    place.write("a.idl", &GOOD.replace("long a", "hyper a"));
    let (status, _, stderr) = place.run(&check);
    assert_eq!(status, 1);
    assert!(stderr.contains("SJ0708") && stderr.contains("a.idl:3:10"), "{stderr}");
}

#[test]
fn lists_what_has_stubs() {
    let place = ScratchFolder::new("list");
    let com =
        "[object] interface i {\n    void f([in] long a);\n    [local] void g([in] void *p);\n};\n";
    place.write("a.idl", com);
    let (status, stdout, stderr) = place.run(&["check", "a.idl"]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "operation i.f (number 0): stubs",
            "operation i.g (number 1): declared only, local: it is `local`: it runs in the process of its caller",
        ]
    );
    let (_, stdout, _) = place.run(&["check", "--json", "a.idl"]);
    let last: serde_json::Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["construct"], &last["place"]["line"]), (&"local".into(), &3.into()));
    place.run(&["a.idl", "-o", "gen"]);
    let header = place.read("gen/a.h");
    assert!(header.contains("/* Declared only: g (number 1): "), "{header}");
    assert!(place.read("gen/a.rs").contains("Declared only: `g` (number 1): "));
}

#[test]
fn documents_completes_and_has_a_manual() {
    let place = ScratchFolder::new("doc");
    place.write("a.idl", &format!("/// Does it.\n{GOOD}"));
    let (status, stdout, _) = place.run(&["doc", "a.idl"]);
    assert!(status == 0 && stdout.contains("Does it."), "{stdout}");
    assert_eq!(place.run(&["doc", "a.idl", "--html", "-o", "a.html"]).0, 0);
    assert!(place.read("a.html").starts_with("<!DOCTYPE html>"));
    assert!(place.run(&["completions", "bash"]).1.contains("--out-dir"));
    assert!(place.run(&["man"]).1.contains(".TH"));
}

#[test]
fn wrong_arguments_and_missing_files_are_told() {
    let place = ScratchFolder::new("wrong");
    let (status, _, stderr) = place.run(&["none.idl"]);
    assert!(status == 1 && stderr.contains("SJ0001") && stderr.contains("none.idl"), "{stderr}");
    assert_eq!(place.run(&["--nonsense"]).0, 2);
    assert_eq!(place.run(&[]).0, 2);
    place.write("a.idl", GOOD);
    place.write("gen", "a file where a folder should be");
    let (status, _, stderr) = place.run(&["a.idl", "--out-dir", "gen"]);
    assert!(status == 1 && stderr.contains("cannot write"), "{stderr}");
}

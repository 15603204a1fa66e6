//! Tests of the setting `load` with its default, `auto`: programs that are named to `sojourn run`
//! are loaded, and so are their children, but those that stay small.
//!
//! The program is `c/abi/where.c`, which says whether it is loaded. Not here: sessions that move by
//! default (`abi.rs`), the record's entries one by one (`crates/abi/src/starts/tests.rs`).

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::{Mode, Sandbox};
use sojourn_system::compile::compile;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A sandbox with a cache folder, a static program, and a shell that starts it.
struct World {
    sandbox: Sandbox,
    program: PathBuf,
}

impl World {
    fn new() -> Self {
        let sandbox = Sandbox::new().unwrap();
        let program = sandbox.folder().join("program");
        compile(&program, &["abi/where.c"], &["-w", "-static"]).unwrap();
        let world = Self { sandbox, program };
        fs::create_dir_all(world.folder()).unwrap();
        fs::set_permissions(world.folder(), Permissions::from_mode(0o700)).unwrap();
        world
    }

    fn folder(&self) -> PathBuf {
        self.sandbox.folder().join("caches/sojourn")
    }

    fn record(&self) -> PathBuf {
        self.folder().join("starts")
    }

    /// Runs a program by `sojourn run`; returns its output.
    fn run(&self, program: &Path, words: &[&str]) -> String {
        let mut command = self.sandbox.command(Mode::Sojourn, program);
        command.args(words);
        said(&mut command)
    }

    /// Starts the program as a child of a dynamic one; returns what it says.
    fn child(&self, words: &[&str]) -> String {
        let program = self.program.to_str().unwrap();
        self.run(Path::new("sh"), &[&["-c", "\"$@\"; exit $?", "sh", program], words].concat())
    }

    fn children(&self, count: usize, words: &[&str]) -> Vec<String> {
        (0..count).map(|_| self.child(words)).collect()
    }
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && err.is_empty(), "{command:?}: {:?} {err}", output.status);
    String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_named_program_is_always_loaded() {
    let world = World::new();
    for _ in 0..5 {
        assert_eq!(world.run(&world.program, &[]), "loaded");
    }
    assert!(!world.record().exists(), "counted");
}

#[test]
fn a_small_child_starts_plainly_from_its_fourth_start_on() {
    let world = World::new();
    assert_eq!(world.children(5, &[]), ["loaded", "loaded", "loaded", "plain", "plain"]);
    let record = fs::metadata(world.record()).unwrap();
    assert_eq!(record.mode() & 0o7777, 0o600);
    assert_eq!(world.run(&world.program, &[]), "loaded");
    fs::remove_file(world.record()).unwrap();
    assert_eq!(world.child(&[]), "loaded");
    // Of 64 starts the first three and the last one are loaded.
    fs::remove_file(world.record()).unwrap();
    let program = world.program.to_str().unwrap();
    let many = "for i in $(seq 64); do \"$0\"; done";
    let said = world.run(Path::new("sh"), &["-c", many, program]);
    let places = said.split(' ').enumerate().filter(|(_, one)| *one == "loaded");
    assert_eq!(places.map(|(at, _)| at + 1).collect::<Vec<_>>(), [1, 2, 3, 64]);
}

/// Every way to start a child, of a loaded program and of a preloaded one.
#[test]
fn every_way_to_start_a_child_counts() {
    let world = World::new();
    let parents = [("static", "-static", "loaded"), ("dynamic", "-pie", "plain")];
    for (name, option, says) in parents {
        let parent = world.sandbox.folder().join(name);
        compile(&parent, &["abi/where.c"], &["-w", option]).unwrap();
        for how in ["exec", "fork", "vfork", "spawn"] {
            let _ = fs::remove_file(world.record());
            let words = [how, world.program.to_str().unwrap()];
            for child in ["loaded", "loaded", "loaded", "plain"] {
                assert_eq!(world.run(&parent, &words), format!("{says} {child}"), "{name} {how}");
            }
        }
    }
    let program = world.program.to_str().unwrap();
    let python = "import subprocess, sys; subprocess.run(sys.argv[1:], check=True)";
    for words in [&["env"][..], &["python3", "-c", python]] {
        fs::remove_file(world.record()).unwrap();
        for child in ["loaded", "loaded", "loaded", "plain"] {
            let rest = [&words[1..], &[program]].concat();
            assert_eq!(world.run(Path::new(words[0]), &rest), child, "{words:?}");
        }
    }
}

#[test]
fn a_busy_session_begins_the_count_anew() {
    let mut world = World::new();
    world.sandbox.set("MOVE_AFTER_CALLS", "4");
    world.sandbox.set("AWAIT_MOVES", "on");
    assert_eq!(world.children(5, &["busy"]), ["loaded"; 5]);
    assert_eq!(world.children(4, &[]), ["loaded", "loaded", "loaded", "plain"]);
    // A program that is named notes its busy session as well.
    assert_eq!(world.run(&world.program, &["busy"]), "loaded");
    assert_eq!(world.children(4, &[]), ["loaded", "loaded", "loaded", "plain"]);
}

/// What a plainly started program starts is under Sojourn if it is dynamic.
#[test]
fn children_of_a_program_that_is_started_plainly_have_the_library() {
    let world = World::new();
    let words = ["fork", "/bin/grep", "-c", "-m1", "libsojourn_preload", "/proc/self/maps"];
    assert_eq!(
        world.children(4, &words),
        ["loaded 1", "loaded 1", "loaded 1", "plain 1"],
        "a child of a small program"
    );
    // By a dynamic child its own static children are loaded again.
    let other = world.sandbox.folder().join("other");
    fs::copy(&world.program, &other).unwrap();
    let words = ["fork", "/bin/sh", "-c", "\"$0\"; exit $?", other.to_str().unwrap()];
    assert_eq!(world.child(&words), "plain loaded");
}

#[test]
fn off_is_off_and_on_is_on() {
    let mut world = World::new();
    world.sandbox.set("LOAD", "off");
    assert_eq!(world.children(2, &[]), ["plain"; 2]);
    let output = world.sandbox.command(Mode::Sojourn, &world.program).output().unwrap();
    assert_eq!(output.stdout, b"plain\n");
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("and `load` is off"), "{err}");
    world.sandbox.set("LOAD", "on");
    assert_eq!(world.children(5, &[]), ["loaded"; 5]);
    assert!(!world.record().exists(), "counted");
}

/// Nobody has asked to load a child, so nobody is told that it cannot be loaded.
#[test]
fn a_child_that_cannot_be_loaded_runs_plainly_and_silently() {
    let mut world = World::new();
    world.program = world.sandbox.folder().join("integrity");
    compile(&world.program, &["abi/integrity.c"], &["-w", "-static"]).unwrap();
    world.sandbox.set("STRICT", "on");
    assert_eq!(world.children(5, &[]), ["whole"; 5]);
}

#[test]
fn a_record_that_others_could_have_written_is_not_used() {
    let world = World::new();
    let record = world.record();
    let hostile = |prepare: &dyn Fn()| {
        let _ = fs::remove_file(&record);
        assert_eq!(world.children(4, &[]), ["loaded", "loaded", "loaded", "plain"]);
        prepare();
        assert_eq!(world.children(5, &[]), ["loaded"; 5]);
    };
    hostile(&|| fs::set_permissions(&record, Permissions::from_mode(0o644)).unwrap());
    let elsewhere = world.sandbox.folder().join("elsewhere");
    hostile(&|| {
        fs::rename(&record, &elsewhere).unwrap();
        symlink(&elsewhere, &record).unwrap();
    });
    hostile(&|| {
        fs::remove_file(&record).unwrap();
        assert!(
            Command::new("mkfifo").args(["-m", "600"]).arg(&record).status().unwrap().success()
        );
    });
    hostile(&|| {
        fs::remove_file(&record).unwrap();
        fs::create_dir(&record).unwrap();
    });
    fs::remove_dir(&record).unwrap();
    if rustix::process::geteuid().is_root() {
        const NOBODY: u32 = 65534;
        hostile(&|| std::os::unix::fs::chown(&record, Some(NOBODY), None).unwrap());
    }
    hostile(&|| fs::set_permissions(world.folder(), Permissions::from_mode(0o777)).unwrap());
    fs::set_permissions(world.folder(), Permissions::from_mode(0o700)).unwrap();
    // A record that is cut short, or overwritten, counts as none.
    for contents in [&b""[..], b"SJSTART", &[0xff; 65536]] {
        fs::write(&record, contents).unwrap();
        fs::set_permissions(&record, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(world.children(4, &[]), ["loaded", "loaded", "loaded", "plain"]);
    }
}

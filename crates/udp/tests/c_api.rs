//! Tests of the C interface from C programs, which plain `cc` builds with the pkg-config file and
//! which run as processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Server, host};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Makes a directory laid out as an installation: `lib`, `lib/pkgconfig`, `include`.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("udp-prefix");
        let _ = std::fs::remove_dir_all(&prefix);
        std::fs::create_dir_all(prefix.join("lib/pkgconfig")).unwrap();
        let link = |target: &Path, name: &str| {
            std::os::unix::fs::symlink(target, prefix.join(name)).unwrap();
        };
        link(&Path::new(CRATE).join("include"), "include");
        link(&built(), "lib/libsojourn_udp.so.0");
        link(Path::new("libsojourn_udp.so.0"), "lib/libsojourn_udp.so");
        let template = std::fs::read_to_string(format!("{CRATE}/sojourn-udp.pc.in")).unwrap();
        let filled = template.replace("@prefix@", prefix.to_str().unwrap());
        let filled = filled.replace("@version@", env!("CARGO_PKG_VERSION"));
        std::fs::write(prefix.join("lib/pkgconfig/sojourn-udp.pc"), filled).unwrap();
        prefix
    })
}

/// Returns the newest library that was built along with this test; cargo may have put a hash into
/// its name.
fn built() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let entries = std::fs::read_dir(&deps).unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libsojourn_udp") && name.ends_with(".so")
    };
    let modified = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    entries.filter(is_ours).max_by_key(modified).unwrap()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn c_programs_talk_with_each_other() {
    let Some(host) = host() else { return };
    let mut config = Command::new("pkg-config");
    config.args(["--cflags", "--libs", "sojourn-udp"]);
    let flags = run(config.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")));
    let program = prefix().join("echo");
    run(Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-D_GNU_SOURCE", "-O1", "-o"])
        .arg(&program)
        .arg(format!("{CRATE}/tests/c/echo.c"))
        .args(flags.split_whitespace()));
    let server = Server::start(Some(&host), &[]);
    let client = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", prefix().join("lib")).arg(&server.path).args(words);
        command
    };
    let mut serving = client(&["serve"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(serving.stdout.take().unwrap()).lines();
    let port = said.next().unwrap().unwrap();
    assert!(run(&mut client(&["ask", &port])).ends_with("passed\n"));
    assert_eq!(said.next().unwrap().unwrap(), "passed");
    assert!(serving.wait().unwrap().success());
}

#[test]
fn the_shared_library_exports_the_header_s_functions_and_no_others() {
    let library = prefix().join("lib/libsojourn_udp.so");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let mut exported: Vec<&str> =
        symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    exported.sort_unstable();
    let header = std::fs::read_to_string(format!("{CRATE}/include/sojourn/udp.h")).unwrap();
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| line.ends_with(");") && !line.starts_with([' ', '/']))
        .filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back())
        .collect();
    declared.sort_unstable();
    assert_eq!(exported, declared);
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("[libsojourn_udp.so.0]"), "{dynamic}");
}

#[test]
fn the_header_is_c_plus_plus_as_well() {
    run(Command::new("g++")
        .args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"])
        .arg(format!("{CRATE}/include/sojourn/udp.h")));
}

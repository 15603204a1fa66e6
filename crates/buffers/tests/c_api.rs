//! Tests of the C interface from C programs, which plain `cc` builds with the pkg-config file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Makes a directory laid out as an installation: `lib`, `lib/pkgconfig`, `include`.
fn prefix() -> PathBuf {
    let prefix = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("buffers-prefix");
    let _ = std::fs::remove_dir_all(&prefix);
    std::fs::create_dir_all(prefix.join("lib/pkgconfig")).unwrap();
    let link = |target: &Path, name: &str| {
        std::os::unix::fs::symlink(target, prefix.join(name)).unwrap();
    };
    link(&Path::new(CRATE).join("include"), "include");
    link(&built(), "lib/libsojourn_buffers.so.0");
    link(Path::new("libsojourn_buffers.so.0"), "lib/libsojourn_buffers.so");
    let template = std::fs::read_to_string(format!("{CRATE}/sojourn-buffers.pc.in")).unwrap();
    let filled = template.replace("@prefix@", prefix.to_str().unwrap());
    let filled = filled.replace("@version@", env!("CARGO_PKG_VERSION"));
    std::fs::write(prefix.join("lib/pkgconfig/sojourn-buffers.pc"), filled).unwrap();
    prefix
}

/// Returns the newest library that was built along with this test; cargo may have put a hash into
/// its name.
fn built() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let entries = std::fs::read_dir(&deps).unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libsojourn_buffers") && name.ends_with(".so")
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
fn c_programs_talk_in_place() {
    let prefix = prefix();
    let mut config = Command::new("pkg-config");
    config.args(["--cflags", "--libs", "sojourn-buffers"]);
    let flags = run(config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    let program = prefix.join("talk");
    run(Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-std=c11", "-D_GNU_SOURCE", "-O1", "-o"])
        .arg(&program)
        .arg(format!("{CRATE}/tests/c/talk.c"))
        .args(flags.split_whitespace()));
    for kind in ["tcp", "unix", "pipe"] {
        for dies in [None, Some("sender"), Some("receiver")] {
            let mut talk = Command::new(&program);
            talk.env("LD_LIBRARY_PATH", prefix.join("lib")).arg(kind).args(dies);
            assert_eq!(run(&mut talk), "passed 0\n", "{kind} {dies:?}");
        }
    }
}

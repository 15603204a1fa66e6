//! Names of the language in generated C: every word of `names/samples.rs` in every position,
//! compiled as C and as C++, the header alone, and behind every header that a program may include
//! before it. Generated Rust with the same names is compiled by `tests/names-rust`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "names/samples.rs"]
mod samples;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use samples::{Sample, samples};
use sojourn_idl::backend::{Options, c};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Headers that a program may have included before the generated one.
const BEFORE: &str = "#include <assert.h>\n#include <ctype.h>\n#include <errno.h>\n#include <fcntl.h>\n\
    #include <float.h>\n#include <inttypes.h>\n#include <iso646.h>\n#include <limits.h>\n#include <locale.h>\n\
    #include <math.h>\n#include <netdb.h>\n#include <netinet/in.h>\n#include <poll.h>\n#include <pthread.h>\n\
    #include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/socket.h>\n\
    #include <sys/stat.h>\n#include <sys/sysmacros.h>\n#include <sys/time.h>\n#include <sys/types.h>\n\
    #include <sys/wait.h>\n#include <time.h>\n#include <unistd.h>\n#include <wchar.h>\n";

const COMPILERS: [&[&str]; 2] =
    [&["cc", "-x", "c", "-std=gnu11"], &["c++", "-x", "c++", "-std=gnu++20"]];

/// A folder with the generated files of a sample, and `before.c`, which includes them all.
fn folder(sample: &Sample) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("names-{}", sample.name));
    let _absent_is_fine = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    let compiled = sample.compile().unwrap_or_else(|e| panic!("{}: {e}", sample.name));
    let options = Options { tests: true, ..Options::default() };
    for output in c::generate(&compiled.module, &options) {
        fs::write(dir.join(output.path), output.text).unwrap();
    }
    fs::write(dir.join("sample.idl"), &sample.idl).unwrap();
    let name = &sample.name;
    fs::write(
        dir.join("before.c"),
        format!(
            "{BEFORE}#include \"{name}.h\"\n#include \"{name}_client.c\"\n#include \"{name}_server.c\"\n"
        ),
    )
    .unwrap();
    dir
}

fn has(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|out| out.status.success())
}

/// The first lines of what a compiler says of `files`, if it refuses them.
fn refused(dir: &Path, compiler: &[&str], files: &[String]) -> Option<String> {
    let mut command = Command::new(compiler[0]);
    command.current_dir(dir).args(&compiler[1..]).args(["-fsyntax-only", "-w", "-I."]);
    command.arg("-I").arg(Path::new(CRATE).join("../ipc-c/include")).args(files);
    let out = command.output().unwrap_or_else(|e| panic!("{compiler:?}: {e}"));
    let text = String::from_utf8_lossy(&out.stderr);
    let errors: Vec<&str> = text.lines().filter(|l| l.contains("error")).take(6).collect();
    (!out.status.success())
        .then(|| format!("{} {compiler:?}\n{}", dir.display(), errors.join("\n")))
}

/// Compiles a sample's files with each compiler, and returns what they refuse.
fn refusals(sample: &Sample) -> Vec<String> {
    let dir = folder(sample);
    let compilers = COMPILERS.iter().filter(|compiler| has(compiler[0]));
    let before = ["before.c".to_owned()];
    let mut wrong: Vec<_> =
        compilers.filter_map(|compiler| refused(&dir, compiler, &before)).collect();
    // Test programs are C, and the names in them those of the stubs.
    if ["name_meetings", "name_itself", "name_values"].contains(&sample.name.as_str()) {
        let files = ["_test_client.c", "_test_server.c"];
        let files = files.map(|end| format!("{}{end}", sample.name));
        wrong.extend(refused(&dir, COMPILERS[0], &files));
    }
    wrong
}

#[test]
fn every_name_in_every_position_compiles() {
    let (samples, next) = (samples(), AtomicUsize::new(0));
    let compile_some = || {
        let next = || samples.get(next.fetch_add(1, Ordering::Relaxed));
        std::iter::from_fn(next).flat_map(refusals).collect::<Vec<_>>()
    };
    let [one, other] = std::thread::scope(|scope| {
        [scope.spawn(compile_some), scope.spawn(compile_some)].map(|half| half.join().unwrap())
    });
    let wrong = [one, other].concat();
    assert!(wrong.is_empty(), "{} refused\n{}", wrong.len(), wrong.join("\n\n"));
}

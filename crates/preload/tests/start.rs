//! What the library costs a program that stays small, counted, and the first call of a program that
//! does not. Not here: times (`cargo xtask bench local children`).

#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(unsafe_code, reason = "ptrace(2)")]

mod common;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a program costs from `exec` to its end.
#[derive(Debug, Clone, Copy)]
struct Cost {
    calls: usize,
    faults: usize,
}

/// Runs `true` with a library preloaded, and with its standard output as given.
fn cost(library: &Path, output: impl Fn() -> Stdio) -> Cost {
    let command = || {
        let mut command = Command::new("/bin/true");
        command.env("LD_PRELOAD", library).env("SOJOURN_SERVER", "/nonexistent");
        command.stdin(Stdio::null()).stdout(output());
        command
    };
    // A traced process has other faults. Their number depends on where the kernel puts each object.
    let mut all: Vec<usize> = (0..25).map(|_| faults(command())).collect();
    all.sort_unstable();
    Cost { calls: calls(command()), faults: all[all.len() / 2] }
}

/// Runs a program to its end. Returns the number of its page faults.
fn faults(mut command: Command) -> usize {
    #[allow(clippy::zombie_processes, reason = "wait4 waits for it")]
    let child = command.spawn().unwrap();
    let mut status = 0;
    // SAFETY: both results are local; the child is this test's.
    let usage = unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        let id = child.id().cast_signed();
        assert_eq!(libc::wait4(id, &raw mut status, 0, &raw mut usage), id);
        usage
    };
    assert_eq!(status, 0);
    usize::try_from(usage.ru_minflt).unwrap()
}

/// Runs a program to its end. Returns the number of its system calls.
fn calls(mut command: Command) -> usize {
    // SAFETY: ptrace is a system call; the child is about to become the program.
    unsafe {
        command.pre_exec(|| {
            assert_eq!(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0), 0);
            Ok(())
        });
    }
    #[allow(clippy::zombie_processes, reason = "waitpid waits for it")]
    let child = command.spawn().unwrap();
    let id = child.id().cast_signed();
    let (mut status, mut stops) = (0, 0);
    loop {
        // SAFETY: the result is local; the child is this thread's.
        assert_eq!(unsafe { libc::waitpid(id, &raw mut status, 0) }, id);
        if !libc::WIFSTOPPED(status) {
            break;
        }
        // SAFETY: the child is stopped. Each call has two stops: before it and after it.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, id, 0, 0) };
        stops += 1;
    }
    assert_eq!(status, 0);
    stops / 2
}

/// Builds a library that has nothing in it.
fn empty() -> PathBuf {
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty.so");
    let words = ["-shared", "-fPIC", "-x", "c", "/dev/null", "-o"];
    assert!(Command::new("cc").args(words).arg(&library).status().unwrap().success());
    library
}

/// Page faults that a program may have beyond those with an empty library, whose pages are fewer.
/// Which pages the kernel maps beside the one that is asked for depends on how they came to its
/// cache, so the number differs between machines and builds (1 to 5 were seen on one). To
/// initialize the library costs some fifty.
#[cfg(target_arch = "x86_64")]
const FAULTS: usize = 10;

#[test]
fn a_program_that_stays_small_pays_for_little() {
    let empty = empty();
    // Calls beyond those for an empty library: the kinds of the standard input and output, and, if
    // one is a pipe, two that open and close the C library's tables of functions.
    for (output, calls) in [(Stdio::null as fn() -> Stdio, 2), (Stdio::piped, 4)] {
        let (ours, least) = (cost(&common::library(), output), cost(&empty, output));
        assert!(least.calls > 10 && least.faults > 10, "{least:?}");
        assert!(ours.calls <= least.calls + calls, "{ours:?}, an empty library: {least:?}");
        #[cfg(target_arch = "x86_64")]
        assert!(ours.faults <= least.faults + FAULTS, "{ours:?}, an empty library: {least:?}");
    }
}

/// A program that a script starts, how it is called, and the page faults that it may have beyond
/// those with an empty library.
#[cfg(target_arch = "x86_64")]
const SMALL: [(&[&str], usize); 5] = [
    (&["cat", "/etc/hostname"], 18),
    (&["cat", "/etc/hostname", "/etc/hostname", "/etc/hostname"], 18),
    (&["wc", "/etc/passwd"], 18),
    (&["sh", "-c", "true"], 22),
    (&["sh", "-c", "exec true"], 28),
];

/// Reading a file, writing to a pipe once, installing handlers, and executing another program leave
/// the library uninitialized. To initialize it costs some fifty faults.
#[cfg(target_arch = "x86_64")]
#[test]
fn programs_of_a_script_stay_small() {
    let empty = empty();
    for (words, more) in SMALL {
        let faults = |library: &Path| {
            let command = || {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]).env("LD_PRELOAD", library);
                command.env("SOJOURN_SERVER", "/nonexistent");
                command.stdin(Stdio::null()).stdout(Stdio::piped());
                command
            };
            (0..5).map(|_| faults(command())).min().unwrap()
        };
        let (ours, least) = (faults(&common::library()), faults(&empty));
        assert!(ours <= least + more, "{words:?}: {ours} faults, an empty library: {least}");
    }
}

/// The loader writes few words; the library writes the others itself, when it is needed.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_loader_relocates_little() {
    let output =
        Command::new("readelf").args(["--wide", "--relocs"]).arg(common::library()).output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let count = text.lines().filter(|line| line.contains(" R_X86_64_")).count();
    assert!((1..=40).contains(&count), "{count} words");
}

/// Functions that are not called: they make processes which go on with the test, on its stack, or
/// wait for ever; those that the C library may not have; the one whose result is an address; and
/// the table of lending.
const EXCEPT: &str = "fork __fork _Fork vfork __vfork clone __clone daemon forkpty popen system \
    select __select pselect ppoll __ppoll_chk __asan_default_options pidfd_spawn pidfd_spawnp sbrk \
    sojourn_buffers_v1";

/// Any function can be the first that a program calls, also before the library's constructor has
/// run: nothing that it needs until the library is initialized waits for relocation.
#[test]
fn every_function_can_be_called_first() {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(common::library()).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().last()?.split('@').next())
        .filter(|name| !EXCEPT.split(' ').any(|except| except == *name))
        .collect();
    assert!(names.len() > 100, "{names:?}");
    let program = common::build_with("first", "start", &["-ldl"]);
    common::same_command(|| {
        let mut command = Command::new(&program);
        command.args(&names);
        command
    });
}

/// Calls that work, as the first ones of a program: `tests/c/early.c`.
#[test]
fn the_first_calls_work() {
    let program = common::build_with("early", "start", &["-pthread"]);
    common::same_command(|| Command::new(&program));
}

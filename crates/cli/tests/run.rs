//! `sojourn run` as a process: exit statuses, environment, and the inherited state of the program.
//!
//! The preload library is a small one that reports its presence, and the session server is a
//! listening socket. `whole.rs` tests with the real ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Scratch, cc, sojourn};
use sojourn_ipc::rt::{Caller, Fault};
use sojourn_ipc::{Address, Deadline, Endpoint, ServerOptions, Wait};
use sojourn_session::{CarryServer, CarryService};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

/// A library whose presence in a program can be tested, and a listening server.
struct World {
    scratch: Scratch,
    _server: OwnedFd,
}

impl World {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let source = "#include <stdlib.h>\n__attribute__((constructor)) static void here(void) { setenv(\"IS_PRELOADED\", \"yes\", 1); }\n";
        cc(&scratch.put("here.c", source), &scratch.path("here.so"), &["-shared", "-fPIC"]);
        let server = common::listen(&scratch.path("server"));
        Self { scratch, _server: server }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = sojourn(&["run"]);
        command.args(words).env("SOJOURN_PRELOAD", self.scratch.path("here.so"));
        command.env("SOJOURN_SERVER", self.scratch.path("server"));
        command
    }

    fn run(&self, words: &[&str]) -> (i32, String, String) {
        ended(self.command(words).output().unwrap())
    }
}

fn ended(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_program_runs_with_the_library_and_ends_with_its_own_status() {
    let world = World::new("run");
    let found = world.run(&["sh", "-c", "echo $IS_PRELOADED $0 $1; exit 7", "zero", "--strict"]);
    assert_eq!(found, (7, "yes zero --strict\n".into(), String::new()));
}

#[test]
fn the_exit_statuses_are_those_of_env() {
    let world = World::new("statuses");
    let status = |words: &[&str]| {
        let (status, out, err) = world.run(words);
        assert!(
            out.is_empty() && err.starts_with("sojourn: ") && err.lines().count() == 1,
            "{err}"
        );
        status
    };
    assert_eq!(status(&["no-such-program"]), 127);
    assert_eq!(status(&["/no/such/program"]), 127);
    let plain = world.scratch.put("plain", "text");
    assert_eq!(status(&[plain.to_str().unwrap()]), 126);
    assert_eq!(status(&["/"]), 126);
    assert_eq!(status(&["--ports", "80-8", "true"]), 125);
    let lost = world.scratch.put("lost", "#!/no/such/interpreter\n");
    std::fs::set_permissions(&lost, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(status(&["-q", lost.to_str().unwrap()]), 127);
    assert_eq!(world.run(&["--no-such-flag", "true"]).0, 125);
    assert_eq!(world.run(&[]).0, 125);
    assert_eq!(world.run(&["--help"]).0, 0);
}

#[test]
fn a_broken_program_is_no_shell_script() {
    let world = World::new("broken");
    for (name, bytes) in [("elf", b"\x7fELF\x02\x01\x01 cut short".as_slice()), ("zero", b"a\0b\n")]
    {
        let file = world.scratch.put(name, "");
        std::fs::write(&file, bytes).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let (status, out, err) = world.run(&["-q", file.to_str().unwrap()]);
        assert_eq!((status, out.as_str()), (126, ""), "{err}");
        assert!(err.contains("Exec format error") && err.lines().count() == 1, "{err}");
    }
    let script = world.scratch.put("script", "echo $1 $IS_PRELOADED\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        world.run(&["-q", script.to_str().unwrap(), "one"]),
        (0, "one\n".into(), String::new())
    );
}

#[test]
fn a_library_that_is_none_is_told_before_the_loader_complains() {
    let world = World::new("no-library");
    let text = world.scratch.put("text.so", "no library");
    // A position-independent program has the ELF type of a library.
    for wrong in [text.as_path(), std::path::Path::new("/bin/echo")] {
        let mut command = world.command(&["/bin/echo", "hi"]);
        let output = command.env("SOJOURN_PRELOAD", wrong).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"hi\n", "{err}");
        assert!(err.contains("no library for this machine") && err.lines().count() == 1, "{err}");
    }
}

#[test]
fn the_loader_preloads_into_the_program_that_it_is_told() {
    let world = World::new("loader");
    let loader = "/lib64/ld-linux-x86-64.so.2";
    if !std::path::Path::new(loader).exists() {
        return;
    }
    let found = world.run(&[loader, "/bin/sh", "-c", "echo $IS_PRELOADED"]);
    assert_eq!(found, (0, "yes\n".into(), String::new()));
}

#[test]
fn a_program_with_a_sanitizer_runs_plainly_and_says_why_or_not_at_all_if_strict() {
    let world = World::new("sanitizer");
    let source = world.scratch.put("main.c", "int main(void) { return 0; }\n");
    for (name, options) in [
        ("asan", ["-fsanitize=address", "-g"]),
        ("static", ["-fsanitize=address", "-static-libasan"]),
        ("tsan", ["-fsanitize=thread", "-g"]),
        ("tsan-static", ["-fsanitize=thread", "-static-libtsan"]),
    ] {
        let program = world.scratch.path(name);
        let mut command = Command::new("gcc");
        let made = command.args(options).arg("-o").args([&program, &source]).output();
        if !made.is_ok_and(|made| made.status.success()) {
            eprintln!("left out: {options:?}");
            continue;
        }
        let (status, _, err) = world.run(&[program.to_str().unwrap()]);
        assert!(status == 0 && err.lines().count() == 1, "{name}: {status} {err}");
        assert!(err.contains("runs without acceleration") && err.contains("anitizer"), "{err}");
        let (status, _, err) = world.run(&["--strict", program.to_str().unwrap()]);
        assert!(status == 125 && err.contains("anitizer"), "{name}: {status} {err}");
    }
}

#[test]
fn a_static_program_is_started_by_the_loader_beside_the_library() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new("static");
    let program = world.scratch.path("program");
    let source = "int main(void) { return 3; }\n";
    cc(&world.scratch.put("program.c", source), &program, &["-static"]);
    let program = program.to_str().unwrap();
    let (status, _, err) = world.run(&["--load=off", program]);
    assert_eq!(status, 3);
    assert!(err.contains("without acceleration: it makes its own system calls"), "{err}");
    let (status, _, err) = world.run(&["--load=sometimes", program]);
    assert_eq!(status, 125);
    assert!(err.contains("none of auto, on, off"), "{err}");
    for load in [&["--load"][..], &["--load=auto"], &[]] {
        let run = |words: &[&str]| world.run(&[words, load, &[program]].concat());
        let (status, _, err) = run(&[]);
        assert_eq!(status, 3);
        assert!(
            err.contains("runs without acceleration: sojourn-abi is in none of the places"),
            "{err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
        assert_eq!(run(&["--quiet"]), (3, String::new(), String::new()));
        let (status, out, err) = run(&["--strict"]);
        assert_eq!((status, out.as_str()), (125, ""));
        assert!(err.contains("cannot be accelerated (strict is set)"), "{err}");
    }
    // The program has its own arguments, and its file in a variable.
    let says = "#!/bin/sh\necho \"$SOJOURN_ABI_FILE $IS_PRELOADED $SOJOURN_ABI_QUIET\" \"$@\"\n";
    let loader = world.scratch.put("sojourn-abi", says);
    std::fs::set_permissions(&loader, std::fs::Permissions::from_mode(0o755)).unwrap();
    for load in [&["--load"][..], &[]] {
        let found = world.run(&[load, &[program, "a", "b c"]].concat());
        assert_eq!(found, (0, format!("{program} yes  a b c\n"), String::new()));
    }
    let found = world.run(&["-q", program]);
    assert_eq!(found, (0, format!("{program} yes on\n"), String::new()));
    // A script is loaded as its interpreter.
    let script = world.scratch.put("script", &format!("#!{program} -x y\n"));
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let found = world.run(&[script, "z"]);
    assert_eq!(found, (0, format!("{program} yes  -x y {script} z\n"), String::new()));
}

#[test]
fn what_is_missing_is_named() {
    let world = World::new("missing");
    let mut command = world.command(&["--strict", "true"]);
    command.env("SOJOURN_PRELOAD", "/no/such/library.so");
    let (status, _, err) = ended(command.output().unwrap());
    assert!(status == 125 && err.contains("/no/such/library.so"), "{err}");
    let mut command = world.command(&["sh", "-c", "echo ${IS_PRELOADED-plain}"]);
    command.env("SOJOURN_SERVER", world.scratch.path("nobody"));
    let (status, out, err) = ended(command.output().unwrap());
    assert_eq!((status, out.as_str()), (0, "plain\n"));
    assert!(err.contains("no session server answers at") && err.contains("/nobody"), "{err}");
    let (status, _, err) = ended(command.env("SOJOURN_STRICT", "on").output().unwrap());
    assert!(status == 125 && err.contains("/nobody"), "{err}");
}

#[test]
fn the_program_finds_the_merged_configuration() {
    let world = World::new("merged");
    let file = world.scratch.put("sojourn.toml", "spin = \"never\"\nmove_after_calls = 1\n");
    let script = "env | grep ^SOJOURN_ | grep -v -e CONFIG -e SERVER -e PRELOAD | sort";
    let mut command = world.command(&["--pipe=off", "--tcp", "sh", "-c", script]);
    command.env("SOJOURN_CONFIG", file).env("SOJOURN_MOVE_AFTER_CALLS", "2");
    let (status, out, err) = ended(command.output().unwrap());
    assert_eq!((status, err.as_str()), (0, ""));
    assert_eq!(out, "SOJOURN_MOVE_AFTER_CALLS=2\nSOJOURN_PIPE=false\nSOJOURN_SPIN=never\n");
}

#[test]
fn a_configuration_directory_that_cannot_be_searched_is_no_obstacle() {
    let world = World::new("unsearchable");
    let home = world.scratch.path("home");
    std::fs::create_dir_all(home.join(".config")).unwrap();
    std::fs::write(home.join(".config/sojourn.toml"), "nonsense").unwrap();
    std::fs::set_permissions(home.join(".config"), PermissionsExt::from_mode(0o0)).unwrap();
    std::fs::set_permissions(world.scratch.path("server"), PermissionsExt::from_mode(0o777))
        .unwrap();
    let mut command = world.command(&["sh", "-c", "echo ${IS_PRELOADED-plain}"]);
    command.env_remove("SOJOURN_CONFIG").env_remove("XDG_CONFIG_HOME").env("HOME", &home);
    if rustix::process::geteuid().is_root() {
        // Root may search every folder, so the command runs as another user.
        std::os::unix::process::CommandExt::uid(&mut command, 65_534);
    }
    let output = command.output().unwrap();
    if output.status.code() == Some(126) && !output.stderr.starts_with(b"sojourn:") {
        eprintln!("skipped: another user cannot run the command here");
        return;
    }
    let (status, out, err) = ended(output);
    assert_eq!((status, out.as_str()), (0, "yes\n"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.contains(".config/sojourn.toml") && err.contains("ermission denied"), "{err}");
}

#[test]
fn the_program_is_the_same_process_with_the_same_descriptors_and_signals() {
    let world = World::new("same");
    // With SIGPIPE ignored, SIGUSR1 blocked and standard input closed, as a program's starter may
    // leave them.
    let signals = ["grep", "-E", "^(Pid|PPid|SigBlk|SigIgn|SigCgt)", "/proc/self/status"];
    let descriptors = ["ls", "/proc/self/fd"];
    let children = ["sh", "-c", "echo $$; wc -w < /proc/$$/task/$$/children"];
    let source = "#include <signal.h>\n#include <unistd.h>\nint main(int n, char **w) { sigset_t s; (void)n; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigprocmask(SIG_BLOCK, &s, 0); signal(SIGPIPE, SIG_IGN); close(0); execvp(w[1], w + 1); return 1; }\n";
    let start = world.scratch.path("start");
    cc(&world.scratch.put("start.c", source), &start, &[]);
    let of = |words: &[&str]| {
        let mut command = Command::new(&start);
        command.args(words).env("SOJOURN_PRELOAD", world.scratch.path("here.so"));
        command.env("SOJOURN_SERVER", world.scratch.path("server"));
        let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id().to_string();
        let (status, out, _) = ended(child.wait_with_output().unwrap());
        assert_eq!(status, 0);
        out.replace(&pid, "PID")
    };
    let sojourn = env!("CARGO_BIN_EXE_sojourn");
    for words in [&signals[..], &descriptors, &children] {
        let plain = of(words);
        let with: Vec<_> = [sojourn, "run", "--"].iter().chain(words).copied().collect();
        assert_eq!(of(&with), plain);
    }
    let found = of(&signals);
    assert!(found.contains("Pid:\tPID") && found.contains("SigBlk:\t0000000000000200"), "{found}");
}

#[test]
fn a_variable_that_is_nearly_a_setting_is_told() {
    let world = World::new("misspelt");
    let run = |words: &[&str]| {
        let mut command = world.command(words);
        ended(command.env("SOJOURN_MOVE_AFTER_CALL", "1").output().unwrap())
    };
    let (status, out, err) = run(&["sh", "-c", "echo $IS_PRELOADED"]);
    assert_eq!((status, out.as_str()), (0, "yes\n"));
    assert!(err.contains("did you mean SOJOURN_MOVE_AFTER_CALLS?"), "{err}");
    assert_eq!(run(&["-q", "true"]), (0, String::new(), String::new()));
}

#[test]
fn a_servers_address_means_the_same_wherever_the_program_goes() {
    let world = World::new("relative");
    let mut command = world.command(&["--server", "./server", "sh", "-c", "echo $SOJOURN_SERVER"]);
    let (status, out, err) = ended(command.current_dir(world.scratch.path("")).output().unwrap());
    assert_eq!((status, err.as_str()), (0, ""));
    assert_eq!(out.trim(), world.scratch.path("server").to_str().unwrap());
}

#[test]
fn a_server_that_is_named_and_does_not_answer_is_told_with_what_to_do() {
    let world = World::new("nobody");
    let (status, _, err) = world.run(&["--server", "/no/server", "true"]);
    assert_eq!(status, 0);
    assert!(err.contains("no session server answers at /no/server; start one there, or"), "{err}");
    let (status, _, err) = world.run(&["--server", "/no/server", "--strict", "true"]);
    assert_eq!(status, 125, "{err}");
    let stats = sojourn(&["stats", "--server", "/no/server"]).output().unwrap();
    let (status, _, err) = ended(stats);
    assert_eq!(status, 1);
    assert_eq!(err.matches("no session server").count(), 1, "{err}");
}

/// A server of an interface without the operation that offers sessions.
#[derive(Debug)]
struct Other;

impl CarryServer for Other {
    fn give_back(&self, _: &Caller, _: u64, _: bool, _: Option<OwnedFd>) -> Result<(), Fault> {
        Ok(())
    }

    fn give_in_transit(&self, _: &Caller, _: u64, _: Option<OwnedFd>) -> Result<(), Fault> {
        Ok(())
    }
}

#[test]
fn a_server_that_does_not_take_programs_of_this_version_is_an_error_if_strict() {
    let world = World::new("version");
    let path = world.scratch.path("other");
    let address = Address::parse(path.to_str().unwrap()).unwrap();
    let options = ServerOptions { wait: Wait::Park, ..ServerOptions::default() };
    let endpoint = Endpoint::bind(address, options).unwrap();
    let mut server = endpoint.server();
    std::thread::spawn(move || {
        let mut service = CarryService::<Other>::new(Arc::new(Other));
        service.serve(&mut server, Deadline::after(Duration::from_secs(60)))
    });
    let (status, out, err) = world.run(&["--server", path.to_str().unwrap(), "echo", "plain"]);
    assert_eq!((status, out.as_str()), (0, "plain\n"), "{err}");
    let strict = ["--server", path.to_str().unwrap(), "--strict", "echo", "plain"];
    let (status, out, err) = world.run(&strict);
    assert_eq!((status, out.as_str()), (125, ""), "{err}");
    assert!(err.contains("replace it: sojourn server stop"), "{err}");
}

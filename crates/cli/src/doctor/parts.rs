//! Checks for the parts of Sojourn: preload library, loader, server.

use super::item::Item;
use super::streams::streams;
use crate::args::ServerArgs;
use crate::beside::{self, PartError};
use crate::client::{Client, NoServer, speaks_with_programs};
use crate::environment;
use crate::output::span;
use crate::server::Silent;
use rustix::process::Uid;
use sojourn_session::{Config, ProcessId};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const CHECKED: &str = "/proc/self/maps";
const SERVER: &str = "server";

/// Checks that the preload library is installed and that programs load it.
pub(super) fn library() -> Vec<Item> {
    match beside::library() {
        Ok(library) => {
            let shown = library.display().to_string();
            vec![
                Item::ok("library", shown),
                loads(&library),
                streams(preloaded("cat", &library)),
                loader(&library),
            ]
        }
        Err(error @ PartError::Missing { .. }) => {
            vec![Item::missing("library", error.to_string(), "install Sojourn anew")]
        }
        Err(error) => {
            vec![Item::missing("library", error.to_string(), "do that, then ask once more")]
        }
    }
}

/// Checks the loader of programs that make their own system calls.
fn loader(library: &Path) -> Item {
    match beside::loader(library) {
        Ok(loader) => Item::ok("loader", loader.display().to_string()),
        Err(error) => Item::limited(
            "loader",
            format!("{error}: static programs, musl's and Go's run plainly"),
            "install Sojourn anew",
        ),
    }
}

/// Returns a command that runs `program` with the library preloaded.
fn preloaded(program: &str, library: &Path) -> Command {
    let variables = environment::preloaded(environment::inherited(), library, &Config::default());
    let mut command = Command::new(program);
    command.env_clear().envs(variables.into_iter().map(|one| (one.name, one.value)));
    command
}

/// Runs a program with the library preloaded and checks that the library is mapped.
fn loads(library: &Path) -> Item {
    const NAME: &str = "preload";
    let run = |program: &str, words: &[&str]| {
        preloaded(program, library).args(words).stdin(Stdio::null()).output()
    };
    let advice = "the words are the loader's or the program's own; look whether the library is of this machine and readable";
    let of_true = match run("true", &[]) {
        Ok(output) => output,
        Err(error) => return Item::missing(NAME, format!("true: {error}"), "is PATH set?"),
    };
    if let Some(words) = complaint(&of_true) {
        return Item::missing(NAME, format!("`true` with the library: {words}"), advice);
    }
    let is_mapped = run("cat", &[CHECKED])
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(beside::LIBRARY));
    match is_mapped {
        true => Item::ok(NAME, "the loader puts the library into programs"),
        false => Item::missing(
            NAME,
            "programs run, but without the library",
            "the loader ignores LD_PRELOAD: is this a program that has gained privileges, or a system that forbids it?",
        ),
    }
}

/// Returns a program's complaint: the first line of its standard error, or its exit status if it
/// failed without a word; `None` if it succeeded silently.
fn complaint(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match (output.status.success(), said.is_empty()) {
        (true, true) => None,
        (_, false) => Some(said.lines().next().unwrap_or_default().to_owned()),
        (false, true) => Some(output.status.to_string()),
    }
}

/// Checks that the server's program is installed, and that a server answers.
pub(super) fn server(server_args: &ServerArgs) -> Vec<Item> {
    let program = match beside::server() {
        Ok(path) => Item::ok("server-program", path.display().to_string()),
        Err(error) => Item::missing("server-program", error.to_string(), "install Sojourn anew"),
    };
    let answering = match Client::connect(server_args) {
        Ok(client) => describe(client),
        Err(error) => unserved(&error),
    };
    vec![program, answering]
}

fn unserved(error: &anyhow::Error) -> Item {
    match error.downcast_ref::<NoServer>() {
        Some(NoServer { silent, is_named: false, .. }) if matches!(silent, Silent::Nobody(_)) => {
            let advice = "nothing to do: `sojourn run` starts one when it is needed";
            Item::limited(SERVER, silent.to_string(), advice)
        }
        Some(unserved) => Item::missing(SERVER, unserved.silent.to_string(), unserved.advice()),
        None => {
            Item::missing(SERVER, format!("{error:#}"), "`sojourn run` cannot start one either")
        }
    }
}

fn describe(mut client: Client) -> Item {
    let version = version(client.pid, client.uid).unwrap_or_else(|| "version unknown".into());
    let address = client.address.clone();
    let who = format!("{address}: {version}, {}, user {}", client.process(), client.uid);
    if let Err(error) = speaks_with_programs(&address) {
        return Item::missing(
            SERVER,
            format!("{who}: {:#}", error.root_cause()),
            "it is of another version than the library: sojourn server stop",
        );
    }
    match client.stats() {
        Ok(stats) => Item::ok(SERVER, format!("{who}, up for {}", span(stats.counters.uptime_ms))),
        Err(error) => Item::missing(
            SERVER,
            format!("{who}: {error:#}"),
            "it does not answer as it should; is it another version? sojourn server stop --force",
        ),
    }
}

/// Returns the version that the server's program prints. The program is run only if its process and
/// its file belong to this user or to root.
fn version(pid: ProcessId, uid: Uid) -> Option<String> {
    // The listener's user, root or this one, comes from the kernel. Its process number may be
    // another user's by now, who gives a program any name: so the file is opened once, checked, and
    // run by that descriptor.
    let user = rustix::process::geteuid();
    if pid == ProcessId::NONE || (!uid.is_root() && uid != user) {
        return None;
    }
    let program = format!("/proc/{pid}/exe");
    // A test may serve from within another program, which does not print its version.
    let name = std::fs::read_link(&program).ok()?;
    if !name.file_name()?.to_string_lossy().starts_with("sojournd") {
        return None;
    }
    let file = std::fs::File::open(program).ok()?;
    if !is_trusted(&file.metadata().ok()?, user) {
        return None;
    }
    let program = format!("/proc/self/fd/{}", file.as_raw_fd());
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Returns true if only root and `user` can have written a file.
fn is_trusted(file: &std::fs::Metadata, user: Uid) -> bool {
    (file.uid() == 0 || file.uid() == user.as_raw()) && file.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::tests::Scratch;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_that_others_can_have_written_is_not_run() {
        let scratch = Scratch::new("version");
        let path = scratch.path("sojournd");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        let user = rustix::process::geteuid();
        let other = Uid::from_raw(user.as_raw() + 1);
        let trusts = |mode, user| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            is_trusted(&std::fs::metadata(&path).unwrap(), user)
        };
        assert!(trusts(0o755, user) && !trusts(0o775, user) && !trusts(0o757, user));
        assert_eq!(trusts(0o755, other), user.is_root(), "root's and one's own only");
    }
}

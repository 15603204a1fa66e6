//! The parts of Sojourn: is the library there, does the loader take it, which server answers.

use super::item::Item;
use super::streams::streams;
use crate::args::Where;
use crate::beside::{self, PartError};
use crate::client::{Client, Unserved, speaks_with_programs};
use crate::environment;
use crate::output::span;
use crate::server::Silent;
use sojourn_session::Config;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const CHECKED: &str = "/proc/self/maps";
const SERVER: &str = "server";

/// The preload library, and whether programs get it.
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

/// The loader of programs that make their own system calls.
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

/// A program with the library preloaded.
fn preloaded(program: &str, library: &Path) -> Command {
    let variables = environment::preloaded(std::env::vars_os(), library, &Config::default());
    let mut command = Command::new(program);
    command.env_clear().envs(variables);
    command
}

/// Runs a program with it and looks whether it is mapped there.
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

/// What went wrong, in the words of whoever said it.
fn complaint(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match (output.status.success(), said.is_empty()) {
        (true, true) => None,
        (_, false) => Some(said.lines().next().unwrap_or_default().to_owned()),
        (false, true) => Some(output.status.to_string()),
    }
}

/// Which server answers, and that its program is there.
pub(super) fn server(place: &Where) -> Vec<Item> {
    let program = match beside::server() {
        Ok(path) => Item::ok("server-program", path.display().to_string()),
        Err(error) => Item::missing("server-program", error.to_string(), "install Sojourn anew"),
    };
    let answering = match Client::connect(place) {
        Ok(client) => describe(client),
        Err(error) => unserved(&error),
    };
    vec![program, answering]
}

fn unserved(error: &anyhow::Error) -> Item {
    match error.downcast_ref::<Unserved>() {
        Some(Unserved { silent, is_named: false, .. }) if matches!(silent, Silent::Nobody(_)) => {
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

/// What the program that serves says of itself. Only a program of our own or root's is run for
/// that.
fn version(pid: u32, uid: u32) -> Option<String> {
    // Whoever listens did so as that user, root or ourselves; should its number have come again,
    // then to a process that this kernel lets us look at, whose name is looked at below.
    if pid == 0 || (uid != 0 && uid != rustix::process::geteuid().as_raw()) {
        return None;
    }
    let program = format!("/proc/{pid}/exe");
    // The test of `sojournd` may serve from within another program, which would do something else.
    let name = std::fs::read_link(&program).ok()?;
    if !name.file_name()?.to_string_lossy().starts_with("sojournd") {
        return None;
    }
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

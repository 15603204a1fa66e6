//! `sojournd`, the session server: from its flags to the library of this package, which is the
//! rest.

mod flags;

use clap::Parser;
use flags::{Filtered, Flags};
use sojourn_server::log::{self, Level};
use sojourn_server::network::Network;
use sojourn_server::run::{Location, Options, run};
use sojourn_server::seccomp::{self, Part};
use sojourn_server::service::Rules;
use sojourn_server::{privileges, proxy};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    if let Some(code) = be_part() {
        return code;
    }
    let flags = Flags::parse();
    match flags.printed() {
        Ok(None) => {}
        Ok(Some(text)) => return print(&text),
        Err(error) => return failed(&error),
    }
    log::set(flags.log);
    let rules =
        Rules { is_public: flags.system, joins_within: flags.same_process, ..Rules::default() };
    let place = match (flags.address, flags.system) {
        (Some(address), _) => Location::At(absolute(address)),
        (None, true) => Location::System,
        (None, false) => Location::User,
    };
    let idle_exit = match flags.idle_exit.map(Duration::try_from_secs_f64).transpose() {
        Ok(idle_exit) => idle_exit,
        Err(error) => {
            log::say(Level::Error, format_args!("--idle-exit: {error}"));
            return ExitCode::from(2);
        }
    };
    if idle_exit.is_some() {
        // Not to be interrupted with the program that needed it, nor to keep a file system busy.
        let _ = rustix::process::setsid();
        let _ = rustix::process::chdir("/");
    }
    // Whoever starts a server reads this line: from then on there is one, this one or another.
    let ready = |address: &str| {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "ready {address}").and_then(|()| out.flush());
    };
    let network = flags.network.map(Network::from);
    let respects_firewalls = flags.firewall == Filtered::Respect;
    let proxies = true;
    let options = Options { place, idle_exit, network, respects_firewalls, rules, proxies };
    match run(&options, ready) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Is one of the server's other processes, if this program was run as one. Nobody's to use but the
/// server's own.
fn be_part() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let (word, next) = (words.next()?, words.next());
    let is_done = if word == proxy::ARGUMENT {
        let carries = next.is_some_and(|word| word == proxy::CARRIES);
        // In the order of what takes what: a filter forbids to give up capabilities.
        privileges::keep_only_proxys().is_ok()
            && is_confined(Part::Proxy)
            && proxy::run(carries).is_ok()
    } else if word == sojourn_carrier::KEEP {
        is_confined(Part::Keeper) && sojourn_carrier::keep(next?.as_ref()).is_ok()
    } else {
        return None;
    };
    Some(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A process without its filter is none that the server may rely on: it ends instead.
fn is_confined(part: Part) -> bool {
    seccomp::confine(part).is_ok()
}

fn print(text: &[u8]) -> ExitCode {
    match std::io::stdout().write_all(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    log::say(Level::Error, format_args!("{error}"));
    ExitCode::FAILURE
}

/// A path that stays the same when the working directory changes.
fn absolute(address: String) -> String {
    if address.starts_with('@') || address.starts_with("fd:") {
        return address;
    }
    match std::path::absolute(&address) {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(_) => address,
    }
}

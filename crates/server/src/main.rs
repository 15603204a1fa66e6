//! `sojournd`, the session server: from the flags of the command line to the library of this
//! package, which does the rest.

mod flags;

use clap::Parser;
use flags::{Filtered, Flags};
use sojourn_server::log::{self, Level};
use sojourn_server::network::Network;
use sojourn_server::run::{Location, Options, run};
use sojourn_server::seccomp::{self, Part};
use sojourn_server::service::Rules;
use sojourn_server::{apart, privileges, proxy};
use std::ffi::{OsStr, OsString};
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
    let options = match options(flags) {
        Ok(options) => options,
        Err(error) => {
            log::say(Level::Error, format_args!("{error}"));
            return ExitCode::from(2);
        }
    };
    if options.idle_exit.is_some() {
        // The server outlives the program that started it: a Ctrl-C for that program's process
        // group must not end it, and its working directory must not keep a file system from being
        // unmounted.
        let _ = rustix::process::setsid();
        let _ = rustix::process::chdir("/");
    }
    // The starter reads this line: from then on there is a server, this one or another.
    let ready = |address: &str| {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "ready {address}").and_then(|()| out.flush());
    };
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_apart = options.is_apart && options.rules.is_public && privileges::may_serve_everybody();
    let served = match is_apart {
        true => apart::run(&options, &words, ready),
        false => run(&options, ready),
    };
    match served {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Returns the options that a command line means.
fn options(flags: Flags) -> Result<Options, String> {
    log::set(flags.log);
    let rules = Rules {
        is_public: flags.system,
        joins_within: flags.same_process,
        fifos: flags.fifos.into(),
        ..Rules::default()
    };
    let place = match (flags.address, flags.system) {
        (Some(address), _) => Location::At(absolute(address)),
        (None, true) => Location::System,
        (None, false) => Location::User,
    };
    let idle_exit = flags.idle_exit.map(Duration::try_from_secs_f64).transpose();
    let idle_exit = idle_exit.map_err(|error| format!("--idle-exit: {error}"))?;
    let network = flags.network.map(Network::from);
    if flags.system && matches!(network, Some(Network::Driver(_))) {
        return Err("--network=driver is for a user's own server, without --system".into());
    }
    let respects_firewalls = flags.firewall == Filtered::Respect;
    let has_xdp = flags.xdp;
    let is_apart = true;
    Ok(Options { place, idle_exit, network, has_xdp, respects_firewalls, rules, is_apart })
}

/// Runs one of the server's other processes, if this program was started as one; only the server
/// itself starts them.
fn be_part() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let (word, next) = (words.next()?, words.next());
    if [apart::FRONT, apart::PROBER, apart::CARRIER].iter().any(|part| word == *part) {
        return Some(be_child(word.to_str()?, &next?, words));
    }
    let is_done = if word == proxy::ARGUMENT {
        let carries = next.is_some_and(|word| word == proxy::CARRIES);
        // The order matters: the filter forbids to give up capabilities.
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

/// Runs a process of a generation (`apart`): the command line is that of the server behind two
/// words more.
fn be_child(word: &str, argument: &OsStr, words: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match options(Flags::parse_from(std::iter::once("sojournd".into()).chain(words)))
    {
        Ok(options) => options,
        Err(error) => return failed(&error),
    };
    let argument = argument.to_string_lossy();
    let ended = match word {
        apart::FRONT => apart::front(&options, &argument).map_err(|error| error.to_string()),
        apart::PROBER => apart::probe(&argument, options.rules.fifos)
            .map_err(|error| format!("the prober: {error}")),
        _ => match apart::carry(&options, &argument) {
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                let text = format_args!("sessions with other hosts stay in the kernel: {error}");
                log::say(Level::Error, text);
                return ExitCode::from(apart::CANNOT);
            }
            ended => ended.map_err(|error| format!("the carrier: {error}")),
        },
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Returns true if the process has its filter. The server must not rely on a process without one:
/// it ends instead.
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

/// Returns a path that stays valid when the working directory changes.
fn absolute(address: String) -> String {
    if address.starts_with('@') || address.starts_with("fd:") {
        return address;
    }
    match std::path::absolute(&address) {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(_) => address,
    }
}

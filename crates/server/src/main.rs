//! `sojournd`, the session server. Not here: anything but its flags; see the library of this package.

use clap::Parser;
use sojourn_server::log::{self, Level};
use sojourn_server::run::{Network, Options, Place, run};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// The session server of Sojourn: pairs the ends of sessions so that programs of this host can talk through
/// shared memory.
#[derive(Debug, Parser)]
#[command(name = "sojournd", version)]
struct Flags {
    /// Serve this user's programs, at $XDG_RUNTIME_DIR/sojourn/server or /tmp/sojourn-UID/server. For root the
    /// same as --system. The default.
    #[arg(long, conflicts_with = "system")]
    user: bool,
    /// Serve everybody, at /run/sojourn/server.
    #[arg(long)]
    system: bool,
    /// Serve at this address instead: a path, @NAME, or fd:N.
    #[arg(long, conflicts_with_all = ["user", "system"])]
    address: Option<String>,
    /// End after so many seconds without a client, and leave the terminal's session at once: for servers that are
    /// started when they are needed. Without a number 10.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "10")]
    idle_exit: Option<f64>,
    /// Also carry TCP and UDP sessions with other hosts, those of this network namespace. Takes CAP_NET_ADMIN, CAP_NET_RAW and
    /// CAP_BPF, and CAP_SYS_ADMIN for ports; whatever else the server does not need it gives up. With =ports every program gets its
    /// packets through a port (a veth pair of its own), otherwise only those without CAP_NET_RAW. Being tried: see docs/moves.md.
    #[arg(long, value_name = "WAY", num_args = 0..=1, require_equals = true, default_missing_value = "rights")]
    network: Option<Way>,
    /// Say no more than this on standard error: error, warn, info or debug.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: Level,
}

/// What `--network` says.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Way {
    /// A packet socket on the interface for programs with CAP_NET_RAW, a port for others.
    Rights,
    /// A port for everybody.
    Ports,
}

impl From<Way> for Network {
    fn from(way: Way) -> Self {
        match way {
            Way::Rights => Self::Rights,
            Way::Ports => Self::Ports,
        }
    }
}

fn main() -> ExitCode {
    // Nobody's to use but the server's own: see `sojourn_carrier`.
    let mut words = std::env::args_os().skip(1);
    if let (Some(word), Some(path)) = (words.next(), words.next())
        && word == sojourn_carrier::KEEP
    {
        return match sojourn_carrier::keep(path.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let flags = Flags::parse();
    log::set(flags.log);
    let place = match (flags.address, flags.system) {
        (Some(address), _) => Place::At(absolute(address)),
        (None, true) => Place::System,
        (None, false) => Place::User,
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
    match run(&Options { place, idle_exit, network }, ready) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            log::say(Level::Error, format_args!("{error}"));
            ExitCode::FAILURE
        }
    }
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

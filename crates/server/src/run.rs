//! A server of one process: its beginning and its end.
//!
//! Not here: its place (`claim`), the clients' calls (`serving`, `service`), a server of several
//! processes (`apart`).

pub use crate::options::{Location, Options, Outcome, RunError};

use crate::carried;
use crate::claim::{Claim, Claimed, claim};
use crate::log::{self, Level};
use crate::network::Network;
use crate::pins::watches_max;
use crate::privileges::{self, Work};
use crate::protocols::{self, Beside, Listening};
use crate::service::{Rules, Sojournd};
use crate::serving::{raise_limit, serve, server_options};
use crate::signals;
use rustix::fs::Mode;
use rustix::process::umask;
use sojourn_ipc::{Address, BindError, Endpoint};
use sojourn_session::unmapped::unmapped_user;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Serves until there is nothing left to do. Calls `ready` once when clients can connect.
///
/// # Errors
/// [`RunError`].
pub fn run(options: &Options, ready: impl FnOnce(&str)) -> Result<Outcome, RunError> {
    raise_limit();
    match claim(&options.place)? {
        Claimed::Ours(claim, address) => run_at(options, &claim, address, ready),
        Claimed::Another(text) => Ok(report_other_server(&text, ready)),
    }
}

fn run_at(
    options: &Options,
    claim: &Claim,
    address: Address,
    ready: impl FnOnce(&str),
) -> Result<Outcome, RunError> {
    let text = &claim.text;
    // Before there are threads: signal masks and capabilities belong to threads.
    signals::block();
    let is_roots = rustix::process::geteuid().is_root();
    let network = options.network.is_some();
    let work = Work { is_roots, network, socket: claim.socket.as_deref() };
    privileges::keep_only(&work).map_err(RunError::Privileges)?;
    let is_public = options.rules.is_public && is_roots;
    let unmapped = unmapped_user();
    let rules = Rules { is_public, unmapped, watches: watches_max(), ..rules(options) };
    // Clients are the server's own user's, and each could end the server anyhow.
    let served = Sojournd::alone(rules)?;
    // The socket's mode decides which users may connect, and the call of hello checks them once
    // more.
    let mask = if is_public { Mode::empty() } else { Mode::RWXG | Mode::RWXO };
    let before = umask(mask);
    let endpoint = Endpoint::bind(address, server_options(None));
    umask(before);
    let endpoint = match endpoint {
        Err(BindError::InUse(_)) if claim.socket.is_none() => {
            return Ok(report_other_server(text, ready));
        }
        endpoint => endpoint?,
    };
    // Late, when nothing can keep the server from serving any more: it takes over the sessions that
    // a keeper holds, and would take them along if it ended now. Clients that connect meanwhile
    // wait.
    start_carrier(options, &served, claim.keeper());
    let _protocols = start_protocols(options, &served, claim.socket.as_deref());
    let mut server = endpoint.server();
    signals::end_on_signals(&served, text);
    log::say(Level::Info, format_args!("serving {text}"));
    ready(text);
    served.beats().watch();
    serve(&mut server, &served, options.idle_exit);
    log::say(Level::Info, format_args!("no longer serving {text}"));
    // The name goes before the claim, so that the next server finds it free.
    drop(endpoint);
    Ok(Outcome::Served)
}

/// Returns the rules for clients, which have to be known before one can connect.
pub(crate) fn rules(options: &Options) -> Rules {
    Rules {
        asks_for_packets: options.network.is_some_and(|network| network != Network::Ports),
        carries: options.network.is_some(),
        ..options.rules
    }
}

/// Starts the carrier, if sessions with other hosts are to move.
fn start_carrier(options: &Options, served: &Arc<Sojournd>, keeper: Option<PathBuf>) {
    let Some(network) = options.network else { return };
    if let Err(missing) = carried::start(served, network, options, keeper) {
        log::say(
            Level::Error,
            format_args!("sessions with other hosts stay in the kernel: {missing}"),
        );
    }
}

/// Listens for clients of protocol servers, if sessions with other hosts are to move.
fn start_protocols(
    options: &Options,
    served: &Arc<Sojournd>,
    socket: Option<&Path>,
) -> Option<Listening> {
    options.network?;
    // An abstract name has no place beside it, and no mode that says who may connect.
    let start = |path| -> Result<Listening, String> {
        let Beside { protocols, listener, file: listening } = protocols::listen_beside(path)?;
        // Before the first of them can say hello.
        served.set_protocols(Arc::clone(&protocols));
        let server = Arc::downgrade(served);
        let serves = move |uid| server.upgrade().map(|server| server.serves(uid));
        protocols.start(listener, Box::new(serves)).map(|()| listening)
    };
    match start(socket?) {
        Ok(listening) => Some(listening),
        Err(missing) => {
            log::say(Level::Warn, format_args!("no protocol server can be started: {missing}"));
            None
        }
    }
}

/// Says that another server serves that address.
pub(crate) fn report_other_server(text: &str, ready: impl FnOnce(&str)) -> Outcome {
    log::say(Level::Info, format_args!("{text} is already being served"));
    ready(text);
    Outcome::Another
}

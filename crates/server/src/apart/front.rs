//! The front process: speaks with clients and pairs their sessions, with no rights of its own.
//!
//! Not here: the calls (`crate::service`), the carrier's place (`desk`).

use super::child::{Child, EnteredChild};
use super::desk::CarrierEndpoint;
use super::line;
use super::spawner::Spawner;
use crate::beat::Beats;
use crate::log::{self, Level};
use crate::options::{Options, RunError};
use crate::pins::watches_max;
use crate::privileges;
use crate::prober::Prober;
use crate::proxies::Proxies;
use crate::run::rules;
use crate::seccomp::{self, Part};
use crate::service::{Rules, Sojournd};
use crate::serving::{serve, server_options};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::Uid;
use sojourn_ipc::{Address, Connection, Endpoint};
use sojourn_session::admin_connect_options;
use sojourn_session::unmapped::unmapped_user;
use std::io;
use std::sync::Arc;

/// Root's user: whose server it is, whatever user this process is.
const ROOT: Uid = Uid::ROOT;

/// The lines to the other processes.
struct Lines {
    listener: OwnedFd,
    proxies: Spawner,
    prober: Prober,
    carrier: Option<OwnedFd>,
    /// Kept as long as the process is there.
    _lock: Option<OwnedFd>,
}

impl Lines {
    fn of(belongings: Vec<OwnedFd>, has_carrier: bool) -> Option<Self> {
        let mut all = belongings.into_iter();
        let listener = all.next()?;
        let proxies = Spawner::new(all.next()?);
        let prober = Prober::apart(all.next()?, all.next()?, all.next()?);
        let carrier = if has_carrier { Some(all.next()?) } else { None };
        Some(Self { listener, proxies, prober, carrier, _lock: all.next() })
    }
}

/// Runs the front process of the server at `text`, until there is nothing left to do.
///
/// # Errors
/// [`RunError`].
pub fn front(options: &Options, text: &str) -> Result<(), RunError> {
    let user = privileges::become_front().map_err(RunError::Privileges)?;
    let system = |error: io::Error| RunError::Process(format!("the front process: {error}"));
    let EnteredChild { child, belongings } = Child::enter(c"sojourn-front").map_err(system)?;
    let lines = Lines::of(belongings, options.network.is_some())
        .ok_or_else(|| system(io::ErrorKind::InvalidData.into()))?;
    // It opens no files afterwards.
    let (unmapped, watches) = (unmapped_user(), watches_max());
    seccomp::confine(Part::Front)?;
    let whom =
        user.map_or_else(|| "no user of its own".into(), |user| format!("user {}", user.as_raw()));
    log::say(Level::Debug, format_args!("clients are served by {whom}"));
    let beats = Beats::new();
    let rules =
        Rules { is_public: true, own_user: Some(ROOT), unmapped, watches, ..rules(options) };
    let proxies = Arc::new(Proxies::new(lines.proxies));
    let served = Sojournd::with_others(Arc::clone(&proxies), lines.prober, beats.clone(), rules)?;
    let address = Address::Descriptor(lines.listener);
    let endpoint = Arc::new(Endpoint::bind_with(address, server_options(Some(ROOT)), proxies)?);
    let stopped = (Arc::clone(&served), Arc::clone(&endpoint));
    child.watch(beats, move || stop(&stopped.0, &stopped.1)).map_err(system)?;
    // Clients that connect meanwhile wait: a session can only be registered anew after the carrier
    // has adopted its side.
    let _desk = match lines.carrier {
        Some(line) => Some(settle(&served, &line).map_err(system)?),
        None => None,
    };
    let mut server = endpoint.server();
    log::say(Level::Info, format_args!("serving {text}"));
    child.ready();
    serve(&mut server, &served, options.idle_exit);
    log::say(Level::Info, format_args!("no longer serving {text}"));
    Ok(())
}

/// Hands the carrier the way to its place, and waits until it is settled there.
fn settle(served: &Arc<Sojournd>, line: &OwnedFd) -> io::Result<Endpoint> {
    let desk = CarrierEndpoint::open(served, served.beats().beat("desk"))?;
    let way = desk.way()?;
    line::tell(line, line::BELONGINGS, &[way.as_fd()])?;
    drop(way);
    desk.settle(served)
}

/// Makes the serving thread end, and wakes it: it looks after each client that comes.
fn stop(served: &Sojournd, endpoint: &Endpoint) {
    served.stop_now();
    if let Ok(socket) = endpoint.offer() {
        let _ = Connection::connect(Address::Descriptor(socket), &admin_connect_options());
    }
}

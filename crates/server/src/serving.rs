//! The serving thread: the calls of clients, the ticks between them, and the end.
//!
//! A server that is started on demand ends when it has had no clients for a while; a client that
//! comes just then is cut off and starts the next one. Not here: the calls themselves (`service`),
//! the process (`run`, `apart`).

use crate::log::{self, Level};
use crate::service::{Sojournd, Stop, Ticked};
use rustix::process::{Resource, Rlimit, Uid, getrlimit, setrlimit};
use sojourn_ipc::rt::{self, Arrival, Served, Service};
use sojourn_ipc::{Deadline, Reason, Server, ServerOptions, Wait};
use sojourn_session::{AdminService, CarryService, SessionService};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The least time for which a server waits for its first client.
const FIRST_CLIENT: Duration = Duration::from_secs(30);
const TICK_MS: u64 = 1000;
/// The time for which a server that ends waits for its sessions to be home, and the interval at
/// which it looks.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);
const LEAVE_EVERY: Duration = Duration::from_millis(5);

/// Returns the options of an endpoint of the server.
pub(crate) fn server_options(own_user: Option<Uid>) -> ServerOptions {
    ServerOptions {
        // No client is in such a hurry that a processor should spin for it.
        wait: Wait::Park,
        area: 16 << 10,
        max_message: 64 << 10,
        // No call has a grant, and each would be a mapping of the server's.
        max_granted: 0,
        own_user,
        ..ServerOptions::default()
    }
}

/// Raises the limit of descriptors as far as it may be raised: each stream takes one.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        log::say(Level::Warn, format_args!("cannot raise the limit of open files"));
    }
}

/// The time at which a server that is started on demand has done its work.
#[derive(Debug)]
struct Idle {
    limit: Option<Duration>,
    clients: usize,
    since: Instant,
    had_any: bool,
}

impl Idle {
    fn left(&self) -> Option<Duration> {
        if self.clients > 0 {
            return None;
        }
        let limit = self.limit?;
        let limit = if self.had_any { limit } else { limit.max(FIRST_CLIENT) };
        Some(limit.saturating_sub(self.since.elapsed()))
    }

    fn came(&mut self) {
        self.clients += 1;
        self.had_any = true;
    }

    fn went(&mut self) {
        self.clients = self.clients.saturating_sub(1);
        self.since = Instant::now();
    }
}

/// Serves until there is nothing left to do.
pub(crate) fn serve(server: &mut Server, served: &Arc<Sojournd>, limit: Option<Duration>) {
    let mut router = rt::Router::<Server>::new();
    let session = SessionService::<Sojournd>::new(Arc::clone(served));
    let admin = AdminService::<Sojournd>::new(Arc::clone(served));
    let carry = CarryService::<Sojournd>::new(Arc::clone(served));
    // The interfaces have few operations, so there are numbers for all of them.
    let _ = router.add(session);
    let _ = router.add(admin);
    let _ = router.add(carry);
    let mut idle = Idle { limit, clients: 0, since: Instant::now(), had_any: false };
    let mut reply = None;
    let mut ticked = Instant::now();
    let mut is_ticking = false;
    let mut leaving = None;
    let beat = served.beats().beat("serving");
    loop {
        let deadline = match leaving {
            None => deadline(&idle, is_ticking),
            Some(_) => Deadline::after(LEAVE_EVERY),
        };
        let Ok(arrival) = rt::ServerTransport::next(server, reply.take(), deadline) else { return };
        let _busy = beat.busy();
        match arrival {
            Arrival::Call(request) => match rt::answer(&mut router, false, request) {
                Served::Reply(ready) => reply = Some(ready),
                Served::Done => {}
                Served::Violation(client, error) => expel(server, client, error),
            },
            Arrival::Send(request) => {
                if let Served::Violation(client, error) = rt::answer(&mut router, true, request) {
                    expel(server, client, error);
                }
            }
            Arrival::Connected(client, credentials) => {
                idle.came();
                served.came(client, server.process(client));
                router.connected(client, credentials);
            }
            Arrival::Gone(client) => {
                router.gone(client);
                idle.went();
            }
            _ => {}
        }
        if ticked.elapsed() >= Duration::from_millis(TICK_MS) {
            ticked = Instant::now();
            is_ticking = tick(server, served);
        } else {
            // Any arrival may leave work for a tick (events, proxies that end): one follows within
            // a second.
            is_ticking = true;
        }
        if leaving.is_none() && (is_over(served) || idle.left() == Some(Duration::ZERO)) {
            served.leave_all();
            leaving = Some(Instant::now());
        }
        if leaving.is_some_and(|since| !served.carries() || since.elapsed() > LEAVE_LIMIT) {
            // Replies are sent by the next wait for an arrival, and there is none any more.
            if let Some(ready) = reply {
                let _ = rt::Ready::send(ready);
            }
            return;
        }
    }
}

/// Does what is due now and then; returns true if it is to be done again in a second even if
/// nothing else happens.
fn tick(server: &mut Server, served: &Sojournd) -> bool {
    let Ticked { unresponsive, again } = served.tick();
    unresponsive.into_iter().for_each(|client| server.expel(client, Reason::NoResources));
    again
}

/// Returns true if the server has been asked to end, and may.
fn is_over(served: &Sojournd) -> bool {
    match served.stop_wanted() {
        Stop::Not => false,
        Stop::WhenEmpty => served.is_empty(),
        Stop::Now => true,
    }
}

fn deadline(idle: &Idle, is_ticking: bool) -> Deadline {
    let tick = is_ticking.then_some(Duration::from_millis(TICK_MS));
    match tick.into_iter().chain(idle.left()).min() {
        Some(left) => Deadline::after(left),
        None => Deadline::NEVER,
    }
}

pub(crate) fn expel(server: &mut Server, client: sojourn_ipc::ClientId, error: rt::DecodeError) {
    log::say(Level::Warn, format_args!("client {} broke the interface: {error}", client.index));
    server.expel(client, Reason::BadMessage);
}

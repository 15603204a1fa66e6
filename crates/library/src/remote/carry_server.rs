//! Connections with the session server: sockets for the protocol thread, and the connection over
//! which any thread gives sessions back.
//!
//! That connection, and the files that go over it, are a thread's with a descriptor table of its
//! own (`sojourn_shm::aside`): they have no numbers that the program could name, and need none of
//! those that it has left. Not here: the messages (`control::protocol`), and when a session is
//! given back (`carried`).

use crate::host::environment::Kept;
use crate::host::lock::lock;
use crate::process::engine::Engine;
use crate::process::library::Library;
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use sojourn_ipc::{Address, ConnectOptions, Connection, Deadline};
use sojourn_proto::record::SessionRecord;
use sojourn_pump::{InTransit, sealed};
use sojourn_session::place::Surroundings;
use sojourn_session::trust;
use sojourn_session::{CarryClient, DelegationToken, carry_connect_options};
use sojourn_shm::aside::{Aside, Sides, keep_only, pair};
use std::sync::Mutex;

/// How long the server may take to answer a call.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Opens a connection for giving sessions back.
fn open_carry_client(library: &Library) -> Option<CarryClient<Connection>> {
    let socket = open_socket(library, "")?;
    let connection = open_connection(socket, carry_connect_options())?;
    CarryClient::bind_by(connection, Deadline::after(ANSWER_LIMIT)).ok()
}

pub(crate) fn open_connection(socket: OwnedFd, mut options: ConnectOptions) -> Option<Connection> {
    options.wait = sojourn_ipc::Wait::Park;
    options.timeout = ANSWER_LIMIT;
    Connection::connect(Address::Descriptor(socket), &options).ok()
}

/// Opens a socket that is connected to the server, or to what is beside it under its address and
/// `suffix`.
pub(crate) fn open_socket(library: &Library, suffix: &str) -> Option<OwnedFd> {
    let policy = &library.policy;
    let mut around = Surroundings::of_this_process(&policy.config().server);
    if let Some(runtime) = policy.environment.get().and_then(Kept::runtime) {
        around.runtime = Some(runtime);
    }
    connect_to(&(around.for_client().ok()? + suffix))
}

/// Returns a socket that is connected to a server for this user. Who started the program has looked
/// who listens, but that server may have ended since.
fn connect_to(place: &str) -> Option<OwnedFd> {
    trust::connect(place, rustix::process::geteuid(), Some(ANSWER_LIMIT)).ok()
}

/// A connection to a server, by its number among those that this process has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionNumber(u64);

/// The connection over which any thread gives sessions back, made when it is needed first, and
/// again when the server is another one.
#[derive(Debug)]
pub(crate) struct CarryConnection {
    /// `None`: the thread has ended, and does not come back.
    aside: Mutex<Option<Aside<Connections>>>,
}

/// The state of the thread that has the connection.
#[derive(Debug)]
struct Connections {
    client: Option<CarryClient<Connection>>,
    /// The number of `client`, or of the one before it.
    number: u64,
}

impl CarryConnection {
    /// Starts the thread. `number`: a descriptor of the library's that stays open until the thread
    /// runs. `None` if the program may have no more threads.
    pub(crate) fn start(
        library: &'static Library,
        engine: &'static Engine,
        number: i32,
    ) -> Option<Self> {
        let Sides { aside, worker } = pair();
        let work = move || {
            worker.serve(|| {
                // A table of the thread's own has to be made with one descriptor at least.
                drop(keep_only(number).ok()?);
                Some(Connections { client: None, number: 0 })
            });
        };
        let has_begun = engine.spawn(library.host(), "sojourn-carry", work);
        has_begun.then(|| Self { aside: Mutex::new(Some(aside)) })
    }

    /// Ends the thread, with its connection.
    pub(crate) fn end(&self) {
        drop(lock(&self.aside).take());
    }

    /// Returns true if sessions can be given back: there is a connection to a living server.
    pub(crate) fn is_there(&self, library: &Library) -> bool {
        self.call(|connections| connections.connected(library).is_some()) == Some(true)
    }

    /// Gives a session to the server with its record, unless that server has it already: `given` is
    /// the connection over which it was given last. Returns the connection over which the server
    /// has it; `None` if no server does.
    pub(crate) fn give_back(
        &self,
        library: &Library,
        given: Option<ConnectionNumber>,
        token: DelegationToken,
        has_ended: bool,
        record: &SessionRecord,
    ) -> Option<ConnectionNumber> {
        self.call(|connections| {
            let Connected { client, number } = connections.connected(library)?;
            if given == Some(number) {
                return given;
            }
            let file = sealed::pack(record).ok()?;
            let client = client.with_deadline(Deadline::after(ANSWER_LIMIT));
            let is_given = client.give_back(token.0, has_ended, Some(file.as_fd())).is_ok();
            connections.keep_if(is_given).then_some(number)
        })?
    }

    /// Gives the segments that came for a session meanwhile to the server that has put it back,
    /// which says them to the kernel. If there is no such server any more, the peer repeats them.
    pub(crate) fn give_in_transit(&self, token: DelegationToken, in_transit: &InTransit) {
        self.call(|connections| {
            let Some(client) = &mut connections.client else { return };
            let Ok(file) = in_transit.pack() else { return };
            let client = client.with_deadline(Deadline::after(ANSWER_LIMIT));
            let is_given = client.give_in_transit(token.0, Some(file.as_fd())).is_ok();
            connections.keep_if(is_given);
        });
    }

    fn call<R: Send>(&self, work: impl FnOnce(&mut Connections) -> R + Send) -> Option<R> {
        lock(&self.aside).as_mut()?.call(work)
    }
}

/// A connection to a living server.
struct Connected<'a> {
    client: &'a mut CarryClient<Connection>,
    number: ConnectionNumber,
}

impl Connections {
    /// Returns the connection to a living server, made if need be; `None` if there is no server.
    fn connected(&mut self, library: &Library) -> Option<Connected<'_>> {
        if self.client.as_mut().is_some_and(|client| !is_alive(client)) {
            self.client = None;
        }
        if self.client.is_none() {
            self.number += 1;
            self.client = open_carry_client(library);
        }
        let number = ConnectionNumber(self.number);
        self.client.as_mut().map(|client| Connected { client, number })
    }

    /// Drops the connection if its server has not answered; returns `has_answered`.
    fn keep_if(&mut self, has_answered: bool) -> bool {
        if !has_answered {
            self.client = None;
        }
        has_answered
    }
}

/// Returns true if the server at the other end of a connection has it still.
fn is_alive(client: &mut CarryClient<Connection>) -> bool {
    let socket = client.transport().socket();
    let mut set = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut set, Some(&at_once)), Ok(count) if count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use rustix::process::{Uid, geteuid};
    use rustix::thread::set_thread_res_uid;
    use std::os::unix::fs::PermissionsExt;

    /// Listens as that user; `None` if this process cannot become that user.
    fn listener(place: &str, user: Uid) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = rustix::net::socket_with(family, kind, flags, None).unwrap();
        let address = Address::parse(place).unwrap().socket_address().unwrap();
        // The thread alone becomes another user.
        let listens = || {
            set_thread_res_uid(geteuid(), user, geteuid()).ok()?;
            rustix::net::bind(&listener, &address).unwrap();
            rustix::net::listen(&listener, 1).unwrap();
            Some(())
        };
        std::thread::scope(|scope| scope.spawn(listens).join().unwrap())?;
        Some(listener)
    }

    /// A server at an abstract name, or in a folder of everybody's, has ended, and another user
    /// listens there.
    #[test]
    fn whoever_listens_at_a_place_that_is_free_is_handed_nothing() {
        let name = format!("sojourn-library-trust-{}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o1777)).unwrap();
        let path = folder.join("server");
        for place in [format!("@{name}"), path.to_str().unwrap().into()] {
            let own = listener(&place, geteuid()).unwrap();
            assert!(connect_to(&place).is_some(), "{place}: one's own");
            drop(own);
            let _ = std::fs::remove_file(&path);
            let Some(_other) = listener(&place, Uid::from_raw(65_533)) else {
                eprintln!("skipped: cannot become another user here");
                break;
            };
            assert!(connect_to(&place).is_none(), "{place}: another user's");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Listens with room for one connection more than is taken, and takes none.
    #[test]
    fn who_lets_its_queue_be_full_holds_nobody_up() {
        let place = format!("@sojourn-library-full-{}", std::process::id());
        let _listener = listener(&place, geteuid()).unwrap();
        let address = Address::parse(&place).unwrap().socket_address().unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let mut waiting = Vec::new();
        loop {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
            if rustix::net::connect(&socket, &address).is_err() {
                break;
            }
            waiting.push(socket);
        }
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(connect_to(&place).is_none()));
        assert_eq!(is_done.recv_timeout(10 * ANSWER_LIMIT), Ok(true));
    }
}

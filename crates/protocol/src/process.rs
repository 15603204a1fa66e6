//! The process: it takes the connections that the session server has accepted for it, and ends when
//! nobody has needed it for a while.
//!
//! Standard input is a socket of the session server's, over which accepted connections come. Of a
//! process that is about to end the session server must not think that it takes another one: so
//! that direction is shut down first, and what had been sent before is taken then. Not here: who
//! starts it (`sojourn_server`), what it serves (`server`).

use crate::confine::confine;
use crate::server::Protocol;
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sojourn_ipc::ancillary::{self, Arrived};
use sojourn_ipc::{Deadline, Endpoint};
use sojourn_library::library;
use sojourn_session::protocol::server::ProtocolService;
use std::error::Error;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Instant;

/// How long the process stays without clients.
const IDLE: Duration = Duration::from_secs(5);
/// The most threads that take calls.
const THREADS_MAX: usize = 4;

/// A message of the control socket.
enum ControlMessage {
    Client(OwnedFd),
    Nothing,
    /// Nothing more will come.
    End,
}

/// Runs the process: [`crate::process`]. Does not return once it has begun.
///
/// # Errors
/// The step that failed, in words.
pub fn run() -> Result<(), Box<dyn Error>> {
    // A Ctrl-C for the session server's process group must not end the process, and its working
    // directory must not keep a file system from being unmounted.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let control = std::io::stdin().as_fd().try_clone_to_owned()?;
    // Asked before files of the system cannot be read any more.
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    let variables: Vec<Vec<u8>> = std::env::vars_os()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect();
    let files = getrlimit(Resource::Nofile);
    // As many sessions as the descriptors allow that it may have; fewer if it may not have more.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    confine()?;
    library().stop_opening_files();
    library().keep_environment(variables.iter().map(Vec::as_slice));
    library().prepare();
    let server = Protocol::start()?;
    let endpoint = Endpoint::unnamed(Protocol::options())?;
    let service = ProtocolService::<Protocol>::new(Arc::clone(&server));
    for _ in 0..threads.min(THREADS_MAX) {
        let (mut thread, mut service) = (endpoint.server(), service.clone());
        let serve = move || service.serve(&mut thread, Deadline::NEVER);
        std::thread::Builder::new().name("serving".into()).spawn(serve)?;
    }
    take_clients(&control, &endpoint, &server);
    server.finish();
    std::process::exit(0)
}

/// Takes in clients, until there have been none for a while.
fn take_clients(control: &OwnedFd, endpoint: &Endpoint, server: &Protocol) {
    let mut is_open = true;
    let mut last = Instant::now();
    loop {
        if is_open {
            await_readable(control);
        } else {
            std::thread::sleep(IDLE);
        }
        loop {
            match receive(control) {
                ControlMessage::Client(socket) => {
                    // A connection that cannot be watched is closed, and its client told so by
                    // that.
                    let _ = endpoint.adopt(socket);
                    last = Instant::now();
                }
                ControlMessage::Nothing => break,
                ControlMessage::End => {
                    is_open = false;
                    break;
                }
            }
        }
        if server.clients() > 0 || last.elapsed() < IDLE {
            continue;
        }
        if !is_open {
            return;
        }
        // From here on the session server's next connection goes to another process. Those that it
        // has sent already are read in the next round.
        let _ = shutdown(control, Shutdown::Read);
    }
}

fn await_readable(control: &OwnedFd) {
    let limit = Timespec { tv_sec: IDLE.as_secs().cast_signed(), tv_nsec: 0 };
    // The next read finds an error.
    let _ = poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&limit));
}

fn receive(control: &OwnedFd) -> ControlMessage {
    match ancillary::receive(control.as_fd(), &mut [0]) {
        Err(Errno::AGAIN | Errno::INTR) => ControlMessage::Nothing,
        Ok(Arrived { len: 1.., fds, .. }) => {
            fds.into_iter().next().map_or(ControlMessage::Nothing, ControlMessage::Client)
        }
        _ => ControlMessage::End,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use rustix::io::IoSlice;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use sojourn_ipc::{Address, Wait};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn hand(control: &OwnedFd, socket: &OwnedFd) -> Result<(), Errno> {
        ancillary::send(control, &[IoSlice::new(&[0])], &[socket.as_fd()])
    }

    #[test]
    fn a_connection_that_was_sent_before_the_end_is_served_and_none_after() {
        let server = Protocol::start().unwrap();
        let endpoint = Endpoint::unnamed(Protocol::options()).unwrap();
        let service = ProtocolService::<Protocol>::new(Arc::clone(&server));
        let (mut thread, mut serving) = (endpoint.server(), service.clone());
        std::thread::spawn(move || serving.serve(&mut thread, Deadline::NEVER));
        let (control, theirs) = pair();
        // As if the process had just decided to end.
        shutdown(&theirs, Shutdown::Read).unwrap();
        assert_eq!(hand(&control, &pair().0), Err(Errno::PIPE));
        let (control, theirs) = pair();
        let (client, accepted) = pair();
        hand(&control, &accepted).unwrap();
        drop((accepted, control));
        std::thread::scope(|threads| {
            let ended = threads.spawn(|| take_clients(&theirs, &endpoint, &server));
            let client = Client::connect(Address::Descriptor(client), Wait::Park).unwrap();
            std::thread::sleep(2 * IDLE);
            assert!(!ended.is_finished(), "it has a client");
            drop(client);
            let until = Instant::now() + 5 * IDLE;
            while !ended.is_finished() {
                assert!(Instant::now() < until, "nobody needs it");
                std::thread::sleep(Duration::from_millis(50));
            }
        });
    }
}

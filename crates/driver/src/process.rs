//! The process: where its clients and their packet sockets come from.
//!
//! Started by a session server it has a control socket as standard input, over which each client
//! comes together with its packet socket ([`serve_handed`]). Started by hand it listens, and opens
//! a packet socket for each client itself ([`serve_interface`]). Not here: what a client gets
//! (`served_client`).

use crate::confine::{Rights, confine};
use crate::served_client::{ServedClient, Serving};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use sojourn_ipc::ancillary::{self, Arrived};
use sojourn_ipc::{Address, Listener};
use sojourn_netif::{Message, PacketOptions, packet};
use std::error::Error;
use std::thread::JoinHandle;
use std::time::Duration;

/// The most clients at a time: each has three threads.
const CLIENTS_MAX: usize = 256;
/// The pause of accepting when descriptors have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// The clients that are served.
#[derive(Default)]
struct Clients(Vec<JoinHandle<()>>);

impl Clients {
    /// Serves one more. One that cannot be served sees its connection end.
    fn serve(&mut self, packets: OwnedFd, client: OwnedFd, serving: Serving) {
        self.0.retain(|one| !one.is_finished());
        if self.0.len() >= CLIENTS_MAX {
            eprintln!("sojourn-driver: a client is refused: there are {CLIENTS_MAX}");
            return;
        }
        let run = move || match ServedClient::new(packets, client, serving) {
            Ok(served) => served.run(),
            Err(error) => eprintln!("sojourn-driver: a client is not served: {error}"),
        };
        let thread = std::thread::Builder::new().name("frames".into());
        self.0.extend(thread.spawn(run));
    }
}

/// Serves the clients that come over `control`, each as a packet socket and a connection, until the
/// control socket ends and the last client has gone. No right is left to the process.
///
/// # Errors
/// The step that failed.
pub fn serve_handed(control: &OwnedFd, serving: Serving) -> Result<(), Box<dyn Error>> {
    // A Ctrl-C for the session server's process group must not end the process, and its working
    // directory must not keep a file system from being unmounted.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    confine(Rights::None)?;
    let mut clients = Clients::default();
    loop {
        // The read that follows finds an error.
        let _ = poll(&mut [PollFd::new(control, PollFlags::IN)], None);
        match ancillary::receive(control.as_fd(), &mut [0]) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(Arrived { len: 1.., fds, .. }) => {
                if let Ok([packets, client]) = <[OwnedFd; 2]>::try_from(fds) {
                    clients.serve(packets, client, serving);
                }
            }
            _ => break,
        }
    }
    // Sessions go on without the session server.
    clients.0.into_iter().for_each(|one| drop(one.join()));
    Ok(())
}

/// Listens at `address`, which only this user may connect to, and serves each client with a packet
/// socket on the interface called `name`. Calls `ready` once clients can connect. `CAP_NET_RAW` is
/// kept.
///
/// # Errors
/// The step that failed.
pub fn serve_interface(
    name: &str,
    address: Address,
    serving: Serving,
    ready: impl FnOnce(),
) -> Result<(), Box<dyn Error>> {
    // Tells at once what would fail for every client.
    drop(Message::open(name, &PacketOptions::default())?);
    // A client gets every frame of the interface, so only this user may connect (mode 0600).
    let before = rustix::process::umask(rustix::fs::Mode::from_bits_retain(0o177));
    let listener = Listener::bind(address);
    rustix::process::umask(before);
    let listener = listener?;
    confine(Rights::Packets)?;
    ready();
    let mut clients = Clients::default();
    loop {
        let _ = poll(&mut [PollFd::new(&listener, PollFlags::IN)], None);
        match accept_with(&listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(client) => match open(name) {
                Ok(packets) => clients.serve(packets, client, serving),
                Err(error) => eprintln!("sojourn-driver: {name}: {error}"),
            },
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            // Clients wait in the backlog until some descriptors are free.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn open(name: &str) -> Result<OwnedFd, sojourn_netif::OpenError> {
    let packets = packet::open(&PacketOptions::default())?;
    packet::bind(packets.as_fd(), packet::index_of(packets.as_fd(), name)?)?;
    Ok(packets)
}

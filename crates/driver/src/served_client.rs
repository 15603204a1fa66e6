//! One client with one packet socket, served by an endpoint of its own.
//!
//! It has a thread for the client's calls, and the one that calls [`ServedClient::run`], which
//! sleeps for frames. It ends with its client: the second thread sees the connection's hang-up,
//! before the greeting as well as after it. Not here: where clients and packet sockets come from
//! (`process`).

use crate::server::Driver;
use crate::stubs::server::{DeviceService, device_server_options};
use crate::way::FrameWay;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use sojourn_ipc::{BindError, Deadline, Endpoint, ServerOptions, Wait};
use sojourn_netif::{Message, OpenError};
use std::sync::Arc;

/// How a client is served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serving {
    /// The way of frames.
    pub way: FrameWay,
    /// How the thread for the client's calls waits.
    pub wait: Wait,
}

/// The reason why a client is not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The descriptor is no packet socket that can be used.
    #[error(transparent)]
    Packets(#[from] OpenError),
    /// There is no room for the endpoint.
    #[error(transparent)]
    Endpoint(#[from] BindError),
    /// The kernel refused.
    #[error("a client: {0}")]
    System(#[from] Errno),
}

/// A client and its packet socket.
pub struct ServedClient {
    driver: Arc<Driver>,
    endpoint: Endpoint,
    /// A duplicate of the client's connection, for its hang-up.
    client: OwnedFd,
    serving: Serving,
}

impl core::fmt::Debug for ServedClient {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ServedClient").field("serving", &self.serving).finish_non_exhaustive()
    }
}

impl ServedClient {
    /// Begins to serve a client. `packets`: a bound packet socket without a ring; `client`: the
    /// driver's end of a connection, on which nothing has been said yet.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn new(packets: OwnedFd, client: OwnedFd, serving: Serving) -> Result<Self, ServeError> {
        let driver = Arc::new(Driver::new(Message::from_descriptor(packets)?, serving.way)?);
        let options =
            ServerOptions { max_clients: 1, wait: serving.wait, ..device_server_options() };
        let endpoint = Endpoint::unnamed(options)?;
        let (mut thread, mut service) =
            (endpoint.server(), DeviceService::<Driver>::new(Arc::clone(&driver)));
        let serve = move || {
            // Ends with the endpoint.
            let _ = service.serve(&mut thread, Deadline::NEVER);
        };
        let spawned = std::thread::Builder::new().name("serving".into()).spawn(serve);
        spawned.map_err(|_| Errno::AGAIN)?;
        let watched = rustix::io::fcntl_dupfd_cloexec(&client, 0)?;
        endpoint.adopt(client)?;
        Ok(Self { driver, endpoint, client: watched, serving })
    }

    /// Hands frames to the client until it has gone.
    pub fn run(self) {
        let Ok([wake, packets]) = self.driver.descriptors() else { return };
        let mut watches = self.driver.look(false);
        loop {
            // A call that waits is what frames are awaited for; errors show in any case.
            let events = if watches { PollFlags::IN } else { PollFlags::empty() };
            let mut polled = [
                PollFd::new(&wake, PollFlags::IN),
                PollFd::new(&packets, events),
                PollFd::new(&self.client, PollFlags::empty()),
            ];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
            if !polled[2].revents().is_empty() {
                break;
            }
            let has_failed = polled[1].revents().contains(PollFlags::ERR);
            watches = self.driver.look(has_failed);
        }
        drop(self.endpoint);
    }
}

//! UDP as a service over Sojourn IPC: the server of Maeda and Bershad (1992), small enough to be
//! read whole, and its clients.
//!
//! A program calls [`Socket`] (in C `sojourn/udp.h`), stubs turn the call into a message, and
//! [`Udp`], in the program `sojourn-udpd`, answers it. The server copies a datagram for another of
//! its clients from the sender's message into the receiver's; other datagrams go through a raw
//! socket. Not here: the interface (`idl/udp.idl`), the transport (`sojourn-ipc`), formats
//! (`sojourn-wire`); IPv6, multicast and socket options, which the server does not have. Read
//! `docs/understand/udp-server.md` first, then `inbox`, `server`, `network`, `client`.

mod c;
mod client;
mod echo;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod inbox;
mod network;
mod packet;
mod port;
mod server;
mod stubs;

pub use client::{Error, Received, Socket};
pub use echo::Echoes;
pub use port::{Handler, Port};
pub use server::Udp;
pub use sojourn_ipc::{Address, Deadline, Wait};
pub use stubs::client::DATA_MAX;
pub use stubs::server::{UdpService, udp_server_options};

/// The address of the system's server.
pub const SYSTEM: &str = "/run/sojourn/udp";

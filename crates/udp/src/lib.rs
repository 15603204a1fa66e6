//! UDP as a service in Sojourn IPC: the server of Maeda and Bershad (1992), small enough to be read
//! whole, and its clients.
//!
//! A program calls [`Socket`] (in C `sojourn/udp.h`), stubs turn that into messages, and [`Udp`],
//! in the program `sojourn-udpd`, answers them: a datagram for another of its clients it copies
//! from the sender's message into the receiver's, one for or from elsewhere goes through a raw
//! socket.
//! Not here: the interface (`idl/udp.idl`), how messages travel (`sojourn-ipc`), formats
//! (`sojourn-wire`); IPv6, multicast and options of sockets, which the server has not. Read
//! `docs/understand/udp-server.md` first, then `inbox`, `server`, `network`, `client`.

mod c;
mod client;
mod inbox;
mod network;
mod packet;
mod port;
mod server;
mod stubs;

pub use client::{Error, Received, Socket};
pub use port::{Handler, Port};
pub use server::Udp;
pub use sojourn_ipc::{Address, Deadline, Wait};
pub use stubs::client::DATA_MAX;
pub use stubs::server::{UdpService, udp_server_options};

/// Where the server of the whole system is.
pub const SYSTEM: &str = "/run/sojourn/udp";

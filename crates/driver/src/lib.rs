//! A network device in another process: the driver, which holds the device, and its client, which
//! is a packet interface ([`sojourn_netif::Interface`]).
//!
//! A process without any right gets a connection to `sojourn-driver` in place of a packet socket.
//! Frames then travel by calls of Sojourn IPC, through the stubs of `idl/device.idl`: in the
//! message, or in memory of their own that the receiver maps for each message. These are the ways
//! of *Networking Performance for Microkernels* (1992) that its authors found slow, kept so that a
//! process can use a device that is elsewhere, and so that their price can be measured.
//!
//! Read `docs/understand/driver.md` first, then `client`, `server`, `served_client`. Not here:
//! packet sockets (`sojourn_netif`), and whose frames a packet socket gets (`sojourn-filter`).

mod client;
#[cfg(feature = "server")]
pub mod confine;
#[cfg(all(feature = "server", any(debug_assertions, fuzzing)))]
#[doc(hidden)]
pub mod fuzz;
mod hand;
#[cfg(feature = "server")]
pub mod process;
mod sealed;
#[cfg(feature = "server")]
mod served_client;
#[cfg(feature = "server")]
mod server;
mod status;
mod stubs;
mod way;

pub use client::{ConnectError, DriverInterface};
pub use hand::{PROGRAM, control, hand};
#[cfg(feature = "server")]
pub use served_client::{ServeError, ServedClient, Serving};
pub use sojourn_ipc::{Address, Wait};
pub use way::FrameWay;

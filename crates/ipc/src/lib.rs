//! Synchronous calls between address spaces, in the manner of L4, for Linux.
//!
//! A server makes an [`Endpoint`]; clients make a [`Connection`] to it over a Unix socket that
//! stays as the control channel. From then on a message is one or two cache lines in a sealed
//! region that the two share: a client builds a [`Draft`] and [calls](Draft::call), the server
//! [receives](Server::recv) it, and [answers and waits](Server::reply_wait) in one operation. While
//! both spin there is no system call; a side that sleeps is woken only if it announced its sleep.
//!
//! Not here: an interface language (`sojourn-idl`, whose stubs use [`rt`]), the C interface
//! (`sojourn-ipc-c`), networking, and trust: each side copies and checks the peer's values before
//! it uses them. Read `docs/understand/ipc.md` first.
//!
//! ```
//! use sojourn_ipc::{Address, Connection, Deadline, Endpoint, Event, ServerOptions};
//!
//! let name = format!("sojourn-doc-{}", std::process::id());
//! let endpoint = Endpoint::bind(Address::abstract_name(&name), ServerOptions::default())?;
//! let mut server = endpoint.server();
//! let serving = std::thread::spawn(move || {
//!     let mut reply = None;
//!     while let Ok(event) = server.reply_wait(reply.take(), Deadline::NEVER) {
//!         if let Event::Call(request) = event {
//!             let sum: u8 = request.body().iter().sum();
//!             let mut draft = request.into_token().start(1);
//!             draft.encoder().put_bytes(&[sum])?;
//!             reply = Some(draft.finish());
//!         }
//!     }
//!     Ok::<_, sojourn_ipc::rt::EncodeError>(())
//! });
//! let mut connection = Connection::connect(Address::abstract_name(&name), &Default::default())?;
//! let mut draft = connection.start(7, 3);
//! draft.encoder().put_bytes(&[1, 2, 3])?;
//! assert_eq!(draft.call(Deadline::NEVER)?.body(), [6]);
//! drop((connection, endpoint));
//! # serving.join().ok().ok_or("server")??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![allow(unsafe_code, reason = "shared memory is what this crate is for")]

mod address;
pub mod ancillary;
mod apart;
mod connect;
mod connection;
mod control;
mod draft;
mod endpoint;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod grant;
mod greet;
mod guard;
mod lane;
mod layout;
mod link;
mod lock;
mod message;
mod options;
mod packets;
pub mod proxy;
#[doc(hidden)]
pub mod raw;
mod reply;
mod server;
mod shared;
pub mod shares;
mod stubs;
mod thread;

use sojourn_shm::{deadline, fault, wait};

pub use address::{Address, AddressError};
pub use ancillary::peer;
pub use apart::{ApartSocket, Ending, Parted, WakeServer};
pub use connect::{ConnectError, ConnectOptions};
pub use connection::replies::Reply;
pub use connection::{Connection, Pending};
pub use deadline::{Deadline, now_ns};
pub use draft::Draft;
pub use endpoint::{BindError, Endpoint, Listener};
pub use grant::{KEEP, Memory, WRITE};
pub use layout::INLINE_MAX;
pub use options::ServerOptions;
pub use reply::{ReadyReply, ReplyDraft, ReplyToken};
pub use rt::{
    Badge, CallError, ClientId, Credentials, FDS_MAX, Fault, GRANTS_MAX, Gone, Grant, GrantId,
    ITEMS_MAX, Reason,
};
pub use server::Server;
pub use server::event::{Event, RecvError};
pub use server::request::{KeptGrant, Request};
pub use sojourn_ipc_rt as rt;
pub use sojourn_shm::{Access, Span};
pub use wait::{Wait, sleep_cost_ns};

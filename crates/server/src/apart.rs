//! A server of several processes, each with only the rights that its part of the work takes.
//!
//! # Theory of operation
//! Root's server for everybody (`sojournd --system`) is these processes, all of one program:
//!
//! * the **parent** binds the socket, starts the others and hears their beats (`parent`). It parses
//!   nothing, and has the rights that the others get;
//! * the **front** speaks with clients and pairs their sessions (`front`). It parses what clients
//!   send, is a user of its own, and has no capability;
//! * the **prober** counts holders and pins pipes (`probe`). It parses `/proc`, and may look into
//!   all processes;
//! * the **carrier** has the sessions with other hosts (`carry`). It parses what networks say, and
//!   has the rights over them;
//! * a **proxy** for each user looks at what that user's programs send (`crate::proxy`);
//! * the **keeper** outlives the others (`sojourn_carrier::keep`).
//!
//! Front, prober and carrier are one **generation**. When one of them ends, or makes no progress,
//! the parent ends the others and starts the next generation on the same listening socket. To
//! programs that is the death of a server and the beginning of the next one: their sessions go on,
//! and they register anew (`docs/understand/server.md`). When the parent ends, all others but the
//! keeper end with it.
//!
//! The processes know each other by sockets that the parent makes (`line`); none of these has a
//! name. Not here: a server of one process (`run`).

mod carry;
mod child;
mod desk;
mod front;
mod generation;
mod line;
mod parent;
mod probe;
mod spawner;
mod words;

pub use carry::carry;
pub use front::front;
pub use parent::run;
pub use probe::probe;
pub(crate) use spawner::Spawner;
pub use words::{CANNOT, CARRIER, FRONT, PROBER};

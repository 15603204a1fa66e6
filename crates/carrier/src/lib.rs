//! Takes sessions with other hosts out of their kernel sockets, delegates them to their programs,
//! and puts them back.
//!
//! A session that is away has its protocol state in the program's library (`sojourn_pump`), which
//! gets the session's packets by a packet socket of its own. The kernel socket stays connected, but
//! hears nothing any more. The session server runs the carrier on a thread or in a process of its
//! own, with the rights that it takes. Read `docs/understand/moves.md` first.
//!
//! Not here: the packet filter (`sojourn_filter`), and bytes and packets of sessions that are away
//! (`sojourn_pump`).

mod abandoned;
mod addresses;
mod admission;
mod adopt;
mod assistant;
mod assistants;
mod carrier;
mod clock;
mod commands;
mod conntrack;
mod datagrams;
mod export;
mod fd_name;
mod firewalls;
mod fragments;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod hasten;
mod import;
mod inboxes;
mod incoming;
mod joined;
mod keeping;
mod links;
pub mod metastate;
mod moves;
mod netlink;
mod next_hop;
mod paths;
mod plan;
mod program_socket;
mod quiesce;
mod raw;
mod repair;
mod replay;
mod reroute;
mod returned;
mod routers;
mod rules;
mod run;
mod session;
mod sessions;
mod sockets;
mod timers;
mod too_big;
mod tuning;
mod turns;
mod unexported;
mod unfiltered;
mod waiting;
mod work;

pub use carrier::Carrier;
pub use commands::{
    Command, CommandChannel, CommandReceiver, CommandSender, Commands, Offered, command_channel,
};
pub use export::{ExportError, export, release};
pub use import::{ImportError, finish, import};
pub use keeping::{
    ARGUMENT as KEEP, KeeperLocation, Start as StartKeeper, keep, start as start_keeper,
};
pub use run::StartError;
pub use sessions::{Adopted, HandOver, Look, MakeLook, Sessions};

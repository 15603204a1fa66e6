//! The identity of a descriptor: the server's own look at the ends that libraries offer.
//!
//! The server believes nothing that a library says about an end. A socket is named by its cookie
//! and its peer's cookie; the peer is found with `sock_diag` (TCP by the mirrored addresses, Unix
//! sockets by the peer's inode). Cookies are given out once in the life of a kernel, so a key
//! cannot come to mean another connection, as addresses can. A pipe is named here by its inode and
//! by which end it is; the kernel gives a number out again after four thousand million others, so
//! the server does not pair by it (`pins`).
//!
//! A pipe with a name (a FIFO) is as good as one without once its name is removed: nobody can open
//! one more end of it by a path. Before that it stays: docs/understand/streams.md, "FIFOs".
//!
//! Ends that could not be served away from the kernel are refused with their reason, listed in
//! [`identify`]. Not here: other holders of the end (`holders`), pairing (`registry`).

mod accepted_values;
mod addresses;
mod datagram;
mod diag;
mod fifo;
mod keys;
mod packets;
mod remote;
mod signed;
mod socket;
#[cfg(test)]
mod tests;

pub use datagram::of_datagrams;
pub use diag::Diag;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub use diag::fuzz_answers;
pub use fifo::is_fifo;
pub use packets::is_packets;

use crate::holders::Object;
use crate::key::Key;
use crate::notifier;
use crate::registry::Identity;
use rustix::fd::BorrowedFd;
use rustix::fs::OFlags;
use sojourn_session::{Inode, KindT, ReasonT};

/// Looks at an end.
///
/// # Errors
/// The reason why it cannot move: [`ReasonT::Kind`] (no stream socket and no pipe, MPTCP, both ends
/// in one descriptor), [`ReasonT::Named`] (a FIFO that still has a name), [`ReasonT::State`]
/// (listening, not connected, closing, not yet accepted), [`ReasonT::Option`], [`ReasonT::NoPeer`]
/// (the other end of a TCP connection is not in this network name space), [`ReasonT::Namespace`]
/// (an end in one that cannot be looked into), [`ReasonT::Resources`].
pub fn identify(end: BorrowedFd<'_>, diag: &mut Diag) -> Result<Identity, ReasonT> {
    // No call here makes a file system answer, except for the kind of a FIFO's: one in user space
    // may never do so.
    let flags = rustix::fs::fcntl_getfl(end).map_err(|_| ReasonT::Closed)?;
    if flags.contains(OFlags::PATH) {
        return Err(ReasonT::Kind);
    }
    if rustix::net::sockopt::socket_domain(end).is_ok() {
        let found = rustix::fs::fstat(end).map_err(|_| ReasonT::Closed)?;
        return socket::identify(end, Inode(found.st_ino), diag);
    }
    match notifier::name_of(end) {
        Some(name) if name.starts_with(b"pipe:[") => {
            let inode = Inode(rustix::fs::fstat(end).map_err(|_| ReasonT::Closed)?.st_ino);
            pipe(end, flags, |writes| Object::Pipe { inode, writes })
        }
        // The link of a pipe with a name is its path.
        Some(name) => {
            let fifo = fifo::at(end).ok_or(ReasonT::Kind)?;
            let inode = fifo.inode;
            let seen = pipe(end, flags, |writes| Object::Fifo { inode, writes })?;
            match fifo.is_nameless(&name) {
                false => Err(ReasonT::Named),
                true if fifo::Fifo::is_kernels(end) => Ok(seen),
                true => Err(ReasonT::Kind),
            }
        }
        None => Err(ReasonT::Kind),
    }
}

/// Returns the inode of a socket or pipe; 0 for anything else, and if it cannot be had.
pub fn inode(end: BorrowedFd<'_>) -> Inode {
    // As in `look`, nothing is asked of other objects.
    let is_ours = rustix::net::sockopt::socket_domain(end).is_ok()
        || notifier::name_of(end).is_some_and(|name| name.starts_with(b"pipe:["));
    let found = if is_ours { rustix::fs::fstat(end).ok() } else { None };
    let of_fifo = || fifo::at(end).map(|fifo| fifo.inode);
    found.map(|found| Inode(found.st_ino)).or_else(of_fifo).unwrap_or_default()
}

fn pipe(
    end: BorrowedFd<'_>,
    flags: OFlags,
    object: impl FnOnce(bool) -> Object,
) -> Result<Identity, ReasonT> {
    let writes = match flags & OFlags::RWMODE {
        OFlags::RDONLY => false,
        OFlags::WRONLY => true,
        // A FIFO, or a pipe through /proc, was opened for both directions.
        _ => return Err(ReasonT::Kind),
    };
    // In packet mode (`O_DIRECT`, pipe(2)) each write is a message, which a ring does not keep
    // apart.
    if flags.contains(OFlags::DIRECT) {
        return Err(ReasonT::Option);
    }
    let capacity = rustix::pipe::fcntl_getpipe_size(end).map_err(|_| ReasonT::Closed)?;
    let holds = [u32::try_from(capacity).unwrap_or(u32::MAX), 0];
    let object = object(writes);
    let (name, inode) = match object {
        Object::Fifo { inode, .. } => (format!("fifo:[{inode}]"), inode),
        Object::Pipe { inode, .. } | Object::Socket { inode } => (format!("pipe:[{inode}]"), inode),
    };
    // The inode is the pipe's own only while it is open; the server puts a lasting number in its
    // place (`pins`).
    let key = Key::Pipe { object: inode.0, writes };
    let kind = KindT::Pipe;
    Ok(Identity { key, kind, from: name.clone(), to: name, holds, object, pin: None })
}

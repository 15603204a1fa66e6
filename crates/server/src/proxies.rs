//! One proxy for each user who has clients: started when it is needed, given up when it is not, and
//! not started for ever.
//!
//! Not here: what a proxy does (`proxy`).

use crate::log::{self, Level};
use crate::proxy::{ARGUMENT, CARRIES, CLIENT};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use sojourn_ipc::proxy::{self, ClientSocket};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Processes of one user's at one time: the one in use, and those that have not ended. With more
/// the user is not served.
const OF_USER_MAX: usize = 5;
/// Users that are served at one time.
const USERS_MAX: usize = 1024;
/// Sockets of users who are not served, kept rather than closed: they may have things in their
/// queues.
const STRANDED_MAX: usize = 1024;

#[derive(Debug, Default)]
struct User {
    /// Of the proxy in use.
    control: Option<OwnedFd>,
    /// All that have not ended.
    children: Vec<Child>,
}

#[derive(Debug, Default)]
struct Users {
    by_uid: HashMap<u32, User>,
    stranded: Vec<OwnedFd>,
}

/// The proxies of a server.
#[derive(Debug, Default)]
pub(crate) struct Proxies {
    users: Mutex<Users>,
    carries: AtomicBool,
}

impl Proxies {
    fn lock(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are started from now on know that there is a carrier.
    pub(crate) fn carry(&self) {
        self.carries.store(true, Ordering::Relaxed);
    }

    /// Lets the proxies of users go who have no processes here: each ends with its last client.
    /// Whether any is about to end.
    pub(crate) fn keep(&self, has_clients: impl Fn(u32) -> bool) -> bool {
        let mut users = self.lock();
        users.by_uid.retain(|uid, user| {
            user.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            if !has_clients(*uid) {
                user.control = None;
            }
            user.control.is_some() || !user.children.is_empty()
        });
        users.by_uid.values().any(|user| user.control.is_none())
    }
}

impl User {
    fn start(&mut self, carries: bool) -> Result<(), Errno> {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if self.children.len() >= OF_USER_MAX {
            return Err(Errno::BUSY);
        }
        let (control, theirs) = pair()?;
        // That of this very program, whatever has been put in its place.
        let mut command = Command::new("/proc/self/exe");
        command.arg(ARGUMENT).args(carries.then_some(CARRIES)).env_clear();
        command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command
            .spawn()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        self.children.push(child);
        self.control = Some(control);
        Ok(())
    }

    /// Hands the proxy a share of the socket; our end of the line. An error: there is no such
    /// process.
    fn hand(&self, socket: &OwnedFd) -> Result<OwnedFd, Errno> {
        let control = self.control.as_ref().ok_or(Errno::PIPE)?;
        let (line, theirs) = pair()?;
        let fds = [socket.as_fd(), theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        beside.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(control, &[IoSlice::new(&[CLIENT])], &mut beside, flags)?;
        Ok(line)
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl proxy::Proxies for Proxies {
    fn share(&self, socket: OwnedFd, uid: u32) -> Option<ClientSocket> {
        let carries = self.carries.load(Ordering::Relaxed);
        let Users { by_uid, stranded } = &mut *self.lock();
        let is_known = by_uid.contains_key(&uid);
        let mut made = Err(Errno::BUSY);
        if is_known || by_uid.len() < USERS_MAX {
            let user = by_uid.entry(uid).or_default();
            made = user.hand(&socket).or_else(|_| {
                user.start(carries)?;
                user.hand(&socket)
            });
        }
        match made {
            Ok(line) => Some(ClientSocket::new(socket, line)),
            Err(error) => {
                log::say(Level::Warn, format_args!("user {uid} is not served: {error}"));
                let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
                if stranded.len() < STRANDED_MAX {
                    stranded.push(socket);
                }
                None
            }
        }
    }
}

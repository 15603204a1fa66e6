//! One proxy for each user who has clients: started when it is needed, given up when it is not, and
//! not started again and again.
//!
//! The parent starts them (`apart`). Not here: the work of a proxy (`proxy`).

use crate::apart::Spawner;
use crate::log::{self, Level};
use crate::proxy::CLIENT;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, IoSlice};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Uid;
use sojourn_ipc::ancillary;
use sojourn_ipc::proxy::{self, ClientSocket, ProxyState};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Processes of one user's at one time: the one in use, and those that have not ended. With more
/// the user is not served.
const OF_USER_MAX: usize = 5;
/// Users that are served at one time.
const USERS_MAX: usize = 1024;
/// The most sockets of users who are not served that are kept. Closing them could wait for the
/// objects in their queues.
const STRANDED_MAX: usize = 1024;

/// Bytes of what waits for a client that does not read, of which the kernel takes twice as many,
/// its own needs among them: some ten packets. The descriptors beside them count for the server's
/// user and against the server's limit of open files (`too_many_unix_fds`), and beyond that nobody
/// is sent any.
const UNREAD_MAX: usize = 4096;

/// A proxy in use: its control socket, and whether it still answers.
#[derive(Debug)]
struct Proxy {
    control: OwnedFd,
    state: ProxyState,
}

#[derive(Debug, Default)]
struct User {
    /// The proxy in use.
    proxy: Option<Proxy>,
    /// The processes of all proxies of the user that have not ended.
    processes: Vec<OwnedFd>,
}

#[derive(Debug, Default)]
struct Users {
    by_uid: HashMap<Uid, User>,
    stranded: Vec<OwnedFd>,
}

/// The proxies of a server.
#[derive(Debug)]
pub(crate) struct Proxies {
    users: Mutex<Users>,
    spawner: Spawner,
}

impl Proxies {
    /// Makes the set of proxies, which that spawner starts.
    pub(crate) fn new(spawner: Spawner) -> Self {
        Self { users: Mutex::default(), spawner }
    }

    fn lock(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up the proxies of users who have no clients here, whatever these have said. Returns
    /// true if one is about to end.
    pub(crate) fn keep(&self) -> bool {
        let mut users = self.lock();
        users.by_uid.retain(|_, user| {
            user.processes.retain(|process| !has_ended(process));
            user.proxy.take_if(|proxy| !proxy.state.has_clients());
            user.proxy.is_some() || !user.processes.is_empty()
        });
        users.by_uid.values().any(|user| user.proxy.is_none())
    }
}

/// The server's end of a line to a proxy.
struct ProxyLine {
    line: OwnedFd,
    proxy: ProxyState,
}

impl User {
    fn start(&mut self, spawner: &Spawner) -> Result<(), Errno> {
        self.processes.retain(|process| !has_ended(process));
        if self.processes.len() >= OF_USER_MAX {
            return Err(Errno::BUSY);
        }
        let [control, theirs] = pair()?;
        self.processes.push(spawner.spawn(&[theirs.as_fd()])?);
        self.proxy = Some(Proxy { control, state: ProxyState::default() });
        Ok(())
    }

    /// Hands the proxy a share of the socket; returns the server's end of the line. An error means
    /// that there is no such process, or that it does not answer any more.
    fn hand(&self, socket: &OwnedFd) -> Result<ProxyLine, Errno> {
        let answers = |proxy: &&Proxy| !proxy.state.is_lost();
        let proxy = self.proxy.as_ref().filter(answers).ok_or(Errno::PIPE)?;
        let [line, theirs] = pair()?;
        let fds = [socket.as_fd(), theirs.as_fd()];
        ancillary::send(&proxy.control, &[IoSlice::new(&[CLIENT])], &fds)?;
        Ok(ProxyLine { line, proxy: proxy.state.clone() })
    }
}

/// Returns true if a process has ended (pidfd_open(2): it is readable then).
fn has_ended(process: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)) != Ok(0)
}

/// Limits what waits for a client that does not read.
fn limit_unread(socket: &OwnedFd) {
    // It never fails for a size (socket(7)).
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(socket, UNREAD_MAX);
}

/// Makes a line; returns its ends.
fn pair() -> Result<[OwnedFd; 2], Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map(<[OwnedFd; 2]>::from)
}

impl proxy::Proxies for Proxies {
    fn share(&self, socket: OwnedFd, user: Uid) -> Option<ClientSocket> {
        limit_unread(&socket);
        let Users { by_uid, stranded } = &mut *self.lock();
        let is_known = by_uid.contains_key(&user);
        let mut made = Err(Errno::BUSY);
        if is_known || by_uid.len() < USERS_MAX {
            let proxy = by_uid.entry(user).or_default();
            // The user may have no proxy yet, or its proxy has ended or is lost.
            made = proxy.hand(&socket).or_else(|_| {
                proxy.start(&self.spawner)?;
                proxy.hand(&socket)
            });
        }
        match made {
            Ok(ProxyLine { line, proxy }) => Some(ClientSocket::new(socket, line, proxy)),
            Err(error) => {
                log::say(Level::Warn, format_args!("user {user} is not served: {error}"));
                let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
                if stranded.len() < STRANDED_MAX {
                    stranded.push(socket);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that never says hello, an administrator's for example, may stay for long. Each that
    /// the user's other clients do not outlive would take one more of the user's few processes.
    #[test]
    fn a_proxy_serves_its_user_until_the_last_client_has_gone() {
        let [line, _parent] = pair().unwrap();
        let proxies = Proxies::new(Spawner::new(line));
        let [control, proxy] = pair().unwrap();
        let own = rustix::process::getpid();
        let process = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty());
        let used = Proxy { control, state: ProxyState::default() };
        let user = User { proxy: Some(used), processes: vec![process.unwrap()] };
        proxies.lock().by_uid.insert(Uid::ROOT, user);
        let [ours, _client] = pair().unwrap();
        let client = proxy::Proxies::share(&proxies, ours, Uid::ROOT).unwrap();
        assert!(!proxies.keep(), "it is in use");
        let [ours, _other] = pair().unwrap();
        drop(proxy::Proxies::share(&proxies, ours, Uid::ROOT).unwrap());
        assert!(!proxies.keep(), "it is in use");
        drop(client);
        assert!(proxies.keep(), "it is about to end");
        assert!(is_closed(&proxy));
    }

    /// Returns true if the other end is closed, whatever it has sent.
    fn is_closed(end: &OwnedFd) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut set = [PollFd::new(end, PollFlags::empty())];
        poll(&mut set, Some(&now)) == Ok(1) && set[0].revents().contains(PollFlags::HUP)
    }

    /// All clients of a server that may have 524,288 open files (`systemd/sojournd.service`) are
    /// 4096, and a join has 8 descriptors.
    #[test]
    fn clients_that_do_not_read_keep_few_descriptors_under_way() {
        let [ours, _client] = pair().unwrap();
        limit_unread(&ours);
        let packet = [0; 40];
        let file = std::fs::File::open("/dev/null").unwrap();
        let fds = [file.as_fd(); 8];
        let send = || ancillary::send(&ours, &[IoSlice::new(&packet)], &fds);
        let sent = (0..1000).take_while(|_| send().is_ok()).count();
        assert!((4..=16).contains(&sent), "{sent}");
        assert_eq!(send(), Err(Errno::AGAIN));
    }
}

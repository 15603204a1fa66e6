//! The protocol servers (`sojourn-protocol`): one for each user that calls for one, started with
//! the user's first connection and again after its end.
//!
//! # Theory of operation
//! The session server listens at its own address and [`SUFFIX`], accepts, asks the kernel for the
//! user of the connection (`SO_PEERCRED`), and hands the connection to that user's process over a
//! control socket. It never reads from it. A process that ends because nobody needs it says so by
//! shutting the control socket down, and then serves the connections handed to it before. A
//! connection that cannot be handed over is shut down; it is closed only with this process, since
//! objects in its queue may not close in time (`proxies`).
//!
//! The process is the server's own: so its packets are its own too, and its sessions are shown as
//! those of the user whom it serves. Not here: the process itself (the package `sojourn-protocol`).
//! Read `docs/understand/protocol-server.md`.

use crate::log::{self, Level};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, chmod};
use rustix::io::{Errno, IoSlice};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    shutdown, socket_with, socketpair, sockopt,
};
use rustix::process::{Pid, PidfdFlags, Uid, pidfd_open};
use sojourn_ipc::ancillary;
use sojourn_session::ProcessId;
use sojourn_session::protocol::SUFFIX;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The program, in the folder of this one.
pub(crate) const PROGRAM: &str = "sojourn-protocol";
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 256;
/// Processes of one user at one time: the one in use, and those that have clients still.
const OF_USER_MAX: usize = 4;
/// Processes in all.
const ALL_MAX: usize = 256;
/// The most connections that are kept because they could not be handed over.
const STRANDED_MAX: usize = 1024;
/// The least time between two starts for one user: a process that ends at once is not started again
/// and again.
const PACE: Duration = Duration::from_secs(1);
/// The pause of accepting when descriptors have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// A process that runs.
#[derive(Debug)]
struct Running {
    uid: Uid,
    child: Child,
    /// Readable when the process has ended.
    process: OwnedFd,
    /// `None` once it takes no more connections.
    control: Option<OwnedFd>,
    since: Instant,
}

/// The protocol servers of a session server.
#[derive(Debug)]
pub(crate) struct Protocols {
    program: PathBuf,
    /// The session server's own address.
    server: PathBuf,
    running: Mutex<Vec<Running>>,
}

/// The listening socket's file, which is removed with this.
#[derive(Debug)]
pub(crate) struct Listening(PathBuf);

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Tells if a user's programs may use the server; `None` once there is no server.
type Serves = Box<dyn Fn(Uid) -> Option<bool> + Send>;

/// The protocol servers, and where their clients connect.
pub(crate) struct Beside {
    pub(crate) protocols: Arc<Protocols>,
    pub(crate) listener: OwnedFd,
    /// The file of the listening socket.
    pub(crate) file: Listening,
}

/// Listens for the clients of protocol servers, beside the session server's own socket. They are
/// served from [`Protocols::start`] on. Only the server's own user may connect.
///
/// # Errors
/// The missing thing, for people.
pub(crate) fn listen_beside(server: &Path) -> Result<Beside, String> {
    let own = std::fs::read_link("/proc/self/exe").map_err(|error| error.to_string())?;
    let program = own.with_file_name(PROGRAM);
    if !program.exists() {
        return Err(format!("{} is not there", program.display()));
    }
    let mut path = server.as_os_str().to_owned();
    path.push(SUFFIX);
    let path = PathBuf::from(path);
    let listener = listen_at(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let protocols = Protocols { program, server: server.to_owned(), running: Mutex::default() };
    Ok(Beside { protocols: Arc::new(protocols), listener, file: Listening(path) })
}

fn listen_at(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // A file that is there was an earlier server's: this one has the lock of the place.
    let _ = std::fs::remove_file(path);
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Nobody can connect before it listens.
    chmod(path, Mode::RUSR | Mode::WUSR)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

impl Protocols {
    fn lock(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the user whom the process of that number serves, if it is one of these. The number
    /// is the process's own until it is reaped, which happens under the same lock.
    pub(crate) fn user_of(&self, pid: ProcessId) -> Option<Uid> {
        self.lock().iter().find(|one| one.child.id() == pid.0).map(|one| one.uid)
    }

    /// Starts the thread that hands connections over, for as long as the session server lives.
    ///
    /// # Errors
    /// There is no room for a thread.
    pub(crate) fn start(self: Arc<Self>, listener: OwnedFd, serves: Serves) -> Result<(), String> {
        let thread = std::thread::Builder::new().name("sojourn-servers".into());
        let run = move || self.run(&listener, &serves);
        thread.spawn(run).map(drop).map_err(|error| error.to_string())
    }

    fn run(&self, listener: &OwnedFd, serves: &Serves) {
        let mut stranded = Vec::new();
        loop {
            self.sleep(listener);
            self.reap();
            if serves(Uid::ROOT).is_none() {
                return;
            }
            loop {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                match accept_with(listener, flags) {
                    Ok(client) => self.take(serves, client, &mut stranded),
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(Errno::AGAIN) => break,
                    // Clients wait in the backlog until some descriptors are free.
                    Err(_) => {
                        std::thread::sleep(PAUSE);
                        break;
                    }
                }
            }
        }
    }

    /// Sleeps until a client comes or a process ends.
    fn sleep(&self, listener: &OwnedFd) {
        // Duplicates, so that nobody has to wait for the lock meanwhile.
        let duplicate = |one: &Running| one.process.try_clone().ok();
        let processes: Vec<OwnedFd> = self.lock().iter().filter_map(duplicate).collect();
        let all = std::iter::once(listener).chain(&processes);
        let mut polled: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        // An error is a reason to look.
        let _ = poll(&mut polled, None);
    }

    fn reap(&self) {
        self.lock().retain_mut(|one| match one.child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) if status.success() => false,
            ended => {
                let (uid, pid) = (one.uid.as_raw(), one.child.id());
                log::say(
                    Level::Warn,
                    format_args!("{PROGRAM} {pid} of user {uid} has died: {ended:?}"),
                );
                false
            }
        });
    }

    fn take(&self, serves: &Serves, client: OwnedFd, stranded: &mut Vec<OwnedFd>) {
        let handed = match sockopt::socket_peercred(&client) {
            Ok(who) if serves(who.uid) == Some(true) => self.hand(who.uid, &client),
            Ok(_) => Err(Errno::ACCESS),
            Err(error) => Err(error),
        };
        // The process has a duplicate now, so the close of this one is not the last.
        let Err(error) = handed else { return };
        log::say(Level::Warn, format_args!("a client of {PROGRAM} is not served: {error}"));
        let _ = shutdown(&client, Shutdown::Both);
        if stranded.len() < STRANDED_MAX {
            stranded.push(client);
        }
    }

    /// Hands a connection to the process of its user, which is started if need be.
    fn hand(&self, uid: Uid, client: &OwnedFd) -> Result<(), Errno> {
        let mut running = self.lock();
        let theirs = running.iter_mut().find(|one| one.uid == uid && one.control.is_some());
        if let Some(one) = theirs {
            match one.control.as_ref().map(|control| send(control, client)) {
                Some(Err(Errno::PIPE | Errno::CONNRESET)) => one.control = None,
                Some(done) => return done,
                None => {}
            }
        }
        let own = running.iter().filter(|one| one.uid == uid);
        let is_fast = own.clone().any(|one| one.since.elapsed() < PACE);
        if is_fast || own.count() >= OF_USER_MAX || running.len() >= ALL_MAX {
            return Err(Errno::BUSY);
        }
        let one = self.spawn(uid)?;
        let done = one.control.as_ref().map_or(Err(Errno::PIPE), |control| send(control, client));
        running.push(one);
        done
    }

    fn spawn(&self, uid: Uid) -> Result<Running, Errno> {
        let flags = SocketFlags::CLOEXEC;
        let (control, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut command = Command::new(&self.program);
        command.env_clear().env("SOJOURN_SERVER", &self.server);
        // A program that calls for the protocol server wants its sessions there, and at once.
        command.env("SOJOURN_MOVE_AFTER_CALLS", "1");
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        let spawned = command.spawn();
        let child =
            spawned.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        log::say(
            Level::Info,
            format_args!("{PROGRAM} {} serves user {}", child.id(), uid.as_raw()),
        );
        Ok(Running { uid, child, process, control: Some(control), since: Instant::now() })
    }
}

/// Sends a connection over a control socket.
fn send(control: &OwnedFd, client: &OwnedFd) -> Result<(), Errno> {
    ancillary::send(control, &[IoSlice::new(&[0])], &[client.as_fd()])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protocol servers that are another program.
    fn protocols(program: &str) -> Protocols {
        Protocols { program: program.into(), server: "/nowhere".into(), running: Mutex::default() }
    }

    fn client() -> OwnedFd {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap()
            .0
    }

    fn reaped(protocols: &Protocols) {
        let until = Instant::now() + Duration::from_secs(20);
        while !protocols.lock().is_empty() {
            assert!(Instant::now() < until, "not reaped");
            protocols.reap();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn each_user_has_a_process_of_its_own_and_it_is_known_by_its_number() {
        let protocols = protocols("/bin/cat");
        let [one, other] = [1, 2].map(Uid::from_raw);
        for user in [one, other, one] {
            protocols.hand(user, &client()).unwrap();
        }
        let numbers: Vec<_> =
            protocols.lock().iter().map(|one| ProcessId(one.child.id())).collect();
        assert_eq!(numbers.len(), 2);
        assert_eq!(
            numbers.iter().map(|pid| protocols.user_of(*pid)).collect::<Vec<_>>(),
            [Some(one), Some(other)]
        );
        assert_eq!(protocols.user_of(ProcessId::own()), None);
        protocols.lock().iter_mut().for_each(|one| drop(one.child.kill()));
        reaped(&protocols);
        assert_eq!(protocols.user_of(numbers[0]), None, "its number may be another's soon");
        protocols.hand(Uid::from_raw(1), &client()).unwrap();
        protocols.lock().iter_mut().for_each(|one| drop(one.child.kill()));
        reaped(&protocols);
    }

    #[test]
    fn a_process_that_takes_no_more_is_not_started_anew_at_once() {
        let protocols = protocols("/bin/cat");
        protocols.hand(Uid::from_raw(1), &client()).unwrap();
        // As if it had shut its side down.
        protocols.lock()[0].control = None;
        assert_eq!(protocols.hand(Uid::from_raw(1), &client()), Err(Errno::BUSY));
        assert_eq!(protocols.hand(Uid::from_raw(2), &client()), Ok(()), "another user");
        protocols.lock()[0].since -= PACE;
        assert_eq!(protocols.hand(Uid::from_raw(1), &client()), Ok(()));
        assert_eq!(protocols.lock().len(), 3);
        protocols.lock().iter_mut().for_each(|one| drop(one.child.kill()));
        reaped(&protocols);
    }

    #[test]
    fn without_the_program_nobody_is_served_and_nothing_breaks() {
        let protocols = protocols("/nowhere/at/all");
        assert_eq!(protocols.hand(Uid::from_raw(1), &client()), Err(Errno::NOENT));
        assert!(protocols.lock().is_empty());
    }
}

//! A program that holds its socket's lock while its session moves: it keeps itself waiting, and
//! nobody else. One that disconnects its socket has no more of the addresses.
//!
//! The program is an ordinary user's, with a port. Its socket is written to from a page that never
//! comes, by a process of the test's own that has taken the socket from it and has closed it since:
//! a program does the same in its own name with userfaultfd(2) or a file system in user space. The
//! kernel's lock is the same, and so is what the carrier would wait for. Not here: the assistants
//! that wait in the carrier's place (`crates/carrier/src/assistants.rs`). Needs root, network
//! namespaces and userfaultfd; skipped with a message otherwise.

#![allow(unsafe_code, reason = "a descriptor of another process")]
#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect_unspec, socket_with, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use sojourn_lab::net::{End, Link};
use sojourn_lab::{Mode, Running, Sandbox, hold};
use sojourn_system::network::{hosts, next_port};
use sojourn_system::{Admin, LIMIT, rights};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for what takes no part in the attack.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a move of another user's session may take meanwhile.
const MOVE_LIMIT: Duration = Duration::from_secs(2);
/// The process whose socket is to be held, for the process that holds it.
const VICTIM: &str = "HOLD_SOCKET_OF";

/// Repeats `ask` until it returns an answer.
#[track_caller]
fn wait_for<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns a duplicate of that process's connected TCP socket.
fn socket_of(pid: u32) -> OwnedFd {
    let process = pidfd_open(Pid::from_raw(pid as i32).unwrap(), PidfdFlags::empty()).unwrap();
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let numbers = files.filter_map(|file| file.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers {
        // SAFETY: the kernel takes the number for the other process's.
        let theirs = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        let Ok(own) = pidfd_getfd(&process, theirs.as_raw_fd(), PidfdGetfdFlags::empty()) else {
            continue;
        };
        let is_tcp = rustix::net::sockopt::socket_type(&own) == Ok(rustix::net::SocketType::STREAM)
            && rustix::net::sockopt::socket_domain(&own) == Ok(rustix::net::AddressFamily::INET);
        if is_tcp && matches!(rustix::net::getpeername(&own), Ok(Some(_))) {
            return own;
        }
    }
    panic!("process {pid} has no connection");
}

/// In a process of its own: holds the lock of a socket until it is killed.
#[test]
fn holding() {
    let Ok(pid) = std::env::var(VICTIM) else { return };
    let socket = socket_of(pid.parse().unwrap());
    let number = socket.as_raw_fd();
    let is_held = hold::hold(hold::faults().unwrap(), socket);
    // The write goes on without it, and nobody sees another holder.
    // SAFETY: the thread that writes looks at the number no more, and never ends.
    unsafe { rustix::io::close(number) };
    println!("held: {is_held}");
    loop {
        std::thread::park();
    }
}

/// The process that holds a socket's lock; it lets go when this is dropped.
struct Holder {
    child: Child,
    /// It says more after a while.
    _output: BufReader<ChildStdout>,
}

impl Holder {
    fn start(pid: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "holding", "--nocapture"]).env(VICTIM, pid.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let told = output.by_ref().lines().map_while(Result::ok).find(|it| it.contains("held: "));
        assert!(told.is_some_and(|line| line.ends_with("true")), "nothing is held");
        Self { child, _output: output }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with programs of two users, and their plain peers on another host.
struct World<'l> {
    link: &'l Link,
    sandbox: Sandbox,
    admin: Admin,
    carrier: u32,
}

/// A program under Sojourn, and its peer.
struct Session {
    program: Running,
    peer: Running,
}

impl<'l> World<'l> {
    fn new(link: &'l Link) -> Self {
        let mut sandbox = Sandbox::with_ports(link.host(End::A)).unwrap();
        sandbox.set("MOVE_AFTER_CALLS", "4");
        sandbox.set("MEASURE_BULK", "off");
        rights::open(&sandbox).unwrap();
        let admin = Admin::new(&sandbox).unwrap();
        let carrier = sandbox.server_part("carrier").unwrap();
        Self { link, sandbox, admin, carrier }
    }

    /// Starts a session of questions and answers; the hostile ones are another user's.
    fn start(&self, is_hostile: bool) -> Session {
        let address = format!("{}:{}", self.link.v4(End::A), next_port());
        let until = self.sandbox.folder().join(if is_hostile { "hostile" } else { "end" });
        let start = |mut command: Command, how: &str| {
            command.args([how, "tcp", &address, "--way", "blocking", "--rounds", "1"]);
            command.arg("--until").arg(&until);
            Running::start(command).unwrap()
        };
        let under = match is_hostile {
            true => rights::none(&self.sandbox, "lab-peer"),
            false => self.sandbox.command(Mode::Sojourn, self.sandbox.built().path("lab-peer")),
        };
        let mut plain = Command::new(self.sandbox.built().path("lab-peer"));
        self.link.host(End::B).place(&mut plain);
        Session { program: start(under, "serve"), peer: start(plain, "call") }
    }

    /// Waits until the program's session is away, in another stream than `before`.
    #[track_caller]
    fn await_away(&mut self, session: &Session, before: &[u64], limit: Duration) {
        let pid = session.program.pid();
        wait_for("a session that is away", limit, || {
            let away = self.admin.streams_of(&[pid]).unwrap();
            away.iter().any(|stream| !before.contains(stream)).then_some(())
        });
    }

    /// The session goes home and out again, soon.
    #[track_caller]
    fn moves(&mut self, session: &Session) {
        let before = self.admin.recall_of(&[session.program.pid()]).unwrap();
        assert!(!before.is_empty(), "it is not away");
        self.await_away(session, &before, MOVE_LIMIT);
    }

    /// Other sessions go on, move, and begin, by the same carrier.
    #[track_caller]
    fn assert_serves(&mut self, session: &Session) {
        for _ in 0..3 {
            self.moves(session);
        }
        let mut new = self.start(false);
        self.await_away(&new, &[], MOVE_LIMIT);
        self.moves(&new);
        let are_running = [new.program.is_running(), new.peer.is_running()];
        assert_eq!(are_running, [true; 2], "a session has ended");
        assert_eq!(self.sandbox.server_part("carrier"), Some(self.carrier), "another carrier");
    }

    /// The honest sessions end with every byte.
    fn finish(self, session: Session) {
        std::fs::write(self.sandbox.folder().join("end"), "").unwrap();
        for running in [session.program, session.peer] {
            let ended = running.finish(LIMIT).unwrap();
            assert_eq!(ended.status, 0, "{ended:?}");
        }
    }
}

/// What becomes of the hostile session whose lock is held while it is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    GoesHome,
    ProgramEnds,
}

fn can_hold() -> bool {
    hold::faults().is_some()
}

#[test]
fn who_holds_its_lock_while_it_is_away_goes_home_or_ends_holds_up_nobody_else() {
    let Some([a, b]) = hosts().filter(|_| can_hold()) else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for then in [Then::Nothing, Then::GoesHome, Then::ProgramEnds] {
        let mut world = World::new(&link);
        let honest = world.start(false);
        world.await_away(&honest, &[], PATIENCE);
        // More than the assistants that the user may have.
        let mut hostile: Vec<Session> = (0..6).map(|_| world.start(true)).collect();
        let mut holders = Vec::new();
        for session in &hostile {
            world.await_away(session, &[], PATIENCE);
            holders.push(Holder::start(session.program.pid()));
        }
        match then {
            Then::Nothing => {}
            Then::GoesHome => {
                let pids: Vec<u32> = hostile.iter().map(|one| one.program.pid()).collect();
                assert_eq!(world.admin.recall_of(&pids).unwrap().len(), pids.len());
            }
            Then::ProgramEnds => {
                for session in &mut hostile {
                    session.program.signal(rustix::process::Signal::KILL);
                }
            }
        }
        world.assert_serves(&honest);
        // Nothing was lost of those whose programs let go again.
        drop(holders);
        world.assert_serves(&honest);
        if then != Then::ProgramEnds {
            std::fs::write(world.sandbox.folder().join("hostile"), "").unwrap();
            for Session { program, peer } in hostile {
                for running in [program, peer] {
                    let ended = running.finish(LIMIT).unwrap();
                    assert_eq!(ended.status, 0, "{then:?}: {ended:?}");
                }
            }
        }
        world.finish(honest);
    }
}

/// At whatever step of its moves it does so.
#[test]
fn who_holds_its_lock_in_the_middle_of_a_move_holds_up_nobody_else() {
    let Some([a, b]) = hosts().filter(|_| can_hold()) else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut world = World::new(&link);
    let honest = world.start(false);
    world.await_away(&honest, &[], PATIENCE);
    for round in 0..12_u64 {
        let hostile = world.start(true);
        let pid = hostile.program.pid();
        wait_for("a connection", PATIENCE, || {
            let sockets = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
            let links = sockets.filter_map(|file| std::fs::read_link(file.path()).ok());
            (links.filter(|to| to.to_string_lossy().starts_with("socket:")).count() > 1)
                .then_some(())
        });
        // It moves all the time: the holder begins at some step.
        let _ = world.admin.recall_of(&[pid]);
        let moving = Instant::now() + Duration::from_millis(5 * round);
        while Instant::now() < moving {
            let _ = world.admin.recall_of(&[pid]);
        }
        let holder = Holder::start(pid);
        let _ = world.admin.recall_of(&[pid]);
        world.moves(&honest);
        world.moves(&honest);
        let new = world.start(false);
        world.await_away(&new, &[], MOVE_LIMIT);
        // A program whose lock is held cannot end.
        drop(holder);
        drop((hostile, new));
    }
    assert_eq!(world.sandbox.server_part("carrier"), Some(world.carrier), "another carrier");
    world.finish(honest);
}

/// A program that disconnects its socket past the library, while its session is away: the addresses
/// are anybody's from then on, and the kernel answers whoever connects to them. The program is
/// stopped: its library does nothing for that.
#[test]
fn who_gives_its_addresses_up_gets_no_more_packets_for_them() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut world = World::new(&link);
    let honest = world.start(false);
    world.await_away(&honest, &[], PATIENCE);
    for _ in 0..4 {
        let hostile = world.start(true);
        let pid = hostile.program.pid();
        wait_for("bytes past the kernel", PATIENCE, || {
            let away = world.admin.away().unwrap();
            away.iter().any(|session| session.pid == pid && session.sent > 100_000).then_some(())
        });
        hostile.program.signal(rustix::process::Signal::STOP);
        let socket = socket_of(pid);
        let to = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
        let from = rustix::net::getpeername(&socket).unwrap().unwrap().try_into().unwrap();
        connect_unspec(&socket).unwrap();
        // The kernel of the peer's host ends the connection.
        hostile.peer.signal(rustix::process::Signal::KILL);
        wait_for("an answer of the kernel's", PATIENCE, || {
            link.host(End::B).enter(|| is_answered(from, to)).unwrap().then_some(())
        });
    }
    world.assert_serves(&honest);
    world.finish(honest);
}

/// Returns true if somebody accepts or refuses a connection between these addresses, before a lost
/// segment would be sent for the fourth time.
fn is_answered(from: SocketAddr, to: SocketAddr) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    // The connection of before may still be there.
    let is_bound = rustix::net::bind(&socket, &from).is_ok();
    if !is_bound || rustix::net::connect(&socket, &to) != Err(rustix::io::Errno::INPROGRESS) {
        return false;
    }
    let limit = Timespec { tv_sec: 6, tv_nsec: 0 };
    poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&limit)) == Ok(1)
}

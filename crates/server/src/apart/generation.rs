//! One generation of the server's processes: started together, watched together, ended together.
//!
//! The parent reads one byte at a time from its children and passes descriptors on; it looks into
//! none of them. Not here: what follows from a child's end (`parent`), a child's side (`child`).

use super::child::BEAT_EVERY;
use super::line::{self, BEAT, BELONGINGS, LineMessage, READY, SPAWN, SPAWNED};
use super::words::{CARRIER, FRONT, PROBER};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The time after which a child that does not beat counts as lost.
const LATE: Duration = Duration::from_secs(30);
/// The most messages that are heard of one child before the others are heard.
const HEARD_MAX: usize = 64;

/// A part of the server that is a process of each generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Front,
    Prober,
    Carrier,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Front => FRONT,
            Self::Prober => PROBER,
            Self::Carrier => CARRIER,
        }
    }

    pub(super) fn name(self) -> &'static str {
        self.word().trim_start_matches('-')
    }
}

/// A process that is asked for: its standard input and output.
#[derive(Debug)]
pub(super) struct SpawnRequest {
    pub(super) by: Role,
    pub(super) fds: Vec<OwnedFd>,
}

/// One child.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) role: Role,
    pub(super) pid: Pid,
    process: OwnedFd,
    control: OwnedFd,
    /// The line over which the child asks for processes.
    spawns: Option<OwnedFd>,
    is_ready: bool,
    /// Its line has ended: it is ending, or has to.
    is_cut: bool,
    beat: Instant,
    /// Its status once it has ended.
    pub(super) ended: Option<ExitStatus>,
}

/// The children of one generation.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) children: Vec<Child>,
}

/// What every child of the parent is told.
#[derive(Debug)]
pub(super) struct Plan<'p> {
    pub(super) listener: BorrowedFd<'p>,
    /// The lock of the place. The front has it as long as it has the listening socket, which it may
    /// have for a moment longer than a parent that is killed.
    pub(super) lock: Option<BorrowedFd<'p>>,
    /// The server's address, for people.
    pub(super) text: &'p str,
    pub(super) has_carrier: bool,
    /// The words of the server's own command line.
    pub(super) words: &'p [OsString],
}

impl Generation {
    /// Starts the processes, and sends each what belongs to it.
    pub(super) fn start(plan: &Plan<'_>) -> io::Result<Self> {
        let mut children = Vec::new();
        let [front_asks, prober_asks] = line::pair()?;
        let [front_looks, prober_looks] = line::pair()?;
        let [front_opens, prober_opens] = line::pair()?;
        let [front_way, carrier_way] = line::pair()?;
        let [front_spawns, proxies] = line::pair()?;
        let [carrier_spawns, keepers] = line::pair()?;
        let mut front = Child::start(Role::Front, &OsString::from(plan.text), plan.words)?;
        front.spawns = Some(proxies);
        let probing = [&front_asks, &front_looks, &front_opens].map(AsFd::as_fd);
        let mut belongings = vec![plan.listener, front_spawns.as_fd()];
        belongings.extend(probing);
        if plan.has_carrier {
            belongings.push(front_way.as_fd());
        }
        // Last: a process that ends closes its descriptors in the order of their numbers.
        belongings.extend(plan.lock);
        front.give(&belongings)?;
        children.push(front);
        if plan.has_carrier {
            let mut carrier = Child::start(Role::Carrier, &OsString::from(plan.text), plan.words)?;
            carrier.spawns = Some(keepers);
            carrier.give(&[carrier_way.as_fd(), carrier_spawns.as_fd()])?;
            children.push(carrier);
        }
        let servers: Vec<_> =
            children.iter().map(|child| child.pid.as_raw_nonzero().to_string()).collect();
        let prober = Child::start(Role::Prober, &servers.join(",").into(), plan.words)?;
        prober.give(&[prober_asks.as_fd(), prober_looks.as_fd(), prober_opens.as_fd()])?;
        children.push(prober);
        Ok(Self { children })
    }

    /// Adds everything that has something to say. The ends of children come as a signal.
    pub(super) fn poll_into<'s>(&'s self, set: &mut Vec<PollFd<'s>>) {
        for child in self.living() {
            let control = (!child.is_cut).then_some(&child.control);
            let fds = [control, child.spawns.as_ref()];
            set.extend(fds.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN)));
        }
    }

    /// Hears all children. Returns the processes that they ask for.
    pub(super) fn hear(&mut self) -> Vec<SpawnRequest> {
        let mut asked = Vec::new();
        for child in self.children.iter_mut().filter(|child| child.ended.is_none()) {
            child.hear(&mut asked);
        }
        asked
    }

    /// Answers a child that has asked for a process.
    pub(super) fn answer(&mut self, to: Role, process: Option<&OwnedFd>) {
        let child = self.children.iter().find(|child| child.role == to);
        if let Some(spawns) = child.and_then(|child| child.spawns.as_ref()) {
            let fds: Vec<_> = process.into_iter().map(AsFd::as_fd).collect();
            let _ = line::tell(spawns, SPAWNED, &fds);
        }
    }

    fn living(&self) -> impl Iterator<Item = &Child> {
        self.children.iter().filter(|child| child.ended.is_none())
    }

    pub(super) fn child(&self, role: Role) -> Option<&Child> {
        self.children.iter().find(|child| child.role == role)
    }

    /// Returns true if all that is needed to serve is ready. The front is when the carrier is.
    pub(super) fn is_ready(&self) -> bool {
        let needed = [Role::Front, Role::Prober].map(|role| self.child(role));
        needed.iter().all(|child| child.is_some_and(|child| child.is_ready))
    }

    /// Returns the child that has not beaten for too long.
    pub(super) fn late(&self) -> Option<Role> {
        self.living().find(|child| child.beat.elapsed() > LATE).map(|child| child.role)
    }

    /// Returns true if all children have beaten lately.
    pub(super) fn is_healthy(&self) -> bool {
        self.living().all(|child| child.beat.elapsed() < 2 * BEAT_EVERY)
    }

    /// Notes the end of a child; returns its role if it is one of these.
    pub(super) fn note_end(&mut self, pid: Pid, status: ExitStatus) -> Option<Role> {
        let child = self.children.iter_mut().find(|child| child.pid == pid)?;
        child.ended = Some(status);
        Some(child.role)
    }

    pub(super) fn tell_front(&self, byte: u8) {
        if let Some(front) = self.child(Role::Front) {
            let _ = line::tell(&front.control, byte, &[]);
        }
    }

    /// Kills what is left of the generation. A process that the kernel does not let go of goes as
    /// soon as it can, and has nothing that the next generation needs.
    pub(super) fn kill(&self) {
        for child in self.living() {
            let _ = pidfd_send_signal(&child.process, Signal::KILL);
        }
    }

    /// Returns true if all children have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.living().next().is_none()
    }
}

impl Child {
    fn start(role: Role, argument: &OsString, words: &[OsString]) -> io::Result<Self> {
        let [control, theirs] = line::pair()?;
        // The file of this very program, even if another one has been put in its place (proc(5),
        // `/proc/pid/exe`).
        let mut command = Command::new("/proc/self/exe");
        command.arg(role.word()).arg(argument).args(words);
        // Only the parent speaks with the service manager.
        for name in ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"] {
            command.env_remove(name);
        }
        command.stdin(theirs).stdout(Stdio::null());
        let child = Pid::from_child(&command.spawn()?);
        let process = pidfd_open(child, PidfdFlags::empty())?;
        let (pid, beat) = (child, Instant::now());
        let (spawns, is_ready, is_cut, ended) = (None, false, false, None);
        Ok(Self { role, pid, process, control, spawns, is_ready, is_cut, beat, ended })
    }

    fn give(&self, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        Ok(line::tell(&self.control, BELONGINGS, fds)?)
    }

    fn hear(&mut self, asked: &mut Vec<SpawnRequest>) {
        // A child that never stops to say something is no reason not to hear the others.
        for _ in 0..HEARD_MAX {
            if self.is_cut {
                break;
            }
            match line::hear(&self.control) {
                LineMessage::Told(READY, _) => self.is_ready = true,
                LineMessage::Told(BEAT, _) => self.beat = Instant::now(),
                LineMessage::Told(..) => {}
                LineMessage::Nothing => break,
                LineMessage::Ended => {
                    // Where it is ending by itself this changes nothing, not even its status.
                    let _ = pidfd_send_signal(&self.process, Signal::KILL);
                    self.is_cut = true;
                    break;
                }
            }
        }
        let by = self.role;
        if let Some(spawns) = &self.spawns {
            match line::hear(spawns) {
                LineMessage::Told(SPAWN, fds) => asked.push(SpawnRequest { by, fds }),
                LineMessage::Told(..) | LineMessage::Nothing => {}
                LineMessage::Ended => self.spawns = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_says_something_without_end_is_heard_for_a_while() {
        let [control, theirs] = line::pair().unwrap();
        let pid = rustix::process::getpid();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let mut child = Child {
            role: Role::Front,
            pid,
            process,
            control,
            spawns: None,
            is_ready: false,
            is_cut: false,
            beat: Instant::now(),
            ended: None,
        };
        for _ in 0..2 * HEARD_MAX {
            line::tell(&theirs, READY, &[]).unwrap();
        }
        child.hear(&mut Vec::new());
        assert!(child.is_ready);
        assert!(matches!(line::hear(&child.control), LineMessage::Told(READY, _)), "some is left");
    }
}

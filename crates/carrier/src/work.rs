//! What assistants do with programs' sockets: everything for which the kernel takes a socket's
//! lock, and which may therefore never end.
//!
//! A piece of work is made and its result read by the carrier's thread; in between it belongs to
//! the thread of an assistant, which has no descriptors but those that came with it. So no work and
//! no result has a descriptor in it. Not here: the thread (`assistant`), the choice of it
//! (`assistants`), what the carrier makes of results (`moves::working`).

use crate::export::{Addresses, ExportError, addresses, export, has_filter, has_gap, release};
use crate::hasten::Nudge;
use crate::import::{ImportError, Room, finish, import};
use crate::plan::{UdpFacts, facts_of};
use crate::quiesce::wait_for_softirqs;
use crate::repair;
use crate::replay;
use crate::sessions::Look;
use crate::unexported::unexported;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketType, sockopt};
use sojourn_filter::{Failed, Key, attach_program, detach_program, release_rule};
use sojourn_proto::record::{Kind, SessionRecord, TcpTuning};
use sojourn_proto::tcp::Connection;
use sojourn_pump::sealed::{pack, pack_into};

/// How long the kernel may take to accept the bytes that a program has written.
const FLUSH_LIMIT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// A piece of work with one socket.
#[derive(Debug)]
pub(crate) enum Work {
    /// See what a program has offered.
    Inspect,
    /// See whether an inherited session is that of these addresses, if its record is there, and
    /// have segments reported that reach its socket. With the program that does this.
    Adopt(Option<Addresses>),
    /// Push a segment, or ask the peer for an acknowledgement.
    Nudge(Nudge),
    /// Read the session's state into a file. The socket keeps everything. With the file, and the
    /// program that reports segments from then on.
    Take(Box<TcpTuning>),
    /// Take out of the socket what the record has, and make another file if it changes by that.
    Release(Box<SessionRecord>),
    /// Put a session's state into the socket. With the map of rules by which its packets are given
    /// back, and the program that drops segments meanwhile.
    PutBack(Box<PutBack>),
    /// Give up a session that was never taken out.
    GiveUp(GiveUp),
    /// End the reports of segments.
    StopReports,
    /// Close the socket.
    Close,
}

impl Work {
    /// Returns true if the socket is closed after this work.
    pub(crate) fn closes(&self) -> bool {
        match self {
            Self::PutBack(_) | Self::GiveUp(_) | Self::StopReports | Self::Close => true,
            Self::Inspect | Self::Adopt(_) | Self::Nudge(_) | Self::Take(_) | Self::Release(_) => {
                false
            }
        }
    }
}

/// The state of a session on its way back.
#[derive(Debug)]
pub(crate) struct PutBack {
    pub(crate) record: SessionRecord,
    /// The peer's FIN has come right behind the record's last byte.
    pub(crate) has_ended: bool,
    /// The byte that was next when the session was taken out.
    pub(crate) taken_at: u32,
    /// Segments may come past the filter.
    pub(crate) is_bypassed: bool,
    /// The session's packets reach the socket already.
    pub(crate) is_rebuilt: bool,
    pub(crate) key: Key,
}

/// What is to be done for a session that was never taken out.
#[derive(Debug)]
pub(crate) struct GiveUp {
    /// Its packets were turned away meanwhile, so the peer is asked what it has.
    pub(crate) probes: bool,
    /// Its socket reports segments.
    pub(crate) reports: bool,
    /// Bytes that the program has written to the stream.
    pub(crate) left: Vec<u8>,
}

/// What an assistant has seen of an offered socket.
#[derive(Debug)]
pub(crate) struct Inspected {
    /// For the server.
    pub(crate) seen: Vec<u8>,
    pub(crate) facts: Facts,
}

/// What the carrier needs to know of an offered socket.
#[derive(Debug)]
pub(crate) enum Facts {
    Tcp {
        addresses: Option<Addresses>,
        /// The program has a filter on the socket.
        has_filter: bool,
    },
    Udp(Option<Box<UdpFacts>>),
}

/// What an assistant has seen of an inherited session's socket.
#[derive(Debug)]
pub(crate) struct Inherited {
    /// For the server.
    pub(crate) seen: Vec<u8>,
    /// A socket that was being put back has none.
    pub(crate) addresses: Option<Addresses>,
}

/// The reason why a session was not read out of its socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeOutError {
    #[error(transparent)]
    Unfiltered(#[from] Failed),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("the record cannot be passed on: {0}")]
    Seal(Errno),
}

/// The result of a piece of work.
#[derive(Debug)]
pub(crate) enum Done {
    Inspected(Box<Inspected>),
    /// `None` if the session is not that of the addresses, or has none.
    Adopted(Option<Box<Inherited>>),
    /// The record. A changed one goes beside the answer, in a file.
    Taken(Result<Box<SessionRecord>, TakeOutError>),
    PutBack(Result<(), ImportError>),
    GivenUp {
        /// The kernel has all bytes.
        is_whole: bool,
    },
    /// Nothing is to be told of the work.
    Over,
    /// The assistant has ended over it.
    Lost,
}

/// A result, and the descriptor beside it.
pub(crate) struct Finished {
    pub(crate) done: Done,
    pub(crate) file: Option<OwnedFd>,
}

impl From<Done> for Finished {
    fn from(done: Done) -> Self {
        Self { done, file: None }
    }
}

/// The tools of an assistant.
pub(crate) struct Tools<'t> {
    pub(crate) look: &'t mut Look,
    /// Has the carrier give the session's packets back to the kernel, and waits for that.
    pub(crate) hear: &'t mut dyn FnMut(),
}

/// Does a piece of work with a socket, with what it comes with.
pub(crate) fn act(
    work: Work,
    end: BorrowedFd<'_>,
    mut beside: Vec<OwnedFd>,
    tools: Tools<'_>,
) -> Finished {
    let Tools { look, hear } = tools;
    let program = beside.pop();
    match work {
        Work::Inspect => Done::Inspected(Box::new(inspect(end, look))).into(),
        Work::Adopt(expected) => Done::Adopted(adopt(end, program, expected, look)).into(),
        Work::Nudge(nudge) => {
            nudge.give(end);
            Done::Over.into()
        }
        Work::Take(tuning) => {
            let taken = match beside.pop() {
                Some(file) => take(end, program, file.as_fd(), &tuning).map(Box::new),
                None => Err(TakeOutError::Seal(Errno::BADF)),
            };
            Done::Taken(taken).into()
        }
        Work::Release(mut record) => match release(end, &mut record) {
            // Without another file the engine knows a little less of the window that the peer was
            // told.
            Ok(changed) => {
                let file = if changed { pack(&record).ok() } else { None };
                Finished { done: Done::Taken(Ok(record)), file }
            }
            Err(error) => Done::Taken(Err(error.into())).into(),
        },
        Work::PutBack(state) => {
            let filters = Filters { program, rules: beside.pop() };
            Done::PutBack(put_back(*state, end, filters, hear)).into()
        }
        Work::GiveUp(GiveUp { probes, reports, left }) => {
            if reports {
                detach_program(end);
            }
            if probes {
                // A socket that is not connected any more refuses this, and has been told.
                let _ = repair::probe(end);
            }
            Done::GivenUp { is_whole: flush(end, &left) }.into()
        }
        Work::StopReports => {
            detach_program(end);
            Done::Over.into()
        }
        Work::Close => Done::Over.into(),
    }
}

fn inspect(socket: BorrowedFd<'_>, look: &mut Look) -> Inspected {
    let seen = look(socket);
    if sockopt::socket_type(socket) == Ok(SocketType::DGRAM) {
        return Inspected { seen, facts: Facts::Udp(facts_of(socket).map(Box::new)) };
    }
    let (addresses, has_filter) = (addresses(socket).ok(), has_filter(socket));
    Inspected { seen, facts: Facts::Tcp { addresses, has_filter } }
}

/// Returns `None` if the socket is another session's.
fn adopt(
    socket: BorrowedFd<'_>,
    program: Option<OwnedFd>,
    expected: Option<Addresses>,
    look: &mut Look,
) -> Option<Box<Inherited>> {
    let addresses = addresses(socket).ok();
    // A socket that its program has taken for reset, or that was being put back, has no addresses
    // any more. Then those of the record find the rule.
    let known = addresses.or(expected)?;
    if expected.is_some_and(|expected| expected != known) {
        return None;
    }
    // A session whose socket reports nothing is put back as well, only later.
    let _ = report(socket, program);
    Some(Box::new(Inherited { seen: look(socket), addresses }))
}

/// Has segments of a session reported that reach its socket from now on.
fn report(socket: BorrowedFd<'_>, program: Option<OwnedFd>) -> Result<(), Failed> {
    let unloaded = || Failed {
        step: "reporting what comes past the filter",
        source: std::io::ErrorKind::NotFound.into(),
    };
    attach_program(socket, program.ok_or_else(unloaded)?.as_fd())
}

/// Reads the record of the socket, with the bytes that the program has not read, into a file.
fn take(
    socket: BorrowedFd<'_>,
    program: Option<OwnedFd>,
    file: BorrowedFd<'_>,
    tuning: &TcpTuning,
) -> Result<SessionRecord, TakeOutError> {
    // A segment that reaches the socket later is not in the record.
    report(socket, program)?;
    let read = || {
        if has_gap(socket) {
            return Err(ExportError::Busy("there is a gap").into());
        }
        let record = export(socket, tuning)?;
        Connection::check_import(&record).map_err(|_| ExportError::State)?;
        pack_into(&record, file).map_err(TakeOutError::Seal)?;
        Ok(record)
    };
    read().inspect_err(|_| detach_program(socket))
}

/// What keeps a session's packets from its socket.
struct Filters {
    /// The socket filter that drops everything.
    program: Option<OwnedFd>,
    /// The map of the packet filter's rules.
    rules: Option<OwnedFd>,
}

/// Puts a session back into its socket. The packets are the kernel's afterwards in any case.
fn put_back(
    state: PutBack,
    socket: BorrowedFd<'_>,
    filters: Filters,
    hear: &mut dyn FnMut(),
) -> Result<(), ImportError> {
    let PutBack { mut record, has_ended, taken_at, is_bypassed, is_rebuilt, key } = state;
    if is_rebuilt {
        detach_program(socket);
        let finished = finish(&record, socket);
        if let (Ok(()), Kind::Tcp(tcp)) = (&finished, &record.kind) {
            // What the server before this one has said already the kernel drops.
            let _ = replay::rest(&record, tcp, has_ended);
        }
        return finished;
    }
    let Filters { program, rules } = filters;
    if let Some(nothing) = program {
        // A byte that the kernel acknowledged after the late bytes were read would be lost: the
        // peer does not send it again. An established socket takes the lock for the option, so what
        // waited for the lock is in the socket's queue now.
        let _ = attach_program(socket, nothing.as_fd());
    }
    if is_bypassed {
        wait_for_softirqs();
    }
    let has_ended = match &mut record.kind {
        Kind::Tcp(tcp) => unexported(socket, taken_at).add_to(tcp, taken_at) || has_ended,
        _ => has_ended,
    };
    let mut listens = Some(|| {
        let is_released = rules.is_some_and(|rules| release_rule(rules.as_fd(), &key).is_ok());
        // The carrier knows the rest.
        if is_bypassed || !is_released {
            hear();
        }
        detach_program(socket);
    });
    let imported = import(&record, socket, || {
        if let Some(listen) = listens.take() {
            listen();
        }
    });
    if let Some(listen) = listens.take() {
        listen();
    }
    if let (Ok(()), Kind::Tcp(tcp)) = (&imported, &record.kind) {
        // If this fails the peer repeats the segments.
        let _ = replay::rest(&record, tcp, has_ended);
    }
    imported
}

/// Gives the kernel the bytes that a program has written to the stream. The kernel is given room
/// for all of them, so that this does not wait for a peer that takes nothing at the moment. Returns
/// false if some remain.
fn flush(socket: BorrowedFd<'_>, left: &[u8]) -> bool {
    if left.is_empty() {
        return true;
    }
    let _room = Room::to_send(socket, left.len());
    let mut done = 0;
    while done < left.len() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(socket, &left[done..], flags) {
            Ok(sent) => done += sent,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut set = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
                if !matches!(poll(&mut set, Some(&FLUSH_LIMIT)), Ok(1)) {
                    return false;
                }
            }
            // A broken connection takes no more bytes, and its error tells the program so.
            Err(_) => return true,
        }
    }
    true
}

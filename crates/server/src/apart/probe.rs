//! The prober: looks into other users' processes, and pins their pipes, for the front process.
//!
//! One thread answers questions about one object, another one those about holders, which take as
//! long as there are processes, and a third one reports pipes that are opened once more. Not here:
//! the questions' bytes (`crate::probing`), the looks (`holders`, `pins`).

use super::child::{Child, EnteredChild};
use crate::beat::{Beat, Beats};
use crate::holders::{self, FifoHolders};
use crate::log::{self, Level};
use crate::pins::{Pin, Pins};
use crate::privileges;
use crate::probing::{self, ASK_LEN, LOOK_MAX, ProbeRequest};
use crate::seccomp::{self, Part};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::Uid;
use sojourn_ipc::ancillary;
use sojourn_session::ProcessId;
use std::collections::HashMap;
use std::io;

/// The most pins: more than there can be ends (`service::start`).
const PINS_MAX: usize = 1 << 20;

/// Runs the prober. `servers` are the numbers of the processes that hold what programs have sent,
/// with commas between them; `fifos` are those who may hold FIFOs unseen. Returns when the front
/// has gone.
///
/// # Errors
/// The process cannot begin.
pub fn probe(servers: &str, fifos: FifoHolders) -> io::Result<()> {
    let number = |pid: &str| pid.parse().ok().map(ProcessId);
    let servers: Vec<_> = servers.split(',').filter_map(number).collect();
    privileges::keep_only_probers()?;
    let EnteredChild { child, belongings } = Child::enter(c"sojourn-prober")?;
    let [asks, looks, opens] =
        belongings.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    seccomp::confine(Part::Prober).map_err(io::Error::other)?;
    let pins = Pins::new()?;
    let beats = Beats::new();
    let [for_asks, for_looks] = ["asks", "looks"].map(|name| beats.beat(name));
    child.watch(beats, || {})?;
    std::thread::Builder::new()
        .name("sojourn-holders".into())
        .spawn(move || answer_looks(&looks, &servers, fifos, &for_looks))?;
    let watched = pins.clone();
    std::thread::Builder::new()
        .name("sojourn-opens".into())
        .spawn(move || report_opens(&opens, &watched))?;
    child.ready();
    answer_asks(&asks, &pins, &for_asks);
    Ok(())
}

/// Answers questions about one object until the line ends.
fn answer_asks(line: &OwnedFd, pins: &Pins, beat: &Beat) {
    let mut held = Held::default();
    loop {
        await_question(line);
        let _busy = beat.busy();
        let ReceivedQuestion { bytes, name } = match receive(line) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(_) => return,
        };
        let Some(asked) = ProbeRequest::read(&bytes) else { return broken() };
        let value = match asked.request {
            ProbeRequest::Pin => held.pin(pins, name),
            ProbeRequest::Unpin(watch) => {
                held.unpin(watch);
                continue;
            }
            ProbeRequest::User(pid) => holders::user_of(pid).map(Uid::as_raw).ok_or(Errno::SRCH),
        };
        let value = value.map_err(|error| error.raw_os_error().unsigned_abs());
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // If the line is full the front does not read it, and does without the answer.
        let _ = send(line, &probing::answer(asked.number, value), flags);
    }
}

/// The pins that the front holds, by their watches.
#[derive(Debug, Default)]
struct Held {
    by_watch: HashMap<u32, Vec<Pin>>,
    count: usize,
}

impl Held {
    fn pin(&mut self, pins: &Pins, name: Option<OwnedFd>) -> Result<u32, Errno> {
        let name = name.ok_or(Errno::BADF)?;
        if self.count >= PINS_MAX {
            return Err(Errno::NOSPC);
        }
        let pin = pins.pin(name.as_fd())?;
        let watch = pin.watch().unsigned_abs();
        self.by_watch.entry(watch).or_default().push(pin);
        self.count += 1;
        Ok(watch)
    }

    fn unpin(&mut self, watch: u32) {
        let Some(pins) = self.by_watch.get_mut(&watch) else { return };
        self.count -= usize::from(pins.pop().is_some());
        if pins.is_empty() {
            self.by_watch.remove(&watch);
        }
    }
}

/// Answers questions about holders until the line ends.
fn answer_looks(line: &OwnedFd, servers: &[ProcessId], fifos: FifoHolders, beat: &Beat) {
    loop {
        await_question(line);
        let _busy = beat.busy();
        let mut bytes = [0; LOOK_MAX + 1];
        let len = match recv(line, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((len, _)) if len > 0 => len,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            _ => return,
        };
        let Some(asked) = probing::read_questions(&bytes[..len]) else { return broken() };
        let verdicts = holders::find_holders(&asked.questions, servers, fifos);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = send(line, &probing::verdicts(asked.number, &verdicts), flags);
    }
}

/// Reports pipes that are opened once more, until the line ends. This waits for the front; what
/// happens meanwhile the kernel keeps, or says that it was too much.
fn report_opens(line: &OwnedFd, pins: &Pins) {
    while let Some(opens) = pins.await_opens(line.as_fd()) {
        let any = opens.may_be_any.then_some(0);
        for watch in opens.watches.into_iter().chain(any) {
            let report = probing::opened(watch);
            while let Err(error) = send(line, &report, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                if error != Errno::AGAIN {
                    return;
                }
                let _ = poll(&mut [PollFd::new(line, PollFlags::OUT)], None);
            }
        }
    }
}

/// Ends the process: the front says what it never says by itself.
fn broken() {
    log::say(Level::Error, format_args!("the front process asks nonsense"));
    std::process::exit(1)
}

fn await_question(line: &OwnedFd) {
    let _ = poll(&mut [PollFd::new(line, PollFlags::IN)], None);
}

/// A question about one object, not decoded yet.
struct ReceivedQuestion {
    bytes: Vec<u8>,
    /// The object's name.
    name: Option<OwnedFd>,
}

fn receive(line: &OwnedFd) -> Result<ReceivedQuestion, Errno> {
    let mut bytes = [0; ASK_LEN + 1];
    let arrived = ancillary::receive(line.as_fd(), &mut bytes)?;
    if arrived.len == 0 {
        return Err(Errno::PIPE);
    }
    let name = arrived.fds.into_iter().next();
    Ok(ReceivedQuestion { bytes: bytes[..arrived.len].to_vec(), name })
}

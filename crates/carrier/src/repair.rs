//! `TCP_REPAIR`, step by step: names and values of the kernel's interface, and the mode as a guard.
//!
//! Repair mode takes `CAP_NET_ADMIN` in the socket's network namespace. Facts that neither tcp(7)
//! nor the kernel's `include/uapi/linux/tcp.h` states were tried (Linux 6.18). Not here: the order
//! of the steps (`export`, `import`).

use crate::raw;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use sojourn_options::OptionName;
use sojourn_wire::tcp::SeqNum;

const TCP: i32 = libc::IPPROTO_TCP;
pub(crate) const TCP_MAXSEG: OptionName = OptionName::new(TCP, 2);
const TCP_REPAIR: OptionName = OptionName::new(TCP, 19);
const TCP_REPAIR_QUEUE: OptionName = OptionName::new(TCP, 20);
const TCP_QUEUE_SEQ: OptionName = OptionName::new(TCP, 21);
pub(crate) const TCP_REPAIR_OPTIONS: OptionName = OptionName::new(TCP, 22);
pub(crate) const TCP_TIMESTAMP: OptionName = OptionName::new(TCP, 24);
const TCP_REPAIR_WINDOW: OptionName = OptionName::new(TCP, 29);
const SO_REUSEADDR: OptionName = OptionName::new(libc::SOL_SOCKET, libc::SO_REUSEADDR);

/// The queue to which the next reads and writes in the mode apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    None = 0,
    Receive = 1,
    Send = 2,
}

/// A socket in repair mode; dropping this leaves the mode without a packet.
#[derive(Debug)]
pub(crate) struct Repair<'s> {
    socket: BorrowedFd<'s>,
    /// The program's `SO_REUSEADDR`, which the mode overwrites.
    reuse: i32,
    is_on: bool,
}

impl<'s> Repair<'s> {
    /// Enters repair mode.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_ADMIN`, also for a socket that is listening.
    pub(crate) fn begin(socket: BorrowedFd<'s>) -> Result<Self, Errno> {
        let reuse = raw::number(socket, SO_REUSEADDR)?;
        raw::set_number(socket, TCP_REPAIR, 1)?;
        Ok(Self { socket, reuse, is_on: true })
    }

    /// Selects the queue to which the next calls apply.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn select(&self, queue: Queue) -> Result<(), Errno> {
        raw::set_number(self.socket, TCP_REPAIR_QUEUE, queue as i32)
    }

    /// Returns the sequence number behind the last byte of a queue.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn sequence(&self, queue: Queue) -> Result<SeqNum, Errno> {
        self.select(queue)?;
        Ok(SeqNum(raw::number(self.socket, TCP_QUEUE_SEQ)?.cast_unsigned()))
    }

    /// Sets that sequence number; the socket must not be connected.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn set_sequence(&self, queue: Queue, sequence: SeqNum) -> Result<(), Errno> {
        self.select(queue)?;
        raw::set_number(self.socket, TCP_QUEUE_SEQ, sequence.0.cast_signed())
    }

    /// Leaves the mode. With `announce` the kernel sends a window probe, whose answer tells the
    /// peer's state.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn end(mut self, announce: bool) -> Result<(), Errno> {
        self.leave(if announce { 0 } else { -1 })
    }

    fn leave(&mut self, how: i32) -> Result<(), Errno> {
        self.is_on = false;
        raw::set_number(self.socket, TCP_REPAIR, how)?;
        raw::set_number(self.socket, SO_REUSEADDR, self.reuse)
    }
}

impl Drop for Repair<'_> {
    fn drop(&mut self) {
        if self.is_on {
            let _ = self.leave(-1);
        }
    }
}

/// Sends a window probe on a socket that is not in repair mode: a segment without data from before
/// the peer's window, which makes the peer acknowledge all that it has at once.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_NET_ADMIN`.
pub(crate) fn probe(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let reuse = raw::number(socket, SO_REUSEADDR)?;
    // Leaving the mode sends the probe, also where the mode was not entered (`do_tcp_setsockopt`).
    raw::set_number(socket, TCP_REPAIR, 0)?;
    raw::set_number(socket, SO_REUSEADDR, reuse)
}

/// `struct tcp_repair_window`: the windows, and where they were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) snd_wl1: u32,
    pub(crate) snd_wnd: u32,
    pub(crate) max_window: u32,
    pub(crate) rcv_wnd: u32,
    pub(crate) rcv_wup: u32,
}

impl Windows {
    /// Reads the windows of a socket in repair mode.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn of(socket: impl AsFd) -> Result<Self, Errno> {
        let mut bytes = [0; 20];
        raw::getsockopt(socket, TCP_REPAIR_WINDOW, &mut bytes)?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at * 4..at * 4 + 4]);
            u32::from_ne_bytes(word)
        };
        Ok(Self {
            snd_wl1: word(0),
            snd_wnd: word(1),
            max_window: word(2),
            rcv_wnd: word(3),
            rcv_wup: word(4),
        })
    }

    /// Sets the windows of a socket in repair mode.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` for windows that are impossible.
    pub(crate) fn set(&self, socket: impl AsFd) -> Result<(), Errno> {
        let words = [self.snd_wl1, self.snd_wnd, self.max_window, self.rcv_wnd, self.rcv_wup];
        raw::setsockopt(socket, TCP_REPAIR_WINDOW, words.map(u32::to_ne_bytes).as_flattened())
    }
}

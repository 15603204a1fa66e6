//! The trait of packet interfaces, and what its calls take and give.
//!
//! Not here: any implementation. The order of use is: [`Interface::receive`] until it has nothing
//! more, [`Interface::send`] for what is to go out, [`Interface::flush`]; then either again, or
//! sleep until [`Interface::wait_fd`] is readable. Nothing blocks.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use sojourn_wire::MacAddress;
use sojourn_wire::ethernet::VlanTag;
use sojourn_wire::frame::LinkType;
use sojourn_wire::vnet;

/// The longest frame that anything here carries: an IP packet of 65,535 bytes behind an Ethernet
/// header with two tags.
pub const FRAME_BYTES_MAX: usize = 65_535 + sojourn_wire::ethernet::HEADER_BYTES_MAX;

/// A frame that has arrived, for the length of a callback.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// What was done, or is left to do, about checksums and segments.
    pub vnet: vnet::Header,
    /// From the link header, if the link has one, to the last byte.
    pub frame: &'a [u8],
    /// A tag that the kernel took out of the frame, as it does on interfaces that carry several
    /// networks.
    pub tag: Option<VlanTag>,
    /// When it arrived, in nanoseconds: of `CLOCK_REALTIME` for the kernel's interfaces, of the
    /// caller's clock for a simulated link. `None` where the interface does not know.
    pub time_ns: Option<u64>,
}

/// Where the bytes of a frame from `at` on are to be put, to the last: the parts are filled in
/// order.
#[derive(Debug)]
pub struct Scatter<'a> {
    /// Bytes of the headers, which the interface keeps.
    pub at: usize,
    /// Together as long as what follows the headers; else the frame is accepted as every other.
    pub parts: [&'a mut [u8]; 3],
}

impl Scatter<'_> {
    /// Whether a frame of `len` bytes fits exactly.
    pub(crate) fn holds(&self, len: usize) -> bool {
        self.at + self.parts.iter().map(|part| part.len()).sum::<usize>() == len
    }
}

/// Whoever takes what an interface has received: [`Interface::receive_to`].
pub trait Accept {
    /// A frame.
    fn accept(&mut self, received: Received<'_>);

    /// A frame of `len` bytes is about to be copied out of the kernel; `start` has the first of
    /// them. If they are enough to know where the rest belongs it goes there at once: then
    /// [`Accept::placed`] follows, unless the frame is lost. Else it is accepted as every other.
    fn place(&mut self, start: &Received<'_>, len: usize) -> Option<Scatter<'_>> {
        let _ = (start, len);
        None
    }

    /// The frame for which there was a place is there.
    fn placed(&mut self) {}

    /// What there is more is to stay where it is for now.
    fn has_enough(&self) -> bool {
        false
    }
}

/// A frame to send: its parts are gathered, in order; empty ones count for nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// What is left to do about checksums and segments.
    pub vnet: vnet::Header,
    /// All headers, and up to two slices of payload.
    pub parts: [&'a [u8]; 3],
}

impl<'a> Outgoing<'a> {
    /// A frame in one piece that is complete as it is.
    pub const fn plain(frame: &'a [u8]) -> Self {
        Self { vnet: vnet::Header::NONE, parts: [frame, &[], &[]] }
    }

    /// Bytes of all parts.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the parts to the start of `target`; the bytes copied, or `None` if they do not fit.
    pub fn copy_to(&self, target: &mut [u8]) -> Option<usize> {
        let mut at = 0usize;
        for part in self.parts {
            target.get_mut(at..at.checked_add(part.len())?)?.copy_from_slice(part);
            at += part.len();
        }
        Some(at)
    }

    /// Whether the interface is asked to finish the frame: a checksum or the cutting into segments.
    pub const fn needs_offload(&self) -> bool {
        self.vnet.segments.is_some() || matches!(self.vnet.checksum, vnet::Checksum::Partial { .. })
    }
}

/// What an interface is and can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The interface's index in its network namespace; 0 for a simulated link.
    pub index: u32,
    /// The longest IP packet that goes over the link, in bytes.
    pub mtu: usize,
    /// What comes before the IP header.
    pub link: LinkType,
    /// The interface's own link-layer address, where there is one.
    pub address: Option<MacAddress>,
    /// Whether a checksum may be left partial in what is sent.
    pub checksum_offload: bool,
    /// The longest IP packet, in bytes, that is cut into segments on the way; 0 if none is.
    pub gso_max: usize,
}

/// What an interface has counted since it was opened. Frames, not segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Handed to the callback.
    pub received: u64,
    /// Taken over by [`Interface::send`].
    pub sent: u64,
    /// Lost on the way in for want of room, as far as the kernel has told.
    pub overruns: u64,
    /// Lost because they were longer than what was to hold them.
    pub truncated: u64,
    /// Lost because what was said about them made no sense: lengths beyond the slot, unknown
    /// offloads.
    pub damaged: u64,
}

/// Why an interface could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The process lacks `CAP_NET_RAW` in the network namespace, or a filter of system calls
    /// forbids it.
    #[error("not permitted: CAP_NET_RAW is needed")]
    NotPermitted,
    /// There is no such interface.
    #[error("there is no such interface")]
    NoDevice,
    /// The interface's frames have link headers of a kind that nothing here knows (the number is
    /// `ARPHRD_*`).
    #[error("link headers of type {0} are not supported")]
    UnknownLink(u16),
    /// The descriptor is no socket of the right kind, or not in the state that is needed.
    #[error("the descriptor is not a socket of this kind: {0}")]
    WrongDescriptor(&'static str),
    /// Sizes that cannot be.
    #[error("impossible sizes: {0}")]
    BadLayout(&'static str),
    /// Another step failed.
    #[error("{step}: {errno}")]
    Failed {
        /// Which.
        step: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl OpenError {
    /// Makes the kernel's answer at `step` an error.
    pub(crate) fn at(step: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| match errno {
            Errno::PERM | Errno::ACCESS => Self::NotPermitted,
            Errno::NODEV | Errno::NXIO => Self::NoDevice,
            errno => Self::Failed { step, errno },
        }
    }
}

/// What is wrong with the interface, or with the link behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The interface is down. It may come up again, and goes on then.
    #[error("the interface is down")]
    Down,
    /// The interface does not exist any more.
    #[error("the interface is gone")]
    Gone,
    /// Anything else.
    #[error("the kernel says: {0}")]
    Failed(Errno),
}

impl From<Errno> for LinkError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NETDOWN => Self::Down,
            Errno::NODEV | Errno::NXIO => Self::Gone,
            errno => Self::Failed(errno),
        }
    }
}

/// Why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No room now: after [`Interface::flush`], wait until the descriptor is writable.
    #[error("no room")]
    Full,
    /// A queue on the way threw it away. Congestion, as any loss.
    #[error("dropped by a queue")]
    Dropped,
    /// Longer than the link carries, or than the interface cuts.
    #[error("too long")]
    TooLong,
    /// The interface was asked for what it cannot do: see [`Properties::checksum_offload`] and
    /// [`Properties::gso_max`].
    #[error("the interface has no such offload")]
    NoOffload,
    /// The kernel refuses the frame: no whole link header, an offload header that contradicts the
    /// frame.
    #[error("the frame or its offload header makes no sense")]
    Invalid,
    /// The link does not work.
    #[error(transparent)]
    Link(#[from] LinkError),
}

impl From<Errno> for SendError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::Full,
            Errno::NOBUFS | Errno::NOMEM => Self::Dropped,
            Errno::MSGSIZE => Self::TooLong,
            Errno::INVAL => Self::Invalid,
            errno => Self::Link(errno.into()),
        }
    }
}

/// A packet interface: one party sends and receives frames through it. No call waits.
pub trait Interface {
    /// Hands up to `budget` frames that have arrived to `accept`, oldest first; how many they were.
    /// Less than `budget` means that there was nothing more.
    ///
    /// # Errors
    /// The link does not work. What was handed over before counts all the same.
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError>;

    /// As [`Interface::receive`], for somebody who may know where long frames belong before they
    /// are copied.
    ///
    /// # Errors
    /// As there.
    fn receive_to(&mut self, budget: usize, accept: &mut dyn Accept) -> Result<usize, LinkError> {
        self.receive(budget, &mut |received| accept.accept(received))
    }

    /// Whether there is nothing to receive: false where that cannot be told without a system call.
    fn has_nothing(&self) -> bool {
        false
    }

    /// Sends one frame. It may be on its way only after [`Interface::flush`]; its bytes are not
    /// needed any more after the call.
    ///
    /// # Errors
    /// The frame was not taken.
    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError>;

    /// Sees to it that what was sent goes out.
    ///
    /// # Errors
    /// The link does not work, or is so busy that the call has to be made again
    /// ([`SendError::Full`]).
    fn flush(&mut self) -> Result<(), SendError>;

    /// Readable when there is something to receive, writable when there is room to send, and with
    /// an error when [`Interface::take_error`] has something to say. `None` for what has no
    /// descriptor: a simulated link.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// What is wrong with the link, once: to be asked when the descriptor shows an error, which
    /// stays there until then.
    fn take_error(&mut self) -> Option<LinkError> {
        None
    }

    /// What the interface is and can do, as of the opening or of the last [`Interface::refresh`].
    fn properties(&self) -> &Properties;

    /// Looks at the link again: its MTU, its address. System calls.
    ///
    /// # Errors
    /// The interface is gone.
    fn refresh(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    /// What was counted. A system call or two.
    fn statistics(&mut self) -> Statistics;
}

impl<I: Interface + ?Sized> Interface for Box<I> {
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        (**self).receive(budget, accept)
    }

    fn receive_to(&mut self, budget: usize, accept: &mut dyn Accept) -> Result<usize, LinkError> {
        (**self).receive_to(budget, accept)
    }

    fn has_nothing(&self) -> bool {
        (**self).has_nothing()
    }

    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        (**self).send(frame)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        (**self).flush()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).wait_fd()
    }

    fn take_error(&mut self) -> Option<LinkError> {
        (**self).take_error()
    }

    fn properties(&self) -> &Properties {
        (**self).properties()
    }

    fn refresh(&mut self) -> Result<(), LinkError> {
        (**self).refresh()
    }

    fn statistics(&mut self) -> Statistics {
        (**self).statistics()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_gathered_in_order_or_not_at_all() {
        let frame = Outgoing { vnet: vnet::Header::NONE, parts: [b"head", b"", b"tail"] };
        let mut room = [0; 9];
        assert_eq!(frame.copy_to(&mut room), Some(8));
        assert_eq!(&room, b"headtail\0");
        assert_eq!(frame.copy_to(&mut room[..7]), None);
        assert_eq!(frame.len(), 8);
        assert!(!frame.is_empty() && Outgoing::default().is_empty());
    }

    #[test]
    fn errors_keep_their_meaning() {
        assert_eq!(SendError::from(Errno::AGAIN), SendError::Full);
        assert_eq!(SendError::from(Errno::NETDOWN), SendError::Link(LinkError::Down));
        assert_eq!(SendError::from(Errno::NXIO), SendError::Link(LinkError::Gone));
        assert_eq!(OpenError::at("socket")(Errno::PERM), OpenError::NotPermitted);
    }
}

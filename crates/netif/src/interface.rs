//! The trait of packet interfaces, with the arguments and results of its methods.
//!
//! Not here: the implementations. The order of use is: [`Interface::receive`] until there are no
//! more frames, [`Interface::send`] for outgoing frames, [`Interface::flush`]; then either repeat,
//! or sleep until [`Interface::wait_fd`] is readable. No method blocks.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use sojourn_wire::MacAddress;
use sojourn_wire::ethernet::VlanTag;
use sojourn_wire::frame::LinkType;
use sojourn_wire::vnet;

/// The longest frame of any interface: an IP packet of 65,535 bytes behind an Ethernet header with
/// two tags.
pub const FRAME_BYTES_MAX: usize = 65_535 + sojourn_wire::ethernet::HEADER_BYTES_MAX;

/// A frame that has arrived, valid during a callback.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The state of the frame's checksum and segmentation.
    pub vnet: vnet::Header,
    /// The frame from the link header, if the link has one, to the last byte.
    pub frame: &'a [u8],
    /// A VLAN tag that the kernel took out of the frame.
    pub tag: Option<VlanTag>,
    /// The time of arrival in nanoseconds: of `CLOCK_REALTIME` for the kernel's interfaces, of the
    /// caller's clock for a simulated link. `None` if the interface does not know it.
    pub time_ns: Option<u64>,
}

/// The destination of a frame's bytes from `at` to the last one: the parts are filled in order.
#[derive(Debug)]
pub struct Scatter<'a> {
    /// The length of the headers, which the interface keeps.
    pub at: usize,
    /// The destinations, together as long as the bytes after the headers; otherwise the frame is
    /// handed to [`Accept::accept`].
    pub parts: [&'a mut [u8]; 3],
}

impl Scatter<'_> {
    /// Returns true if a frame of `len` bytes fits exactly.
    pub(crate) fn holds(&self, len: usize) -> bool {
        self.at + self.parts.iter().map(|part| part.len()).sum::<usize>() == len
    }
}

/// A receiver of frames for [`Interface::receive_to`].
pub trait Accept {
    /// Takes a frame.
    fn accept(&mut self, received: Received<'_>);

    /// Called when a frame of `len` bytes is about to be copied out of the kernel; `start` has its
    /// first bytes. If these suffice to know the destination of the rest, the receiver returns it
    /// and the bytes are copied there directly; [`Accept::placed`] follows, unless the frame is
    /// lost. On `None` the frame is handed to [`Accept::accept`].
    fn place(&mut self, start: &Received<'_>, len: usize) -> Option<Scatter<'_>> {
        let _ = (start, len);
        None
    }

    /// Called when the frame has been copied to its destination.
    fn placed(&mut self) {}

    /// Returns true if further frames must stay in the interface for now.
    fn has_enough(&self) -> bool {
        false
    }
}

/// A frame to send, gathered from its parts in order; parts may be empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// The checksum and segmentation that the interface must still do.
    pub vnet: vnet::Header,
    /// All headers, and up to two slices of payload.
    pub parts: [&'a [u8]; 3],
}

impl<'a> Outgoing<'a> {
    /// Creates a complete frame in one piece.
    pub const fn plain(frame: &'a [u8]) -> Self {
        Self { vnet: vnet::Header::NONE, parts: [frame, &[], &[]] }
    }

    /// Returns the length of all parts.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Returns true if the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the parts to the start of `target` and returns the number of bytes, or `None` if they
    /// do not fit.
    pub fn copy_to(&self, target: &mut [u8]) -> Option<usize> {
        let mut at = 0usize;
        for part in self.parts {
            target.get_mut(at..at.checked_add(part.len())?)?.copy_from_slice(part);
            at += part.len();
        }
        Some(at)
    }

    /// Returns true if the interface must finish the frame: complete a checksum or cut segments.
    pub const fn needs_offload(&self) -> bool {
        self.vnet.segments.is_some() || matches!(self.vnet.checksum, vnet::Checksum::Partial { .. })
    }
}

/// The properties and abilities of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The interface's index in its network namespace; 0 for a simulated link.
    pub index: u32,
    /// The longest IP packet of the link, in bytes.
    pub mtu: usize,
    /// The kind of link header before the IP header.
    pub link: LinkType,
    /// The interface's own link-layer address, if there is one.
    pub address: Option<MacAddress>,
    /// True if sent frames may have a partial checksum.
    pub checksum_offload: bool,
    /// The longest IP packet, in bytes, that the interface cuts into segments; 0 if it cuts none.
    pub gso_max: usize,
}

impl Properties {
    /// Returns the length of the longest frame of the link.
    pub(crate) const fn frame_max(&self) -> usize {
        let header = match self.link {
            LinkType::Ethernet => sojourn_wire::ethernet::HEADER_BYTES_MAX,
            LinkType::Raw => 0,
        };
        self.mtu + header
    }
}

/// The counters of an interface since it was opened, in frames, not segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Handed to the callback.
    pub received: u64,
    /// Taken over by [`Interface::send`].
    pub sent: u64,
    /// Arriving frames lost for lack of room, as far as the kernel reports them.
    pub overruns: u64,
    /// Arriving frames lost because they were longer than their buffer.
    pub truncated: u64,
    /// Arriving frames lost because their description was invalid: lengths beyond the slot, unknown
    /// offloads.
    pub damaged: u64,
}

/// The reason why an interface could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The process lacks `CAP_NET_RAW` in the network namespace, or a filter of system calls
    /// forbids it.
    #[error("not permitted: CAP_NET_RAW is needed")]
    NotPermitted,
    /// There is no such interface.
    #[error("there is no such interface")]
    NoDevice,
    /// The interface's frames have link headers of an unknown kind (the number is `ARPHRD_*`).
    #[error("link headers of type {0} are not supported")]
    UnknownLink(u16),
    /// The descriptor is not a socket of the right kind, or is not in the required state.
    #[error("the descriptor is not a socket of this kind: {0}")]
    WrongDescriptor(&'static str),
    /// The sizes are impossible.
    #[error("impossible sizes: {0}")]
    BadLayout(&'static str),
    /// Another step failed.
    #[error("{step}: {errno}")]
    Failed {
        /// The name of the step.
        step: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl OpenError {
    /// Returns a function that converts the kernel's error at `step`.
    pub(crate) fn at(step: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| match errno {
            Errno::PERM | Errno::ACCESS => Self::NotPermitted,
            Errno::NODEV | Errno::NXIO => Self::NoDevice,
            errno => Self::Failed { step, errno },
        }
    }
}

/// An error of the interface or of the link behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The interface is down. If it comes up again, it can be used again.
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

/// The reason why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no room now: after [`Interface::flush`], wait until the descriptor is writable.
    #[error("no room")]
    Full,
    /// A queue of this host dropped the frame, which is a sign of congestion like any loss.
    #[error("dropped by a queue")]
    Dropped,
    /// The frame is longer than the link carries or the interface cuts.
    #[error("too long")]
    TooLong,
    /// The interface does not have the requested offload: see [`Properties::checksum_offload`] and
    /// [`Properties::gso_max`].
    #[error("the interface has no such offload")]
    NoOffload,
    /// The kernel refuses the frame: its link header is incomplete, or its offload header
    /// contradicts it.
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

/// A packet interface, through which one owner sends and receives frames. No method blocks.
pub trait Interface {
    /// Hands up to `budget` arrived frames to `accept`, oldest first, and returns their number. A
    /// number below `budget` means that no more frames were there.
    ///
    /// # Errors
    /// [`LinkError`] if the link does not work. Frames may have been handed over before.
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError>;

    /// Receives like [`Interface::receive`], but lets the receiver choose the destination of long
    /// frames before they are copied.
    ///
    /// # Errors
    /// As for [`Interface::receive`].
    fn receive_to(&mut self, budget: usize, accept: &mut dyn Accept) -> Result<usize, LinkError> {
        self.receive(budget, &mut |received| accept.accept(received))
    }

    /// Returns true if there is nothing to receive; false also if that is unknown without a system
    /// call.
    fn has_nothing(&self) -> bool {
        false
    }

    /// Sends one frame. The frame may leave only at [`Interface::flush`]; its bytes may be reused
    /// after the call.
    ///
    /// # Errors
    /// [`SendError`] if the frame was not accepted.
    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError>;

    /// Makes the sent frames leave.
    ///
    /// # Errors
    /// [`SendError::Link`] if the link does not work; [`SendError::Full`] if the call must be
    /// repeated later.
    fn flush(&mut self) -> Result<(), SendError>;

    /// Returns the descriptor to poll: readable if there is a frame to receive, writable if there
    /// is room to send, and with an error if [`Interface::take_error`] has one. `None` for a
    /// simulated link, which has no descriptor.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns and clears the error of the link. Call it when the descriptor shows an error, which
    /// stays until this call.
    fn take_error(&mut self) -> Option<LinkError> {
        None
    }

    /// Returns the properties as of the opening or the last [`Interface::refresh`].
    fn properties(&self) -> &Properties;

    /// Queries the link's MTU and address again, by system calls.
    ///
    /// # Errors
    /// [`LinkError::Gone`] if the interface does not exist any more.
    fn refresh(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    /// Returns the counters; makes a system call or two.
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

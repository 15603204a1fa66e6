//! The rows: layers of table 4 of *Protocol Service Decomposition for High-Performance Networking*
//! (1993), send and receive, and the few that today's programs need besides.
//!
//! Not here: how the times are found (`ledger`).

/// A direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the program's call to the device.
    Send,
    /// From the device to the program.
    Receive,
}

impl Direction {
    /// The word for users.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }
}

/// A layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Row {
    /// From the call until the protocol sends: entry into the kernel, the copy of the data.
    EntryCopyIn,
    /// TCP or UDP makes a segment.
    ProtocolOutput,
    /// IP: route, header, filters of the host.
    IpOutput,
    /// Queueing discipline and device driver.
    LinkOutput,
    /// From the soft interrupt until the packet is out of the device.
    Device,
    /// Taps, XDP and classifiers, until IP has the packet.
    Filter,
    /// The copy from the kernel to a protocol in a program's memory.
    KernelCopyOut,
    /// The packet waits until the protocol looks at it.
    Queue,
    /// IP: header, filters of the host.
    IpInput,
    /// TCP or UDP: whose it is, until the reader is told.
    ProtocolInput,
    /// The reader gets a processor.
    WakeUp,
    /// The data wait in the socket for the program's call; not in the paper, whose program did
    /// nothing but receive.
    InSocket,
    /// The copy to the program, the way out of the kernel.
    CopyOutExit,
}

impl Row {
    /// All rows, as the paper has them.
    pub const ALL: [Self; 13] = [
        Self::EntryCopyIn,
        Self::ProtocolOutput,
        Self::IpOutput,
        Self::LinkOutput,
        Self::Device,
        Self::Filter,
        Self::KernelCopyOut,
        Self::Queue,
        Self::IpInput,
        Self::ProtocolInput,
        Self::WakeUp,
        Self::InSocket,
        Self::CopyOutExit,
    ];

    /// The direction that the row is of.
    #[must_use]
    pub fn direction(self) -> Direction {
        if self <= Self::LinkOutput { Direction::Send } else { Direction::Receive }
    }

    /// The words for users.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::EntryCopyIn => "entry, copy in",
            Self::ProtocolOutput => "tcp/udp output",
            Self::IpOutput => "ip output",
            Self::LinkOutput => "link output",
            Self::Device => "device",
            Self::Filter => "filter",
            Self::KernelCopyOut => "kernel copy out",
            Self::Queue => "queue",
            Self::IpInput => "ip in",
            Self::ProtocolInput => "tcp/udp in",
            Self::WakeUp => "wake-up",
            Self::InSocket => "in the socket",
            Self::CopyOutExit => "copy out, exit",
        }
    }

    /// The word in JSON.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::EntryCopyIn => "entry_copy_in",
            Self::ProtocolOutput => "protocol_output",
            Self::IpOutput => "ip_output",
            Self::LinkOutput => "link_output",
            Self::Device => "device",
            Self::Filter => "filter",
            Self::KernelCopyOut => "kernel_copy_out",
            Self::Queue => "queue",
            Self::IpInput => "ip_input",
            Self::ProtocolInput => "protocol_input",
            Self::WakeUp => "wake_up",
            Self::InSocket => "in_socket",
            Self::CopyOutExit => "copy_out_exit",
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

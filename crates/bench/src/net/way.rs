//! Who speaks TCP at which end of the link, and how programs wait.

use serde::Serialize;

/// Where a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// On the first host: it listens.
    Server,
    /// On the second host: it connects and measures.
    Client,
}

/// Whose protocols are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stacks {
    /// The kernel's at both ends.
    Kernel,
    /// The client under Sojourn, the server's host has only its kernel.
    Client,
    /// The server under Sojourn, the client's host has only its kernel.
    Server,
    /// Both under Sojourn, each host with a server of its own.
    Both,
    /// As the client alone, which gets its packets through a port, as programs without CAP_NET_RAW
    /// do.
    Port,
    /// As the client alone, whose packet socket has no mapped ring: a system call for each packet.
    Message,
    /// The client is a program with smoltcp over a packet socket; the server's is the kernel.
    Smoltcp,
    /// The client is a program with gVisor's netstack over a packet socket; the server's is the
    /// kernel.
    Gvisor,
}

impl Stacks {
    /// What can be compared where the client is `lab-bench`.
    pub(crate) const MEASURED: &[Self] =
        &[Self::Kernel, Self::Client, Self::Both, Self::Port, Self::Smoltcp, Self::Gvisor];
    /// The same with another interface to the packets.
    pub(crate) const INTERFACES: &[Self] = &[
        Self::Kernel,
        Self::Client,
        Self::Message,
        Self::Both,
        Self::Port,
        Self::Smoltcp,
        Self::Gvisor,
    ];
    /// The same without rivals.
    pub(crate) const OURS: &[Self] = &[Self::Kernel, Self::Client, Self::Both];
    /// Where the two programs differ: each alone under Sojourn, too.
    pub(crate) const PROGRAMS: &[Self] = &[Self::Kernel, Self::Client, Self::Server, Self::Both];

    /// For tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Client => "sojourn, client",
            Self::Server => "sojourn, server",
            Self::Both => "sojourn, both",
            Self::Port => "sojourn, port",
            Self::Message => "sojourn, message",
            Self::Smoltcp => "smoltcp",
            Self::Gvisor => "gvisor netstack",
        }
    }

    /// Whether programs of that side run under Sojourn.
    pub(crate) fn is_under(self, side: Side) -> bool {
        match self {
            Self::Client | Self::Port | Self::Message => side == Side::Client,
            Self::Server => side == Side::Server,
            Self::Both => true,
            Self::Kernel | Self::Smoltcp | Self::Gvisor => false,
        }
    }

    /// Whether Sojourn takes part.
    pub(crate) fn is_ours(self) -> bool {
        self.is_under(Side::Client) || self.is_under(Side::Server)
    }
}

/// How programs wait for the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wait {
    /// Asleep: blocking calls, and Sojourn without spinning.
    Blocking,
    /// Asking again and again: non-blocking calls in a loop; under Sojourn blocking calls that
    /// spin.
    Spinning,
    /// Blocking calls, and Sojourn as it is by default.
    Default,
}

impl Wait {
    /// Sojourn's setting `spin`.
    pub(crate) fn setting(self) -> &'static str {
        match self {
            Self::Blocking => "never",
            Self::Spinning => "always",
            Self::Default => "adaptive",
        }
    }
}

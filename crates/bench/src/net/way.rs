//! The protocol implementation at each end of the link, and the ways in which programs wait.

use serde::Serialize;

/// A host of the link, by its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// On the first host: it listens.
    Server,
    /// On the second host: it connects and measures.
    Client,
}

/// The protocol implementations at both ends.
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
    /// As `Client`, but the client gets its packets through a port, as programs without CAP_NET_RAW
    /// do.
    Port,
    /// As `Client`, with short frames sent by an AF_XDP socket.
    Xdp,
    /// As `Both`, with short frames sent by AF_XDP sockets.
    XdpBoth,
    /// As `Port`, with short frames sent by an AF_XDP socket.
    XdpPort,
    /// As `Client`, but the client's packet socket has no mapped ring: each packet takes a system
    /// call.
    Message,
    /// As `Client`, but the client's packet socket is `sojourn-driver`'s: each frame is a message
    /// of the IPC.
    Driver,
    /// The same, with each frame in memory of its own, mapped for the message.
    DriverMemory,
    /// The client's session is in the process `sojourn-protocol`, which it calls itself; the
    /// server's host has only its kernel.
    ProtocolServer,
    /// The same with an unmodified client, under Sojourn with `home = server`.
    HomeServer,
    /// The client is a program with smoltcp over a packet socket; the server's side is the kernel.
    Smoltcp,
    /// The client is a program with gVisor's netstack over a packet socket; the server's side is
    /// the kernel.
    Gvisor,
}

impl Stacks {
    /// The ways for rows whose client is `lab-bench`.
    pub(crate) const MEASURED: &[Self] =
        &[Self::Kernel, Self::Client, Self::Both, Self::Port, Self::Smoltcp, Self::Gvisor];
    /// The ways for round trips: the same, with AF_XDP, and with the protocol server.
    pub(crate) const ROUND_TRIPS: &[Self] = &[
        Self::Kernel,
        Self::Client,
        Self::Xdp,
        Self::HomeServer,
        Self::Both,
        Self::XdpBoth,
        Self::Port,
        Self::XdpPort,
        Self::Smoltcp,
        Self::Gvisor,
    ];
    /// The same ways for TCP, which the benchmark's own client of the protocol server has, too.
    pub(crate) const ROUND_TRIPS_TCP: &[Self] = &[
        Self::Kernel,
        Self::Client,
        Self::Xdp,
        Self::ProtocolServer,
        Self::HomeServer,
        Self::Both,
        Self::XdpBoth,
        Self::Port,
        Self::XdpPort,
        Self::Smoltcp,
        Self::Gvisor,
    ];
    /// The ways of `MEASURED`, and that with the other packet interface.
    pub(crate) const INTERFACES: &[Self] = &[
        Self::Kernel,
        Self::Client,
        Self::ProtocolServer,
        Self::Message,
        Self::Both,
        Self::Port,
        Self::Smoltcp,
        Self::Gvisor,
    ];
    /// The ways without rivals.
    pub(crate) const OURS: &[Self] = &[Self::Kernel, Self::Client, Self::Both];
    /// The ways for rows with two different programs: each of them is also measured alone under
    /// Sojourn.
    pub(crate) const PROGRAMS: &[Self] = &[Self::Kernel, Self::Client, Self::Server, Self::Both];

    /// Returns the name for tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Client => "sojourn, client",
            Self::Server => "sojourn, server",
            Self::Both => "sojourn, both",
            Self::Port => "sojourn, port",
            Self::Xdp => "sojourn, xdp",
            Self::XdpBoth => "sojourn, xdp, both",
            Self::XdpPort => "sojourn, xdp, port",
            Self::Message => "sojourn, message",
            Self::Driver => "sojourn, driver",
            Self::DriverMemory => "sojourn, driver, memory",
            Self::HomeServer => "sojourn, home server",
            Self::ProtocolServer => "sojourn, protocol server",
            Self::Smoltcp => "smoltcp",
            Self::Gvisor => "gvisor netstack",
        }
    }

    /// Returns true if programs of `side` run under Sojourn.
    pub(crate) fn is_under(self, side: Side) -> bool {
        match self {
            Self::Client
            | Self::Port
            | Self::Xdp
            | Self::XdpPort
            | Self::Message
            | Self::Driver
            | Self::DriverMemory
            | Self::ProtocolServer
            | Self::HomeServer => side == Side::Client,
            Self::Server => side == Side::Server,
            Self::Both | Self::XdpBoth => true,
            Self::Kernel | Self::Smoltcp | Self::Gvisor => false,
        }
    }

    /// Returns true if the way has no target, because it is measured for comparison, as a rival is.
    /// Targets of the protocol server are of the papers' tables.
    pub(crate) fn is_compared(self) -> bool {
        let is_other = matches!(self, Self::Message | Self::Driver | Self::DriverMemory);
        is_other || self.has_xdp() || self.is_served()
    }

    /// Returns true if short frames are sent by AF_XDP sockets.
    pub(crate) fn has_xdp(self) -> bool {
        matches!(self, Self::Xdp | Self::XdpBoth | Self::XdpPort)
    }

    /// Returns true if the client's sessions are in the protocol server.
    pub(crate) fn is_served(self) -> bool {
        matches!(self, Self::ProtocolServer | Self::HomeServer)
    }

    /// Returns true if Sojourn takes part.
    pub(crate) fn is_ours(self) -> bool {
        self.is_under(Side::Client) || self.is_under(Side::Server)
    }
}

/// The way in which a program waits for the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wait {
    /// Sleeps: blocking calls, and Sojourn without spinning.
    Blocking,
    /// Polls: non-blocking calls in a loop; under Sojourn, blocking calls that spin.
    Spinning,
    /// Blocking calls, and Sojourn as it is by default, but for sessions that stay away although
    /// the kernel is faster.
    Default,
    /// Blocking calls, and Sojourn as it is by default, once it has measured both homes.
    Settled,
}

impl Wait {
    /// Returns the value of Sojourn's setting `spin`.
    pub(crate) fn setting(self) -> &'static str {
        match self {
            Self::Blocking => "never",
            Self::Spinning => "always",
            Self::Default | Self::Settled => "adaptive",
        }
    }

    /// Returns the value of Sojourn's setting `measure_bulk`.
    pub(crate) fn measures(self) -> &'static str {
        if self == Self::Settled { "on" } else { "off" }
    }
}

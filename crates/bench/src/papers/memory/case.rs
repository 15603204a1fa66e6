//! The cases of the study: a workload, and the home of its protocol.

use serde::{Deserialize, Serialize};

/// What the programs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Work {
    /// 64 bytes there and back over two pipes.
    Pipe,
    /// 64 bytes there and back to another host, in a datagram each.
    Udp,
    /// The same over a TCP connection.
    Tcp,
    /// SET and GET of a short value at a Redis server on another host.
    Redis,
}

/// Where the protocol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Home {
    Kernel,
    Library,
    Server,
}

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) work: Work,
    pub(crate) home: Home,
}

impl Work {
    pub(crate) const ALL: [Self; 4] = [Self::Pipe, Self::Udp, Self::Tcp, Self::Redis];

    /// Returns the word on command lines, and in tables.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Redis => "redis",
        }
    }

    /// Returns the name of a row.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Udp => "UDP round trip",
            Self::Tcp => "TCP round trip",
            Self::Redis => "Redis SET and GET",
        }
    }
}

impl Home {
    pub(crate) const ALL: [Self; 3] = [Self::Kernel, Self::Library, Self::Server];

    /// Returns the word on command lines, and in tables.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Library => "library",
            Self::Server => "server",
        }
    }
}

impl Case {
    /// Returns all cases, in the order of the table.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Work::ALL.into_iter().flat_map(|work| Home::ALL.map(|home| Self { work, home }))
    }

    /// Returns the name on command lines.
    pub(crate) fn name(self) -> String {
        format!("{}-{}", self.work.word(), self.home.word())
    }

    /// Returns the case of a name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::all().find(|case| case.name() == name)
    }

    /// Returns the number of measured operations. Those by servers are long, and a trace is slow.
    pub(crate) fn count(self) -> u32 {
        if self.home == Home::Server { 100 } else { 400 }
    }

    /// Returns a sentence on what the row is.
    pub(crate) fn says(self) -> &'static str {
        match (self.work, self.home) {
            (Work::Pipe, Home::Kernel) => "The kernel’s pipes.",
            (Work::Pipe, Home::Library) => "Sojourn’s streams, by `sojourn run`.",
            (Work::Pipe, Home::Server) => {
                "The benchmark’s emulation server, by IPC from the C library’s functions."
            }
            (Work::Udp, Home::Server) => {
                "Two sojourn-udpd, by IPC from a program written for them."
            }
            (_, Home::Kernel) => "The kernel’s sockets.",
            (_, Home::Library) => {
                "Sojourn’s engine in both programs, with packet sockets of the interface."
            }
            (_, Home::Server) => {
                "Sojourn’s engine in both hosts’ sojourn-protocol, which the unmodified programs call by IPC (`home = server`)."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_cases() {
        assert_eq!(Case::all().count(), 12);
        assert!(Case::all().all(|case| Case::of(&case.name()) == Some(case)));
        assert_eq!(Case::of("pipe"), None);
    }
}

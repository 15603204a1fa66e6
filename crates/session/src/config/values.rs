//! Values of the settings, their defaults, and the decisions on sessions that follow from them.
//!
//! Not here: the syntax of the values; see `settings`.

use super::select::{Addresses, Ports, Programs};
use crate::stubs::KindT;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Size of the rings of a UDP session (bytes): the smallest possible, because they carry no data.
const RING_BYTES_UDP: u32 = 4 << 10;

/// Condition under which a waiting thread spins before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// Spins as long as spinning is expected to cost less than sleeping.
    #[default]
    Adaptive,
    /// Always spins.
    Always,
    /// Never spins.
    Never,
}

impl FromStr for Spin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "adaptive" => Ok(Self::Adaptive),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(format!("`{text}` is none of adaptive, always, never")),
        }
    }
}

impl fmt::Display for Spin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Adaptive => "adaptive",
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

/// Condition under which a new program gets the library although the environment that it is started
/// with lacks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// Never gets the library.
    #[default]
    Off,
    /// Gets the library while the process that starts the program has the user that it began with.
    SameUser,
    /// Gets the library also after the starting process has changed its user.
    On,
}

impl FromStr for Follow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "same-user" => Ok(Self::SameUser),
            "on" => Ok(Self::On),
            _ => Err(format!("`{text}` is none of off, same-user, on")),
        }
    }
}

impl fmt::Display for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::SameUser => "same-user",
            Self::On => "on",
        })
    }
}

/// Where sessions with other hosts are while they are away from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// In the program's own process.
    #[default]
    Library,
    /// In the protocol server's process; TCP only.
    Server,
}

impl FromStr for Home {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "library" => Ok(Self::Library),
            "server" => Ok(Self::Server),
            _ => Err(format!("`{text}` is none of library, server")),
        }
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Library => "library",
            Self::Server => "server",
        })
    }
}

/// Which programs that make their own system calls are loaded by Sojourn's loader. Who starts a
/// child reads the same words by `sojourn_abi::starts::Load`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// The program that the user names, and its children but those that stay small.
    #[default]
    Auto,
    /// All.
    On,
    /// None.
    Off,
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "1" | "on" | "true" | "yes" => Ok(Self::On),
            "0" | "off" | "false" | "no" => Ok(Self::Off),
            _ => Err(format!("`{text}` is none of auto, on, off")),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

/// Values of all settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// TCP connections may move.
    pub tcp: bool,
    /// Unix stream connections may move.
    pub unix: bool,
    /// Pipes may move.
    pub pipe: bool,
    /// UDP sockets may exchange datagrams from within their programs, past the kernel.
    pub udp: bool,
    /// Ports of TCP and UDP sessions that may move, of either end.
    pub ports: Ports,
    /// Remote addresses of TCP and UDP sessions that may move.
    pub addresses: Addresses,
    /// Names of programs whose sessions may move.
    pub programs: Programs,
    /// Where sessions with other hosts are while they are away from the kernel.
    pub home: Home,
    /// Number of calls that send or receive after which a session is hot.
    pub move_after_calls: u32,
    /// Number of bytes after which a session is hot.
    pub move_after_bytes: u64,
    /// Size of the ring for each direction of a TCP connection (bytes).
    pub ring_bytes_tcp: u32,
    /// Size of the ring for each direction of a Unix connection (bytes).
    pub ring_bytes_unix: u32,
    /// Size of the ring of a pipe (bytes).
    pub ring_bytes_pipe: u32,
    /// The call that makes a session hot waits for the server's answer. Meant for tests.
    pub await_moves: bool,
    /// Bulk transfers with other hosts are recalled if the kernel is measured to be faster.
    pub measure_bulk: bool,
    /// Condition under which a waiting thread spins.
    pub spin: Spin,
    /// Longest time for which a waiting thread spins (µs) with [`Spin::Always`]; 0 for no limit.
    pub spin_budget_us: u32,
    /// Which programs that make their own system calls are loaded by Sojourn's loader. Who starts a
    /// child reads the same words by `sojourn_abi::starts::Load`.
    pub load: Load,
    /// System calls that preloaded programs make themselves are rewritten.
    pub rewrite: bool,
    /// Condition under which new programs get the library although their environment lacks it.
    pub follow: Follow,
    /// `sojourn run` fails, instead of running the program without acceleration, if the program
    /// cannot be preloaded, the library is missing or no server can be had.
    pub strict: bool,
    /// Address of the session server; empty for the default, see [`crate::place`].
    pub server: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tcp: true,
            unix: true,
            pipe: true,
            udp: true,
            ports: Ports::default(),
            addresses: Addresses::default(),
            programs: Programs::default(),
            home: Home::Library,
            move_after_calls: 32,
            move_after_bytes: 256 << 10,
            ring_bytes_tcp: 256 << 10,
            ring_bytes_unix: 128 << 10,
            ring_bytes_pipe: 128 << 10,
            await_moves: false,
            measure_bulk: true,
            spin: Spin::Adaptive,
            spin_budget_us: 0,
            load: Load::Auto,
            rewrite: false,
            follow: Follow::Off,
            strict: false,
            server: String::new(),
        }
    }
}

impl Config {
    /// Returns the wanted size of the ring for each direction of a session (bytes).
    #[must_use]
    pub fn ring_bytes(&self, kind: KindT) -> u32 {
        match kind {
            KindT::Tcp => self.ring_bytes_tcp,
            KindT::Unix => self.ring_bytes_unix,
            KindT::Pipe => self.ring_bytes_pipe,
            // The rings of a UDP session carry no data.
            KindT::Udp => RING_BYTES_UDP,
        }
    }

    /// Returns true if sessions of this kind may move.
    #[must_use]
    pub fn allows(&self, kind: KindT) -> bool {
        match kind {
            KindT::Tcp => self.tcp,
            KindT::Unix => self.unix,
            KindT::Pipe => self.pipe,
            KindT::Udp => self.udp,
        }
    }

    /// Returns true if the lists of ports and addresses let a TCP or UDP session between these ends
    /// move.
    ///
    /// A UDP socket that is not connected has no remote end, so any peer is possible. Such a
    /// session may move only if addresses are not restricted at all.
    #[must_use]
    pub fn allows_between(&self, local: SocketAddr, remote: Option<SocketAddr>) -> bool {
        let Some(remote) = remote else {
            return self.addresses == Addresses::default()
                && self.ports.allow(local.port(), local.port());
        };
        self.ports.allow(local.port(), remote.port())
            && self.addresses.allow(remote.ip().to_canonical())
    }
}

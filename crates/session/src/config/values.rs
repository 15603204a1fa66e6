//! What can be configured: the values, their defaults, and what they say of a session.
//!
//! Not here: how a value is read and shown; see `settings`.

use super::select::{Addresses, Ports, Programs};
use crate::stubs::KindT;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// The smallest ring there is.
const RING_BYTES_UDP: u32 = 4 << 10;

/// When a waiter spins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// As long as it promises to be cheaper than sleeping.
    #[default]
    Adaptive,
    /// Always.
    Always,
    /// Never.
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

/// What can be configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// TCP connections may move.
    pub tcp: bool,
    /// Unix stream connections may move.
    pub unix: bool,
    /// Pipes may move.
    pub pipe: bool,
    /// UDP sockets may be carried by their programs.
    pub udp: bool,
    /// TCP ports, of either end.
    pub ports: Ports,
    /// TCP addresses, of the other end.
    pub addresses: Addresses,
    /// Names of programs.
    pub programs: Programs,
    /// Data calls after which a session is hot.
    pub move_after_calls: u32,
    /// Bytes after which a session is hot.
    pub move_after_bytes: u64,
    /// Ring bytes for each direction of a TCP connection.
    pub ring_bytes_tcp: u32,
    /// Ring bytes for each direction of a Unix connection.
    pub ring_bytes_unix: u32,
    /// Ring bytes of a pipe.
    pub ring_bytes_pipe: u32,
    /// The call that makes a session hot waits for the server's word: for tests.
    pub await_moves: bool,
    /// Bulk transfers with other hosts go home where the kernel is measured to be faster.
    pub measure_bulk: bool,
    /// When a waiter spins.
    pub spin: Spin,
    /// The longest time a waiter spins (µs) where it always spins; 0: for ever.
    pub spin_budget_us: u32,
    /// Programs that make their own system calls are loaded by Sojourn's loader.
    pub load: bool,
    /// Fail instead of staying in the kernel where the user asked for acceleration: `sojourn run`
    /// fails if the program cannot be preloaded, the library is missing or no server can be had.
    pub strict: bool,
    /// Address of the server; empty: where it usually is, see [`crate::place`].
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
            move_after_calls: 32,
            move_after_bytes: 256 << 10,
            ring_bytes_tcp: 256 << 10,
            ring_bytes_unix: 128 << 10,
            ring_bytes_pipe: 128 << 10,
            await_moves: false,
            measure_bulk: true,
            spin: Spin::Adaptive,
            spin_budget_us: 0,
            load: false,
            strict: false,
            server: String::new(),
        }
    }
}

impl Config {
    /// Ring bytes wanted for each direction of a session.
    #[must_use]
    pub fn ring_bytes(&self, kind: KindT) -> u32 {
        match kind {
            KindT::Tcp => self.ring_bytes_tcp,
            KindT::Unix => self.ring_bytes_unix,
            KindT::Pipe => self.ring_bytes_pipe,
            // Its rings carry nothing.
            KindT::Udp => RING_BYTES_UDP,
        }
    }

    /// Whether sessions of this kind may move.
    #[must_use]
    pub fn allows(&self, kind: KindT) -> bool {
        match kind {
            KindT::Tcp => self.tcp,
            KindT::Unix => self.unix,
            KindT::Pipe => self.pipe,
            KindT::Udp => self.udp,
        }
    }

    /// Whether a TCP or UDP session between these ends may move, as far as ports and addresses go.
    /// A UDP socket that is not connected has no remote end: its peers are any.
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

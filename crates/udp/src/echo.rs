//! The echo of `--echo` (RFC 862): which datagrams it answers.
//!
//! Services that answer whatever comes can be made to answer each other without end, by one
//! datagram with a forged source. So an echo answers no port below 1024, where such services of
//! other hosts are (echo, character generator, time, domain), no port at which this process has an
//! echo, none of its own number, and nobody who is many. Two echoes of different hosts at different
//! ports from 1024 on are left, which nothing shows in a datagram. Not here: the ports (`port`).

use core::net::SocketAddrV4;

/// The first port that no service of the system has (RFC 6335, section 6).
const FIRST_USER: u16 = 1024;

/// The ports of this process's echoes.
#[derive(Clone, Debug)]
pub struct Echoes(pub Vec<u16>);

impl Echoes {
    /// Returns true if an echo at the port `own` may answer a datagram from there.
    pub fn may_answer(&self, own: u16, from: SocketAddrV4) -> bool {
        let (ip, port) = (from.ip(), from.port());
        let is_many = ip.is_multicast() || ip.is_broadcast() || ip.is_unspecified();
        !is_many && port >= FIRST_USER && port != own && !self.0.contains(&port)
    }
}

#[cfg(test)]
#[path = "echo_tests.rs"]
mod tests;

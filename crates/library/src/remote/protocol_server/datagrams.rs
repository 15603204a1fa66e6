//! The calls to the protocol server that send and receive datagrams.
//!
//! Not here: who makes them (`io::datagrams::served`), and the connections (`protocol_server`).

use super::ProtocolServer;
use crate::remote::channel::Failure;
use crate::remote::direct::Ended;
use crate::session::datagram::{Datagram, MessageRoom};
use crate::session::service::ServiceNumber;
use core::ops::ControlFlow;
use rustix::io::IoSlice;
use sojourn_ipc::Deadline;
use std::net::SocketAddr;

impl ProtocolServer {
    /// Sends a datagram, or several of `segment` bytes each but the last; to the connected peer if
    /// there is no target.
    pub(crate) fn send_to(
        &self,
        number: ServiceNumber,
        bufs: &[IoSlice<'_>],
        target: Option<SocketAddr>,
        segment: Option<u16>,
    ) -> Result<(), Failure> {
        self.ask_of(number, |channel| channel.send_to(number.session, bufs, target, segment))
    }

    /// Receives a datagram that is there.
    pub(crate) fn receive_from(
        &self,
        number: ServiceNumber,
        into: &mut MessageRoom<'_, '_>,
        peek: bool,
    ) -> Result<Datagram, Failure> {
        self.ask_of(number, |channel| channel.receive_from(number.session, into, peek))
    }

    /// Receives a datagram, and waits for it in the server; `Break` if that has ended without one.
    /// `None`: no connection is left for that.
    pub(crate) fn receive_from_waiting(
        &self,
        number: ServiceNumber,
        into: &mut MessageRoom<'_, '_>,
        until: Deadline,
    ) -> Option<Result<ControlFlow<Ended, Datagram>, Failure>> {
        self.wait_on(number, |taken| taken.receive_from(number.session, into, until))
    }
}

//! Datagram calls on UDP sockets, as far as they differ from calls on streams.
//!
//! Not here: those on sockets that the protocol server serves (`served`).
//!
//! The calls here take and return socket addresses; C's address structures and control data are the
//! shell's. Read `docs/understand/moves.md`, "UDP".
//!
//! # Theory of operation
//! A UDP socket that is away has two queues: the library's, which the pump fills with plain
//! datagrams from other hosts, and the kernel's, which gets everything else (fragments, multicast,
//! this host's own, errors). A receive takes from the library's queue. It asks the kernel after an
//! event of the descriptor, and before it says that there is nothing. When both queues have
//! something they take turns. The order between the queues does not matter; within each it is kept.
//! A send goes past the kernel if the pump can do it, and else through the socket, for each
//! datagram on its own. So a move has to wait for one thing only: no thread may sit in the kernel
//! for datagrams that will come to the other queue.
//!
//! On the way home the server first gives the packets back to the kernel; then it repeats the
//! unread datagrams to the kernel.

mod served;

use crate::host::kernel;
use crate::host::lock::lock;
use crate::io::call_flags::Recv;
use crate::io::placement::Room;
use crate::io::sleep::Waited;
use crate::process::library::OwnSession;
use crate::remote::carried::await_word;
use crate::remote::carry_server::ANSWER_LIMIT;
use crate::remote::net::Net;
use crate::remote::net::datagrams::has_unread;
use crate::session::datagram::{Datagram, Told};
use crate::session::directions::{Receiver, RxPhase};
use crate::session::identity::Generation;
use crate::session::transport::{Transport, Udp};
use crate::session::{Ready, Session};
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{AddressFamily, sockopt};
use sojourn_proto::udp::Socket;
use sojourn_pump::ancillary::{self, ControlMessages, DatagramAncillary};
use sojourn_pump::options;
use sojourn_session::ReasonT;
use sojourn_shm::Deadline;
use sojourn_shm::deadline::{now_ns, since};
use sojourn_stream::Stream;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

/// The stillness after which the server need not give the packets back any more, nor repeat the
/// unread datagrams to the kernel: that includes the start of the next server. Whether a server has
/// them makes no difference, as it does for a connection: only datagrams are lost.
const RETURN_LIMIT: Duration = Duration::from_secs(5);
/// Slices that one receive fills at most.
pub const PARTS_MAX: usize = 16;

/// Bits of [`Udp::form`].
pub(crate) mod form {
    /// An IPv6 socket.
    pub(crate) const IS_V6: u32 = 1;
    /// Datagrams over IPv4 may go past the kernel.
    pub(crate) const TAKES_V4: u32 = 2;
    /// Both bits of this module. The higher bits are those of `ancillary::wants`: the control data
    /// that the program wants.
    pub(crate) const ALL: u32 = 3;
}

/// The outcome of one receive.
#[derive(Clone, Copy, Debug)]
pub enum ReceiveOutcome {
    /// A datagram.
    Here(Datagram),
    /// The caller asks the kernel's queue, without waiting, and reports any result other than
    /// `EAGAIN` by [`kernel_gave`](crate::DatagramCall::kernel_gave). If the kernel has nothing
    /// either, `EAGAIN` is the program's result if `is_last`; if not, the caller receives again.
    Kernel {
        /// Both queues have been asked.
        is_last: bool,
    },
}

/// The state of a receiving call between its steps.
#[derive(Debug, Default)]
pub struct Attempt {
    deadline: Option<Deadline>,
    has_turned: bool,
    has_asked: bool,
    /// The control messages with a datagram of the protocol server's.
    messages: Option<ControlMessages>,
}

impl Attempt {
    /// Returns the control messages with the datagram, for [`Told::write`].
    #[must_use]
    pub fn messages(&self) -> Option<&ControlMessages> {
        self.messages.as_ref()
    }
}

enum DatagramReceived {
    Got(Datagram),
    Kernel,
    Empty,
    Leave(ReasonT),
    Home,
}

/// A UDP session, as it was when a call began.
#[derive(Clone, Copy)]
pub(in crate::io) struct UdpSession<'a> {
    pub(in crate::io) session: OwnSession<'a>,
    pub(in crate::io) udp: &'a Udp,
    /// The generation of its slot.
    pub(in crate::io) generation: Generation,
}

impl OwnSession<'_> {
    /// Takes over an option that the program has set and that the engine obeys.
    pub(crate) fn options_changed(self) {
        let Transport::Udp(udp) = self.transport() else { return };
        let rx = lock(&self.rx);
        self.learn_options(udp, &rx);
        let ip = rx.datagrams.as_ref().map(|socket| lock(socket).ip());
        if let (Some(ip), Some(net)) = (ip, self.library.net()) {
            net.with_pump(self.library, |pump| pump.set_ip(self.pump_number(), ip));
        }
    }

    /// Returns the length (bytes) of the next datagram in the library's queue; `None` for other
    /// sessions.
    pub(crate) fn next_datagram(self) -> Option<usize> {
        let Transport::Udp(_) = self.transport() else { return None };
        if self.service.is_any() {
            return self.next_datagram_by_service();
        }
        if self.is_delegated() {
            self.library.turn_net();
        }
        let rx = lock(&self.rx);
        let socket = lock(rx.datagrams.as_ref()?);
        socket.is_readable().then(|| socket.siocinq())
    }

    /// Gives a frozen UDP session's packets back: waits until the kernel has the packets again, and
    /// then the datagrams that the program has not read.
    pub(crate) fn return_datagrams(self, rx: &mut Receiver, stream: &Stream, reason: ReasonT) {
        rx.datagrams = None;
        // SYNC: the stream is frozen by now; pairs with `Net::begin_datagrams`, also if there is no
        // `Net` yet.
        fence(Ordering::SeqCst);
        let net = self.library.engine().zip(self.library.net());
        let net = net.filter(|(_, net)| net.withdraw(&self));
        // Nothing is sent past the kernel any more: the server may remove the rules of a port.
        stream.set_flushing(0);
        stream.attention();
        let Some((_, net)) = net else { return };
        // The server has given an unknown session's leftovers to the kernel itself. Without a
        // server nobody takes the packets back, and a socket that is being closed does not need
        // them.
        let is_server_there = reason != ReasonT::PeerDied
            && (reason != ReasonT::Closed || net.server.is_there(self.library));
        if is_server_there {
            let is_told = || stream.peer_flushing().is_some() || stream.peer_flushed().is_some();
            self.await_server(net, stream, is_told);
        }
        let ended = net.end_datagrams(self.slot());
        let (Some(token), Some(record)) = (ended.token, ended.unread) else { return };
        let is_wanted = has_unread(&record) && reason != ReasonT::Closed && is_server_there;
        if is_wanted && net.give_unread(self.library, token, &record) {
            self.await_server(net, stream, || stream.peer_flushed().is_some());
        }
    }

    /// Waits until the server, this one or the next, has decided.
    fn await_server(self, net: &Net, stream: &Stream, is_decided: impl Fn() -> bool) {
        let mut still = self.library.returns.begin();
        while !is_decided() {
            await_word(stream, &mut still, &is_decided);
            if still.spent() >= RETURN_LIMIT {
                break;
            }
            if !is_decided() {
                // The call also makes the connection on which the unread datagrams go.
                let begun = now_ns();
                net.server.is_there(self.library);
                still.called(since(begun), ANSWER_LIMIT);
            }
        }
        self.library.returns.end(still, is_decided());
    }
}

impl Session {
    /// Notes that the pump fills `socket`'s queue from now on.
    pub(crate) fn receives_datagrams(&self, socket: Arc<Mutex<Socket>>) {
        let Transport::Udp(udp) = self.transport() else { return };
        let mut rx = lock(&self.rx);
        // The session may have gone home already; that happens under the same lock.
        if !self.is_delegated() {
            return;
        }
        rx.datagrams = Some(socket);
        // The record is older than the options that the program has set since it was made.
        self.learn_options(udp, &rx);
        drop(rx);
        // Threads that wait for the kernel alone wake up, and wait for both queues.
        self.kernel_event();
    }

    /// Reads the options that the engine obeys from the kernel's socket. The caller holds the
    /// receiver's lock, so that the value set last is the one read last.
    fn learn_options(&self, udp: &Udp, rx: &Receiver) {
        let Ok(fd) = kernel::at(self.number()) else { return };
        udp.form.store(form_of(fd) | ancillary::wanted(fd), Ordering::SeqCst);
        if let Some(socket) = &rx.datagrams {
            let (found, mut socket) = (options::read_udp(fd), lock(socket));
            socket.set_gro(found.gro);
            socket.set_gso_size(found.gso_size);
            let ip = options::read_ip(fd, socket.local());
            socket.set_ip(ip);
        }
    }

    /// Notes that the kernel's queue had something: it may have more.
    pub(crate) fn kernel_gave(&self) {
        self.rx_kernel_event.store(true, Ordering::SeqCst);
    }

    /// Returns true if a datagram waits in the library's queue.
    pub(crate) fn has_datagram(&self, rx: &Receiver) -> bool {
        rx.datagrams.as_ref().is_some_and(|socket| lock(socket).is_readable())
    }

    /// Tells what is known of readiness; see [`OwnSession::ready`].
    pub(crate) fn ready_for_datagrams(&self) -> Ready {
        let (has_datagram, receives, phase) = {
            let rx = lock(&self.rx);
            (self.has_datagram(&rx), rx.stream.is_some(), rx.phase)
        };
        Ready {
            input: has_datagram && matches!(phase, RxPhase::Joined | RxPhase::Ring),
            // The kernel's send buffer decides.
            output: None,
            error: false,
            is_home: !receives && lock(&self.tx).stream.is_none(),
            is_in_kernel: phase == RxPhase::Joined,
            others: 0,
        }
    }
}

impl UdpSession<'_> {
    /// Receives one datagram. `None` means that the session is home and the kernel serves this
    /// call.
    pub(in crate::io) fn receive(
        self,
        bufs: &mut [IoSliceMut<'_>],
        how: Recv,
        attempt: &mut Attempt,
    ) -> Option<Result<ReceiveOutcome, Errno>> {
        let session = self.session;
        let may_wait = session.may_wait(how.dont_wait);
        loop {
            match self.step(bufs, how.peek) {
                DatagramReceived::Home => {
                    session.settle();
                    return None;
                }
                DatagramReceived::Leave(reason) => {
                    session.leave(reason, false);
                    continue;
                }
                DatagramReceived::Got(datagram) => return Some(Ok(ReceiveOutcome::Here(datagram))),
                DatagramReceived::Kernel => {
                    return Some(Ok(ReceiveOutcome::Kernel { is_last: false }));
                }
                // Packets that have arrived count as received, so they are taken in before the call
                // says that there is nothing.
                DatagramReceived::Empty if !attempt.has_turned && session.is_delegated() => {
                    attempt.has_turned = true;
                    session.library.turn_net();
                    continue;
                }
                DatagramReceived::Empty => {}
            }
            if may_wait {
                let limit = session.receive_timeout.load(Ordering::Relaxed);
                let until = *attempt.deadline.get_or_insert_with(|| Deadline::from_limit(limit));
                match session.wait_readable(until, &Room::none()) {
                    Waited::Look | Waited::Restart if !session.library.host().can_write(bufs) => {
                        return Some(Err(Errno::FAULT));
                    }
                    Waited::Look | Waited::Restart => continue,
                    Waited::Interrupted => return Some(Err(Errno::INTR)),
                    Waited::TimedOut => {}
                }
            }
            // The kernel's queue may have got a datagram just now, and the program may have heard
            // of it from somebody who sent it. So the kernel is asked once before the call fails.
            if core::mem::replace(&mut attempt.has_asked, true) {
                return Some(Err(Errno::AGAIN));
            }
            return Some(Ok(ReceiveOutcome::Kernel { is_last: true }));
        }
    }

    fn step(self, bufs: &mut [IoSliceMut<'_>], peek: bool) -> DatagramReceived {
        let session = self.session;
        let mut rx = lock(&session.rx);
        let is_another = !session.is_still(self.generation);
        if is_another || rx.phase == RxPhase::Home {
            return DatagramReceived::Home;
        }
        let Some(stream) = &rx.stream else { return DatagramReceived::Home };
        if stream.is_frozen() {
            return DatagramReceived::Leave(ReasonT::PeerLeft);
        }
        if rx.phase == RxPhase::Joined {
            let stream = Arc::clone(stream);
            session.consent_to_carrier(&mut rx, &stream);
        }
        let is_kernels_turn =
            !rx.was_kernels_turn && session.rx_kernel_event.load(Ordering::Relaxed);
        if !is_kernels_turn && let Some(datagram) = self.take(&rx, bufs, peek) {
            rx.was_kernels_turn = false;
            return DatagramReceived::Got(datagram);
        }
        // Cleared before the kernel is asked, so that an event meanwhile is found by the next look.
        if session.rx_kernel_event.swap(false, Ordering::SeqCst) {
            rx.was_kernels_turn = true;
            return DatagramReceived::Kernel;
        }
        DatagramReceived::Empty
    }

    fn take(self, rx: &Receiver, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Option<Datagram> {
        let mut socket = lock(rx.datagrams.as_ref()?);
        let mut parts = core::array::from_fn::<&mut [u8], PARTS_MAX, _>(|_| &mut []);
        let count = bufs.len().min(PARTS_MAX);
        for (part, buf) in parts.iter_mut().zip(bufs) {
            *part = &mut **buf;
        }
        let parts = &mut parts[..count];
        let got = if peek { socket.peek(parts) } else { socket.recv(parts) }?;
        let wants = self.udp.form.load(Ordering::Relaxed);
        let is_v6 = wants & form::IS_V6 != 0;
        let source = match got.source.ip() {
            // An IPv6 socket shows a sender's IPv4 address as an IPv4-mapped one (ipv6(7), RFC 4291
            // section 2.5.5.2).
            IpAddr::V4(ip) if is_v6 => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), got.source.port())
            }
            _ => got.source,
        };
        let told = Told::Values(DatagramAncillary {
            wants: wants & !form::ALL,
            envelope: got.envelope,
            interface: socket.interface(),
            segment_size: got.segment_size,
        });
        Some(Datagram { source, len: got.len, copied: got.copied, told })
    }

    /// Sends a datagram past the kernel; returns the number of bytes. `None` means that the
    /// kernel's socket sends it, or says why it cannot.
    pub(in crate::io) fn send(
        self,
        bufs: &[IoSlice<'_>],
        target: Option<SocketAddr>,
        segment: Option<u16>,
    ) -> Option<usize> {
        let session = self.session;
        if !session.is_still(self.generation) {
            return None;
        }
        // An error that an earlier datagram caused is this call's to return, and the kernel has it.
        if session.tx_kernel_event.swap(false, Ordering::SeqCst)
            && kernel::has_error(session.number())
        {
            return None;
        }
        let form = self.udp.form.load(Ordering::Relaxed);
        let target = match target {
            Some(target) => Some(plain(target, form)?),
            None => None,
        };
        let is_sent = session.send_past(target, bufs, segment);
        is_sent.then(|| bufs.iter().map(|buf| buf.len()).sum())
    }
}

/// Returns the target as it is on the wire, if datagrams to it may go past the kernel.
fn plain(target: SocketAddr, form: u32) -> Option<SocketAddr> {
    let (is_v6, takes_v4) = (form & form::IS_V6 != 0, form & form::TAKES_V4 != 0);
    match target {
        SocketAddr::V4(_) => takes_v4.then_some(target),
        // The engine sends neither scoped addresses nor flow labels.
        SocketAddr::V6(to) if to.scope_id() != 0 || to.flowinfo() != 0 => None,
        SocketAddr::V6(to) => match to.ip().to_canonical() {
            IpAddr::V4(ip) => (is_v6 && takes_v4).then_some(SocketAddr::new(ip.into(), to.port())),
            IpAddr::V6(_) => is_v6.then_some(target),
        },
    }
}

/// Returns the bits of [`form`] for a socket. An IPv6 socket has separate options for IPv4, which
/// the session record does not carry: if they differ from those for IPv6, the kernel sends over
/// IPv4.
fn form_of(fd: BorrowedFd<'_>) -> u32 {
    if sockopt::socket_domain(fd) != Ok(AddressFamily::INET6) {
        return form::TAKES_V4;
    }
    let is_alike = sockopt::ip_ttl(fd).ok() == sockopt::ipv6_unicast_hops(fd).ok().map(u32::from)
        && sockopt::ip_tos(fd).ok().map(u32::from) == sockopt::ipv6_tclass(fd).ok();
    let takes_v4 = is_alike && sockopt::ipv6_v6only(fd) == Ok(false);
    form::IS_V6 | if takes_v4 { form::TAKES_V4 } else { 0 }
}

#[cfg(test)]
#[path = "datagrams_tests.rs"]
mod tests;

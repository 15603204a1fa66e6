//! Datagram calls on UDP sockets: what is different from streams.
//!
//! # Theory of operation
//! The socket has two queues: the library's, which the pump fills with plain datagrams from other
//! hosts, and the kernel's, which has everything else (fragments, multicast, this host's own,
//! errors). A receive takes from the library's, and asks the kernel when its descriptor has had an
//! event, and before it says that there is nothing. By turns, when both have something. The order
//! between the two does not matter; within each it is kept. A send goes past the kernel if the pump
//! can do it, and else through the socket, datagram by datagram. So nothing has to be waited for
//! when a socket moves, but that no thread sits in the kernel for what comes to the other queue.
//!
//! On the way home the server first gives the packets back to the kernel, then what was not read is
//! said to the kernel again. Read `docs/understand/moves.md`, "UDP". Calls with addresses and
//! control data are the shell's; here are endpoints.

use crate::host::kernel;
use crate::host::lock::lock;
use crate::io::call_flags::Recv;
use crate::io::placement::Room;
use crate::io::sleep::Waited;
use crate::process::library::library;
use crate::remote::net::Net;
use crate::remote::net::datagrams::has_unread;
use crate::session::Session;
use crate::session::directions::{Receiver, RxPhase};
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{AddressFamily, sockopt};
use sojourn_proto::udp::Socket;
use sojourn_pump::ancillary::{self, Told};
use sojourn_pump::options;
use sojourn_session::{KindT, ReasonT};
use sojourn_shm::Deadline;
use sojourn_stream::{Bell, Stream};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

/// How long the server may take to give the packets back, and to say to the kernel what was not
/// read.
const RETURN_LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether the server lives.
const RETURN_SLICE: Duration = Duration::from_millis(20);
/// Slices that one receive fills.
pub const PARTS_MAX: usize = 16;

/// Bits of [`Session::form`].
pub(crate) mod form {
    /// An IPv6 socket.
    pub(crate) const IS_V6: u32 = 1;
    /// IPv4 datagrams may go past the kernel.
    pub(crate) const TAKES_V4: u32 = 2;
    /// Both. Higher ones are `ancillary::wants`.
    pub(crate) const ALL: u32 = 3;
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug)]
pub struct Datagram {
    /// Who sent it, as the socket's family has it.
    pub source: SocketAddr,
    /// Its length (bytes).
    pub len: usize,
    /// Bytes of it that had room.
    pub copied: usize,
    /// What the program wants to be told with it.
    pub told: Told,
}

/// What a receive came to.
#[derive(Clone, Copy, Debug)]
pub enum Got {
    /// A datagram.
    Here(Datagram),
    /// The kernel is to be asked, without waiting. If it has nothing either, that is the answer if
    /// `is_last`, and else the receive is to be made again. What it has is to be
    /// [reported](crate::Call::kernel_gave).
    Kernel {
        /// Nothing else is left to do.
        is_last: bool,
    },
}

/// What a receiving call remembers between its parts.
#[derive(Debug, Default)]
pub struct Attempt {
    deadline: Option<Deadline>,
    has_turned: bool,
    has_asked: bool,
}

enum DatagramReceived {
    Got(Datagram),
    Kernel,
    Empty,
    Leave(ReasonT),
    Home,
}

impl Session {
    /// A UDP socket's: calls on it are those of this file.
    #[inline]
    pub(crate) fn is_datagram(&self) -> bool {
        self.kind.load(Ordering::Relaxed) == KindT::Udp as u32
    }

    /// The pump has its queue from now on.
    pub(crate) fn receives_datagrams(&self, socket: Arc<Mutex<Socket>>) {
        let mut rx = lock(&self.rx);
        // It may have gone home already, which is done under the same lock.
        if !self.is_delegated() {
            return;
        }
        rx.datagrams = Some(socket);
        // What was set since the record was made holds, too.
        self.learn_options(&rx);
        drop(rx);
        // Whoever waits looks there as well from now on.
        self.kernel_event();
    }

    /// The program has set an option that is obeyed here.
    pub(crate) fn options_changed(&self) {
        let rx = lock(&self.rx);
        self.learn_options(&rx);
        let ip = rx.datagrams.as_ref().map(|socket| lock(socket).ip());
        if let (Some(ip), Some(net)) = (ip, library().net()) {
            net.with_pump(|pump| pump.set_ip(self.slot(), ip));
        }
    }

    /// Reads from the kernel's socket what is obeyed here. Under the receiver's lock, so that what
    /// was set last is read last.
    fn learn_options(&self, rx: &Receiver) {
        let Ok(fd) = kernel::at(self.number()) else { return };
        self.form.store(form_of(fd) | ancillary::wanted(fd), Ordering::SeqCst);
        if let Some(socket) = &rx.datagrams {
            let (found, mut socket) = (options::read_udp(fd), lock(socket));
            socket.set_gro(found.gro);
            socket.set_gso_size(found.gso_size);
            let ip = options::read_ip(fd, socket.local());
            socket.set_ip(ip);
        }
    }

    /// Receives one. `None`: the session is home, the kernel serves this call.
    pub(crate) fn receive_datagram(
        &self,
        generation: u32,
        bufs: &mut [IoSliceMut<'_>],
        how: Recv,
        attempt: &mut Attempt,
    ) -> Option<Result<Got, Errno>> {
        let may_wait = !how.dont_wait && !self.is_nonblocking.load(Ordering::Relaxed);
        loop {
            match self.datagram_step(generation, bufs, how.peek) {
                DatagramReceived::Home => {
                    self.settle();
                    return None;
                }
                DatagramReceived::Leave(reason) => {
                    self.leave(reason, false);
                    continue;
                }
                DatagramReceived::Got(datagram) => return Some(Ok(Got::Here(datagram))),
                DatagramReceived::Kernel => return Some(Ok(Got::Kernel { is_last: false })),
                // Packets that have arrived count as received.
                DatagramReceived::Empty if !attempt.has_turned && self.is_delegated() => {
                    attempt.has_turned = true;
                    library().turn_net();
                    continue;
                }
                DatagramReceived::Empty => {}
            }
            if may_wait {
                let limit = self.receive_timeout.load(Ordering::Relaxed);
                let until = *attempt.deadline.get_or_insert_with(|| Deadline::from_limit(limit));
                match self.wait_readable(until, &Room::none()) {
                    Waited::Look | Waited::Restart => continue,
                    Waited::Interrupted => return Some(Err(Errno::INTR)),
                    Waited::TimedOut => {}
                }
            }
            // It may have got something this moment, which the program knows of.
            if core::mem::replace(&mut attempt.has_asked, true) {
                return Some(Err(Errno::AGAIN));
            }
            return Some(Ok(Got::Kernel { is_last: true }));
        }
    }

    fn datagram_step(
        &self,
        generation: u32,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> DatagramReceived {
        let mut rx = lock(&self.rx);
        if self.generation.load(Ordering::Relaxed) != generation || rx.phase == RxPhase::Home {
            return DatagramReceived::Home;
        }
        let Some(stream) = &rx.stream else { return DatagramReceived::Home };
        if stream.is_frozen() {
            return DatagramReceived::Leave(ReasonT::PeerLeft);
        }
        if rx.phase == RxPhase::Joined {
            let stream = Arc::clone(stream);
            self.try_consent(&mut rx, &stream);
        }
        let is_kernels_turn = !rx.was_kernels_turn && self.rx_kernel_event.load(Ordering::Relaxed);
        if !is_kernels_turn && let Some(datagram) = self.take_datagram(&rx, bufs, peek) {
            rx.was_kernels_turn = false;
            return DatagramReceived::Got(datagram);
        }
        // Cleared before the kernel is asked, so that an event meanwhile is looked at next time.
        if self.rx_kernel_event.swap(false, Ordering::SeqCst) {
            rx.was_kernels_turn = true;
            return DatagramReceived::Kernel;
        }
        DatagramReceived::Empty
    }

    fn take_datagram(
        &self,
        rx: &Receiver,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Option<Datagram> {
        let mut socket = lock(rx.datagrams.as_ref()?);
        let mut parts = core::array::from_fn::<&mut [u8], PARTS_MAX, _>(|_| &mut []);
        let count = bufs.len().min(PARTS_MAX);
        for (part, buf) in parts.iter_mut().zip(bufs) {
            *part = &mut **buf;
        }
        let parts = &mut parts[..count];
        let got = if peek { socket.peek(parts) } else { socket.recv(parts) }?;
        let wants = self.form.load(Ordering::Relaxed);
        let is_v6 = wants & form::IS_V6 != 0;
        let source = match got.source.ip() {
            IpAddr::V4(ip) if is_v6 => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), got.source.port())
            }
            _ => got.source,
        };
        let told = Told {
            wants: wants & !form::ALL,
            envelope: got.envelope,
            interface: socket.interface(),
            segment_size: got.segment_size,
        };
        Some(Datagram { source, len: got.len, copied: got.copied, told })
    }

    /// The kernel had something: it may have more.
    pub(crate) fn kernel_gave(&self) {
        self.rx_kernel_event.store(true, Ordering::SeqCst);
    }

    /// Sends one past the kernel: how many bytes. `None`: the kernel's socket sends it, or says why
    /// not.
    pub(crate) fn send_datagram(
        &self,
        generation: u32,
        bufs: &[IoSlice<'_>],
        target: Option<SocketAddr>,
        segment: Option<u16>,
    ) -> Option<usize> {
        if self.generation.load(Ordering::Relaxed) != generation {
            return None;
        }
        // An error that came for an earlier one is for this call to say.
        if self.tx_kernel_event.swap(false, Ordering::SeqCst) && kernel::has_error(self.number()) {
            return None;
        }
        let form = self.form.load(Ordering::Relaxed);
        let target = match target {
            Some(target) => Some(plain(target, form)?),
            None => None,
        };
        let is_sent = self.send_past(target, bufs, segment);
        is_sent.then(|| bufs.iter().map(|buf| buf.len()).sum())
    }

    /// Whether one waits in the library's queue.
    pub(crate) fn has_datagram(&self, rx: &Receiver) -> bool {
        rx.datagrams.as_ref().is_some_and(|socket| lock(socket).is_readable())
    }

    /// Bytes of the next one in the library's queue, if one waits there.
    pub(crate) fn next_datagram(&self) -> Option<usize> {
        if self.is_delegated() {
            library().turn_net();
        }
        let rx = lock(&self.rx);
        let socket = lock(rx.datagrams.as_ref()?);
        socket.is_readable().then(|| socket.siocinq())
    }

    /// The stream is frozen: waits until the kernel has the packets again, and what the program has
    /// not read.
    pub(crate) fn return_datagrams(&self, rx: &mut Receiver, stream: &Stream, reason: ReasonT) {
        rx.datagrams = None;
        // SYNC: the stream is frozen by now; pairs with `Net::begin_datagrams`, also if there is no
        // `Net` yet.
        fence(Ordering::SeqCst);
        let net = library().engine().zip(library().net());
        let net = net.filter(|(_, net)| net.withdraw(self));
        stream.attention();
        let Some((_, net)) = net else { return };
        // Of an unknown session the server has given to the kernel what it found. Without a server
        // nobody gives a port back that is not used any more.
        let is_server_there =
            reason != ReasonT::PeerDied && (reason != ReasonT::Closed || net.has_server(library()));
        if is_server_there {
            let is_told = || stream.peer_flushing().is_some() || stream.peer_flushed().is_some();
            self.await_server(net, stream, is_told);
        }
        let (token, record) = net.end_datagrams(self.slot());
        let (Some(token), Some(record)) = (token, record) else { return };
        let is_wanted = has_unread(&record) && reason != ReasonT::Closed && is_server_there;
        if is_wanted && net.give_unread(token, &record) {
            self.await_server(net, stream, || stream.peer_flushed().is_some());
        }
    }

    /// Waits until the server has said something, this one or the next.
    fn await_server(&self, net: &Net, stream: &Stream, is_decided: impl Fn() -> bool) {
        // If there was no server for so long before, none is waited for again.
        let is_alone = net.is_alone.load(Ordering::SeqCst);
        let deadline = Deadline::after(if is_alone { RETURN_SLICE } else { RETURN_LIMIT });
        let mut has_server = true;
        while !is_decided() && !deadline.is_over() {
            let said = stream.announce_reader(Bell::OnFutex);
            if !is_decided() {
                stream.sleep_reader(said, Some(RETURN_SLICE));
            }
            stream.withdraw_reader();
            // It also sees to it that there is a connection for what was not read.
            has_server = is_decided() || net.has_server(library());
        }
        net.is_alone.store(!has_server, Ordering::SeqCst);
    }
}

/// A target that may go past the kernel, as it is on the wire.
fn plain(target: SocketAddr, form: u32) -> Option<SocketAddr> {
    let (is_v6, takes_v4) = (form & form::IS_V6 != 0, form & form::TAKES_V4 != 0);
    match target {
        SocketAddr::V4(_) => takes_v4.then_some(target),
        SocketAddr::V6(to) if to.scope_id() != 0 || to.flowinfo() != 0 => None,
        SocketAddr::V6(to) => match to.ip().to_canonical() {
            IpAddr::V4(ip) => (is_v6 && takes_v4).then_some(SocketAddr::new(ip.into(), to.port())),
            IpAddr::V6(_) => is_v6.then_some(target),
        },
    }
}

/// What a socket may do past the kernel. An IPv6 socket has options for IPv4 of its own, which the
/// record does not have: if they differ, IPv4 is the kernel's.
fn form_of(fd: BorrowedFd<'_>) -> u32 {
    if sockopt::socket_domain(fd) != Ok(AddressFamily::INET6) {
        return form::TAKES_V4;
    }
    let is_alike = sockopt::ip_ttl(fd).ok() == sockopt::ipv6_unicast_hops(fd).ok().map(u32::from)
        && sockopt::ip_tos(fd).ok().map(u32::from) == sockopt::ipv6_tclass(fd).ok();
    let takes_v4 = is_alike && sockopt::ipv6_v6only(fd) == Ok(false);
    form::IS_V6 | if takes_v4 { form::TAKES_V4 } else { 0 }
}

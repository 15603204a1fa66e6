//! Receives that are about to sleep when something happens to their socket: a datagram comes to
//! either queue, the session begins to be carried, or it goes home. None may sleep on.
//!
//! What happens is made to happen between the call's last look and its sleep, by the shell: the
//! library asks it for signals there.

use super::*;
use crate::host::{Host, Interrupt};
use crate::io::calls::Route;
use crate::process::library::library;
use crate::session_fakes::{Hostile, Pair};
use core::cell::RefCell;
use core::net::Ipv4Addr;
use sojourn_proto::record::{Kind, SessionRecord, UdpRecord};
use sojourn_proto::udp::{Envelope, Limits};
use std::os::fd::{AsFd, AsRawFd};

/// How long a receive waits that misses its datagram.
const LIMIT: Duration = Duration::from_secs(20);

/// The bit of a bell for a thread that sleeps on it.
const SLEEPS: u32 = 1;

type Event = Box<dyn FnOnce()>;

std::thread_local! {
    /// What is to happen once the thread has announced its sleep on the stream.
    static NEXT: RefCell<Option<(Arc<Stream>, Event)>> = const { RefCell::new(None) };
}

/// A shell at whose questions for signals something else happens.
#[derive(Debug)]
struct Shell;

impl Host for Shell {
    fn wait_begins(&self) {}
    fn wait_ends(&self) {}
    fn interrupt(&self) -> Interrupt {
        let is_announced = |(stream, _): &mut (Arc<Stream>, Event)| {
            stream.reader_bell().load(Ordering::SeqCst) & SLEEPS != 0
        };
        let event = NEXT.with_borrow_mut(|next| next.take_if(is_announced));
        if let Some((_, happens)) = event {
            happens();
        }
        Interrupt::None
    }
    fn stdio_uses(&self, _fd: i32) -> bool {
        false
    }
    fn close(&self, _fd: i32) {}
}

/// Receives as a shell does.
fn receive(fd: i32) -> Result<Vec<u8>, Errno> {
    let (mut buf, mut attempt) = ([0; 64], Attempt::default());
    let ask = |buf: &mut [u8], flags| {
        let fd = kernel::at(fd)?;
        rustix::net::recv(fd, &mut *buf, flags).map(|(len, _)| buf[..len].to_vec())
    };
    loop {
        let Route::Datagrams(call) = library().reading(fd) else {
            return ask(&mut buf, rustix::net::RecvFlags::empty());
        };
        let bufs = &mut [IoSliceMut::new(&mut buf)];
        match call.receive(bufs, Recv::default(), &mut attempt) {
            None => {}
            Some(Ok(ReceiveOutcome::Here(got))) => return Ok(buf[..got.copied].to_vec()),
            Some(Ok(ReceiveOutcome::Kernel { is_last })) => {
                let got = ask(&mut buf, rustix::net::RecvFlags::DONTWAIT);
                if got != Err(Errno::AGAIN) {
                    call.kernel_gave();
                } else if !is_last {
                    continue;
                }
                return got;
            }
            Some(Err(error)) => return Err(error),
        }
    }
}

/// A UDP socket whose session has joined, its peer, and the side of its stream that the pump has.
struct World {
    pair: Pair,
    pump: Hostile,
    queue: Arc<Mutex<Socket>>,
}

impl World {
    fn new() -> Self {
        library().set_host(&Shell);
        let pair = Pair::datagrams(LIMIT);
        let pump = pair.join_hostile();
        let end = pair.ends[0].as_ref().unwrap();
        let address = |found: rustix::io::Result<_>| SocketAddr::try_from(found.unwrap()).unwrap();
        let local = address(rustix::net::getsockname(end));
        let remote = address(rustix::net::getpeername(end).map(Option::unwrap));
        let udp = UdpRecord {
            options: options::read_udp(end.as_fd()),
            interface: 1,
            receive_queue: Vec::new(),
        };
        let record = SessionRecord {
            local,
            remote: Some(remote),
            ip: options::read_ip(end.as_fd(), local),
            kind: Kind::Udp(udp),
        };
        let limits = Limits { receive_bytes_max: 1 << 16, datagrams_max: 16 };
        let queue = Arc::new(Mutex::new(Socket::import(&record, &limits).unwrap()));
        Self { pair, pump, queue }
    }

    fn session(&self) -> OwnSession<'static> {
        library().session_of(self.pair.fd(0)).unwrap()
    }

    /// The peer sends to the kernel's queue, and the protocol thread hears of it.
    fn kernel_gets(&self) -> Event {
        let (peer, session) = (self.pair.ends[1].as_ref().unwrap().as_raw_fd(), self.session());
        Box::new(move || {
            send(peer);
            session.kernel_event();
        })
    }

    /// A datagram comes to the library's queue, as the pump brings it.
    fn queue_gets(&self) -> impl FnOnce() + use<> {
        let (queue, source) = (Arc::clone(&self.queue), lock(&self.queue).peer().unwrap());
        move || {
            let target = Ipv4Addr::LOCALHOST.into();
            let envelope = Envelope { target, traffic_class: 0, hop_limit: 64, time_ns: 0 };
            lock(&queue).on_datagram(source, &envelope, b"answer", 0);
        }
    }

    /// The session is delegated.
    fn is_delegated(&self) -> impl FnOnce() + use<> {
        let (session, queue) = (self.session(), Arc::clone(&self.queue));
        move || {
            session.is_delegated.store(true, Ordering::SeqCst);
            session.receives_datagrams(queue);
        }
    }

    /// Receives, while `happens` happens between the call's last look and its sleep.
    fn receive_while(&self, happens: Event) -> Result<Vec<u8>, Errno> {
        let stream = self.session().stream().unwrap();
        NEXT.set(Some((stream, happens)));
        let got = receive(self.pair.fd(0));
        assert!(NEXT.with_borrow(Option::is_none), "nothing has happened");
        got
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(session) = library().session_of(self.pair.fd(0)) {
            session.is_delegated.store(false, Ordering::SeqCst);
        }
    }
}

fn send(peer: i32) {
    let flags = rustix::net::SendFlags::empty();
    assert_eq!(rustix::net::send(kernel::at(peer).unwrap(), b"answer", flags), Ok(6));
}

#[test]
fn the_kernels_queue_gets_a_datagram() {
    let world = World::new();
    assert_eq!(world.receive_while(world.kernel_gets()), Ok(b"answer".to_vec()));
    (world.is_delegated())();
    assert_eq!(world.receive_while(world.kernel_gets()), Ok(b"answer".to_vec()), "delegated");
}

#[test]
fn the_session_is_delegated_with_a_datagram() {
    let world = World::new();
    let (gets, delegated) = (world.queue_gets(), world.is_delegated());
    let happens = Box::new(move || {
        gets();
        delegated();
    });
    assert_eq!(world.receive_while(happens), Ok(b"answer".to_vec()));
}

#[test]
fn the_session_is_delegated_and_a_datagram_comes_to_either_queue() {
    for is_kernels in [false, true] {
        let world = World::new();
        let (delegated, pump) = (world.is_delegated(), world.pump.view());
        let (gets, kernel) = (world.queue_gets(), world.kernel_gets());
        let happens = Box::new(move || {
            delegated();
            if is_kernels {
                kernel();
            } else {
                gets();
                pump.notify_peer();
            }
        });
        assert_eq!(world.receive_while(happens), Ok(b"answer".to_vec()), "{is_kernels}");
    }
}

#[test]
fn the_library_s_queue_gets_a_datagram() {
    let world = World::new();
    (world.is_delegated())();
    // The call that begins now knows the queue.
    let (gets, pump) = (world.queue_gets(), world.pump.view());
    let happens = Box::new(move || {
        gets();
        pump.notify_peer();
    });
    assert_eq!(world.receive_while(happens), Ok(b"answer".to_vec()));
}

#[test]
fn the_session_goes_home_and_the_kernel_has_the_datagram() {
    for (is_away, is_before) in [(false, false), (false, true), (true, false), (true, true)] {
        let world = World::new();
        if is_away {
            (world.is_delegated())();
        }
        let (session, peer) = (world.session(), world.pair.ends[1].as_ref().unwrap().as_raw_fd());
        let happens = Box::new(move || {
            if is_before {
                send(peer);
            }
            session.is_delegated.store(false, Ordering::SeqCst);
            session.leave(ReasonT::Operation, false);
            if !is_before {
                send(peer);
            }
        });
        let got = world.receive_while(happens);
        assert_eq!(got, Ok(b"answer".to_vec()), "away {is_away}, before {is_before}");
        assert!(library().session_of(world.pair.fd(0)).is_none());
    }
}

/// The server removes the rules of a port once this side says that it sends no more: what a port
/// sends after that does not leave the host.
#[test]
fn the_server_hears_that_nothing_is_sent_past_the_kernel_any_more() {
    let world = World::new();
    (world.is_delegated())();
    let (session, server) = (world.session(), world.pump.view());
    server.consent();
    server.use_ring();
    session.attend();
    assert!(server.ledger().has_given_up());
    server.freeze();
    assert_eq!(server.peer_flushing(), None);
    // There is no server that would take it back.
    session.is_delegated.store(false, Ordering::SeqCst);
    session.leave(ReasonT::PeerLeft, false);
    assert_eq!(server.peer_flushing(), Some(0));
}

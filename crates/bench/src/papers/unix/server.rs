//! A Unix server: a process that answers the UDP calls of unmodified programs and reaches the
//! network by a packet interface.
//!
//! One thread takes calls, another takes frames; one lock is between them. It stands for the
//! servers of 1992, in the papers' tables alone, and trusts its clients. The network's other hosts
//! are known beforehand: there is no ARP. Not here: the sockets (`sockets`).

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use sojourn_ipc::{
    Address, Deadline, Endpoint, Event, ReadyReply, ReplyToken, Request, ServerOptions, Wait,
};
use sojourn_netif::{Interface, LinkType, Outgoing};
use sojourn_wire::ethernet::{self, EtherType};
use sojourn_wire::frame::{self, Fields, HEADERS_BYTES_MAX, Header, Offload, PacketFields};
use sojourn_wire::ip::Ecn;
use sojourn_wire::{FlowKey, MacAddress, Protocol};

use super::super::emulation::client::{Peer, WORD, op};
use super::super::emulation::server::{ReadArgument, reply};
use super::sockets::{Arrived, Sockets, Waiter};

/// Frames taken at once.
const BUDGET: usize = 16;
/// Frames that may be on their way between the two threads of [`Mistake::WiredThreads`].
const HANDED_MAX: usize = 64;
/// Operations of priority levels on the way of one datagram through one server: the paper counted
/// about 50 in a round trip, which is four such ways.
const LEVELS: usize = 13;

/// What older servers did wrong, according to the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// The kernel's priority levels, simulated by a lock and a look for what waited for them.
    PriorityLevels,
    /// Frames are handed from the thread that takes them to another one, which processes them.
    WiredThreads,
}

/// The addresses of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SideAddresses {
    pub(crate) ip: std::net::Ipv4Addr,
    pub(crate) mac: MacAddress,
}

/// The server's state; `W` waits for a datagram.
struct Unix<W> {
    device: Box<dyn Interface + Send>,
    sockets: Sockets<W>,
    sides: [SideAddresses; 2],
    identification: u16,
    levels: Option<Levels>,
}

/// Simulated priority levels.
#[derive(Default)]
struct Levels {
    level: Mutex<u32>,
    pending: Mutex<Vec<u32>>,
}

impl Levels {
    /// Raises the level and restores it, as often as a datagram's way takes.
    fn pass(&self) {
        for _ in 0..LEVELS {
            let before = core::mem::replace(&mut *lock(&self.level), 5);
            *lock(&self.level) = before;
            // What came while the level was high is done now.
            lock(&self.pending).drain(..).for_each(drop);
        }
    }
}

impl Waiter for ReplyToken {
    fn give(self, arrived: &Arrived, most: usize) {
        let data = &arrived.data[..arrived.data.len().min(most)];
        let answer = Peer { number: data.len(), address: arrived.from }.pack();
        let _ = reply(self, answer, data).send();
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<W: Waiter> Unix<W> {
    fn send(&mut self, to: Peer, data: &[u8]) -> Result<i64> {
        if let Some(levels) = &self.levels {
            levels.pass();
        }
        let [own, peer] = self.sides;
        let port = self.sockets.port_of(to.number).context("a socket without a port")?;
        let flow = FlowKey {
            protocol: Protocol::Udp,
            source: (own.ip, port).into(),
            target: to.address.into(),
        };
        let link = ethernet::Header::new(own.mac, peer.mac, EtherType::IPV4);
        let header = Header::new(Some(link), flow, Fields::default());
        let header = header.map_err(|_| anyhow::anyhow!("no header"))?;
        self.identification = self.identification.wrapping_add(1);
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let (ecn, whole) = (Ecn::default(), Offload::Nothing);
        let made = header.emit_udp(
            &[data],
            PacketFields { ecn, identification: self.identification, offload: whole },
            &mut bytes,
        );
        let made = made.map_err(|_| anyhow::anyhow!("too long"))?;
        let parts: [&[u8]; 3] = [&bytes[..made.len], data, &[]];
        self.device.send(&Outgoing { vnet: made.vnet, parts })?;
        self.device.flush()?;
        Ok(data.len() as i64)
    }

    fn arrived(&mut self, bytes: &[u8]) {
        if let Some(levels) = &self.levels {
            levels.pass();
        }
        let Ok(frame) = frame::parse(bytes, LinkType::Ethernet) else { return };
        let (std::net::SocketAddr::V4(from), std::net::SocketAddr::V4(to)) =
            (frame.key.source, frame.key.target)
        else {
            return;
        };
        let Some(datagram) = frame.datagram() else { return };
        if *to.ip() == self.sides[0].ip && frame.checksum_is_right() {
            self.sockets.arrived(to.port(), from, datagram.payload());
        }
    }
}

impl Unix<ReplyToken> {
    fn on_call(&mut self, request: Request<'_>) -> Result<Option<ReadyReply>> {
        let body = request.body();
        ensure!(body.len() >= WORD, "a question without its argument");
        let (head, inline) = body.split_at(WORD);
        let argument = i64::from_ne_bytes(head.try_into()?);
        let answer = match request.op() {
            op::SOCKET => self.sockets.make(),
            op::BIND => {
                let Peer { number, address } = Peer::unpack(argument);
                self.sockets.bind(number, address.port())
            }
            op::SENDTO => self.send(Peer::unpack(argument), request.item(0).unwrap_or(inline))?,
            op::RECVFROM => {
                let ReadArgument { object: socket, most } = ReadArgument::of(argument);
                self.sockets.receive(socket, request.into_token(), most);
                return Ok(None);
            }
            other => bail!("no such operation: {other}"),
        };
        Ok(Some(reply(request.into_token(), answer, &[])))
    }
}

/// Serves under an abstract name until the process is killed; `ready` is called when clients may
/// connect. The first of `sides` is the server's own, the other its peer's.
pub(crate) fn serve(
    name: &str,
    device: Box<dyn Interface + Send>,
    sides: [SideAddresses; 2],
    mistake: Option<Mistake>,
    ready: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let options = ServerOptions { wait: Wait::Park, area: 128 << 10, ..ServerOptions::default() };
    let endpoint = Endpoint::bind(Address::abstract_name(name), options)?;
    let mut server = endpoint.server();
    let packets = device.wait_fd().context("a device without a descriptor")?;
    let packets = packets.try_clone_to_owned()?;
    let levels = (mistake == Some(Mistake::PriorityLevels)).then(Levels::default);
    let (sockets, identification) = (Sockets::default(), 0);
    let unix = Unix { device, sockets, sides, identification, levels };
    let unix = Arc::new(Mutex::new(unix));
    let taking = Arc::clone(&unix);
    let wired = (mistake == Some(Mistake::WiredThreads)).then(|| wire(&unix)).transpose()?;
    let take = move || take_frames(&taking, &packets, wired.as_ref());
    std::thread::Builder::new().name("network".into()).spawn(take)?;
    ready()?;
    let mut answer: Option<ReadyReply> = None;
    loop {
        if let Event::Call(request) = server.reply_wait(answer.take(), Deadline::NEVER)? {
            answer = lock(&unix).on_call(request)?;
        }
    }
}

/// Starts the thread that processes frames for [`Mistake::WiredThreads`].
fn wire(unix: &Arc<Mutex<Unix<ReplyToken>>>) -> Result<SyncSender<Vec<u8>>> {
    let (sender, receiver): (_, Receiver<Vec<u8>>) = sync_channel(HANDED_MAX);
    let unix = Arc::clone(unix);
    let process = move || receiver.iter().for_each(|frame| lock(&unix).arrived(&frame));
    std::thread::Builder::new().name("input".into()).spawn(process)?;
    Ok(sender)
}

fn take_frames(
    unix: &Mutex<Unix<ReplyToken>>,
    packets: &OwnedFd,
    wired: Option<&SyncSender<Vec<u8>>>,
) {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut here = lock(unix);
        let _ = here.device.receive(BUDGET, &mut |one| frames.push(one.frame.to_vec()));
        let is_idle = frames.is_empty();
        for frame in frames.drain(..) {
            match wired {
                // A full queue loses frames, as an interface's does.
                Some(wired) => drop(wired.try_send(frame)),
                None => here.arrived(&frame),
            }
        }
        drop(here);
        if is_idle {
            // An error is a reason to look.
            let _ = poll(&mut [PollFd::new(packets, PollFlags::IN)], None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_netif::sim;
    use std::cell::RefCell;
    use std::rc::Rc;

    struct Call(Rc<RefCell<Vec<Arrived>>>);

    impl Waiter for Call {
        fn give(self, arrived: &Arrived, _: usize) {
            self.0.borrow_mut().push(arrived.clone());
        }
    }

    #[test]
    fn datagrams_go_from_one_server_to_the_other_and_damaged_ones_nowhere() {
        let side = |last| SideAddresses {
            ip: [10, 0, 0, last].into(),
            mac: MacAddress([2, 0, 0, 0, 0, last]),
        };
        let sim::Link { near, far, .. } = sim::pair(&sim::Options::default());
        let unix = |device: sim::Endpoint, sides| Unix {
            device: Box::new(device),
            sockets: Sockets::<Call>::default(),
            sides,
            identification: 0,
            levels: Some(Levels::default()),
        };
        let mut one = unix(near, [side(1), side(2)]);
        let mut other = unix(far, [side(2), side(1)]);
        for (server, port) in [(&mut one, 7), (&mut other, 8)] {
            assert_eq!((server.sockets.make(), server.sockets.bind(0, port)), (0, 0));
        }
        let given = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..3 {
            other.sockets.receive(0, Call(Rc::clone(&given)), 100);
        }
        let to = |port| Peer { number: 0, address: std::net::SocketAddrV4::new(side(2).ip, port) };
        assert_eq!(one.send(to(8), b"question").unwrap(), 8);
        one.send(to(9), b"to nobody").unwrap();
        one.send(to(8), b"damaged").unwrap();
        let mut frames = Vec::new();
        other.device.receive(8, &mut |one| frames.push(one.frame.to_vec())).unwrap();
        assert_eq!(frames.len(), 3);
        *frames[2].last_mut().unwrap() ^= 1;
        frames.iter().for_each(|frame| other.arrived(frame));
        other.arrived(&frames[0][..30]);
        let given = given.borrow();
        let [only] = &given[..] else { panic!("{given:?}") };
        assert_eq!((only.from, &only.data[..]), ("10.0.0.1:7".parse().unwrap(), &b"question"[..]));
    }
}

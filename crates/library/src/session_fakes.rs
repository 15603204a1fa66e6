//! Sessions with both ends in this process, joined without a server, for the tests of `poll` and
//! `sets`.
//!
//! A server would never pair two ends of one process; the library does not mind.

use crate::fds::entry::mark;
use crate::fds::slot::SetNumber;
use crate::host::kernel;
use crate::io::call_flags::{Recv, Send};
use crate::io::calls::Route;
use crate::io::from_kernel::BytesOnly;
use crate::moves::descriptors::Origin;
use crate::moves::join::Parts;
use crate::moves::offer::Offer;
use crate::process::library::library;
use crate::session::identity::InboxPlace;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::RecvFlags;
use sojourn_session::{HomeT, InboxT, JoinT, KindT, LocalNumber, OfferT, ProcessId};
use sojourn_shm::{Access, Mapping, NewSegment, Segment};
use sojourn_stream::{Inbox, Layout, SlotNumber, Stream};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

const RING_BYTES: u32 = 64 * 1024;

/// Both ends of a stream; closed as a program closes them.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) ends: [Option<OwnedFd>; 2],
    kind: KindT,
    /// The peer is on another host: the stream's other side is the carrier's.
    pub(crate) is_carried: bool,
    /// The near part that both ends want of a ring (bytes).
    pub(crate) near: u32,
}

impl Pair {
    /// A connection of which the library knows, and nothing more.
    pub(crate) fn new() -> Self {
        let (one, two) = UnixStream::pair().unwrap();
        Self::of(KindT::Unix, [one.into(), two.into()])
    }

    /// The same of TCP.
    pub(crate) fn tcp() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (two, _) = listener.accept().unwrap();
        Self::of(KindT::Tcp, [one.into(), two.into()])
    }

    /// A pipe, whose end 0 writes.
    pub(crate) fn pipe() -> Self {
        let (reads, writes) = rustix::pipe::pipe().unwrap();
        Self::of(KindT::Pipe, [writes, reads])
    }

    /// UDP sockets that are connected to each other. Calls on the first wait, `limit` at most.
    pub(crate) fn datagrams(limit: Duration) -> Self {
        let ends = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for end in 0..2 {
            ends[end].connect(ends[1 - end].local_addr().unwrap()).unwrap();
        }
        ends[0].set_read_timeout(Some(limit)).unwrap();
        let pair = Self::of(KindT::Udp, ends.map(OwnedFd::from));
        rustix::io::ioctl_fionbio(pair.ends[0].as_ref().unwrap(), false).unwrap();
        pair
    }

    fn of(kind: KindT, ends: [OwnedFd; 2]) -> Self {
        for end in &ends {
            rustix::io::ioctl_fionbio(end, true).unwrap();
            library().opened(end.as_raw_fd(), Origin::Fresh);
        }
        Self { ends: ends.map(Some), kind, is_carried: kind == KindT::Udp, near: RING_BYTES }
    }

    /// One that has moved.
    pub(crate) fn joined() -> Self {
        let pair = Self::new();
        assert!(pair.join_in_no_set([common_inbox(), common_inbox()]));
        pair
    }

    pub(crate) fn fd(&self, end: usize) -> i32 {
        self.ends[end].as_ref().unwrap().as_raw_fd()
    }

    /// Moves end 0 only, to a stream that has no library at its other side: the test has the
    /// memory, and may write anything there.
    pub(crate) fn join_hostile(&self) -> Hostile {
        let layout = Layout::new([RING_BYTES; 2]).unwrap();
        let NewSegment { segment, mapping: memory } =
            Segment::create("test", layout.len(), Access::ReadWrite).unwrap();
        let view = |side| {
            let mapping = segment.map(Access::ReadWrite).unwrap();
            Stream::new(mapping, layout, side, common_inbox(), SlotNumber(0)).unwrap()
        };
        let stream = Arc::new(view(0));
        let place = InboxPlace { inbox: common_inbox(), slot: SlotNumber(1) };
        let parts = Parts { stream, place, peer_pid: ProcessId::own() };
        assert!(self.join_end(0, SetNumber::NONE, &parts));
        Hostile { memory, side: Arc::new(view(1)) }
    }

    /// Moves both ends, which are in no set. Returns true if both are on the stream.
    pub(crate) fn join_in_no_set(&self, inboxes: [Arc<Inbox>; 2]) -> bool {
        self.join(inboxes.map(|inbox| (inbox, SetNumber::NONE)))
    }

    /// Moves both ends; `inboxes` are the inboxes of their sets. Returns true if both are on the
    /// stream.
    pub(crate) fn join(&self, inboxes: [(Arc<Inbox>, SetNumber); 2]) -> bool {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let layout = Layout::new([RING_BYTES; 2]).unwrap();
        let NewSegment { segment, .. } =
            Segment::create("test", layout.len(), Access::ReadWrite).unwrap();
        let next = || SlotNumber(NEXT.fetch_add(1, Ordering::SeqCst) % Inbox::SLOTS);
        let slots = [(); 2].map(|()| next());
        let mut all = true;
        for side in 0..2 {
            let peer = 1 - side;
            let mapping = segment.map(Access::ReadWrite).unwrap();
            let peer_inbox = Arc::clone(&inboxes[peer].0);
            let stream = Stream::new(mapping, layout, side, peer_inbox, slots[peer]).unwrap();
            let parts = Parts {
                stream: Arc::new(stream),
                place: InboxPlace { inbox: Arc::clone(&inboxes[side].0), slot: slots[side] },
                peer_pid: ProcessId::own(),
            };
            all &= self.join_end(side, inboxes[side].1, &parts);
        }
        all
    }

    fn join_end(&self, side: usize, set: SetNumber, parts: &Parts) -> bool {
        let fd = self.fd(side);
        let entry = library().table.known(fd).unwrap();
        entry.mark(mark::OFFERED);
        let what = OfferT {
            local: 0,
            set: set.number(),
            ring_bytes: self.near,
            is_sole: true,
            home: HomeT::Library,
        };
        let version = entry.version.load(Ordering::SeqCst);
        let kind = self.kind;
        let epoch = crate::process::library::library().fork_epoch.load(Ordering::SeqCst);
        let aliases = library().alias_epoch.load(Ordering::SeqCst);
        let numbers = vec![fd];
        let offer = Offer {
            local: LocalNumber::default(),
            fd,
            version,
            epoch,
            aliases,
            kind,
            numbers,
            what,
        };
        let none = || InboxT {
            id: 0,
            slot: 0,
            memory: None.into(),
            ready: None.into(),
            attention: None.into(),
        };
        let join = JoinT {
            local: 0,
            stream: 0,
            side: side as u8,
            kind,
            is_carried: self.is_carried,
            ring_bytes: [RING_BYTES; 2],
            region: None.into(),
            own: none(),
            peer: none(),
            peer_pid: std::process::id(),
            peer_process: None.into(),
        };
        let engine = library().engine_or_new().unwrap();
        let joined = library().join(engine, &offer, &join, parts).is_ok();
        entry.unmark(mark::OFFERED);
        // Nobody would pair it again after a trial.
        if let Some(session) = library().session_of(fd)
            && let Some(local) = session.local()
        {
            *crate::host::lock::lock(&local.progress) =
                crate::session::progress::TrialProgress::default();
        }
        joined && is_away(fd)
    }

    pub(crate) fn close(&mut self, end: usize) {
        library().closing(self.fd(end));
        self.ends[end] = None;
        library().ended();
    }

    /// Each end has sent a byte and received one: both directions are on the ring.
    pub(crate) fn warm_up(&self) {
        for end in 0..2 {
            assert_eq!(write(self.fd(end), b"w"), Ok(1));
            assert_eq!(read(self.fd(1 - end), &mut [0; 8]), Ok(1));
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for end in 0..2 {
            if self.ends[end].is_some() {
                self.close(end);
            }
        }
    }
}

/// The peer of a session whose program is not to be trusted.
pub(crate) struct Hostile {
    /// The region.
    pub(crate) memory: Mapping,
    /// Its side of the stream, to begin with.
    pub(crate) side: Arc<Stream>,
}

impl Hostile {
    /// Its side of the stream once more.
    pub(crate) fn view(&self) -> Arc<Stream> {
        Arc::clone(&self.side)
    }

    /// It has consented, writes to its ring, and `bytes` are there.
    pub(crate) fn sends(&self, bytes: &[u8]) {
        self.side.consent();
        self.side.use_ring();
        assert_eq!(self.side.write(&[IoSlice::new(bytes)], 0), Ok(bytes.len()));
    }

    /// Writes over the bytes of its ring from the second on, which is where those lie that come
    /// after one byte.
    pub(crate) fn rewrites(&self, bytes: &[u8]) {
        let at = sojourn_stream::CONTROL_BYTES + RING_BYTES as usize + 1;
        // There is no second copy of them.
        self.set(512 + 16, 0);
        assert_eq!(self.memory.span(at, bytes.len()).unwrap().copy_from(bytes), bytes.len());
    }

    /// A word of the region.
    pub(crate) fn set(&self, at: usize, value: u64) {
        self.memory.word64(at).unwrap().store(value, Ordering::SeqCst);
    }
}

pub(crate) fn is_away(fd: i32) -> bool {
    library().session_of(fd).is_some()
}

/// The inbox of sessions in no set.
pub(crate) fn common_inbox() -> Arc<Inbox> {
    static INBOX: OnceLock<Arc<Inbox>> = OnceLock::new();
    Arc::clone(INBOX.get_or_init(crate::ready::set_fakes::inbox))
}

/// As a shell serves `read`.
pub(crate) fn read(fd: i32, buf: &mut [u8]) -> Result<usize, Errno> {
    receive(fd, buf, Recv::default())
}

/// As a shell serves `recv`.
pub(crate) fn receive(fd: i32, buf: &mut [u8], how: Recv) -> Result<usize, Errno> {
    loop {
        match library().reading(fd) {
            Route::Plain | Route::Kernel(_) => {
                let mut flags = RecvFlags::empty();
                flags.set(RecvFlags::PEEK, how.peek);
                return rustix::net::recv(kernel::at(fd)?, buf, flags).map(|(got, _)| got);
            }
            Route::Datagrams(_) => panic!("a stream"),
            Route::Stream(call) => {
                let bufs = &mut [IoSliceMut::new(buf)];
                if let Some(done) = call.recv(bufs, how, &mut BytesOnly::default()) {
                    return done;
                }
            }
        }
    }
}

/// As a shell serves `write`.
pub(crate) fn write(fd: i32, buf: &[u8]) -> Result<usize, Errno> {
    loop {
        match library().writing(fd) {
            Route::Plain | Route::Kernel(_) => return rustix::io::write(kernel::at(fd)?, buf),
            Route::Datagrams(_) => panic!("a stream"),
            Route::Stream(call) => {
                if let Some(done) = call.send(&[IoSlice::new(buf)], Send::default()) {
                    return done;
                }
            }
        }
    }
}

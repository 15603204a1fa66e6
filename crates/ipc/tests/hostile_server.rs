//! Servers that break the rules: a client finds out, is not held past its deadline, and reads
//! nothing that is not its own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::raw::{self, *};
use common::{limit, soon, until, watchdog};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sojourn_ipc::{
    Access, Address, CallError, ConnectError, ConnectOptions, Connection, Memory, Reason,
};
use sojourn_shm::{NewSegment, Segment, futex, park};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn child_entry() {
    common::child::entry(&[]);
}

const SLOTS: u32 = 4;
const AREA: usize = 8192;

fn memfd(len: usize, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("sojourn-hostile", MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&fd, len as u64).unwrap();
    rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn sealed() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// Connects to a server that answers the greeting as `answer` does.
fn greeted_by(answer: impl FnOnce(&OwnedFd)) -> Result<Connection, ConnectError> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    // The greeting waits in the socket; the answer may be there before it.
    answer(&ours);
    let timeout = Duration::from_millis(500);
    let options = ConnectOptions { timeout, ..Default::default() };
    let result = Connection::connect(Address::Descriptor(theirs), &options);
    drop(ours);
    result
}

#[test]
fn welcomes_that_cannot_be_trusted() {
    let _watchdog = watchdog(60);
    let len = Region::len(SLOTS, AREA);
    let welcome = |slots: u64, area: u64| (WELCOME, 0, [1 | slots << 32, area, 1 << 20, 0]);
    let greet = |packet: Packet, fd: Option<OwnedFd>| {
        greeted_by(|socket| {
            let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
            raw::send_bytes(socket, &raw::bytes(packet), &fds).unwrap();
        })
    };
    let good = welcome(u64::from(SLOTS), AREA as u64);
    assert!(greet(good, Some(memfd(len, sealed()))).is_ok());
    for (slots, area) in
        [(0, 8192), (3, 8192), (128, 8192), (4, 100), (4, 0), (4, 1 << 40), (4, u64::MAX)]
    {
        let error = greet(welcome(slots, area), Some(memfd(len, sealed()))).unwrap_err();
        assert!(matches!(error, ConnectError::Protocol(_)), "{slots} {area}: {error}");
    }
    for (len, seals) in [
        (len, SealFlags::empty()),
        (len, SealFlags::SHRINK),
        (len - 4096, sealed()),
        (len + 4096, sealed()),
        (len, sealed() | SealFlags::WRITE),
    ] {
        let error = greet(good, Some(memfd(len, seals))).unwrap_err();
        assert!(matches!(error, ConnectError::Region(..)), "{len} {seals:?}: {error}");
    }
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let error = greet(good, Some(file.into())).unwrap_err();
    assert!(matches!(error, ConnectError::Region(..)), "{error}");
    let error = greet(good, None).unwrap_err();
    assert!(matches!(error, ConnectError::Protocol(_)), "{error}");
    for topic in [HELLO, WAKE, DONE] {
        let error = greet((topic, 0, [0; 4]), None).unwrap_err();
        assert!(matches!(error, ConnectError::Protocol(_)), "{error}");
    }
    let error = greeted_by(|socket| raw::send_bytes(socket, &[1; 7], &[]).unwrap()).unwrap_err();
    assert!(matches!(error, ConnectError::Protocol(_)), "{error}");
    let start = Instant::now();
    let error = greeted_by(|_| {}).unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut(_)), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// A server made by hand.
struct RawServer {
    socket: OwnedFd,
    region: Region,
}

fn meet() -> (Connection, RawServer) {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let len = Region::len(SLOTS, AREA);
    let NewSegment { segment, mapping } =
        Segment::create("sojourn-hostile", len, Access::ReadWrite).unwrap();
    let welcome = (WELCOME, 0, [1 | u64::from(SLOTS) << 32, AREA as u64, 1 << 20, 0]);
    raw::send_bytes(&ours, &raw::bytes(welcome), &[segment.as_fd()]).unwrap();
    let options = ConnectOptions { max_message: 100_000, ..Default::default() };
    let connection = Connection::connect(Address::Descriptor(theirs), &options).unwrap();
    raw::receive(&ours).expect("the greeting");
    let region = Region { mapping: Arc::new(mapping), slots: SLOTS, area: AREA };
    (connection, RawServer { socket: ours, region })
}

impl RawServer {
    /// Waits for the call on the call line; answers its number.
    fn await_call(&self, seq: u32) {
        let line = self.region.word64(self.region.line(0));
        until("the call comes", || line.load(Ordering::Acquire) as u32 == seq);
    }

    fn answer(&self, tag: u64, words: &[u64]) {
        self.region.publish(self.region.line(0), tag, words);
        self.ring();
    }

    fn ring(&self) {
        let bell = self.region.word32(CLIENT_BELL);
        match park::ring(bell) {
            park::AWAKE => {}
            park::ON_FUTEX => futex::wake(bell),
            _ => drop(raw::send_bytes(&self.socket, &raw::bytes((WAKE, 0, [0; 4])), &[])),
        }
    }
}

/// What a client makes of an answer to its first call.
fn answered(
    act: impl FnOnce(&RawServer, u32) + Send + 'static,
) -> Result<(Vec<u8>, usize), CallError> {
    answered_within(10_000, act)
}

fn answered_within(
    ms: u64,
    act: impl FnOnce(&RawServer, u32) + Send + 'static,
) -> Result<(Vec<u8>, usize), CallError> {
    let (mut connection, server) = meet();
    let seq = DIRECT | 1;
    let acting = std::thread::spawn(move || {
        server.await_call(seq);
        act(&server, seq);
        server
    });
    let reply = connection.start(1, 0).call(soon(ms));
    let result = reply.map(|reply| {
        let items = (0..).map_while(|index| reply.item(index)).map(|item| item.len()).sum();
        (reply.body().to_vec(), items)
    });
    drop(acting.join().unwrap());
    result
}

#[test]
fn answers_that_lie() {
    let _watchdog = watchdog(60);
    let meta = |change: fn(&mut Meta)| {
        let mut meta = Meta::default();
        change(&mut meta);
        meta.word()
    };
    let plain = meta(|_| {});
    let good = answered(move |server, seq| {
        server.answer(tag(seq, 0, RESULT, 0), &[meta(|meta| meta.len = 3), 0x0062_6d61]);
    });
    assert_eq!(good, Ok((b"amb".to_vec(), 0)));
    for (what, flags, words, reason) in [
        ("inline, too long", 0, [meta(|meta| meta.len = 113), 0, 0], Reason::BadHeader),
        ("grants", LONG, [meta(|meta| meta.grants = 1), TABLE, 0], Reason::BadHeader),
        ("items without a table", 0, [meta(|meta| meta.items = 1), 0, 0], Reason::BadHeader),
        ("an unknown flag", 8, [plain, 0, 0], Reason::BadHeader),
        ("by reference", LONG | BY_REFERENCE, [plain, TABLE, 0], Reason::BadLength),
        ("half by reference", BY_REFERENCE, [plain, TABLE, 0], Reason::BadLength),
        ("longer than agreed", LONG, [plain, 200_000, 0], Reason::BadLength),
        ("as long as can be", LONG, [plain, u64::MAX, 0], Reason::BadLength),
        ("shorter than its table", LONG, [plain, TABLE - 8, 0], Reason::BadLength),
        ("a body that is longer", LONG, [plain, TABLE + 8, 9], Reason::BadLength),
        ("a body as long as can be", LONG, [plain, TABLE + 8, u64::MAX], Reason::BadLength),
        (
            "items that are longer",
            LONG,
            [meta(|meta| meta.items = 16), TABLE + 8, 8],
            Reason::BadLength,
        ),
        (
            "descriptors that do not come",
            0,
            [meta(|meta| meta.fds = 1), 0, 0],
            Reason::MissingDescriptors,
        ),
    ] {
        let result = answered(move |server, seq| {
            let lens = [u64::MAX - 7; 16];
            server.region.write(server.region.reply_area(0), &table(&lens, &[]));
            server.answer(tag(seq, 0, RESULT, flags), &words);
        });
        assert_eq!(result, Err(CallError::Disconnected(reason)), "{what}");
    }
    // Answers to something else are no answers.
    for other in [0, DIRECT | 2, 1, u32::MAX] {
        let result = answered_within(100, move |server, _| {
            server.answer(tag(other, 0, RESULT, 0), &[plain]);
        });
        assert_eq!(result, Err(CallError::Timeout), "{other:x}");
    }
    // A line of another's in the header: the answer is read where it was waited for.
    let result = answered(move |server, seq| {
        server.answer(tag(seq, 0, RESULT, LONG), &[meta(|meta| meta.line = 77), TABLE, 0]);
    });
    assert!(matches!(result, Err(CallError::Disconnected(_)) | Ok(_)), "{result:?}");
}

#[test]
fn answers_that_change_while_they_are_read() {
    let _watchdog = watchdog(60);
    let (mut connection, server) = meet();
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let acting = std::thread::spawn(move || {
        let (line, area) = (server.region.line(0), server.region.reply_area(0));
        let mut seq = DIRECT;
        let mut n = 1u64;
        while !stop.load(Ordering::Relaxed) {
            n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let call = server.region.word64(line).load(Ordering::Acquire);
            if call as u32 != seq && call >> 48 & 0xff == CALL {
                seq = call as u32;
                let meta = Meta { items: 2, ..Default::default() }.word();
                server.answer(tag(seq, 0, RESULT, LONG), &[meta, TABLE + 64, 32]);
            }
            server.region.word64(line + 16).store(TABLE + (n >> 56 & !7), Ordering::Relaxed);
            server.region.word64(line + 24).store(n >> 58, Ordering::Relaxed);
            server.region.word64(area + (n >> 63) as usize * 8).store(n >> 59, Ordering::Relaxed);
        }
        server
    });
    let start = Instant::now();
    let mut answers = 0;
    while start.elapsed() < Duration::from_millis(400) {
        match connection.start(1, 0).call(soon(1000)) {
            Ok(reply) => {
                // What was accepted adds up, however often it is looked at.
                for index in 0..2 {
                    let len = reply.item_len(index).unwrap();
                    assert_eq!(reply.item(index).unwrap().len(), len);
                    assert!(len + reply.body().len() <= 256);
                }
                answers += 1;
            }
            Err(CallError::Disconnected(Reason::BadLength)) => {
                break;
            }
            Err(other) => panic!("after {answers}: {other}"),
        }
    }
    over.store(true, Ordering::Relaxed);
    acting.join().unwrap();
}

#[test]
fn a_server_that_never_answers_holds_nobody() {
    let _watchdog = watchdog(60);
    let (mut connection, server) = meet();
    let start = Instant::now();
    // Bogus counts of what it has taken, a full socket, a socket shut halfway: nothing holds a
    // client past its deadline.
    for consumed in [0, 1, 1000, u32::MAX, 1 << 31] {
        server.region.word32(CONSUMED).store(consumed, Ordering::SeqCst);
        for _ in 0..6 {
            let result = connection.start(1, 0).send(soon(10));
            let is_fine = matches!(
                result,
                Ok(()) | Err(CallError::Timeout | CallError::Disconnected(Reason::BadSequence))
            );
            assert!(is_fine, "{result:?}");
        }
    }
    let (mut connection, server) = meet();
    assert_eq!(connection.start(1, 50_000).call(soon(20)).unwrap_err(), CallError::Timeout);
    let memory = Memory::new(4096, Access::Read).unwrap();
    for _ in 0..3 {
        assert_eq!(connection.register(&memory, soon(10)), Err(CallError::Timeout));
    }
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut timeouts = 0;
    while timeouts == 0 {
        let (mut connection, _server) = meet();
        loop {
            let mut draft = connection.start(1, 0);
            draft.encoder().put_fd(null.as_fd()).unwrap();
            match draft.send(soon(10)) {
                Ok(()) => {}
                Err(CallError::Timeout) => break timeouts += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    rustix::net::shutdown(&server.socket, rustix::net::Shutdown::Write).unwrap();
    let error = connection.register(&memory, limit()).unwrap_err();
    assert_eq!(error, CallError::Disconnected(Reason::PeerDied));
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// A full socket whose other end is shut halfway makes every poll return at once.
#[test]
fn a_half_shut_full_socket_does_not_hold_a_sender() {
    let _watchdog = watchdog(60);
    let (mut connection, server) = meet();
    // Fill the socket with registrations that nobody answers.
    let memory = Memory::new(4096, Access::Read).unwrap();
    let mut attempts = 0;
    while connection.register(&memory, sojourn_ipc::Deadline::NOW) == Err(CallError::Timeout) {
        attempts += 1;
        if attempts == 2000 {
            break;
        }
    }
    rustix::net::shutdown(&server.socket, rustix::net::Shutdown::Write).unwrap();
    let start = Instant::now();
    let result = connection.register(&memory, soon(2000));
    assert!(matches!(result, Err(CallError::Disconnected(Reason::PeerDied))), "{result:?}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn packets_that_make_no_sense_end_the_connection() {
    let _watchdog = watchdog(60);
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    for topic in [HELLO, WELCOME, REGISTER, 99] {
        let (mut connection, server) = meet();
        raw::send_bytes(&server.socket, &raw::bytes((topic, 0, [0; 4])), &[]).unwrap();
        let memory = Memory::new(4096, Access::Read).unwrap();
        let error = connection.register(&memory, limit()).unwrap_err();
        assert_eq!(error, CallError::Disconnected(Reason::BadPacket), "{topic}");
    }
    // Descriptors that nobody waits for are closed, however many come.
    let (mut connection, server) = meet();
    let before = common::service::open_fds();
    for n in 0..200 {
        let _ = raw::send_bytes(
            &server.socket,
            &raw::bytes((DESCRIPTORS, n, [0; 4])),
            &[null.as_fd(); 4],
        );
    }
    assert_eq!(connection.wait_notify(soon(20)).unwrap_err(), CallError::Timeout);
    assert!(common::service::open_fds() < before + 100);
}

/// Packets that mean nothing to who waits, sent as fast as they are taken: a client is not held
/// past its deadline.
#[test]
fn a_server_that_never_stops_sending_holds_nobody() {
    let _watchdog = watchdog(60);
    let (mut connection, server) = meet();
    let memory = Memory::new(4096, Access::Read).unwrap();
    rustix::io::ioctl_fionbio(&server.socket, true).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = raw::send_bytes(&server.socket, &raw::bytes((WAKE, 0, [0; 4])), &[]);
                }
            });
        }
        let mut results = vec![];
        for _ in 0..3 {
            results.push(connection.register(&memory, soon(20)).err());
            results.push(connection.start(1, 0).call(soon(20)).err());
        }
        is_over.store(true, Ordering::Relaxed);
        let is_late = |error: &Option<CallError>| *error == Some(CallError::Timeout);
        assert!(results.iter().all(is_late), "{results:?}");
    });
}

//! Clients that break the rules. Only they are let go, with the right reason; an honest client gets
//! right answers all the while.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::raw::{self, *};
use common::service::{COUNT, ECHO, FDS, GONE, GRANT, KEEP, STATE};
use common::{Echo, Home, ask, call, soon, until, watchdog};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use sojourn_ipc::{Connection, Reason};
use sojourn_shm::futex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[test]
fn child_entry() {
    common::child::entry(&[]);
}

/// A server, and an honest client that calls it without a pause.
struct Siege {
    echo: Echo,
    is_over: Arc<AtomicBool>,
    honest: Option<JoinHandle<u64>>,
}

impl Siege {
    fn begin() -> Self {
        let echo = Echo::start(Home::Across);
        let is_over = Arc::new(AtomicBool::new(false));
        let (connection, over) = (echo.connect(), Arc::clone(&is_over));
        let honest = Some(std::thread::spawn(move || be_honest(connection, &over)));
        Self { echo, is_over, honest }
    }

    fn attacker(&self) -> Raw {
        Raw::connect(&self.echo.name)
    }

    /// One who does this is let go for that reason.
    fn expect(&self, what: &str, reason: Reason, attack: impl FnOnce(&mut Raw)) {
        let mut attacker = self.attacker();
        attack(&mut attacker);
        let found = Reason::from_code(attacker.await_end());
        assert_eq!(found, reason, "{what}");
    }

    /// Lifts the siege: the honest client was served right and in time, and so is a new one.
    fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        assert!(self.honest.take().unwrap().join().unwrap() > 0);
        let mut connection = self.echo.connect();
        assert_eq!(call(&mut connection, ECHO, b"fine").unwrap(), b"fine");
        until("those who were let go are gone", || {
            ask(&mut connection, STATE, &[]).unwrap()[1] == 1
        });
        self.echo.close();
    }
}

fn be_honest(mut connection: Connection, is_over: &AtomicBool) -> u64 {
    let mut rounds = 0;
    while rounds == 0 || !is_over.load(Ordering::Relaxed) {
        let len = [0, 8, 100, 5000, 90_000][rounds as usize % 5];
        let body: Vec<u8> = (0..len).map(|n: u64| (n * 7 + rounds) as u8).collect();
        let start = Instant::now();
        let back = call(&mut connection, ECHO, &body);
        assert!(back.as_ref() == Ok(&body), "round {rounds}: {:?}", back.map(|body| body.len()));
        assert!(start.elapsed() < Duration::from_secs(5), "round {rounds}: {:?}", start.elapsed());
        rounds += 1;
    }
    rounds
}

fn meta(change: impl FnOnce(&mut Meta)) -> u64 {
    let mut meta = Meta { line: 1, ..Default::default() };
    change(&mut meta);
    meta.word()
}

fn plain() -> u64 {
    meta(|_| {})
}

#[test]
fn numbers_out_of_sequence() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    siege.expect("a number skipped", Reason::BadSequence, |raw| {
        raw.region.publish(raw.region.slot(1), tag(2, ECHO, SEND, 0), &[plain()]);
        raw.ring();
    });
    siege.expect("a number used twice", Reason::BadSequence, |raw| {
        raw.post(COUNT, SEND, 0, &[plain()]);
        raw.region.publish(raw.region.slot(2), tag(1, ECHO, SEND, 0), &[plain()]);
        until("it is noticed", || {
            raw.ring();
            raw.reason() != 0
        });
    });
    siege.expect("a stale number after a round", Reason::BadSequence, |raw| {
        for _ in 0..raw.region.slots {
            raw.post(COUNT, SEND, 0, &[plain()]);
        }
        let at = raw.region.slot(raw.seq + 1);
        let all = raw.seq;
        until("all are taken", || raw.region.word32(CONSUMED).load(Ordering::Acquire) == all);
        raw.region.publish(at, tag(0, ECHO, SEND, 0), &[plain()]);
        until("it is noticed", || {
            raw.ring();
            raw.reason() != 0
        });
    });
    siege.expect("the call line, a number skipped", Reason::BadSequence, |raw| {
        raw.call += 5;
        raw.post_call(ECHO, 0, &[0]);
        until("it is noticed", || {
            raw.ring();
            raw.reason() != 0
        });
    });
    siege.expect("the call line, after a slot that is empty", Reason::BadSequence, |raw| {
        raw.post_call(ECHO, 0, &[7 << 56]);
    });
    siege.end();
}

#[test]
fn headers_that_lie() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    for (what, kind, flags, meta) in [
        ("no kind", 0, 0, plain()),
        ("an unknown kind", 9, 0, plain()),
        ("an answer", RESULT, 0, plain()),
        ("a piece of nothing", CHUNK, LONG, plain()),
        ("nothing to abandon", ABANDON, 0, plain()),
        ("an unknown flag", CALL, 4, plain()),
        ("by reference", CALL, LONG | BY_REFERENCE, plain()),
        ("half by reference", CALL, BY_REFERENCE, plain()),
        ("an inline body that is too long", CALL, 0, meta(|meta| meta.len = 113)),
        ("too many descriptors", CALL, 0, meta(|meta| meta.fds = 17)),
        ("too many items", CALL, LONG, meta(|meta| meta.items = 17)),
        ("too many grants", CALL, LONG, meta(|meta| meta.grants = 9)),
        ("items without a table", CALL, 0, meta(|meta| meta.items = 1)),
        ("grants without a table", CALL, 0, meta(|meta| meta.grants = 1)),
    ] {
        siege.expect(what, Reason::BadHeader, |raw| raw.post(ECHO, kind, flags, &[meta]));
    }
    for (what, kind, meta) in [
        ("a line that is not there", CALL, meta(|meta| meta.line = 200)),
        ("the line after the last", CALL, meta(|meta| meta.line = 9)),
        ("the call line from a slot", CALL, meta(|meta| meta.line = 0)),
        ("more of nothing", MORE, plain()),
    ] {
        siege.expect(what, Reason::BadLine, |raw| raw.post(ECHO, kind, 0, &[meta]));
    }
    siege.expect("a line in use", Reason::BadLine, |raw| {
        raw.post(KEEP, CALL, 0, &[plain()]);
        raw.post(ECHO, CALL, 0, &[plain()]);
    });
    siege.expect("the call line in use", Reason::BadLine, |raw| {
        raw.post_call(KEEP, 0, &[0]);
        std::thread::sleep(Duration::from_millis(20));
        raw.post_call(ECHO, 0, &[0]);
    });
    siege.expect("another line from the call line", Reason::BadLine, |raw| {
        raw.post_call(ECHO, 0, &[1 << 8]);
    });
    siege.end();
}

#[test]
fn lengths_that_lie() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    let huge = u64::MAX;
    for (what, total, body, items) in [
        ("longer than agreed", (16 << 20) + 1, 8, &[][..]),
        ("as long as can be", huge, 8, &[]),
        ("shorter than the table", TABLE - 8, 0, &[]),
        ("nothing", 0, 0, &[]),
        ("the body is longer", TABLE + 8, 16, &[]),
        ("the body is as long as can be", TABLE + 8, huge, &[]),
        ("the body is shorter", TABLE + 16, 8, &[]),
        ("an item is longer", TABLE + 16, 8, &[9]),
        ("an item is as long as can be", TABLE + 16, 8, &[huge]),
        ("items overflow", TABLE + 16, 8, &[huge - 7, huge - 7]),
        ("a multiple of eight it is not", TABLE + 12, 8, &[4]),
    ] {
        for direct in [false, true] {
            siege.expect(what, Reason::BadLength, |raw| {
                let seq = if direct { raw.call } else { raw.seq } + 1;
                raw.region.write(raw.region.request_area(seq), &table(items, &[]));
                let meta = Meta {
                    line: u64::from(!direct),
                    items: items.len() as u64,
                    ..Default::default()
                };
                match direct {
                    true => raw.post_call(ECHO, LONG, &[meta.word(), total, body]),
                    false => raw.post(ECHO, CALL, LONG, &[meta.word(), total, body]),
                }
            });
        }
    }
    siege.expect("pieces on the call line", Reason::BadLength, |raw| {
        raw.post_call(ECHO, LONG, &[0, 1 << 20, 8]);
    });
    siege.expect("a request amid the pieces of another", Reason::BadHeader, |raw| {
        raw.post(ECHO, CALL, LONG, &[plain(), 1 << 20, 8]);
        raw.post(ECHO, SEND, 0, &[plain()]);
    });
    siege.expect("pieces that do not add up", Reason::BadLength, |raw| {
        let area = raw.region.area as u64;
        raw.post(ECHO, CALL, LONG, &[plain(), area + 8, 9]);
        raw.post(ECHO, CHUNK, 0, &[plain()]);
    });
    let area = siege.attacker().region.area as u64;
    for (what, total, offset, len) in [
        ("a piece behind the area", TABLE + 8, area, 8),
        ("a piece that leaves the area", TABLE + 8, area - 4, 8),
        ("a piece so far away that it is near", TABLE + 8, u64::MAX - 3, 8),
        ("a piece longer than the message", TABLE + 8, 0, TABLE + 9),
        ("a piece as long as can be", TABLE + 8, 0, u64::MAX),
        ("a message of nothing", 0, 0, 0),
    ] {
        siege.expect(what, Reason::BadLength, |raw| {
            raw.post(ECHO, CALL, LONG, &[plain(), total, 8, offset, len]);
        });
        siege.expect(what, Reason::BadLength, |raw| {
            raw.post(ECHO, CALL, LONG, &[plain(), area + total, 8, 0, area]);
            raw.post(ECHO, CHUNK, 0, &[plain(), offset, if total == 0 { 9 } else { len }]);
        });
    }
    siege.end();
}

/// Pieces of any length, anywhere in their areas, make one message.
#[test]
fn pieces_lie_where_the_sender_says() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    let mut raw = siege.attacker();
    let total = TABLE + 8;
    for (round, cuts) in
        [vec![1, 2], vec![100, 300], vec![TABLE], vec![7, TABLE + 3]].iter().enumerate()
    {
        let word = 0x1234_5678 + round as u64;
        let stream = [table(&[], &[]), word.to_ne_bytes().to_vec()].concat();
        assert_eq!(stream.len() as u64, total);
        let ends: Vec<u64> = cuts.iter().copied().chain([total]).collect();
        let mut start = 0;
        for end in ends {
            let offset = 11 * (round as u64 + start);
            let at = raw.region.request_area(raw.seq + 1) + offset as usize;
            raw.region.write(at, &stream[start as usize..end as usize]);
            let meta = meta(|meta| meta.line = 1);
            match start {
                0 => raw.post(ECHO, CALL, LONG, &[meta, total, 8, offset, end]),
                _ => raw.post(ECHO, CHUNK, 0, &[plain(), offset, end - start]),
            }
            start = end;
        }
        // The call's number is that of its first piece.
        let first = raw.seq - cuts.len() as u32;
        assert_eq!(raw.await_answer(1, first), Some((RESULT, word)));
    }
    drop(raw);
    siege.end();
}

#[test]
fn words_that_change_while_they_are_read() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    for round in 0..6u64 {
        let mut raw = siege.attacker();
        let stop = Arc::new(AtomicBool::new(false));
        let flipper = {
            let (region, stop) = (raw.region.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    n = n.wrapping_mul(6364136223846793005).wrapping_add(round | 1);
                    let seq = (n >> 40) as u32;
                    let line = region.slot(seq);
                    // Meta word, total, body length; lengths in the table.
                    region.word64(line + 16).store(TABLE + (n >> 50), Ordering::Relaxed);
                    region.word64(line + 24).store(n >> 55, Ordering::Relaxed);
                    let area = region.request_area(seq);
                    region.word64(area + (n >> 60) as usize * 8).store(n, Ordering::Relaxed);
                }
            })
        };
        let start = Instant::now();
        while raw.reason() == 0 && start.elapsed() < Duration::from_millis(60) {
            if raw.seq.wrapping_sub(raw.region.word32(CONSUMED).load(Ordering::Acquire)) < 8 {
                let meta = meta(|meta| meta.items = round % 3);
                raw.post(COUNT, SEND, LONG, &[meta, TABLE + 64, 64]);
            }
        }
        stop.store(true, Ordering::Relaxed);
        flipper.join().unwrap();
        let reason = Reason::from_code(raw.reason());
        assert!(raw.reason() == 0 || reason == Reason::BadLength, "{reason}");
    }
    siege.end();
}

#[test]
fn memory_that_is_pulled_away() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    let mut raw = siege.attacker();
    let len = Region::len(raw.region.slots, raw.region.area) as u64;
    assert!(rustix::fs::ftruncate(&raw.segment, 0).is_err());
    assert!(rustix::fs::ftruncate(&raw.segment, len * 2).is_err());
    assert!(rustix::fs::fcntl_add_seals(&raw.segment, SealFlags::WRITE).is_err());
    // A hole is filled with zeros on the next access: all the messages are gone, no more.
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for _ in 0..100 {
        raw.post(COUNT, SEND, 0, &[plain()]);
        rustix::fs::fallocate(&raw.segment, punch, 0, len).unwrap();
        if raw.reason() != 0 {
            break;
        }
    }
    drop(raw);
    siege.end();
}

fn memfd(name: &str, flags: MemfdFlags, len: u64, seals: SealFlags) -> Option<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, flags | MemfdFlags::ALLOW_SEALING).ok()?;
    rustix::fs::ftruncate(&fd, len).ok()?;
    rustix::fs::fcntl_add_seals(&fd, seals).ok()?;
    Some(fd)
}

#[test]
fn grants_that_are_not_what_they_seem() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    let raw = siege.attacker();
    let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let register = |id: u32, fd: Option<OwnedFd>, len: u64, writable: u64| {
        let fd = fd?;
        raw.packet((REGISTER, id, [len, writable, 0, 0]), &[fd.as_fd()]).unwrap();
        let ((topic, answered, words), _) = raw::receive(&raw.socket).unwrap();
        assert_eq!((topic, answered), (DONE, id));
        Some(words[0] as u32)
    };
    let fd = |flags, len, seals| memfd("sojourn-hostile", flags, len, seals);
    let none = MemfdFlags::empty();
    let bad = Some(Reason::BadGrant.code());
    assert_eq!(register(1, fd(none, 4096, sealed), 4096, 1), Some(0));
    assert_eq!(register(2, fd(none, 4096, SealFlags::empty()), 4096, 0), bad, "unsealed");
    assert_eq!(register(3, fd(none, 4096, SealFlags::SHRINK), 4096, 0), bad, "half sealed");
    assert_eq!(register(4, fd(none, 4096, sealed), 8192, 0), bad, "shorter than it says");
    assert_eq!(register(5, fd(none, 0, sealed), 0, 0), bad, "empty");
    assert_eq!(register(6, fd(none, 4096, sealed), u64::MAX, 0), bad, "as long as can be");
    let unwritable = fd(none, 4096, sealed | SealFlags::WRITE);
    assert_eq!(register(7, unwritable, 4096, 1), bad, "sealed against writing");
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert_eq!(register(8, Some(file.into()), 4096, 0), bad, "a file");
    let huge = fd(MemfdFlags::HUGETLB, 2 << 20, sealed);
    assert!([None, bad].contains(&register(9, huge, 2 << 20, 0)), "huge pages can run out");
    let again = fd(none, 4096, sealed);
    assert_eq!(register(1, again, 4096, 1), Some(Reason::NoResources.code()), "a number twice");
    drop(raw);
    for (what, grant) in [
        ("never registered", (2, 0, 0, 1)),
        ("beyond its end", (1, 0, 4096, 1)),
        ("an end that overflows", (1, 0, u64::MAX, 2)),
        ("written to, though for reading", (1, 1, 0, 1)),
        ("unknown flags", (1, 4, 0, 1)),
    ] {
        siege.expect(what, Reason::BadGrant, |raw| {
            let fd = fd(none, 4096, sealed).unwrap();
            raw.packet((REGISTER, 1, [4096, 0, 0, 0]), &[fd.as_fd()]).unwrap();
            raw::receive(&raw.socket).unwrap();
            raw.region.write(raw.region.request_area(1), &table(&[], &[grant]));
            raw.post(GRANT, CALL, LONG, &[meta(|meta| meta.grants = 1), TABLE, 0]);
        });
    }
    siege.end();
}

#[test]
fn descriptors_that_do_not_come_and_those_nobody_wants() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    siege.expect("none", Reason::MissingDescriptors, |raw| {
        raw.post(FDS, CALL, 0, &[meta(|meta| meta.fds = 2)]);
    });
    siege.expect("fewer", Reason::MissingDescriptors, |raw| {
        raw.packet((DESCRIPTORS, 1, [0; 4]), &[null.as_fd()]).unwrap();
        raw.post(FDS, CALL, 0, &[meta(|meta| meta.fds = 2)]);
    });
    siege.expect("for another message", Reason::MissingDescriptors, |raw| {
        raw.packet((DESCRIPTORS, 2, [0; 4]), &[null.as_fd()]).unwrap();
        raw.post(FDS, CALL, 0, &[meta(|meta| meta.fds = 1)]);
    });
    let mut honest = siege.echo.connect();
    let before = ask(&mut honest, STATE, &[]).unwrap()[0];
    siege.expect("a flood", Reason::DescriptorFlood, |raw| {
        for n in 0..100 {
            let fds = [null.as_fd(); 16];
            if raw.packet((DESCRIPTORS, n, [0; 4]), &fds).is_err() {
                break;
            }
        }
    });
    until("the flood has run off", || ask(&mut honest, STATE, &[]).unwrap()[0] <= before + 2);
    drop(honest);
    siege.end();
}

#[test]
fn packets_that_make_no_sense() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    for bytes in [&[1; 10][..], &[9; 40], &[1; 41], &[0; 40], &[7; 2000]] {
        siege.expect("no packet", Reason::BadPacket, |raw| {
            raw::send_bytes(&raw.socket, bytes, &[]).unwrap();
        });
    }
    for topic in [HELLO, WELCOME, REFUSED, DONE] {
        siege.expect("not for a server", Reason::BadPacket, |raw| {
            raw.packet((topic, 0, [GREETING, 0, 0, 0]), &[]).unwrap();
        });
    }
    siege.expect("a registration of nothing", Reason::BadPacket, |raw| {
        raw.packet((REGISTER, 1, [4096, 0, 0, 0]), &[]).unwrap();
    });
    siege.expect("a wake-up with a descriptor", Reason::BadPacket, |raw| {
        raw.packet((WAKE, 1, [0; 4]), &[null.as_fd()]).unwrap();
    });
    siege.expect("half a goodbye", Reason::PeerDied, |raw| {
        rustix::net::shutdown(&raw.socket, rustix::net::Shutdown::Write).unwrap();
    });
    siege.end();
}

#[test]
fn floods() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    siege.expect("packets", Reason::DoorbellFlood, |raw| {
        while raw.reason() == 0 {
            let _ = raw.packet((WAKE, 0, [0; 4]), &[]);
        }
    });
    // Answers that nobody reads: the server does not wait for room.
    let raw = siege.attacker();
    until("it is let go", || {
        let _ = raw.packet((UNREGISTER, 5, [0; 4]), &[]);
        raw.reason() != 0
    });
    let reason = Reason::from_code(raw.await_end());
    assert!([Reason::DoorbellFlood, Reason::BadPacket].contains(&reason), "{reason}");
    // Bells and bits that mean nothing: no harm done, whether it is let go or not.
    let raw = siege.attacker();
    let start = Instant::now();
    let mut n = 0u32;
    while start.elapsed() < Duration::from_millis(200) {
        n = n.wrapping_mul(1664525).wrapping_add(1013904223);
        let bell = raw.region.word32(SERVER_BELL);
        match n >> 29 {
            0 => bell.store(0, Ordering::Relaxed),
            1 => bell.store(2, Ordering::Relaxed),
            2 => bell.store(n, Ordering::Relaxed),
            3 => raw.region.word32(CLIENT_BELL).store(n >> 28, Ordering::Relaxed),
            4 => drop(raw.region.word64(TO_SERVER).fetch_or(u64::from(n), Ordering::Relaxed)),
            5 => raw.region.word32(WANT).store(n, Ordering::Relaxed),
            _ => {}
        }
        futex::wake(bell);
    }
    drop(raw);
    siege.end();
}

#[test]
fn a_message_begun_and_abandoned_without_end() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    let mut raw = siege.attacker();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        assert_eq!(raw.reason(), 0);
        if raw.seq.wrapping_sub(raw.region.word32(CONSUMED).load(Ordering::Acquire)) < 7 {
            raw.post(ECHO, CALL, LONG, &[plain(), 200_000, 8]);
            raw.post(ECHO, ABANDON, 0, &[plain()]);
        }
    }
    drop(raw);
    siege.end();
}

/// The socket ends, but somebody still writes to the region.
#[test]
fn a_ghost_does_not_haunt_the_server() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    let mut connection = siege.echo.connect();
    let raw = siege.attacker();
    let Raw { socket, region, mut seq, .. } = raw;
    let gone = ask(&mut connection, GONE, &[]).unwrap()[0];
    drop(socket);
    until("the server counts it as gone", || {
        region.word64(TO_SERVER).store(u64::MAX, Ordering::Relaxed);
        for _ in 0..1000 {
            if seq.wrapping_sub(region.word32(CONSUMED).load(Ordering::Acquire)) < region.slots {
                seq += 1;
                region.publish(region.slot(seq), tag(seq, COUNT, SEND, 0), &[plain()]);
            }
        }
        ask(&mut connection, GONE, &[]).unwrap()[0] > gone
    });
    drop(connection);
    siege.end();
}

#[test]
fn guests_that_do_not_greet() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    // More than the lobby holds: whoever greets at once is served at once.
    let silent: Vec<_> = (0..400).map(|_| raw::open(&siege.echo.name)).collect();
    for _ in 0..5 {
        let start = Instant::now();
        let mut connection = siege.echo.connect();
        assert_eq!(call(&mut connection, ECHO, b"hi").unwrap(), b"hi");
        assert!(start.elapsed() < Duration::from_secs(3));
    }
    drop(silent);
    // Slow ones are served when they do greet.
    let slow = raw::open(&siege.echo.name);
    std::thread::sleep(Duration::from_millis(100));
    raw::send_bytes(&slow, &raw::bytes((HELLO, 0, [GREETING, 0, 0, 0])), &[]).unwrap();
    assert_eq!(raw::receive(&slow).unwrap().0.0, WELCOME);
    drop(slow);
    // Those of another version, and those who talk nonsense, hear why not.
    for bytes in [raw::bytes((HELLO, 0, [GREETING + 1, 0, 0, 0])), vec![1; 7]] {
        let socket = raw::open(&siege.echo.name);
        raw::send_bytes(&socket, &bytes, &[]).unwrap();
        let (packet, _) = raw::receive(&socket).unwrap();
        assert_eq!((packet.0, packet.1), (REFUSED, Reason::Version.code()));
    }
    // Gone before they are answered.
    for _ in 0..50 {
        let socket = raw::open(&siege.echo.name);
        raw::send_bytes(&socket, &raw::bytes((HELLO, 0, [GREETING, 0, 0, 0])), &[]).unwrap();
    }
    siege.end();
}

/// A client that sleeps on its socket and lets it fill up costs the server nothing.
#[test]
fn a_client_that_never_reads() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    let mut raw = siege.attacker();
    for n in 0..2000 {
        raw.region.word32(CLIENT_BELL).store(2, Ordering::SeqCst);
        if n % 2 == 0 {
            assert!(raw.call(ECHO, n).is_some());
        } else {
            // Answers with descriptors, which stay in the socket until there is no room: a fault
            // then.
            let (kind, _) = raw.call(common::service::GIVE, 1).unwrap();
            assert!(kind == RESULT || n > 10, "{n}");
        }
    }
    drop(raw);
    siege.end();
}

/// The honest client's own view: it finds what it sent, and never what others sent.
#[test]
fn nobody_sees_what_is_anothers() {
    let _watchdog = watchdog(60);
    let siege = Siege::begin();
    let secret = vec![0x5e; 80_000];
    for _ in 0..20 {
        let mut confidant = siege.echo.connect();
        call(&mut confidant, ECHO, &secret).unwrap();
        call(&mut confidant, ECHO, &secret[..112]).unwrap();
        drop(confidant);
        let mut raw = siege.attacker();
        raw.call(ECHO, 1);
        let areas = Region::len(raw.region.slots, raw.region.area);
        let all = raw.region.read(0, areas);
        assert!(!all.windows(8).step_by(8).any(|word| word == &secret[..8]));
    }
    let mut late = siege.echo.connect();
    assert!(late.start(KEEP, 0).call(soon(1)).is_err());
    drop(late);
    siege.end();
}

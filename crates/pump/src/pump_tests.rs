//! The pump between a program's side and an interface that are both in the test's hands.

use crate::fakes::{Wire, acknowledging, flagged, flow, packet, session};
use crate::in_transit;
use crate::{Carried, LinkHop, LinkId, Pump, SessionNumber};
use sojourn_proto::record::Kind;
use sojourn_proto::time::Instant;
use sojourn_stream::Stream;
use sojourn_wire::frame::{self, LinkType, Offload};
use sojourn_wire::tcp::Flags;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

const LINK: LinkId = LinkId(1);
const OTHER_LINK: LinkId = LinkId(2);
/// The number of the session in the pump.
const NUMBER: SessionNumber = SessionNumber::new(7);
/// Bytes of two segments.
const WHOLE: usize = 2 * 1460;
const AT: Instant = Instant::ZERO;

/// Returns a pump with one interface, and the queue of frames that arrive there.
fn pump() -> (Pump, Arc<Mutex<VecDeque<Vec<u8>>>>) {
    let wire = Wire::new();
    let arriving = Arc::clone(&wire.arriving);
    let mut pump = Pump::default();
    pump.add_link(LINK, Box::new(wire), AT);
    (pump, arriving)
}

fn arrive(at: &Mutex<VecDeque<Vec<u8>>>, port: u16, seq: u32, payload: &[u8]) {
    let packet = packet(flow(port).reversed(), seq, payload, Offload::Nothing);
    at.lock().unwrap().push_back(packet);
}

fn read(program: &Stream) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let len = program.read(&mut [IoSliceMut::new(&mut bytes)], false).unwrap_or(0);
    bytes.truncate(len);
    bytes
}

#[test]
fn what_comes_before_its_session_the_session_gets_first() {
    let (mut pump, arriving) = pump();
    arrive(&arriving, 1, 0, b"one ");
    arrive(&arriving, 2, 0, b"not for it");
    pump.turn(false, AT);
    arrive(&arriving, 1, 4, b"two ");
    let (program, carried) = session(1);
    pump.insert(NUMBER, LINK, carried, AT);
    pump.turn(false, AT);
    arrive(&arriving, 1, 8, b"three");
    pump.turn(false, AT);
    assert_eq!(read(&program), b"one two three");
    assert!(pump.take_in_transit(&flow(1), AT).is_none());
    assert!(pump.take_in_transit(&flow(2), AT).is_some());
}

#[test]
fn what_comes_after_its_session_has_left_is_kept_for_the_kernel() {
    let (mut pump, arriving) = pump();
    let (_program, carried) = session(1);
    pump.insert(NUMBER, LINK, carried, AT);
    arrive(&arriving, 1, 0, b"in");
    pump.turn(false, AT);
    let mut carried: Carried = pump.remove(NUMBER, AT).unwrap();
    let record = carried.leave(AT).unwrap();
    let Kind::Tcp(tcp) = &record.kind else { panic!("{record:?}") };
    assert_eq!((tcp.rcv_nxt, &tcp.receive_queue[..]), (2, &b"in"[..]));
    arrive(&arriving, 1, 2, b"seen by a turn");
    pump.turn(false, AT);
    arrive(&arriving, 1, 16, b"seen by nobody");
    let kept = pump.take_in_transit(&flow(1), AT).unwrap();
    let packets = in_transit::all_in(kept.pack().unwrap(), &flow(1));
    let found = packets.iter().map(|packet| {
        let frame = frame::parse(packet, LinkType::Raw).unwrap();
        let segment = frame.segment().unwrap();
        (segment.header().seq.0, segment.payload().to_vec())
    });
    let found: Vec<_> = found.collect();
    assert_eq!(found, [(2, b"seen by a turn".to_vec()), (16, b"seen by nobody".to_vec())]);
    assert!(pump.take_in_transit(&flow(1), AT).is_none());
}

#[test]
fn sessions_of_an_interface_that_is_gone_are_given_up_once_and_no_others() {
    let (wire, mut pump) = (Wire::new(), Pump::default());
    let (arriving, is_gone) = (Arc::clone(&wire.arriving), Arc::clone(&wire.is_gone));
    pump.add_link(LINK, Box::new(wire), AT);
    pump.add_link(OTHER_LINK, Box::new(Wire::new()), AT);
    let ((program, carried), (other, another)) = (session(1), session(2));
    pump.insert(NUMBER, LINK, carried, AT);
    pump.insert(SessionNumber::new(8), OTHER_LINK, another, AT);
    arrive(&arriving, 1, 0, b"before");
    pump.turn(false, AT);
    assert!(!program.is_frozen() && pump.has_link(LINK));
    assert_eq!(read(&program), b"before");
    is_gone.store(true, Ordering::Relaxed);
    pump.turn(false, AT);
    pump.turn(false, AT);
    assert!(program.is_frozen() && !other.is_frozen());
    assert!(!pump.has_link(LINK) && pump.take_idle_link(AT).is_none());
    let mut carried = pump.remove(NUMBER, AT).unwrap();
    assert!(carried.leave(AT).is_some());
    assert!(pump.take_idle_link(AT).is_some() && pump.has_link(OTHER_LINK));
}

/// Both ends of a veth pair go together, and all interfaces of a name space do.
#[test]
fn of_two_interfaces_that_go_at_a_time_both_give_up_their_sessions() {
    let (wires, mut pump) = ([Wire::new(), Wire::new()], Pump::default());
    let both = wires.each_ref().map(|wire| Arc::clone(&wire.is_gone));
    let ids = [LINK, OTHER_LINK];
    ids.into_iter().zip(wires).for_each(|(id, wire)| pump.add_link(id, Box::new(wire), AT));
    let programs = [1, 2].map(|port| {
        let (program, carried) = session(port);
        pump.insert(SessionNumber::new(port.into()), ids[usize::from(port) - 1], carried, AT);
        program
    });
    both.iter().for_each(|is_gone| is_gone.store(true, Ordering::Relaxed));
    pump.turn(false, AT);
    assert!(programs.iter().all(Stream::is_frozen));
}

/// The peer would repeat its segment after a time-out if the way home took long.
#[test]
fn a_session_that_leaves_owes_no_acknowledgement() {
    let mut wire = Wire::new();
    let arriving = Arc::clone(&wire.arriving);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&sent);
    wire.sent = Box::new(move |bytes| {
        let header = frame::parse(bytes, LinkType::Raw).unwrap().segment().unwrap().header();
        seen.lock().unwrap().push((header.flags, header.ack.0));
    });
    let mut pump = Pump::default();
    pump.add_link(LINK, Box::new(wire), AT);
    let (_program, carried) = session(1);
    pump.insert(NUMBER, LINK, carried, AT);
    arrive(&arriving, 1, 0, b"question");
    // Another turn follows, so the acknowledgement waits for an answer that could carry it.
    pump.turn(true, AT);
    assert!(sent.lock().unwrap().is_empty());
    let mut carried = pump.remove(NUMBER, AT).unwrap();
    assert_eq!(*sent.lock().unwrap(), [(Flags::ACK, 8)]);
    let record = carried.leave(AT).unwrap();
    let Kind::Tcp(tcp) = &record.kind else { panic!("{record:?}") };
    assert!(!tcp.ack_pending);
}

fn arrive_flagged(at: &Mutex<VecDeque<Vec<u8>>>, flags: Flags, seq: u32, payload: &[u8]) {
    let packet = flagged(flow(1).reversed(), (flags, 0), seq, payload, Offload::Nothing);
    at.lock().unwrap().push_back(packet);
}

#[test]
fn a_reset_is_kept_for_the_kernel_and_one_that_is_not_exact_is_challenged() {
    let (mut pump, arriving) = pump();
    let (program, carried) = session(1);
    pump.insert(NUMBER, LINK, carried, AT);
    arrive(&arriving, 1, 0, b"in");
    pump.turn(false, AT);
    for seq in [0, 1, 3, 100, 1 << 30, u32::MAX] {
        arrive_flagged(&arriving, Flags::RST, seq, b"");
        pump.turn(false, AT);
        assert!(!program.is_frozen(), "by a reset at {seq}");
    }
    arrive_flagged(&arriving, Flags::RST | Flags::ACK, 2, b"");
    pump.turn(false, AT);
    assert!(program.is_frozen());
    pump.remove(NUMBER, AT).unwrap().leave(AT).unwrap();
    let packets =
        in_transit::all_in(pump.take_in_transit(&flow(1), AT).unwrap().pack().unwrap(), &flow(1));
    let found = packets.iter().map(|packet| {
        let header = frame::parse(packet, LinkType::Raw).unwrap().segment().unwrap().header();
        (header.seq.0, header.flags)
    });
    assert_eq!(found.collect::<Vec<_>>(), [(2, Flags::RST | Flags::ACK)]);
}

#[test]
fn only_the_peer_s_own_end_sends_a_session_home() {
    let ends = |flags, ack, seq, payload: &[u8]| {
        let (mut pump, arriving) = pump();
        let (program, carried) = session(1);
        pump.insert(NUMBER, LINK, carried, AT);
        arrive(&arriving, 1, 0, b"seen");
        pump.turn(false, AT);
        let packet = flagged(flow(1).reversed(), (flags, ack), seq, payload, Offload::Nothing);
        arriving.lock().unwrap().push_back(packet);
        pump.turn(false, AT);
        program.is_frozen().then(|| pump.remove(NUMBER, AT).unwrap().has_ended())
    };
    let fin = Flags::FIN | Flags::ACK;
    assert_eq!(ends(fin, 0, 4, b""), Some(true));
    assert_eq!(ends(fin, 0, 4, b"more"), Some(true));
    assert_eq!(ends(fin, 0, 0, b"seen"), Some(true), "its data was here, the end was not");
    assert_eq!(ends(fin, 0, 10, b"gap"), Some(false));
    assert_eq!(ends(fin, 0, 0, b"see"), None, "before what was seen");
    assert_eq!(ends(fin, 0, 1 << 30, b""), None, "beyond the window");
    assert_eq!(ends(fin, 1000, 4, b""), None, "acknowledges what was never sent");
    assert_eq!(ends(Flags::FIN, 0, 4, b""), None, "acknowledges nothing");
}

#[test]
fn the_ledger_is_told_before_a_frame_is_sent() {
    let (program, carried) = session(1);
    // The same ledger, as another process sees it that finds the program dead.
    let program = Arc::new(program);
    let observed = Arc::clone(&program);
    let ends = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&ends);
    let mut wire = Wire::new();
    wire.sent = Box::new(move |bytes| {
        let frame = frame::parse(bytes, LinkType::Raw).unwrap();
        let segment = frame.segment().unwrap();
        let end = segment.header().seq.0 + segment.payload().len() as u32;
        let [_, snd_una, snd_nxt, ..] = observed.ledger().published();
        assert_eq!((snd_una, snd_nxt), (0, end), "sent and not published");
        let [_, _, _, _, _, _, _, rcv_nxt, ..] = observed.ledger().published();
        assert_eq!(rcv_nxt, segment.header().ack.0, "acknowledged and not published");
        seen.lock().unwrap().push(end);
    });
    wire.arriving.lock().unwrap().push_back(packet(
        flow(1).reversed(),
        0,
        b"question",
        Offload::Nothing,
    ));
    let mut pump = Pump::default();
    pump.add_link(LINK, Box::new(wire), AT);
    pump.insert(NUMBER, LINK, carried, AT);
    program.write(&[IoSlice::new(&[1; WHOLE])], 1).unwrap();
    pump.turn(false, AT);
    assert_eq!(ends.lock().unwrap().last(), Some(&(WHOLE as u32)), "not all was sent");
}

#[test]
fn what_counts_as_sent_was_sent_though_the_stream_was_frozen_meanwhile() {
    let (program, carried) = session(1);
    let program = Arc::new(program);
    let (freezing, count) = (Arc::clone(&program), Arc::new(Mutex::new(0)));
    let seen = Arc::clone(&count);
    let mut wire = Wire::new();
    wire.sent = Box::new(move |bytes| {
        let frame = frame::parse(bytes, LinkType::Raw).unwrap();
        *seen.lock().unwrap() += frame.segment().unwrap().payload().len();
        freezing.freeze();
    });
    let mut pump = Pump::default();
    pump.add_link(LINK, Box::new(wire), AT);
    pump.insert(NUMBER, LINK, carried, AT);
    program.write(&[IoSlice::new(&[1; WHOLE])], 1).unwrap();
    pump.turn(false, AT);
    let record = pump.remove(NUMBER, AT).unwrap().leave(AT).unwrap();
    let Kind::Tcp(tcp) = &record.kind else { panic!("{record:?}") };
    assert_eq!((tcp.sent(), tcp.send_queue.len()), (WHOLE, WHOLE));
    assert_eq!(
        *count.lock().unwrap(),
        WHOLE,
        "the kernel would wait for answers to what nobody has sent"
    );
}

#[test]
fn a_timer_that_was_put_off_is_neither_late_nor_does_it_anything_early() {
    let count = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&count);
    let mut wire = Wire::new();
    wire.sent = Box::new(move |_| *seen.lock().unwrap() += 1);
    let arriving = Arc::clone(&wire.arriving);
    let mut pump = Pump::default();
    pump.add_link(LINK, Box::new(wire), AT);
    let (program, carried) = session(1);
    pump.insert(NUMBER, LINK, carried, AT);
    let (mut put_off, mut sent_again) = (0, 0);
    let mut step = |pump: &mut Pump, timeout: Instant| {
        let due = pump.session(NUMBER).unwrap().next_timeout().unwrap();
        assert!(timeout <= due, "late by {:?}", timeout.since(due));
        let before = *count.lock().unwrap();
        pump.turn(false, timeout);
        let sent = *count.lock().unwrap() - before;
        if timeout < due {
            put_off += 1;
            assert_eq!(sent, 0, "nothing was due");
        } else {
            sent_again += sent;
        }
    };
    for round in 0..40 {
        // The answer acknowledges the question, which puts off the timer for a question without an
        // answer.
        let at = Instant::from_micros(u64::from(round) * 15_000);
        let question = acknowledging(flow(1).reversed(), round, round, b"?", Offload::Nothing);
        arriving.lock().unwrap().push_back(question);
        pump.turn(false, at);
        assert_eq!(read(&program), b"?");
        program.write(&[IoSlice::new(b"!")], 0).unwrap();
        pump.mark(NUMBER);
        pump.turn(false, at);
        let next = Instant::from_micros(at.as_micros() + 15_000);
        while let Some(timeout) = pump.next_timeout().filter(|timeout| *timeout < next) {
            step(&mut pump, timeout);
        }
    }
    for _ in 0..10 {
        let timeout = pump.next_timeout().unwrap();
        step(&mut pump, timeout);
    }
    assert!(put_off > 0 && sent_again > 1, "{put_off} {sent_again}");
}

#[test]
fn a_pump_is_quiet_only_if_a_turn_would_find_nothing_and_not_for_ever() {
    let (mut pump, arriving) = pump();
    let (program, carried) = session(1);
    let at = Instant::from_micros(1);
    pump.insert(NUMBER, LINK, carried, at);
    assert!((0..100).all(|_| !pump.is_quiet()), "it is marked");
    pump.turn(false, at);
    let quiet = (0..100).filter(|_| pump.is_quiet()).count();
    assert!((80..100).contains(&quiet), "{quiet}");
    arrive(&arriving, 1, 0, b"question");
    assert!((0..100).all(|_| !pump.is_quiet()), "something has come");
    pump.turn(true, at);
    assert_eq!(read(&program), b"question");
    assert!((0..100).all(|_| !pump.is_quiet()), "the acknowledgement waits for the answer");
    pump.turn(false, at);
    assert!((0..100).any(|_| pump.is_quiet()));
}

#[test]
fn what_is_under_way_goes_again_shorter_when_the_path_has_become_narrow() {
    let frames = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&frames);
    let mut wire = Wire::new();
    wire.sent = Box::new(move |bytes| {
        let frame = frame::parse(bytes, LinkType::Raw).unwrap();
        let segment = frame.segment().unwrap();
        let (seq, len) = (segment.header().seq.0, segment.payload().len() as u32);
        seen.lock().unwrap().push((seq, len, bytes.len() as u32));
    });
    let mut pump = Pump::default();
    pump.add_link(LINK, Box::new(wire), AT);
    let (program, carried) = session(1);
    pump.insert(NUMBER, LINK, carried, AT);
    program.write(&[IoSlice::new(&[1; WHOLE])], 1).unwrap();
    let mut sent_after = |mtu, is_cut| {
        pump.reroute(NUMBER, &LinkHop { link: None, mtu, is_cut }, AT);
        pump.turn(false, AT);
        core::mem::take(&mut *frames.lock().unwrap())
    };
    let sent = sent_after(1500, false);
    assert_eq!(sent, [(0, 1460, 1500), (1460, 1460, 1500)]);
    // No turn of a clock: it does not wait until the peer is silent.
    let mut end = 0;
    for (seq, len, packet) in sent_after(1300, false) {
        assert_eq!(seq, end, "in order and all of it");
        assert!(packet <= 1300, "{packet}");
        end += len;
    }
    assert_eq!(end, WHOLE as u32);
    assert_eq!(sent_after(1300, false), []);
    assert_eq!(sent_after(600, true), [], "what is not sent is not too long");
    assert_eq!(sent_after(1500, false), []);
}

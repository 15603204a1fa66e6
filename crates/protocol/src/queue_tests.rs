//! Receivers, waiters and watches at a session that is a list of bytes.

use super::*;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A session in the test's hands.
#[derive(Default)]
struct Bytes {
    bytes: RefCell<VecDeque<u8>>,
    has_room: Cell<bool>,
    has_ended: Cell<bool>,
    fails: Cell<Option<Errno>>,
    /// The session moves: the next so many calls that take bytes find none.
    moves: Cell<u32>,
}

impl Bytes {
    fn put(&self, bytes: &[u8]) {
        self.bytes.borrow_mut().extend(bytes);
    }
}

impl Data for Bytes {
    fn has_datagrams(&self) -> bool {
        false
    }

    fn receive(&self, buffer: &mut Buffer, room: usize, peek: bool) -> Result<usize, Errno> {
        let buffer = buffer.room(room).bytes;
        if let Some(error) = self.fails.get() {
            return Err(error);
        }
        if !peek && self.moves.get() > 0 {
            self.moves.set(self.moves.get() - 1);
            return Err(Errno::AGAIN);
        }
        let mut bytes = self.bytes.borrow_mut();
        let len = bytes.len().min(buffer.len());
        if len == 0 {
            return if self.has_ended.get() { Ok(0) } else { Err(Errno::AGAIN) };
        }
        buffer.iter_mut().zip(bytes.iter()).for_each(|(to, from)| *to = *from);
        if !peek {
            bytes.drain(..len);
        }
        Ok(len)
    }

    fn ready(&self, events: u32) -> u32 {
        let is_readable = !self.bytes.borrow().is_empty() || self.has_ended.get();
        let readable = if is_readable { READABLE } else { 0 };
        let writable = if self.has_room.get() { WRITABLE } else { 0 };
        let failed = if self.fails.get().is_some() { FAILED } else { 0 };
        (readable | writable | failed) & (events | ALWAYS)
    }
}

/// The answers in order: the call's name, the status, the bytes or events.
type Answers = Rc<RefCell<Vec<(u32, u32, Vec<u8>)>>>;

struct Call {
    name: u32,
    size: usize,
    is_answered_first: bool,
    is_gone: Rc<Cell<bool>>,
    answers: Answers,
}

impl Receiver for Call {
    fn size(&self) -> usize {
        self.size
    }

    fn client(&self) -> ClientId {
        client(self.name)
    }

    fn is_answered_first(&self) -> bool {
        self.is_answered_first
    }

    fn answer(self, status: u32, data: &[u8], _: &Envelope) -> Result<(), Gone> {
        if self.is_gone.get() {
            return Err(Gone);
        }
        let data = &data[..data.len().min(self.size)];
        self.answers.borrow_mut().push((self.name, status, data.to_vec()));
        Ok(())
    }
}

impl Waiter for Call {
    fn answer(self, status: u32, ready: u32) {
        self.answers.borrow_mut().push((self.name, status, vec![ready as u8]));
    }
}

/// A session and the calls that wait at it.
struct Room {
    bytes: Bytes,
    queue: Queue<Call, Call>,
    answers: Answers,
    buffer: Buffer,
    is_shared: bool,
}

const WAITS: ReceiveMode = ReceiveMode { peeks: false, may_wait: true, is_answered_first: false };
const ANSWERED_FIRST: ReceiveMode = ReceiveMode { is_answered_first: true, ..WAITS };

impl Room {
    fn new(is_shared: bool) -> Self {
        let (bytes, queue) = (Bytes::default(), Queue::new());
        Self { bytes, queue, answers: Rc::default(), buffer: Buffer::new(64), is_shared }
    }

    fn call(&self, name: u32, size: usize) -> Call {
        let answers = Rc::clone(&self.answers);
        Call { name, size, is_answered_first: false, is_gone: Rc::default(), answers }
    }

    fn receive(&mut self, name: u32, size: usize, how: ReceiveMode) -> Rc<Cell<bool>> {
        let is_answered_first = how.is_answered_first;
        let call = Call { is_answered_first, ..self.call(name, size) };
        let is_gone = Rc::clone(&call.is_gone);
        self.queue.receive(
            call,
            how,
            Source { data: &self.bytes, is_shared: self.is_shared },
            &mut self.buffer,
        );
        is_gone
    }

    fn serve(&mut self) -> (u32, Vec<ClientEvents>) {
        let mut rung = Vec::new();
        let data = Source { data: &self.bytes, is_shared: self.is_shared };
        (self.queue.serve(data, &mut self.buffer, &mut rung), rung)
    }

    fn answered(&self) -> Vec<(u32, u32, Vec<u8>)> {
        self.answers.take()
    }
}

fn client(index: u32) -> ClientId {
    ClientId { index, generation: 1 }
}

#[test]
fn receivers_are_served_in_order_and_nobody_overtakes() {
    let mut room = Room::new(false);
    room.receive(1, 3, WAITS);
    room.receive(2, 3, WAITS);
    assert_eq!(room.queue.interest(), READABLE);
    room.bytes.put(b"abcd");
    room.receive(3, 3, WAITS);
    assert!(room.answered().is_empty(), "two were there before");
    let again = Errno::AGAIN.raw_os_error().cast_unsigned();
    room.receive(4, 3, ReceiveMode::of(DONT_WAIT));
    assert_eq!(room.answered(), [(4, again, vec![])]);
    assert_eq!(room.serve(), (READABLE, vec![]));
    assert_eq!(room.answered(), [(1, 0, b"abc".to_vec()), (2, 0, b"d".to_vec())]);
    room.bytes.has_ended.set(true);
    assert_eq!(room.serve().0, 0);
    assert_eq!(room.answered(), [(3, 0, vec![])], "the end");
}

#[test]
fn who_peeks_takes_nothing_and_does_not_wait() {
    let mut room = Room::new(false);
    let again = Errno::AGAIN.raw_os_error().cast_unsigned();
    room.receive(1, 3, ReceiveMode::of(PEEK));
    assert_eq!(room.answered(), [(1, again, vec![])]);
    room.bytes.put(b"abcd");
    room.receive(2, 3, ReceiveMode::of(PEEK));
    room.receive(3, 3, WAITS);
    assert_eq!(room.answered(), [(2, 0, b"abc".to_vec()), (3, 0, b"abc".to_vec())]);
}

#[test]
fn bytes_for_a_receiver_that_has_gone_are_the_next_ones() {
    let mut room = Room::new(true);
    room.receive(1, 4, WAITS).set(true);
    room.receive(2, 2, WAITS);
    room.bytes.put(b"abcd");
    room.serve();
    assert_eq!(room.answered(), [(2, 0, b"ab".to_vec())]);
    room.receive(3, 64, WAITS);
    assert_eq!(room.answered(), [(3, 0, b"cd".to_vec())]);
}

#[test]
fn an_error_is_told_to_one_and_waited_for_by_all() {
    let mut room = Room::new(false);
    room.receive(1, 4, WAITS);
    room.queue.wait(client(2), room.call(2, 0), READABLE, &room.bytes);
    room.bytes.fails.set(Some(Errno::CONNRESET));
    assert_eq!(room.serve().0, 0);
    let reset = Errno::CONNRESET.raw_os_error().cast_unsigned();
    assert_eq!(room.answered(), [(1, reset, vec![]), (2, 0, vec![FAILED as u8])]);
}

#[test]
fn who_waits_for_events_hears_of_those_and_of_no_others() {
    let mut room = Room::new(false);
    room.bytes.has_room.set(true);
    room.queue.wait(client(1), room.call(1, 0), 0, &room.bytes);
    room.queue.wait(client(2), room.call(2, 0), WRITABLE, &room.bytes);
    room.queue.wait(client(3), room.call(3, 0), READABLE, &room.bytes);
    let writable = vec![WRITABLE as u8];
    assert_eq!(room.answered(), [(1, 0, writable.clone()), (2, 0, writable)]);
    room.queue.watch(client(1), READABLE | WRITABLE);
    room.queue.watch(client(2), READABLE);
    assert_eq!(
        room.serve(),
        (READABLE | ALWAYS, vec![ClientEvents { client: client(1), events: WRITABLE }])
    );
    room.bytes.put(b"a");
    assert_eq!(room.serve(), (0, vec![ClientEvents { client: client(2), events: READABLE }]));
    assert_eq!(room.answered(), [(3, 0, vec![READABLE as u8])]);
    assert_eq!(room.serve(), (0, vec![]), "once");
}

#[test]
fn a_watch_is_replaced_and_given_up() {
    let mut room = Room::new(false);
    room.bytes.put(b"a");
    room.queue.watch(client(1), READABLE);
    room.queue.watch(client(1), WRITABLE);
    room.queue.watch(client(2), READABLE);
    room.queue.watch(client(2), 0);
    assert_eq!(room.serve(), (WRITABLE | ALWAYS, vec![]));
    let mut rung = Vec::new();
    room.receive(3, 1, WAITS);
    room.receive(4, 1, WAITS);
    room.answered();
    room.queue.end(Errno::STALE, &mut rung);
    assert_eq!(
        (rung, room.queue.interest()),
        (vec![ClientEvents { client: client(1), events: FAILED }], 0)
    );
    assert_eq!(room.answered(), [(4, Errno::STALE.raw_os_error().cast_unsigned(), vec![])]);
}

#[test]
fn who_leaves_leaves_no_call_behind() {
    let mut room = Room::new(true);
    for name in 1..=2 {
        room.receive(name, 1, WAITS);
        room.queue.wait(client(name), room.call(name, 0), WRITABLE, &room.bytes);
        room.queue.watch(client(name), PEER_DONE);
    }
    assert_eq!(room.queue.len(), 6);
    room.queue.leave(&[client(2), client(3)]);
    let bad = Errno::BADF.raw_os_error().cast_unsigned();
    assert!(room.answered().iter().all(|(name, status, _)| (*name, *status) == (2, bad)));
    assert_eq!(room.queue.len(), 3, "the other one's");
    room.queue.leave(&[client(1)]);
    assert_eq!((room.queue.len(), room.queue.interest()), (0, 0));
}

#[test]
fn bytes_are_taken_after_the_answer_where_the_caller_wants_that() {
    let mut room = Room::new(false);
    room.receive(1, 2, ANSWERED_FIRST).set(true);
    room.receive(2, 2, ANSWERED_FIRST);
    room.bytes.put(b"abcd");
    room.serve();
    assert_eq!(room.answered(), [(2, 0, b"ab".to_vec())], "nobody has the first one's");
    assert_eq!(*room.bytes.bytes.borrow(), *b"cd");
    room.bytes.moves.set(1);
    room.receive(3, 1, ANSWERED_FIRST);
    assert_eq!(room.answered(), [(3, 0, b"c".to_vec())]);
    assert_eq!(*room.bytes.bytes.borrow(), *b"cd", "it moves");
    room.receive(4, 1, WAITS);
    assert_eq!(room.answered(), [(4, 0, b"d".to_vec())], "not the same again");
}

#[test]
fn calls_that_are_cancelled_are_answered_and_take_nothing() {
    let mut room = Room::new(false);
    room.receive(1, 4, ANSWERED_FIRST);
    room.receive(2, 4, ANSWERED_FIRST);
    room.queue.cancel(client(1));
    let interrupted = Errno::INTR.raw_os_error().cast_unsigned();
    assert_eq!(room.answered(), [(1, interrupted, vec![])]);
    room.bytes.put(b"ab");
    room.serve();
    room.queue.cancel(client(2));
    assert_eq!(room.answered(), [(2, 0, b"ab".to_vec())], "it was answered before");
}

/// A session that is a list of datagrams.
#[derive(Default)]
struct Datagrams(RefCell<VecDeque<(Vec<u8>, u32)>>);

impl Data for Datagrams {
    fn has_datagrams(&self) -> bool {
        true
    }

    fn receive(&self, buffer: &mut Buffer, _: usize, peek: bool) -> Result<usize, Errno> {
        let mut all = self.0.borrow_mut();
        let (bytes, whole) = match peek {
            true => all.front().cloned(),
            false => all.pop_front(),
        }
        .ok_or(Errno::AGAIN)?;
        let mut envelope = Envelope::NONE;
        envelope.whole = whole;
        Ok(buffer.fill(&bytes, &envelope))
    }

    fn ready(&self, events: u32) -> u32 {
        if self.0.borrow().is_empty() { 0 } else { READABLE & events }
    }
}

#[test]
fn a_datagram_is_one_receivers_and_the_next_ones_if_that_has_gone() {
    let mut room = Room::new(true);
    let data = Datagrams::default();
    for name in 1..=3 {
        let call = Call { is_answered_first: true, ..room.call(name, 3) };
        call.is_gone.set(name < 3);
        room.queue.receive(call, WAITS, Source { data: &data, is_shared: true }, &mut room.buffer);
    }
    let datagrams = [b"abcd", b"efgh"].map(|bytes| (bytes.to_vec(), 4));
    data.0.borrow_mut().extend(datagrams);
    room.queue.serve(Source { data: &data, is_shared: true }, &mut room.buffer, &mut Vec::new());
    assert_eq!(room.answered(), [(3, 0, b"abc".to_vec())], "two have gone, the rest is cut off");
    let gone = room.call(4, 2);
    gone.is_gone.set(true);
    room.queue.receive(gone, WAITS, Source { data: &data, is_shared: true }, &mut room.buffer);
    assert_eq!(data.ready(READABLE), 0);
    room.queue.wait(client(5), room.call(5, 0), READABLE, &data);
    assert_eq!(room.answered(), [(5, 0, vec![READABLE as u8])], "one is left");
    for (name, how) in [(6, ReceiveMode::of(PEEK)), (7, WAITS)] {
        room.queue.receive(
            room.call(name, 9),
            how,
            Source { data: &data, is_shared: true },
            &mut room.buffer,
        );
        assert_eq!(room.answered(), [(name, 0, b"efgh".to_vec())], "all of it");
    }
}

proptest! {
    /// In every order of events, moves of the session between two looks among them, the receivers
    /// that are there get all bytes in order, none twice.
    #[test]
    fn no_byte_is_lost_or_comes_twice(
        steps in prop::collection::vec((any::<bool>(), 1..8usize, any::<bool>(), 0..3u32), 1..80),
    ) {
        let mut room = Room::new(true);
        let mut sent = 0u8;
        let mut got = Vec::new();
        for (brings, len, is_gone, moves) in steps {
            room.bytes.moves.set(moves);
            if brings {
                let bytes: Vec<u8> = (0..len).map(|at| sent.wrapping_add(at as u8)).collect();
                sent = sent.wrapping_add(len as u8);
                room.bytes.put(&bytes);
                room.serve();
            } else {
                room.receive(1, len, WAITS).set(is_gone);
            }
            got.extend(room.answered().into_iter().flat_map(|(_, _, bytes)| bytes));
        }
        room.bytes.moves.set(0);
        prop_assert!(room.queue.settle(&room.bytes, &mut room.buffer));
        let left = room.bytes.bytes.borrow().iter().copied().collect::<Vec<_>>();
        let all: Vec<u8> = got.into_iter().chain(left).collect();
        let expected: Vec<u8> = (0..all.len()).map(|at| at as u8).collect();
        prop_assert_eq!(all.len() as u8, sent);
        prop_assert_eq!(all, expected);
    }
}

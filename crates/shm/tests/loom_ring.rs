//! Models of the request ring, the call line, and the hand-over of a cold lane: in every
//! interleaving each request is taken once, whole and in order, no answer is taken for another
//! call's, and no thread sleeps for ever.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p sojourn-shm --release --test loom_ring`. Numbers,
//! decisions and fences are the code that ships (`ring`, `park`, `Line`); the kernel's parts, futex
//! and socket, are a lock and a condition variable. A lost wake-up shows as a deadlock.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sojourn_shm::park::{self, Cold};
use sojourn_shm::ring::{self, DIRECT, Expected, Next, Seq};
use sojourn_shm::{AtomicU32, AtomicU64, Line, Ordering};

const SLOTS: u32 = 2;
const SEND: u64 = 2 << 48;
const CALL: u64 = 1 << 48;
const ANSWER: u64 = 6 << 48;

/// A futex, or a socket of which only the number of packets matters.
struct Sleep {
    packets: Mutex<u32>,
    sleepers: Condvar,
}

impl Sleep {
    fn new() -> Self {
        Self { packets: Mutex::new(0), sleepers: Condvar::new() }
    }

    /// Compares and sleeps as one, as the kernel does.
    fn wait(&self, bell: &AtomicU32, expected: u32) {
        let guard = self.packets.lock().unwrap();
        if bell.load(Ordering::SeqCst) == expected {
            drop(self.sleepers.wait(guard).unwrap());
        }
    }

    fn wake(&self) {
        let _guard = self.packets.lock().unwrap();
        self.sleepers.notify_one();
    }

    fn send(&self) {
        *self.packets.lock().unwrap() += 1;
        self.sleepers.notify_one();
    }

    fn receive(&self) {
        let mut packets = self.packets.lock().unwrap();
        while *packets == 0 {
            packets = self.sleepers.wait(packets).unwrap();
        }
        *packets -= 1;
    }
}

/// A region, and the objects on which its two sides sleep.
struct Region {
    slots: [Line; SLOTS as usize],
    call_line: Line,
    consumed: AtomicU32,
    want: AtomicU32,
    server_bell: AtomicU32,
    client_bell: AtomicU32,
    server: Sleep,
    client: Sleep,
}

impl Region {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: [Line::new(), Line::new()],
            call_line: Line::new(),
            consumed: AtomicU32::new(0),
            want: AtomicU32::new(0),
            server_bell: AtomicU32::new(0),
            client_bell: AtomicU32::new(0),
            server: Sleep::new(),
            client: Sleep::new(),
        })
    }

    fn slot(&self, seq: Seq) -> &Line {
        &self.slots[(seq.0 & (SLOTS - 1)) as usize]
    }

    fn ring_server(&self) {
        if park::ring(&self.server_bell) == park::ON_FUTEX {
            self.server.wake();
        }
    }

    fn ring_client(&self) {
        if park::ring(&self.client_bell) == park::ON_FUTEX {
            self.client.wake();
        }
    }

    /// Lets the client sleep until `ready` returns true.
    fn await_client(&self, ready: impl Fn(&Self) -> bool) {
        while !ready(self) {
            park::announce(&self.client_bell, park::ON_FUTEX);
            if !ready(self) {
                self.client.wait(&self.client_bell, park::ON_FUTEX);
            }
            park::withdraw(&self.client_bell);
        }
    }

    /// Publishes a one-way message that carries its own number.
    fn send(&self, seq: u32) {
        let before = Seq(seq - 1);
        if !ring::has_room(&self.consumed, before, SLOTS) {
            ring::want_room(&self.want, before, SLOTS);
            self.await_client(|region| ring::has_room(&region.consumed, before, SLOTS));
        }
        self.slot(Seq(seq)).publish(u64::from(seq) | SEND, 0, &[u64::from(seq) * 10]);
        self.ring_server();
    }

    fn call(&self, seq: u32, last: u32) {
        let meta = u64::from(ring::after(Seq(last))) << 56;
        self.call_line.publish(u64::from(seq) | CALL, meta, &[u64::from(seq) * 10]);
        self.ring_server();
    }
}

/// The server's side, with the requests that it has taken, in order.
struct Lane {
    call: Seq,
    seq: Seq,
    taken: Vec<u32>,
}

impl Lane {
    fn new() -> Self {
        Self { call: Seq(DIRECT | 1), seq: Seq(1), taken: vec![] }
    }

    fn next(&self, region: &Region) -> Next {
        let expected = Expected {
            call: self.call,
            seq: self.seq,
            slots: SLOTS,
            is_first_round: self.seq.0 <= SLOTS,
            may_call: true,
        };
        ring::next(&region.call_line, region.slot(self.seq), expected)
    }

    /// Takes the available requests; returns false if there are none.
    fn look(&mut self, region: &Region) -> bool {
        let mut words = [0; 2];
        match self.next(region) {
            Next::Nothing => return false,
            Next::Wrong => panic!("an honest client has broken a rule"),
            Next::Slot(tag) => {
                region.slot(self.seq).copy_out(&mut words);
                assert_eq!(ring::tag_seq(tag), self.seq);
                assert_eq!(words[1], u64::from(self.seq.0) * 10, "the words of another round");
                if ring::consume(&region.consumed, &region.want, self.seq) {
                    region.ring_client();
                }
                self.taken.push(self.seq.0);
                self.seq = ring::next_seq(self.seq);
            }
            Next::Call(_) => {
                region.call_line.copy_out(&mut words);
                assert_eq!(words[1], u64::from(self.call.0) * 10, "the words of another call");
                self.taken.push(self.call.0);
                self.call = ring::next_seq(self.call);
            }
        }
        true
    }

    /// Takes `count` requests, sleeping as the server does.
    fn serve(&mut self, region: &Region, count: usize) {
        while self.taken.len() < count {
            if self.look(region) {
                continue;
            }
            park::announce(&region.server_bell, park::ON_FUTEX);
            if self.next(region) == Next::Nothing {
                region.server.wait(&region.server_bell, park::ON_FUTEX);
            }
            park::withdraw(&region.server_bell);
        }
    }

    fn answer(&self, region: &Region) {
        let seq = ring::distance(Seq(1), self.call) | DIRECT;
        region.call_line.publish(u64::from(seq) | ANSWER, 0, &[u64::from(seq) * 100]);
        region.ring_client();
    }
}

fn check(bound: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(bound);
    builder.max_branches = 10_000;
    builder.check(model);
}

#[test]
fn a_ring_of_two_goes_round_and_loses_nothing() {
    check(2, || {
        let region = Region::new();
        let sender = {
            let region = Arc::clone(&region);
            thread::spawn(move || (1..=4).for_each(|seq| region.send(seq)))
        };
        let mut lane = Lane::new();
        lane.serve(&region, 4);
        assert_eq!(lane.taken, [1, 2, 3, 4]);
        sender.join().unwrap();
    });
}

#[test]
fn requests_are_taken_in_the_order_they_were_made() {
    check(3, || {
        let region = Region::new();
        let sender = {
            let region = Arc::clone(&region);
            thread::spawn(move || {
                region.send(1);
                region.call(DIRECT | 1, 1);
                region.send(2);
            })
        };
        let mut lane = Lane::new();
        lane.serve(&region, 3);
        assert_eq!(lane.taken, [1, DIRECT | 1, 2]);
        sender.join().unwrap();
    });
}

/// The client gives its first call up. The line is used again only when the late answer has come,
/// and that answer is never taken for the second call's.
#[test]
fn a_late_answer_is_not_taken_for_anothers() {
    check(3, || {
        let region = Region::new();
        let server = {
            let region = Arc::clone(&region);
            thread::spawn(move || {
                let mut lane = Lane::new();
                for count in 1..=2 {
                    lane.serve(&region, count);
                    lane.answer(&region);
                }
                assert_eq!(lane.taken, [DIRECT | 1, DIRECT | 2]);
            })
        };
        region.call(DIRECT | 1, 0);
        // The call is given up at once; then the line is needed again.
        region.await_client(|region| ring::is_answer(region.call_line.tag(), Seq(DIRECT | 1)));
        region.call(DIRECT | 2, 0);
        assert!(!ring::is_answer(region.call_line.tag(), Seq(DIRECT | 1)));
        region.await_client(|region| ring::is_answer(region.call_line.tag(), Seq(DIRECT | 2)));
        let mut words = [0; 2];
        region.call_line.copy_out(&mut words);
        assert_eq!(words[1], u64::from(DIRECT | 2) * 100);
        server.join().unwrap();
    });
}

/// A lane that goes cold: the client rings through the socket, the control thread tells the server.
#[test]
fn a_cold_lane_is_always_warmed() {
    check(2, || {
        let region = Region::new();
        let cold = Arc::new(Cold::new());
        let (socket, notes) = (Arc::new(Sleep::new()), Arc::new(Sleep::new()));
        let control = {
            let (cold, socket, notes) =
                (Arc::clone(&cold), Arc::clone(&socket), Arc::clone(&notes));
            thread::spawn(move || {
                // There is at most one packet, since there is one message. The last one is the
                // model's own, to end the thread.
                socket.receive();
                if cold.rang() {
                    notes.send();
                }
            })
        };
        let client = {
            let (region, socket) = (Arc::clone(&region), Arc::clone(&socket));
            thread::spawn(move || {
                region.slot(Seq(1)).publish(1 | SEND, 0, &[10]);
                if park::ring(&region.server_bell) == park::ON_SOCKET {
                    socket.send();
                }
            })
        };
        let mut lane = Lane::new();
        while !lane.look(&region) {
            // `Server::cool`, then a sleep in which only notes are waited for, then `Server::warm`.
            cold.begin(&region.server_bell);
            if lane.next(&region) == Next::Nothing {
                notes.receive();
            }
            cold.end(&region.server_bell);
        }
        assert_eq!(lane.taken, [1]);
        client.join().unwrap();
        socket.send();
        control.join().unwrap();
    });
}

/// Bits that are set while the receiver takes others arrive once, and none is lost.
#[test]
fn notification_bits_are_neither_lost_nor_doubled() {
    check(3, || {
        let region = Region::new();
        let bits = Arc::new(AtomicU64::new(0));
        let notifier = {
            let (region, bits) = (Arc::clone(&region), Arc::clone(&bits));
            thread::spawn(move || {
                for bit in [1, 2] {
                    bits.fetch_or(bit, Ordering::Release);
                    region.ring_server();
                }
            })
        };
        let mut seen = 0;
        while seen != 3 {
            let taken = bits.swap(0, Ordering::Acquire);
            assert_eq!(seen & taken, 0, "a bit came twice");
            seen |= taken;
            if taken != 0 {
                continue;
            }
            park::announce(&region.server_bell, park::ON_FUTEX);
            if bits.load(Ordering::Relaxed) == 0 {
                region.server.wait(&region.server_bell, park::ON_FUTEX);
            }
            park::withdraw(&region.server_bell);
        }
        notifier.join().unwrap();
    });
}

//! Round trips and bulk over each implementation, both ends spinning on the same veth, one thread
//! each.
//!
//! `cargo bench -p sojourn-netif` prints figures; with `--check`, or when run as a test, it does
//! everything once and the figures mean nothing. The project's benchmarks proper, with the kernel
//! and others beside, are `crates/bench`'s.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(missing_docs, reason = "a program")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::frames::{self, Front, NOBODY, flow, pattern, probe, tcp_header};
use common::xsk::Steering;
use common::{FAR_DEVICE, LIMIT, Lab, NEAR_DEVICE, with_xdp};
use sojourn_netif::{
    Interface, LinkType, Message, Outgoing, PacketOptions, Ring, RingLayout, SendError, Xdp,
    XdpOptions,
};
use sojourn_wire::Protocol;
use sojourn_wire::frame::Offload;
use sojourn_wire::tcp::Flags;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long each figure takes.
#[derive(Clone, Copy)]
struct Effort {
    time: Duration,
    repeats: usize,
}

type End = Box<dyn Interface + Send>;
type Open = fn(&str) -> (End, Option<Steering>);

const KINDS: &[(&str, Open)] = &[
    ("msg", |device| (Box::new(Message::open(device, &packet_options(false)).unwrap()), None)),
    ("ring", |device| (Box::new(ring(device, RingLayout::default(), false)), None)),
    ("ring, 68 KB slots", |device| {
        let layout = RingLayout { slot_len: 17 * 4096, slots: 64 };
        (Box::new(ring(device, layout, false)), None)
    }),
    ("ring, no qdisc", |device| (Box::new(ring(device, RingLayout::default(), true)), None)),
    ("ring, short by xdp", |device| {
        (Box::new(with_xdp(ring(device, RingLayout::default(), false))), None)
    }),
    ("xdp", |device| {
        let near = Xdp::open(device, &XdpOptions::default()).unwrap();
        let steering = Steering::new(near.properties().index);
        steering.give(0, near.as_fd());
        (Box::new(near), Some(steering))
    }),
];

fn packet_options(qdisc_bypass: bool) -> PacketOptions {
    PacketOptions { qdisc_bypass, ..PacketOptions::default() }
}

fn ring(device: &str, layout: RingLayout, qdisc_bypass: bool) -> Ring {
    Ring::open(device, &packet_options(qdisc_bypass), layout).unwrap()
}

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let is_check = !is_bench || std::env::args().any(|argument| argument == "--check");
    let effort = if is_check {
        Effort { time: Duration::from_millis(20), repeats: 1 }
    } else {
        Effort { time: Duration::from_millis(500), repeats: 5 }
    };
    println!("{:<20} {:>14} {:>14} {:>14}", "", "64 B, µs", "1024 B, µs", "bulk, Gbit/s");
    for (name, open) in KINDS {
        let Some(lab) = Lab::for_several() else { return };
        let (mut near, _near_steering) = lab.near(|| open(NEAR_DEVICE));
        let (mut far, _far_steering) = lab.far(|| open(FAR_DEVICE));
        let best = |mut run: Box<dyn FnMut() -> f64 + '_>| {
            (0..effort.repeats).map(|_| run()).collect::<Vec<_>>()
        };
        let lowest = |figures: Vec<f64>| figures.into_iter().fold(f64::INFINITY, f64::min);
        let highest = |figures: Vec<f64>| figures.into_iter().fold(0.0, f64::max);
        let small = lowest(best(Box::new(|| round_trip(&mut near, &mut far, 64, effort.time))));
        let large = lowest(best(Box::new(|| round_trip(&mut near, &mut far, 1024, effort.time))));
        let bulk = highest(best(Box::new(|| bulk(&mut near, &mut far, effort.time))));
        println!("{name:<20} {small:>14.2} {large:>14.2} {bulk:>14.2}");
    }
}

/// Ends the other thread, also when this one panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Microseconds there and back, on average.
fn round_trip(near: &mut End, far: &mut End, len: usize, time: Duration) -> f64 {
    let is_over = AtomicBool::new(false);
    let frame = probe(LinkType::Ethernet, len, 1);
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        let echo = scope.spawn(|| {
            let frame = frame.clone();
            while !is_over.load(Ordering::Relaxed) {
                let count = far.receive(64, &mut |_| ()).unwrap();
                for _ in 0..count {
                    far.send(&Outgoing::plain(&frame)).unwrap();
                    far.flush().unwrap();
                }
            }
        });
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < time {
            near.send(&Outgoing::plain(&frame)).unwrap();
            near.flush().unwrap();
            let sent = Instant::now();
            while near.receive(1, &mut |_| ()).unwrap() == 0 {
                assert!(sent.elapsed() < LIMIT, "no answer");
                std::hint::spin_loop();
            }
            count += 1;
        }
        let took = start.elapsed();
        drop(over);
        echo.join().unwrap();
        took.as_secs_f64() * 1e6 / f64::from(count)
    })
}

/// Gigabits of payload per second one way, four frames on their way at once, each copied out where
/// it arrives.
fn bulk(near: &mut End, far: &mut End, time: Duration) -> f64 {
    const WINDOW: u64 = 4;
    let headers =
        frames::headers(LinkType::Ethernet, NOBODY, NOBODY, flow(Protocol::Tcp, 1000, 2000));
    let len = if near.properties().gso_max > 0 { 64_000 } else { 1448 };
    let payload = pattern(len, 1);
    let tcp = tcp_header(1, 2, Flags::ACK);
    let offload = if len > 1448 { Offload::Segments(1448) } else { Offload::Checksum };
    let front = Front::tcp(&headers, &tcp, &[&payload], offload);
    let (is_over, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let over = Over(&is_over);
        let sink = scope.spawn(|| {
            let mut room = vec![0; 70_000];
            while !is_over.load(Ordering::Relaxed) {
                let mut copy = |received: sojourn_netif::Received<'_>| {
                    room[..received.frame.len()].copy_from_slice(received.frame);
                };
                let count = far.receive(64, &mut copy).unwrap();
                // SYNC: nothing is read on its strength; a count.
                arrived.fetch_add(count as u64, Ordering::Relaxed);
            }
        });
        let start = Instant::now();
        let mut sent = 0;
        while start.elapsed() < time {
            let mut waiting = Instant::now();
            while sent - arrived.load(Ordering::Relaxed) >= WINDOW {
                assert!(waiting.elapsed() < LIMIT, "a frame was lost");
                std::hint::spin_loop();
            }
            match near.send(&front.with(&payload, &[])) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => waiting = Instant::now(),
                Err(error) => panic!("{error}"),
            }
            near.flush().unwrap();
            assert!(waiting.elapsed() < LIMIT, "no room");
        }
        let waiting = Instant::now();
        while sent > arrived.load(Ordering::Relaxed) {
            assert!(waiting.elapsed() < LIMIT, "a frame was lost");
        }
        let took = start.elapsed();
        let bits = arrived.load(Ordering::Relaxed) as f64 * len as f64 * 8.0;
        drop(over);
        sink.join().unwrap();
        bits / took.as_secs_f64() / 1e9
    })
}

//! The costs of a stream, beside those of the machine: a byte there and back against a bare cache
//! line, and long writes one way against a pipe. Two threads on two processors; nothing here is a
//! test.
//!
//! `cargo run --release -p sojourn-stream --example measure [ping|bulk]`
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

#[path = "../tests/common/mod.rs"]
mod common;

use sojourn_shm::Deadline;
use sojourn_shm::wait::{Policy, Wait};
use sojourn_stream::{Stop, Stream};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const ROUNDS: u64 = 400_000;
const REPEATS: usize = 9;

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// Runs `other` on processor 1 and `this` on processor 0; nanoseconds of `this`, the least and the
/// middle of several runs, divided by `rounds`.
fn timed(
    rounds: u64,
    run: impl Fn() -> (Box<dyn FnOnce()>, Box<dyn FnOnce() + Send>),
) -> (f64, f64) {
    let mut all: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let (this, other) = run();
            let other = std::thread::spawn(|| {
                pin(1);
                other();
            });
            pin(0);
            let start = Instant::now();
            this();
            let ns = start.elapsed().as_nanos() as f64 / rounds as f64;
            other.join().unwrap();
            ns
        })
        .collect();
    all.sort_by(f64::total_cmp);
    (all[0], all[REPEATS / 2])
}

/// One line, written by turns.
fn bare_line() -> (f64, f64) {
    #[repr(align(128))]
    struct Line(AtomicU64);
    timed(ROUNDS, || {
        let line = Arc::new(Line(AtomicU64::new(0)));
        let turns = |line: Arc<Line>, mine: u64| {
            for round in 0..ROUNDS {
                while line.0.load(Ordering::Acquire) != round * 2 + mine {}
                line.0.store(round * 2 + mine + 1, Ordering::Release);
            }
        };
        let theirs = Arc::clone(&line);
        (Box::new(move || turns(line, 0)), Box::new(move || turns(theirs, 1)))
    })
}

/// Two lines, each written by one side.
fn bare_lines() -> (f64, f64) {
    #[repr(align(128))]
    struct Line(AtomicU64);
    timed(ROUNDS, || {
        let lines = Arc::new([Line(AtomicU64::new(0)), Line(AtomicU64::new(0))]);
        let theirs = Arc::clone(&lines);
        let first = move || {
            for round in 1..=ROUNDS {
                lines[0].0.store(round, Ordering::Release);
                while lines[1].0.load(Ordering::Acquire) != round {}
            }
        };
        let second = move || {
            for round in 1..=ROUNDS {
                while theirs[0].0.load(Ordering::Acquire) != round {}
                theirs[1].0.store(round, Ordering::Release);
            }
        };
        (Box::new(first), Box::new(second))
    })
}

fn switched(ring_bytes: [u32; 2]) -> [Stream; 2] {
    let [a, b] = common::pair(ring_bytes);
    b.consent();
    a.use_ring();
    if ring_bytes[1] != 0 {
        a.consent();
        b.use_ring();
    }
    [a, b]
}

fn read_some(stream: &Stream, buf: &mut [u8], policy: &mut Option<Policy>) -> usize {
    loop {
        match stream.read(&mut [IoSliceMut::new(buf)], false) {
            Ok(read) => return read,
            Err(Stop::Empty) => {}
            Err(stop) => panic!("{stop}"),
        }
        if let Some(policy) = policy {
            let cpu = stream.peer_cpu_writing();
            policy.spin(cpu, Deadline::NEVER, || stream.available() != Ok(0));
        } else {
            while stream.available() == Ok(0) {}
        }
    }
}

/// `size` bytes there and back.
fn ping_pong(size: usize, spin: bool) -> (f64, f64) {
    timed(ROUNDS, || {
        let [a, b] = switched([65536, 65536]);
        let turns = move |stream: Stream, first: bool| {
            let mut policy = spin.then(|| Policy::new(Wait::Spin(None)));
            let mut buf = vec![1u8; size];
            for round in 0..ROUNDS {
                if first || round > 0 {
                    while stream.write(&[IoSlice::new(&buf)], size) == Err(Stop::Full) {}
                }
                let mut got = 0;
                while got < size {
                    got += read_some(&stream, &mut buf[got..], &mut policy);
                }
            }
            if !first {
                stream.write(&[IoSlice::new(&buf)], size).unwrap();
            }
        };
        (Box::new(move || turns(a, true)), Box::new(move || turns(b, false)))
    })
}

/// Nanoseconds for `size` bytes one way, `total` in all.
fn bulk(ring_bytes: u32, size: usize, total: usize) -> (f64, f64) {
    timed((total / size) as u64, || {
        let [a, b] = switched([ring_bytes, 0]);
        let source = move || {
            let buf = vec![1u8; size];
            for _ in 0..total / size {
                let mut done = 0;
                while done < size {
                    match a.write(&[IoSlice::new(&buf[done..])], 1) {
                        Ok(written) => done += written,
                        Err(Stop::Full) => core::hint::spin_loop(),
                        Err(stop) => panic!("{stop}"),
                    }
                }
            }
            while a.pending() > 0 {}
        };
        let sink = move || {
            let (mut buf, mut left) = (vec![0u8; size], total);
            while left > 0 {
                left -= read_some(&b, &mut buf, &mut None);
            }
        };
        (Box::new(source), Box::new(sink))
    })
}

fn pipe_bulk(size: usize, total: usize) -> (f64, f64) {
    timed((total / size) as u64, || {
        let (mut from, mut to) = std::io::pipe().unwrap();
        let source = move || {
            let buf = vec![1u8; size];
            (0..total / size).for_each(|_| to.write_all(&buf).unwrap());
        };
        let sink = move || {
            let (mut buf, mut left) = (vec![0u8; size], total);
            while left > 0 {
                left -= from.read(&mut buf).unwrap();
            }
        };
        (Box::new(source), Box::new(sink))
    })
}

fn row(what: &str, (least, middle): (f64, f64), bytes: usize) {
    let rate =
        if bytes > 0 { format!("{:8.2} GB/s", bytes as f64 / middle) } else { String::new() };
    println!("{what:40} {least:9.1} {middle:9.1} ns {rate}");
}

fn main() {
    let what = std::env::args().nth(1);
    let wanted = |name: &str| what.as_ref().is_none_or(|what| what == name);
    println!("{:40} {:>9} {:>9}", "", "least", "middle");
    if wanted("ping") {
        row("bare line, there and back", bare_line(), 0);
        row("two bare lines, there and back", bare_lines(), 0);
        for size in [1, 8, 24, 64, 256, 1024, 4096] {
            row(&format!("{size} bytes there and back"), ping_pong(size, false), 0);
            row(&format!("{size} bytes, spinning by policy"), ping_pong(size, true), 0);
        }
    }
    if wanted("bulk") {
        for size in [4096, 16384, 65536, 262_144] {
            row(&format!("pipe, {size} bytes"), pipe_bulk(size, 256 << 20), size);
            for ring in [65536, 262_144, 1 << 20] {
                let name = format!("ring of {} KiB, {size} bytes", ring >> 10);
                row(&name, bulk(ring, size, 256 << 20), size);
            }
        }
    }
}

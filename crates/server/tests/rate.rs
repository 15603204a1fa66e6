//! The cost of an offer and of a join for the server. A measurement, not a check: run it by `cargo
//! test --release -p sojourn-server --test rate -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, reason = "what fails here fails the measurement")]

mod common;

use common::{Folder, Program, Server, be_fake};
use rustix::fd::OwnedFd;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

const ROUNDS: u64 = 2000;

#[test]
fn fake() {
    be_fake();
}

/// Processor time of the server so far (µs), by thread.
fn processor_us(server: &Server) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap();
    let spent = tasks.map(|task| {
        let line = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        line.split_whitespace().next().unwrap().parse::<f64>().unwrap()
    });
    spent.sum::<f64>() / 1000.0
}

fn measure(what: &str, waiting: u64, mut pair: impl FnMut() -> (OwnedFd, OwnedFd)) {
    let folder = Folder::new();
    let server = Server::start(&folder.server(), &[]);
    let [a, b] = [(); 2].map(|()| Program::start(&folder.server()));
    assert!(a.hello() && b.hello());
    if waiting > 0 {
        a.tell(&format!("pipes {waiting}"), None);
    }
    let before = processor_us(&server);
    let mut locals = 0..ROUNDS;
    let mut kept = Vec::new();
    for local in locals.by_ref() {
        let (first, second) = pair();
        kept.push((first.try_clone().unwrap(), second.try_clone().unwrap()));
        a.offer(local, first, true);
        b.offer(local, second, true);
        a.joined();
        b.joined();
        a.tell(&format!("left {local}"), None);
        b.tell("next", None);
        b.tell(&format!("left {local}"), None);
        for program in [&a, &b] {
            program.tell(&format!("close {local}"), None);
        }
        if kept.len() > 200 {
            kept.clear();
        }
    }
    a.tell("sync", None);
    let each = (processor_us(&server) - before) / ROUNDS as f64;
    println!(
        "{what}, {waiting} offers waiting: {each:.1} µs of processor for two offers, the joins and their end"
    );
}

#[test]
#[ignore = "a measurement"]
fn an_offer_and_a_join() {
    let unix = || {
        let (a, b) = UnixStream::pair().unwrap();
        (a.into(), b.into())
    };
    let tcp = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client.into(), listener.accept().unwrap().0.into())
    };
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    measure("TCP", 0, tcp);
    measure("Unix", 0, unix);
    measure("pipe", 0, pipe);
    measure("pipe", 10_000, pipe);
}

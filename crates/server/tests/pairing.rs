//! The server as its clients see it: real processes, real ends, real IPC.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{Folder, Joined, Program, Server, be_fake, until};
use rustix::fd::OwnedFd;
use sojourn_session::{HomeT, KindT, ReasonT};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

#[test]
fn fake() {
    be_fake();
}

fn tcp() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client.into(), listener.accept().unwrap().0.into())
}

fn unix() -> (OwnedFd, OwnedFd) {
    let (a, b) = UnixStream::pair().unwrap();
    (a.into(), b.into())
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

/// A server and two programs that have said hello.
struct World {
    a: Program,
    b: Program,
    server: Server,
    folder: Folder,
}

impl World {
    fn new() -> Self {
        let folder = Folder::new();
        let server = Server::start(&folder.server(), &[]);
        let [a, b] = [(); 2].map(|()| Program::start(&folder.server()));
        assert!(a.hello() && b.hello());
        Self { a, b, server, folder }
    }

    /// Offers a pair under one number on both sides and takes the joins.
    fn join(&self, local: u64, (first, second): (OwnedFd, OwnedFd)) -> (Joined, Joined) {
        assert!(self.a.offer(local, first, true));
        assert!(!self.b.offer(local, second, true));
        (self.a.joined(), self.b.joined())
    }

    fn streams(&self) -> u32 {
        self.server.admin().stats().unwrap().counters.streams
    }
}

#[test]
fn ends_of_every_kind_are_joined_by_the_same_memory() {
    let world = World::new();
    let kinds = [(KindT::Tcp, tcp()), (KindT::Unix, unix()), (KindT::Pipe, pipe())];
    for (local, (kind, ends)) in kinds.into_iter().enumerate() {
        let (a, b) = world.join(local as u64, ends);
        assert_eq!((a.kind, b.kind), (kind as i32, kind as i32));
        assert_eq!((a.stream, a.region), (b.stream, b.region));
        // The pipe's reader was offered first.
        let is_pipe = kind == KindT::Pipe;
        assert_eq!((a.side, b.side), if is_pipe { (1, 0) } else { (0, 1) });
        // The ring of the wish, and beside it the bytes that the kernel would hold: see
        // `registry::pairing::ring_bytes`.
        let whole = match kind {
            KindT::Tcp => 8 << 20,
            KindT::Unix => 512 << 10,
            _ => 128 << 10,
        };
        let is_right = |bytes: u32| (16 << 10..=whole).contains(&bytes);
        assert!(is_right(a.ring_bytes[0]), "{:?}", a.ring_bytes);
        assert!(if is_pipe { a.ring_bytes[1] == 0 } else { is_right(a.ring_bytes[1]) });
        assert_eq!(b.ring_bytes, a.ring_bytes);
        assert_eq!((a.peer_pid, b.peer_pid), (world.b.pid(), world.a.pid()));
        assert_eq!((a.inboxes[0].0, a.inboxes[0].1), (b.inboxes[1].0, b.inboxes[1].1));
        assert_eq!(a.inboxes[0].2, local == 0, "descriptors come once");
        world.a.tell(&format!("write {local} sesame"), None);
        assert_eq!(world.b.tell(&format!("read {local}"), None), ["sesame"]);
    }
    world.a.tell("ring 0 peer", None);
    assert_eq!(world.b.tell("rung 0", None), ["true"]);
    let rows = world.server.sessions();
    assert_eq!(rows.len(), 6);
    assert!(rows.iter().all(|row| row.home == HomeT::Library && row.stream != 0));
}

#[test]
fn an_end_that_others_hold_is_found_out() {
    let world = World::new();
    let (first, second) = unix();
    let other = Program::start(&world.folder.server());
    assert!(other.hello());
    // Not known to be sole, and really is.
    // A child that another test starts has them, too, until it executes its program.
    let _nobody_starts = common::STARTING.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert!(world.a.offer(1, first, false));
    assert!(world.b.offer(1, second, false), "waits for the look at holders");
    assert_eq!(world.a.joined().stream, world.b.joined().stream);
    let (first, second) = tcp();
    other.offer(7, first.try_clone().unwrap(), true);
    other.tell("left 7", None);
    other.tell("sync", None);
    assert!(world.a.offer(2, first, false));
    assert_eq!(world.a.told(), ("refused".into(), 2, ReasonT::SeveralHolders));
    assert!(world.b.offer(2, second, false));
    other.tell("close 7", None);
    // Now it is sole.
    world.a.tell("again 2 3", None);
    assert_eq!(world.a.joined().local, 3);
    assert!(world.server.admin().stats().unwrap().counters.scans >= 2);
}

#[test]
fn an_end_that_two_programs_offer_is_paired_with_nobody() {
    let world = World::new();
    let third = Program::start(&world.folder.server());
    assert!(third.hello());
    let (first, second) = unix();
    assert!(world.a.offer(1, first.try_clone().unwrap(), true));
    assert!(!third.offer(1, first.try_clone().unwrap(), true));
    assert_eq!(world.a.told(), ("refused".into(), 1, ReasonT::SeveralHolders));
    assert_eq!(third.told(), ("refused".into(), 1, ReasonT::SeveralHolders));
    assert!(world.b.offer(1, second, true), "there is nobody to be paired with");
    assert!(!world.a.offer(2, first.try_clone().unwrap(), true));
    let (a, b) = (world.a.joined(), world.b.joined());
    assert_eq!(a.stream, b.stream);
    assert!(!third.offer(2, first, true));
    assert_eq!(third.told(), ("refused".into(), 2, ReasonT::SeveralHolders));
    assert_eq!(world.a.told(), ("recall".into(), 2, ReasonT::SeveralHolders));
    assert_eq!(world.b.told(), ("recall".into(), 1, ReasonT::SeveralHolders));
}

#[test]
fn a_program_that_dies_is_seen_by_its_peer_at_once() {
    let mut world = World::new();
    let before = world.server.descriptors();
    let (a, _) = world.join(1, tcp());
    let (first, second) = unix();
    assert!(world.b.offer(2, second, true));
    world.b.kill();
    // The server has kept no duplicate of the end, so the kernel tells.
    assert_eq!(world.a.tell("peer-ends 1", None), ["true"]);
    assert!(world.a.tell("end-ends 1", None)[0].starts_with("Ok(0)"));
    assert_eq!(world.a.told(), ("recall".into(), a.local, ReasonT::PeerDied));
    drop(first);
    world.a.tell("left 1", None);
    until("nothing is left of it", || world.streams() == 0);
    // Client, doorbell and process of the dead one are gone as well: three fewer than with it.
    until("its descriptors are closed", || world.server.descriptors() == before - 3);
    assert_eq!(world.server.admin().stats().unwrap().counters.processes, 1);
}

#[test]
fn sessions_outlive_the_server_and_the_next_one_takes_them_over() {
    let mut world = World::new();
    let (a, _) = world.join(1, unix());
    world.server.kill();
    world.a.tell("write 1 after", None);
    assert_eq!(world.b.tell("read 1", None), ["after"]);
    let mut next = Server::start(&world.folder.server(), &[]);
    assert!(world.a.hello() && world.b.hello());
    for program in [&world.a, &world.b] {
        let side = u32::from(program.pid() == world.b.pid());
        assert_eq!(program.tell(&format!("adopt 1 {} {side}", a.stream), None), ["true"]);
    }
    let rows = next.sessions();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.stream == a.stream && row.home == HomeT::Library));
    std::mem::swap(&mut world.server, &mut next);
    let (c, _) = world.join(2, unix());
    assert_ne!(c.stream, a.stream);
    assert!(c.inboxes[0].2 && c.inboxes[0].0 != a.inboxes[0].0, "inboxes of its own");
    assert!(world.server.admin().recall_stream(a.stream).unwrap());
    assert_eq!(world.a.told(), ("recall".into(), 1, ReasonT::User));
    assert_eq!(world.b.told(), ("recall".into(), 1, ReasonT::User));
}

#[test]
fn what_goes_home_leaves_nothing_behind() {
    let world = World::new();
    let (first, second) = unix();
    world.join(1, (first, second));
    let between = world.server.descriptors();
    for local in 2..50 {
        world.join(local, if local % 2 == 0 { pipe() } else { unix() });
        world.a.tell(&format!("left {local}"), None);
        assert_eq!(world.b.told(), ("recall".into(), local, ReasonT::PeerLeft));
        world.b.tell(&format!("left {local}"), None);
        world.a.tell(&format!("close {local}"), None);
        world.b.tell(&format!("close {local}"), None);
    }
    until("only the first is left", || world.streams() == 1);
    until("no descriptor is left", || world.server.descriptors() == between);
    let stats = world.server.admin().stats().unwrap();
    let returns = stats.returns_by_reason.unwrap();
    assert_eq!((stats.counters.joins, stats.counters.returns), (49, 96));
    assert_eq!(returns[ReasonT::Operation as usize], 96);
}

#[test]
fn an_administrator_recalls_and_stops() {
    let mut world = World::new();
    let (a, _) = world.join(1, pipe());
    let mut admin = world.server.admin();
    assert!(!admin.recall_stream(a.stream + 99).unwrap());
    assert!(admin.recall_stream(a.stream).unwrap());
    assert_eq!(world.a.told(), ("recall".into(), 1, ReasonT::User));
    admin.stop(false).unwrap();
    world.a.tell("left 1", None);
    world.a.tell("bye", None);
    assert!(admin.stats().is_ok(), "one program is still there");
    world.b.tell("bye", None);
    assert!(world.server.child.wait().unwrap().success());
    assert!(!common::is_there(&world.server.address));
    let mut other = Server::start(&world.folder.server(), &[]);
    assert!(world.a.hello());
    other.admin().stop(true).unwrap();
    assert!(other.child.wait().unwrap().success());
}

//! The third home: sessions with another host whose engine runs in `sojourn-protocol`, for programs
//! that call it.
//!
//! The peer on the other host is a plain socket, and both sides check every byte. The programs are
//! clients in this process; to the server each connection is a process of its own. Not here: the
//! calls over sockets of the kernel's (`crates/protocol/tests`). Needs rights over networks, and
//! says so if they cannot be had.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use sojourn_lab::Sandbox;
use sojourn_lab::net::{End, Link};
use sojourn_protocol::{
    Address, Client, Deadline, Error, OpenedSession, READABLE, Session, SessionEvents, Token,
    WRITABLE, Wait,
};
use sojourn_session::{HomeT, SessionInfoT};
use sojourn_system::Admin;
use sojourn_system::leftovers::Leftovers;
use sojourn_system::network::{hosts, next_port};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that go each way in bulk.
const BULK: usize = 24 << 20;
/// Moves that are to be seen under load.
const MOVES: u64 = 6;

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

fn watchdog() {
    std::thread::spawn(|| {
        std::thread::sleep(5 * PATIENCE);
        eprintln!("the watchdog bites");
        std::process::abort();
    });
}

/// The byte at a place of a stream.
fn byte_at(position: usize, seed: usize) -> u8 {
    (position * 31 + position / 251 + seed * 7) as u8
}

fn fill(buffer: &mut [u8], position: usize, seed: usize) {
    buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = byte_at(position + at, seed));
}

#[track_caller]
fn check(buffer: &[u8], position: usize, seed: usize) {
    let wrong = (0..buffer.len()).find(|at| buffer[*at] != byte_at(position + at, seed));
    assert_eq!(wrong.map(|at| position + at), None, "another byte");
}

/// A host with a session server, and a plain peer on another one.
struct Scene {
    link: Link,
    world: Sandbox,
    admin: Admin,
}

impl Scene {
    /// `None`, and says so, where there can be no hosts.
    fn new(has_ports: bool) -> Option<Self> {
        watchdog();
        let [a, b] = hosts()?;
        let link = Link::direct(&a, &b, 1500).unwrap();
        let host = link.host(End::A);
        let world = if has_ports { Sandbox::with_ports(host) } else { Sandbox::on(host) };
        let mut world = world.unwrap();
        // Everybody's server has no protocol servers.
        world.restart_for_own_user().unwrap();
        let admin = Admin::new(&world).unwrap();
        Some(Self { link, world, admin })
    }

    /// A connection of two kernels: the program's end, and the peer's.
    fn connection(&self) -> (TcpStream, TcpStream) {
        let address = (self.link.v4(End::B), next_port());
        let listener =
            self.link.host(End::B).enter(|| TcpListener::bind(address)).unwrap().unwrap();
        let own = self.link.host(End::A).enter(|| TcpStream::connect(address)).unwrap().unwrap();
        let peer = listener.accept().unwrap().0;
        for end in [&own, &peer] {
            end.set_read_timeout(Some(PATIENCE)).unwrap();
            end.set_write_timeout(Some(PATIENCE)).unwrap();
            end.set_nodelay(true).unwrap();
        }
        (own, peer)
    }

    fn client(&self) -> Client {
        let address = self.world.address().to_string_lossy().into_owned() + ".protocol";
        Client::connect(Address::parse(&address).unwrap(), Wait::Adaptive).unwrap()
    }

    /// The session of the protocol server that is away, once there is one.
    #[track_caller]
    fn await_away(&mut self, one: &mut Talk) -> SessionInfoT {
        let until = Instant::now() + PATIENCE;
        loop {
            one.ask(100);
            if let Some(found) = self.admin.away().unwrap().into_iter().find(|s| s.received > 0) {
                return found;
            }
            let refused: Vec<_> =
                self.admin.refused().unwrap().into_iter().map(|one| one.reason).collect();
            assert!(Instant::now() < until, "nothing is away; refused: {refused:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A program's session and its peer, and how much each has sent.
struct Talk {
    client: Client,
    session: Session,
    token: Token,
    /// The program's own descriptor, which it leaves alone.
    own: TcpStream,
    peer: TcpStream,
    position: usize,
}

impl Talk {
    fn new(scene: &Scene) -> Self {
        Self::over(scene, scene.connection())
    }

    fn over(scene: &Scene, (own, peer): (TcpStream, TcpStream)) -> Self {
        let mut client = scene.client();
        let OpenedSession { session, token } = client.open(own.as_fd(), true).unwrap();
        Self { client, session, token, own, peer, position: 0 }
    }

    /// A question of the program, and the peer's answer.
    #[track_caller]
    fn ask(&mut self, len: usize) {
        let Self { client, session, .. } = self;
        let (mut question, mut answer) = (vec![0; len], vec![0; len]);
        fill(&mut question, self.position, 0);
        client.send(*session, &question, soon()).unwrap();
        self.peer.read_exact(&mut answer).unwrap();
        assert!(question == answer, "the question at {}", self.position);
        self.peer.write_all(&answer).unwrap();
        answer.fill(0);
        receive_all(client, *session, &mut answer);
        assert!(question == answer, "the answer at {}", self.position);
        self.position += len;
    }
}

#[track_caller]
fn receive_all(client: &mut Client, session: Session, buffer: &mut [u8]) {
    let mut done = 0;
    while done < buffer.len() {
        let got = client.receive(session, &mut buffer[done..], soon()).unwrap();
        assert!(got > 0, "the end after {done} bytes");
        done += got;
    }
}

/// Bytes in bulk both ways, each of the four ends on a thread of its own, while `meanwhile` is
/// done.
fn bulk(scene: &mut Scene, talk: &mut Talk, mut meanwhile: impl FnMut(&mut Scene)) {
    let mut receiving = scene.client();
    let theirs = receiving.attach(&talk.token).unwrap();
    let Talk { client, session, peer, .. } = talk;
    let (mut reads, mut writes) = (peer.try_clone().unwrap(), peer.try_clone().unwrap());
    std::thread::scope(|threads| {
        let sender = threads.spawn(|| {
            let mut buffer = vec![0; 100_000];
            for position in (0..BULK).step_by(buffer.len()) {
                let len = buffer.len().min(BULK - position);
                fill(&mut buffer[..len], position, 1);
                client.send(*session, &buffer[..len], soon()).unwrap();
            }
        });
        let peers_sender = threads.spawn(move || {
            let mut buffer = vec![0; 100_000];
            for position in (0..BULK).step_by(buffer.len()) {
                let len = buffer.len().min(BULK - position);
                fill(&mut buffer[..len], position, 2);
                writes.write_all(&buffer[..len]).unwrap();
            }
        });
        let receiver = threads.spawn(move || {
            let (mut buffer, mut position) = (vec![0; 70_000], 0);
            while position < BULK {
                let got = receiving.receive(theirs, &mut buffer, soon()).unwrap();
                assert!(got > 0, "the end after {position} bytes");
                check(&buffer[..got], position, 2);
                position += got;
            }
            receiving.close(theirs).unwrap();
        });
        let peers_receiver = threads.spawn(move || {
            let (mut buffer, mut position) = (vec![0; 70_000], 0);
            while position < BULK {
                let got = reads.read(&mut buffer).unwrap();
                assert!(got > 0, "the end after {position} bytes");
                check(&buffer[..got], position, 1);
                position += got;
            }
        });
        let all = [sender, peers_sender, receiver, peers_receiver];
        while !all.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            meanwhile(scene);
            std::thread::sleep(Duration::from_millis(30));
        }
    });
}

#[test]
fn sessions_leave_the_kernel_and_come_home_under_load_and_no_byte_is_lost() {
    for has_ports in [false, true] {
        let Some(mut scene) = Scene::new(has_ports) else { return };
        let mut talk = Talk::new(&scene);
        let away = scene.await_away(&mut talk);
        assert_eq!(away.home, HomeT::Server);
        let said = scene.world.sessions().unwrap().to_string();
        assert!(
            said.contains("\"home\":\"server\"") && said.contains("sojourn-protocol"),
            "{said}"
        );
        for len in [1, 1460, 4096, 65_536, 300_000] {
            talk.ask(len.min(60_000));
        }
        bulk(&mut scene, &mut talk, |_| {});
        let before = scene.admin.moves().unwrap().joins;
        let mut round = 0;
        while scene.admin.moves().unwrap().joins < before + MOVES {
            assert!(round < 20, "only {} moves", scene.admin.moves().unwrap().joins - before);
            round += 1;
            bulk(&mut scene, &mut talk, |scene| {
                scene.admin.recall_all().unwrap();
            });
        }
        talk.ask(1000);
        talk.client.shutdown(talk.session, Shutdown::Write).unwrap();
        assert_eq!(talk.peer.read(&mut [0; 8]).unwrap(), 0, "the program's end");
        talk.peer.write_all(b"last").unwrap();
        talk.peer.shutdown(Shutdown::Write).unwrap();
        receive_all(&mut talk.client, talk.session, &mut [0; 4]);
        assert_eq!(talk.client.receive(talk.session, &mut [0; 4], soon()).unwrap(), 0);
        talk.client.close(talk.session).unwrap();
        let left = Leftovers::of(&scene.link, End::A, &scene.world);
        drop(talk);
        scene.world.stop_server().unwrap();
        left.assert_none();
    }
}

fn rings(bell: &impl AsFd) -> bool {
    let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let found = poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&limit)).unwrap() > 0;
    if found {
        rustix::io::read(bell, &mut [0; 64]).unwrap();
    }
    found
}

#[test]
fn one_descriptor_tells_of_sessions_that_are_away() {
    let Some(mut scene) = Scene::new(false) else { return };
    let mut talk = Talk::new(&scene);
    scene.await_away(&mut talk);
    let bell = talk.client.bell().unwrap();
    for round in 0..300 {
        if round == 100 {
            scene.admin.recall_all().unwrap();
        }
        talk.client.watch(talk.session, READABLE).unwrap();
        talk.peer.write_all(&[byte_at(round, 3)]).unwrap();
        assert!(rings(&bell), "round {round}");
        let found = talk.client.collect().unwrap();
        assert_eq!(
            found,
            [SessionEvents { session: talk.session, events: READABLE }],
            "round {round}"
        );
        let mut byte = [0];
        // While the session moves the byte may be hidden for a moment after it was told of.
        assert_eq!(talk.client.receive(talk.session, &mut byte, soon()).unwrap(), 1);
        check(&byte, round, 3);
        assert!(talk.client.try_receive(talk.session, &mut byte).unwrap_err().would_block());
    }
    // A sender waits for room.
    let chunk = vec![7; 60_000];
    let mut sent = 0;
    let full = loop {
        match talk.client.try_send(talk.session, &chunk) {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
    };
    assert!(full.would_block(), "{full}");
    talk.client.watch(talk.session, WRITABLE).unwrap();
    let mut got = vec![0; sent];
    talk.peer.read_exact(&mut got).unwrap();
    assert!(rings(&bell) && got.iter().all(|byte| *byte == 7));
    assert_eq!(
        talk.client.collect().unwrap(),
        [SessionEvents { session: talk.session, events: WRITABLE }]
    );
}

#[test]
fn several_at_one_session_go_on_and_the_last_one_closes_it() {
    let Some(mut scene) = Scene::new(false) else { return };
    let mut talk = Talk::new(&scene);
    let away = scene.await_away(&mut talk);
    let mut child = scene.client();
    let theirs = child.attach(&Token::from_bytes(talk.token.to_bytes())).unwrap();
    let moves = scene.admin.moves().unwrap();
    for round in 0..2000 {
        let (who, session) = match round % 2 {
            0 => (&mut talk.client, talk.session),
            _ => (&mut child, theirs),
        };
        let mut bytes = [0; 64];
        fill(&mut bytes, round, 4);
        talk.peer.write_all(&bytes).unwrap();
        let mut got = [0; 64];
        receive_all(who, session, &mut got);
        check(&got, round, 4);
        who.send(session, &got, soon()).unwrap();
        talk.peer.read_exact(&mut got).unwrap();
        check(&got, round, 4);
    }
    assert_eq!(scene.admin.moves().unwrap(), moves, "it stays away");
    assert_eq!(scene.admin.away().unwrap()[0].stream, away.stream);
    let Talk { client, own, mut peer, .. } = talk;
    drop((client, own));
    child.send(theirs, b"alone", soon()).unwrap();
    peer.read_exact(&mut [0; 5]).unwrap();
    peer.write_all(b"!").unwrap();
    receive_all(&mut child, theirs, &mut [0]);
    drop(child);
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0, "nobody has it any more");
}

#[test]
fn what_is_released_under_load_goes_on_in_the_kernel() {
    let Some(mut scene) = Scene::new(false) else { return };
    let mut talk = Talk::new(&scene);
    scene.await_away(&mut talk);
    let is_over = AtomicBool::new(false);
    let mut peer = talk.peer.try_clone().unwrap();
    std::thread::scope(|threads| {
        let echo = threads.spawn(|| {
            let (mut position, mut buffer) = (0, [0; 1000]);
            while !is_over.load(Ordering::SeqCst) {
                fill(&mut buffer, position, 5);
                peer.write_all(&buffer).unwrap();
                position += buffer.len();
            }
            peer.shutdown(Shutdown::Write).unwrap();
            position
        });
        let (mut position, mut buffer) = (0, vec![0; 10_000]);
        while position < 1 << 20 {
            let got = talk.client.receive(talk.session, &mut buffer, soon()).unwrap();
            check(&buffer[..got], position, 5);
            position += got;
        }
        let mut kernels = TcpStream::from(talk.client.release(talk.session).unwrap());
        let error = talk.client.try_receive(talk.session, &mut buffer).unwrap_err();
        assert!(matches!(error, Error::Refused(_)) && !error.would_block(), "{error}");
        // The session server is told a moment after the kernel has the session.
        let until = Instant::now() + PATIENCE;
        while !scene.admin.away().unwrap().is_empty() {
            assert!(Instant::now() < until, "the session server lists it still");
            std::thread::sleep(Duration::from_millis(1));
        }
        while position < 2 << 20 {
            let got = kernels.read(&mut buffer).unwrap();
            check(&buffer[..got], position, 5);
            position += got;
        }
        is_over.store(true, Ordering::SeqCst);
        loop {
            let got = kernels.read(&mut buffer).unwrap();
            check(&buffer[..got], position, 5);
            position += got;
            if got == 0 {
                break;
            }
        }
        assert_eq!(position, echo.join().unwrap());
    });
}

#[test]
fn the_socket_survives_a_protocol_server_that_is_killed() {
    let Some(mut scene) = Scene::new(false) else { return };
    let mut talk = Talk::new(&scene);
    let mut closed = Talk::new(&scene);
    let away = scene.await_away(&mut talk);
    closed.ask(10);
    // Its program keeps no descriptor.
    let Talk { client: _other, own, peer: mut others_peer, .. } = closed;
    drop(own);
    talk.peer.write_all(b"not read yet").unwrap();
    talk.client.wait(talk.session, READABLE, soon()).unwrap();
    let waiting = std::thread::spawn({
        let mut client = scene.client();
        let token = talk.token;
        move || {
            let session = client.attach(&token).unwrap();
            client.wait(session, 0x10, soon())
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    let pid = Pid::from_raw(away.pid.cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    assert!(matches!(waiting.join().unwrap(), Err(Error::Call(_))));
    assert!(matches!(talk.client.try_send(talk.session, b"!"), Err(Error::Call(_))));
    // Bytes that the program had not read are in the kernel.
    let mut got = [0; 12];
    talk.own.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"not read yet");
    for round in 0..100 {
        let mut byte = [byte_at(round, 6)];
        talk.own.write_all(&byte).unwrap();
        talk.peer.read_exact(&mut byte).unwrap();
        talk.peer.write_all(&byte).unwrap();
        talk.own.read_exact(&mut byte).unwrap();
        check(&byte, round, 6);
    }
    let end = others_peer.read(&mut got);
    assert!(matches!(end, Ok(0) | Err(_)), "as of any program that is killed: {end:?}");
    // The next connection starts the next process.
    let mut client = scene.client();
    let OpenedSession { session, .. } = client.open(talk.own.as_fd(), true).unwrap();
    client.send(session, b"again", soon()).unwrap();
    talk.peer.read_exact(&mut got[..5]).unwrap();
    assert_eq!(&got[..5], b"again");
}

#[test]
fn sessions_go_on_while_there_is_no_session_server() {
    let Some(mut scene) = Scene::new(false) else { return };
    let mut talk = Talk::new(&scene);
    scene.await_away(&mut talk);
    scene.world.kill_server();
    (0..200).for_each(|_| talk.ask(100));
    scene.world.start_server().unwrap();
    (0..200).for_each(|_| talk.ask(100));
    let mut client = scene.client();
    let (own, mut peer) = scene.connection();
    let OpenedSession { session, .. } = client.open(own.as_fd(), true).unwrap();
    client.send(session, b"new", soon()).unwrap();
    peer.read_exact(&mut [0; 3]).unwrap();
}

//! A program that holds the locks of the objects that it sends: it keeps itself waiting, and nobody
//! else.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::fuse::Page;
use common::{Folder, Program, Server, be_fake, until};
use rustix::fd::AsFd;
use sojourn_lab::hold;
use sojourn_server::memory::Memory;
use sojourn_server::registry::SharedMemory;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

#[test]
fn fake() {
    be_fake();
}

/// Users other than the one who runs the tests.
const HOSTILE: u32 = 65_533;
const HONEST: u32 = 65_534;

/// Root's server, at an address that every user can use.
fn roots(folder: &Folder) -> Option<Server> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: not root");
        return None;
    }
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
    Some(Server::start(&folder.server(), &["--system"]))
}

/// Two programs of another user can be joined, and soon.
fn assert_serves(server: &str, user: u32) {
    let begun = Instant::now();
    let [a, b] = [(); 2].map(|()| Program::start_as(Some(user), server));
    assert!(a.hello() && b.hello());
    let (first, second) = UnixStream::pair().unwrap();
    assert!(a.offer(1, first, true));
    assert!(!b.offer(1, second, true));
    assert_eq!(a.joined().stream, b.joined().stream);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// The server ends when it is killed, and the next one can begin.
fn assert_can_be_killed(mut server: Server, folder: &Folder) {
    server.child.kill().unwrap();
    until("a killed server has ended", || server.child.try_wait().unwrap().is_some());
    let next = Server::start(&folder.server(), &["--system"]);
    assert_serves(&next.address, HONEST);
}

/// The origin of the pages that do not come.
#[derive(Clone, Copy, Debug)]
enum Source {
    UserFaults,
    /// Not even a killed program lets go of a lock then.
    FileSystem,
}

const SOURCES: [Source; 2] = [Source::UserFaults, Source::FileSystem];

/// A program of another user that holds the locks of objects. The file systems end before it: it
/// could not end before them.
struct Holder {
    _pages: Vec<Page>,
    program: Program,
}

/// Starts a program that holds the locks of so many objects: sessions 0 and 1, 2 and 3, ...
fn holder(folder: &Folder, source: Source, what: &str, objects: u64) -> Option<Holder> {
    let program = Program::start_as(Some(HOSTILE), &folder.server());
    assert!(program.hello());
    let mut pages = Vec::new();
    for object in 0..objects {
        let hold = format!("hold {} {what}", 2 * object);
        match source {
            Source::UserFaults => {
                assert_eq!(program.tell(&hold, Some(hold::faults()?.as_fd())), ["true"]);
            }
            Source::FileSystem => {
                let page = Page::new(folder, HOSTILE)?;
                assert_eq!(program.tell(&hold, Some(page.file.as_fd())), ["true"]);
                assert!(page.is_wanted(), "nobody wants the page");
                pages.push(page);
            }
        }
    }
    Some(Holder { _pages: pages, program })
}

#[test]
fn who_holds_what_it_offers_holds_up_itself_only() {
    for (source, what) in SOURCES.iter().flat_map(|source| [(*source, "pipe"), (*source, "tcp")]) {
        let folder = Folder::new();
        let Some(server) = roots(&folder) else { return };
        let Some(hostile) = holder(&folder, source, what, 2) else { continue };
        // The question waits for the lock, and so does closing the last descriptor of that end.
        for local in [0, 2] {
            let offer = format!("offer-held {local} close");
            assert_eq!(hostile.program.tell(&offer, None), ["error"], "{source:?} {what}");
        }
        assert_serves(&folder.server(), HONEST);
        // The server serves the same user's other calls, unless the program goes on.
        assert_serves(&folder.server(), HOSTILE);
        assert_can_be_killed(server, &folder);
        drop(hostile);
    }
}

/// A stream's memory is a file, whose lock its programs can hold.
#[test]
fn the_server_does_not_wait_for_the_lock_of_a_streams_memory() {
    let region = Memory.region([16 << 10; 2]).unwrap();
    let file = region.as_fd().unwrap().try_clone_to_owned().unwrap();
    let Some(faults) = hold::faults() else { return };
    assert!(hold::hold(faults, file));
    let (done, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (totals, times) = (Memory.totals(&region), Memory.times(&region, 5));
        let _ = done.send((totals, times.map(|times| times.sent)));
    });
    // A thread that waits for the lock cannot be ended: the test would not end by itself either.
    let answer = heard.recv_timeout(Duration::from_secs(10));
    assert_eq!(answer, Ok(([0; 2], Some(0))), "it waits");
}

#[test]
fn who_has_held_up_everything_of_its_own_is_served_again() {
    for source in SOURCES {
        let folder = Folder::new();
        let Some(_server) = roots(&folder) else { return };
        let Some(hostile) = holder(&folder, source, "pipe", 12) else { continue };
        for pipe in 0..12 {
            let offer = format!("offer-held {} keep", 2 * pipe);
            assert_eq!(hostile.program.tell(&offer, None), ["error"], "{source:?}");
        }
        assert_serves(&folder.server(), HONEST);
        until("its user is served again", || {
            let other = Program::start_as(Some(HOSTILE), &folder.server());
            let (first, _second) = UnixStream::pair().unwrap();
            other.hello() && other.offer(1, first, true)
        });
        drop(hostile);
        assert_serves(&folder.server(), HOSTILE);
    }
}

/// Kills a program that cannot end, because the kernel waits for its page: the locks are held on.
#[test]
fn who_has_been_killed_and_holds_on_holds_up_nobody() {
    let folder = Folder::new();
    let Some(server) = roots(&folder) else { return };
    let Some(mut hostile) = holder(&folder, Source::FileSystem, "pipe", 2) else { return };
    assert_eq!(hostile.program.tell("offer-held 0 close", None), ["error"]);
    hostile.program.child.kill().unwrap();
    assert_serves(&folder.server(), HONEST);
    assert_serves(&folder.server(), HOSTILE);
    assert!(hostile.program.child.try_wait().unwrap().is_none(), "it does not hold on");
    assert_can_be_killed(server, &folder);
}

#[test]
fn what_waits_in_a_clients_socket_does_not_keep_the_server_from_ending() {
    for source in SOURCES {
        let folder = Folder::new();
        let Some(server) = roots(&folder) else { return };
        let Some(hostile) = holder(&folder, source, "pipe", 1) else { continue };
        assert_eq!(hostile.program.tell("send-held 0", None), ["ok"]);
        assert_serves(&folder.server(), HONEST);
        assert_can_be_killed(server, &folder);
        drop(hostile);
    }
}

#[test]
fn what_a_packet_has_beyond_its_room_holds_up_nobody() {
    for source in SOURCES {
        let folder = Folder::new();
        let Some(server) = roots(&folder) else { return };
        let Some(hostile) = holder(&folder, source, "pipe", 1) else { continue };
        assert_eq!(hostile.program.tell("send-many-held 0", None), ["ok"]);
        // Each of these has a descriptor waiting, for which its user's proxy is asked.
        assert_eq!(hostile.program.tell("send-beside 20", None), ["ok"]);
        assert_serves(&folder.server(), HONEST);
        assert_serves(&folder.server(), HOSTILE);
        assert_can_be_killed(server, &folder);
        drop(hostile);
    }
}

//! Two processes, each with the library, and a real server: many sessions waited for at once, while
//! they move out and home.
//!
//! The processes are this very test program, run again with a role; calls go to the library as a
//! shell would send them.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]
#![allow(unsafe_code, reason = "the environment, before anything else runs")]

mod shell;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use shell::{at, read, write};
use sojourn_library::{EpollEvent, Origin, PollFd, library};
use sojourn_server::run::Options;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);
const SESSIONS: usize = 8;

fn known(socket: TcpStream) -> i32 {
    socket.set_nonblocking(true).unwrap();
    let fd = socket.as_raw_fd();
    // Closed with the process, or through the library.
    std::mem::forget(socket);
    library().opened(fd, Origin::Fresh);
    fd
}

/// The other process: answers everything it reads, on all its connections, until they end.
#[test]
fn role() {
    let Ok(role) = std::env::var("READINESS_ROLE") else { return };
    let words: Vec<&str> = role.split(' ').collect();
    if words[0] == "server" {
        let options = Options::at(words[1]);
        sojourn_server::run::run(&options, |_| println!("ready")).unwrap();
        return;
    }
    let fds: Vec<i32> =
        (0..SESSIONS).map(|_| known(TcpStream::connect(words[1]).unwrap())).collect();
    let most_away = match words[0] {
        "poll" => echo_by_poll(&fds),
        "level" => echo_by_epoll(&fds, EventFlags::IN),
        "edge" => echo_by_epoll(&fds, EventFlags::IN | EventFlags::ET | EventFlags::OUT),
        _ => echo_by_epoll(&fds, EventFlags::IN | EventFlags::ONESHOT),
    };
    assert!(most_away > 0, "nothing moved");
}

/// Reads and answers: once, or all there is. `None`: the end.
fn answer(fd: i32, all: bool) -> Option<()> {
    let mut buf = [0; 512];
    loop {
        match read(fd, &mut buf) {
            Ok(0) => return None,
            Ok(len) => assert_eq!(write(fd, &buf[..len]), Ok(len)),
            Err(Errno::AGAIN) => return Some(()),
            Err(error) => panic!("{error}"),
        }
        if !all {
            return Some(());
        }
    }
}

fn echo_by_epoll(fds: &[i32], flags: EventFlags) -> u32 {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    library().opened(set.as_raw_fd(), Origin::Fresh);
    library().epoll_made(set.as_raw_fd());
    let change = |op, fd: i32| {
        let event = EpollEvent { flags, data: EventData::new_u64(fd as u64) };
        library().epoll_ctl(set.as_raw_fd(), op, fd, Some(&event)).unwrap();
    };
    fds.iter().for_each(|fd| change(1, *fd));
    let none = EpollEvent { flags: EventFlags::empty(), data: EventData::new_u64(0) };
    let (mut events, mut left, mut most_away) = ([none; 4], fds.len(), 0);
    while left > 0 {
        let found = library().epoll_wait(set.as_raw_fd(), &mut events, Some(LIMIT), None).unwrap();
        assert!(found > 0, "left asleep");
        for event in &events[..found] {
            let fd = { event.data }.u64() as i32;
            match answer(fd, flags.contains(EventFlags::ET)) {
                Some(()) if flags.contains(EventFlags::ONESHOT) => change(3, fd),
                Some(()) => {}
                None => {
                    library().closing(fd);
                    change_out(set.as_raw_fd(), fd);
                    left -= 1;
                }
            }
        }
        most_away = most_away.max(library().away());
    }
    most_away
}

/// Takes a descriptor out of a set, like the kernel does at the close, which this test leaves to
/// the end of the process. The library has taken out the offered ones already.
fn change_out(set: i32, fd: i32) {
    let done = epoll::delete(at(set), at(fd));
    assert!(matches!(done, Ok(()) | Err(Errno::NOENT)), "{done:?}");
}

fn echo_by_poll(fds: &[i32]) -> u32 {
    let mut asked: Vec<PollFd> =
        fds.iter().map(|fd| PollFd { fd: *fd, events: 1, revents: 0 }).collect();
    let (mut left, mut most_away) = (fds.len(), 0);
    while left > 0 {
        let found = library().poll(&mut asked, Some(LIMIT), None).unwrap();
        assert!(found > 0, "left asleep");
        for polled in asked.iter_mut().filter(|polled| polled.revents != 0) {
            if answer(polled.fd, false).is_none() {
                library().closing(polled.fd);
                polled.fd = -1;
                left -= 1;
            }
        }
        most_away = most_away.max(library().away());
    }
    most_away
}

/// Asks on all connections in turn, several questions under way at once; the answers are waited for
/// by a poll of all.
fn ask(fds: &[i32], rounds: u32) -> u32 {
    let mut most_away = 0;
    let (start, mut going_home) = (Instant::now(), Duration::ZERO);
    let mut buf = [0; 512];
    for round in 0..rounds {
        let askers = 1 + round as usize % 3;
        let mut asked: Vec<PollFd> = Vec::new();
        let mut owed = Vec::new();
        for step in 0..askers {
            let fd = fds[(round as usize + step * 3) % fds.len()];
            let question = vec![(round + step as u32) as u8; 1 + (round as usize * 37) % 300];
            assert_eq!(write(fd, &question), Ok(question.len()));
            asked.push(PollFd { fd, events: 1, revents: 0 });
            owed.push(question);
        }
        while owed.iter().any(|owed| !owed.is_empty()) {
            let found = library().poll(&mut asked, Some(LIMIT), None).unwrap();
            assert!(found > 0, "no answer in round {round}");
            for (polled, owed) in asked.iter().zip(&mut owed) {
                if polled.revents == 0 {
                    continue;
                }
                match read(polled.fd, &mut buf) {
                    Ok(len) => {
                        assert!(len > 0 && len <= owed.len(), "round {round}");
                        assert_eq!(buf[..len], owed[..len], "round {round}");
                        owed.drain(..len);
                    }
                    Err(error) => panic!("readable, but {error}, in round {round}"),
                }
            }
        }
        most_away = most_away.max(library().away());
        if round % 97 == 96 {
            let fd = fds[round as usize % fds.len()];
            let before = Instant::now();
            library().go_home(fd, sojourn_session::ReasonT::User, false);
            going_home += before.elapsed();
        }
    }
    eprintln!("{rounds} rounds in {:?}, of which {going_home:?} going home", start.elapsed());
    most_away
}

fn start(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "role", "--nocapture"]).env("READINESS_ROLE", role);
    command
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn many_sessions_are_waited_for_while_they_move() {
    let folder = std::env::temp_dir().join(format!("sojourn-readiness-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let address = folder.join("server").to_string_lossy().into_owned();
    // SAFETY: no other thread of this program reads the environment now.
    unsafe {
        std::env::set_var("SOJOURN_SERVER", &address);
        std::env::set_var("SOJOURN_MOVE_AFTER_CALLS", "8");
    }
    let mut server =
        Server(start(&format!("server {address}")).stdout(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    while !said.ends_with("ready\n") {
        let mut byte = [0];
        assert_eq!(server.0.stdout.as_mut().unwrap().read(&mut byte).unwrap(), 1, "{said}");
        said.push(char::from(byte[0]));
    }
    for how in ["poll", "level", "edge", "oneshot"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let role = format!("{how} {}", listener.local_addr().unwrap());
        let mut other = start(&role).stdout(Stdio::null()).spawn().unwrap();
        let fds: Vec<i32> = (0..SESSIONS).map(|_| known(listener.accept().unwrap().0)).collect();
        let most_away = ask(&fds, 5_000);
        assert!(most_away > 0, "{how}: nothing moved");
        for fd in fds {
            library().closing(fd);
            rustix::net::shutdown(at(fd), rustix::net::Shutdown::Both).unwrap();
        }
        assert!(other.wait().unwrap().success(), "{how}: the other process failed");
        eprintln!("{how}: {most_away} of {SESSIONS} away at once");
    }
    let _ = std::fs::remove_dir_all(&folder);
}

//! Two processes, each with the library, and a real server: sessions move out and home, and no byte
//! is lost.
//!
//! The processes are this very test program, run again with a role. Nothing of the preload library
//! is here: calls go to the library as a shell would send them. Not here: the view of unmodified
//! programs (`tests/system`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]
#![allow(unsafe_code, reason = "the environment and plain numbers, before anything else runs")]

mod shell;

use shell::{read, write};
use sojourn_library::{Origin, library};
use sojourn_server::run::Options;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

fn read_exactly(fd: i32, buf: &mut [u8]) {
    let mut done = 0;
    while done < buf.len() {
        let len = read(fd, &mut buf[done..]).unwrap();
        assert!(len > 0, "the end after {done} bytes");
        done += len;
    }
}

fn write_all(fd: i32, buf: &[u8]) {
    let mut done = 0;
    while done < buf.len() {
        done += write(fd, &buf[done..]).unwrap();
    }
}

/// Rounds of question and answer: `ask` asks. Every so often `home` sends the session home.
fn converse(input: i32, output: i32, ask: bool, rounds: u32, home: Option<u32>) {
    let mut buf = [0; 300];
    let mut away = 0;
    for round in 0..rounds {
        let len = 1 + (round as usize * 37) % 300;
        let question = vec![round as u8; len];
        if ask {
            write_all(output, &question);
            read_exactly(input, &mut buf[..len]);
            assert_eq!(buf[..len], question, "round {round}");
        } else {
            read_exactly(input, &mut buf[..len]);
            assert_eq!(buf[..len], question, "round {round}");
            write_all(output, &question);
        }
        away += u32::from(library().away() > 0);
        if home.is_some_and(|every| round % every == every - 1) {
            library().go_home(input, sojourn_session::ReasonT::User, false);
            library().go_home(output, sojourn_session::ReasonT::User, false);
        }
    }
    // A test in which nothing moves shows nothing.
    assert!(away > 0, "away in {away} rounds of {rounds}");
    library().closing(output);
    if input != output {
        library().closing(input);
    }
}

/// Plays the role with which this program was started.
fn play(role: &str) {
    if let Some(address) = role.strip_prefix("server ") {
        return serve(address);
    }
    let words: Vec<&str> = role.split(' ').collect();
    let rounds = words[1].parse().unwrap();
    let home = words[2].parse().ok().filter(|every| *every > 0);
    let output = if words[0] == "pipe" { 1 } else { 0 };
    converse(0, output, false, rounds, home);
}

/// A conversation of two processes over a session of that kind.
fn run(kind: &str, rounds: u32, our_home: u32, their_home: u32) {
    let (input, output, stdin, stdout): (OwnedFd, OwnedFd, Stdio, Stdio) = match kind {
        "tcp" => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let theirs = listener.accept().unwrap().0;
            let ours = OwnedFd::from(ours);
            (ours.try_clone().unwrap(), ours, OwnedFd::from(theirs).into(), Stdio::null())
        }
        "unix" => {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let ours = OwnedFd::from(ours);
            (ours.try_clone().unwrap(), ours, OwnedFd::from(theirs).into(), Stdio::null())
        }
        _ => {
            let (their_input, output) = std::io::pipe().unwrap();
            let (input, their_output) = std::io::pipe().unwrap();
            (input.into(), output.into(), their_input.into(), OwnedFd::from(their_output).into())
        }
    };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env("MOVES_ROLE", format!("{kind} {rounds} {their_home}"))
        .stdin(stdin)
        .stdout(stdout)
        .spawn()
        .unwrap();
    let (input, output) = if kind == "pipe" {
        (input, output)
    } else {
        let number = output.as_raw_fd();
        drop(input);
        (output, own_again(number))
    };
    for fd in [input.as_raw_fd(), output.as_raw_fd()] {
        library().opened(fd, Origin::Unknown);
    }
    let numbers = (input.as_raw_fd(), output.as_raw_fd());
    let worker = std::thread::spawn(move || {
        converse(numbers.0, numbers.1, true, rounds, Some(our_home).filter(|every| *every > 0));
    });
    let deadline = Instant::now() + LIMIT;
    while !worker.is_finished() {
        assert!(Instant::now() < deadline, "{kind}: stuck");
        std::thread::sleep(Duration::from_millis(1));
    }
    worker.join().unwrap();
    std::mem::forget(output);
    drop(input);
    assert!(child.wait().unwrap().success(), "{kind}: the other process failed");
}

/// The server, in a process of its own: it looks for the holders of a descriptor, and must not find
/// itself.
fn serve(address: &str) {
    if std::env::var_os("MOVES_DEBUG").is_some() {
        sojourn_server::log::set(sojourn_server::log::Level::Debug);
    }
    let options = Options::at(address);
    sojourn_server::run::run(&options, |_| println!("ready")).unwrap();
}

struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The same number once more, as for a socket whose two directions share one.
fn own_again(number: i32) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: forgotten, not dropped, by the only caller.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn main() {
    if let Ok(role) = std::env::var("MOVES_ROLE") {
        return play(&role);
    }
    // A session (setsid(2)) with a process that may not be inspected is not trusted with inherited
    // descriptors, so the test runs in one of its own. An error means that it leads one already.
    let _ = rustix::process::setsid();
    let folder = std::env::temp_dir().join(format!("sojourn-moves-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let address = folder.join("server").to_string_lossy().into_owned();
    // SAFETY: no other thread of this program reads the environment now.
    unsafe {
        std::env::set_var("SOJOURN_SERVER", &address);
        std::env::set_var("SOJOURN_MOVE_AFTER_CALLS", "8");
    }
    let server = Command::new(std::env::current_exe().unwrap())
        .env("MOVES_ROLE", format!("server {address}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Server(server);
    let mut said = String::new();
    let mut out = BufReader::new(server.0.stdout.take().unwrap());
    out.read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    for kind in ["tcp", "unix", "pipe"] {
        let start = Instant::now();
        run(kind, 100_000, 0, 0);
        eprintln!("{kind}: 100000 rounds in {:?}", start.elapsed());
        run(kind, 40_000, 50, 0);
        run(kind, 40_000, 0, 70);
        run(kind, 40_000, 61, 47);
    }
    drop(server);
    let _ = std::fs::remove_dir_all(&folder);
    println!("test result: ok. 12 passed; 0 failed");
}

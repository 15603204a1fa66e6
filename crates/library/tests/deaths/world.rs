//! A folder, a server in a process of its own, and pairs of programs, for one kind of session.

use crate::program::ROLE;
use crate::record::{Numbers, Record};
use sojourn_ipc::{Address, Connection, Deadline};
use sojourn_session::{AdminClient, HomeT, SessionInfoT, admin_connect_options, pages};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time after which a test has failed that still waits.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something holds, or fails.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A process that is gone with the test.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// The signal that ended it; 0: it ended well.
    pub(crate) fn wait(&mut self, what: &str) -> i32 {
        let mut status = None;
        until(what, || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        status.signal().unwrap_or_else(|| {
            assert!(status.success(), "{what}: {status}");
            0
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(role: &str, point: Option<&str>, input: Stdio, output: Stdio, server: &str) -> Process {
    start_delayed(role, point, "", (input, output), server)
}

/// `delays`: the points at which threads of the program sleep (`sojourn_shm::fault`).
fn start_delayed(
    role: &str,
    point: Option<&str>,
    delays: &str,
    (input, output): (Stdio, Stdio),
    server: &str,
) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .env(ROLE, role)
        .stdin(input)
        .stdout(output)
        .env("SOJOURN_SERVER", server)
        .env("SOJOURN_DELAY_POINTS", delays)
        .env("SOJOURN_MOVE_AFTER_CALLS", "8");
    if let Some(point) = point {
        command.env("SOJOURN_FAULT_POINT", point);
    }
    Process(command.spawn().unwrap())
}

/// The two programs, and their records.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) asks: Process,
    pub(crate) answers: Process,
}

pub(crate) struct World {
    pub(crate) kind: &'static str,
    folder: PathBuf,
    server: Option<Process>,
    /// Descriptors of the server when it knows nobody.
    descriptors: usize,
    /// The points at which threads of the program that answers sleep (`sojourn_shm::fault`).
    pub(crate) delays: &'static str,
}

impl World {
    pub(crate) fn new(kind: &'static str) -> Self {
        let folder = std::env::temp_dir();
        let folder = folder.join(format!("sojourn-deaths-{kind}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut world = Self { kind, folder, server: None, descriptors: 0, delays: "" };
        world.start_server(None);
        world.descriptors = world.count_descriptors();
        world
    }

    pub(crate) fn address(&self) -> String {
        self.folder.join("server").to_string_lossy().into_owned()
    }

    /// Starts a server that serves; the one before has ended.
    pub(crate) fn start_server(&mut self, point: Option<&str>) {
        let role = format!("server {}", self.address());
        let mut server = start(&role, point, Stdio::null(), Stdio::piped(), &self.address());
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        self.server = Some(server);
    }

    /// Ends the server, as by an accident.
    pub(crate) fn kill_server(&mut self) {
        self.server = None;
    }

    /// Waits until the server has died at its point.
    pub(crate) fn await_servers_death(&mut self, what: &str) {
        let mut server = self.server.take().unwrap();
        assert_eq!(server.wait(what), 9, "{what}");
    }

    pub(crate) fn server_has_died(&mut self) -> bool {
        self.server.as_mut().is_none_or(|server| server.0.try_wait().unwrap().is_some())
    }

    pub(crate) fn admin(&self) -> AdminClient<Connection> {
        self.try_admin().unwrap()
    }

    /// `None`: the server has died, or does so just now.
    pub(crate) fn try_admin(&self) -> Option<AdminClient<Connection>> {
        let address = Address::parse(&self.address()).unwrap();
        let connection = Connection::connect(address, &admin_connect_options()).ok()?;
        AdminClient::bind_by(connection, Deadline::after(PATIENCE)).ok()
    }

    /// The ends that are away. A server that dies just now knows of none.
    pub(crate) fn away(&self) -> Vec<SessionInfoT> {
        let listed = self.try_admin().and_then(|mut client| pages::sessions(&mut client).ok());
        listed.into_iter().flatten().filter(|session| session.home == HomeT::Library).collect()
    }

    /// Two programs at the two ends of a fresh session; `points`: where they die.
    pub(crate) fn start_pair(&self, wait: &str, points: [Option<&str>; 2]) -> Pair {
        for name in ["asks", "answers", "stop"] {
            let _ = std::fs::remove_file(self.folder.join(name));
        }
        let [a, b] = ends(self.kind);
        let folder = self.folder.display();
        let role = |who| format!("{who} {} {wait} {folder}", self.kind);
        let start = |who, point, files| {
            let delays = if who == "answers" { self.delays } else { "" };
            start_delayed(&role(who), point, delays, files, &self.address())
        };
        let asks = start("asks", points[0], a);
        let answers = start("answers", points[1], b);
        Pair { asks, answers }
    }

    /// Tells the program that asks to end the conversation.
    pub(crate) fn stop_talking(&self) {
        std::fs::write(self.folder.join("stop"), "").unwrap();
    }

    pub(crate) fn record(&self, who: &str) -> Numbers {
        Record::read(&self.folder.join(who))
    }

    fn count_descriptors(&self) -> usize {
        let server = self.server.as_ref().unwrap();
        std::fs::read_dir(format!("/proc/{}/fd", server.0.id())).unwrap().count()
    }

    /// Nothing of the programs that have been is left in the server.
    pub(crate) fn assert_as_before(&self) {
        let mut admin = self.admin();
        until("the server has forgotten them", || {
            let counters = admin.stats().unwrap().counters;
            counters.streams == 0 && counters.processes == 0
        });
        drop(admin);
        until("the server has let go", || self.count_descriptors() <= self.descriptors);
    }

    /// Kills the server; no file or process of it stays.
    pub(crate) fn end(&mut self) {
        self.server = None;
        let socket = self.folder.join("server");
        until("the socket is removed", || !socket.exists());
        until("the guard has gone", || !has_guard(&self.address()));
        for file in std::fs::read_dir(&self.folder).unwrap().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let is_known = ["asks", "answers", "stop", "server.lock"].contains(&name.as_str());
            assert!(is_known, "left behind: {name}");
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.server = None;
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn has_guard(address: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines =
        processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| {
        let line = String::from_utf8_lossy(&line);
        line.contains("sojourn-guard") && line.contains(address)
    })
}

/// Standard input and output of both sides.
fn ends(kind: &str) -> [(Stdio, Stdio); 2] {
    let one = |end: OwnedFd| (Stdio::from(end), Stdio::null());
    match kind {
        "tcp" => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            [one(ours.into()), one(listener.accept().unwrap().0.into())]
        }
        "unix" => {
            let (ours, theirs) = UnixStream::pair().unwrap();
            [one(ours.into()), one(theirs.into())]
        }
        _ => {
            let (their_input, output) = std::io::pipe().unwrap();
            let (input, their_output) = std::io::pipe().unwrap();
            [(input.into(), output.into()), (their_input.into(), their_output.into())]
        }
    }
}

//! The common part of the tests of the whole server: the server as a process, and fake libraries as
//! processes that do as they are told over a socket.
//!
//! A fake is this very test program, started anew with `FAKE` set: then the test named `fake` (each
//! file of tests has one, which calls [`be_fake`]) becomes it. Not here: any of the real library.
#![allow(dead_code, reason = "each file of tests uses a part")]
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

pub(crate) mod fuse;
pub(crate) mod hold;
mod identity;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use sojourn_ipc::{Address, Connection, Deadline};
use sojourn_session::{
    AdminClient, EventT, HomeT, JoinT, OfferT, ReasonT, SessionClient, admin_connect_options,
    session_connect_options,
};
use sojourn_shm::{Access, Mapping, Segment};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, IoSlice, IoSliceMut};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const FAKE: &str = "SOJOURN_TEST_FAKE";
/// After so long without an answer a test has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something holds, or fails.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns true if a descriptor becomes readable (or hangs up) in time.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let mut set = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut set, Some(&patience)) == Ok(1)
}

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sojournd-test-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn server(&self) -> String {
        self.0.join("server").to_str().unwrap().into()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running `sojournd`, killed with the test.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Server {
    /// Starts one and waits until it (or another) serves.
    pub(crate) fn start(address: &str, flags: &[&str]) -> Self {
        Self::start_as(None, address, flags)
    }

    pub(crate) fn start_as(user: Option<u32>, address: &str, flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sojournd"));
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        Self::started(command, address, flags)
    }

    /// One that may have so many descriptors.
    pub(crate) fn start_with(descriptors: u32, address: &str, flags: &[&str]) -> Self {
        let mut command = Command::new("/bin/sh");
        let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_sojournd")]);
        Self::started(command, address, flags)
    }

    pub(crate) fn started(mut command: Command, address: &str, flags: &[&str]) -> Self {
        command.args(["--log", "warn", "--address", address]).args(flags).stdout(Stdio::piped());
        let mut child = spawn(&mut command);
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "{line:?}");
        Self { child, address: address.into() }
    }

    pub(crate) fn admin(&self) -> AdminClient {
        let address = Address::parse(&self.address).unwrap();
        let connection = Connection::connect(address, &admin_connect_options()).unwrap();
        AdminClient::bind(connection).unwrap()
    }

    /// All that it lists.
    pub(crate) fn sessions(&self) -> Vec<sojourn_session::SessionInfoT> {
        sojourn_session::pages::sessions(&mut self.admin()).unwrap()
    }

    /// Descriptors that it has open.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn send(socket: &OwnedFd, text: &str, fd: Option<BorrowedFd<'_>>) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let bytes = [IoSlice::new(text.as_bytes())];
    sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// Text and descriptor; no text when the other end has gone.
fn receive(socket: &OwnedFd) -> (String, Option<OwnedFd>) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4096];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
    let len = got.map_or(0, |got| got.bytes);
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.last();
        }
    }
    (String::from_utf8_lossy(&bytes[..len]).into_owned(), fd)
}

/// A fake library, seen from the test.
pub(crate) struct Program {
    pub(crate) child: Child,
    socket: OwnedFd,
}

/// A join, as a fake tells it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Joined {
    pub(crate) local: u64,
    pub(crate) stream: u64,
    pub(crate) side: u8,
    pub(crate) kind: i32,
    pub(crate) peer_pid: u32,
    pub(crate) ring_bytes: [u32; 2],
    /// Inode of the region's memory.
    pub(crate) region: u64,
    /// Of the own and of the peer's inbox: number, slot, and true if descriptors came.
    pub(crate) inboxes: [(u64, u32, bool); 2],
}

impl Program {
    pub(crate) fn start(server: &str) -> Self {
        Self::start_as(None, server)
    }

    pub(crate) fn start_as(user: Option<u32>, server: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        Self::started(command, server)
    }

    /// One that these words start: a program that runs another one, and its arguments.
    pub(crate) fn start_by(words: &[&str], server: &str) -> Self {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(std::env::current_exe().unwrap());
        Self::started(command, server)
    }

    fn started(mut command: Command, server: &str) -> Self {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        command.args(["--exact", "fake", "--nocapture"]).env(FAKE, server);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        Self { child: spawn(&mut command), socket: ours }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells the fake something; its answer, in words.
    pub(crate) fn tell(&self, text: &str, fd: Option<BorrowedFd<'_>>) -> Vec<String> {
        send(&self.socket, text, fd);
        self.answer(text)
    }

    fn answer(&self, text: &str) -> Vec<String> {
        assert!(is_readable(self.socket.as_fd()), "no answer to {text:?}");
        let (answer, _) = receive(&self.socket);
        answer.split_whitespace().map(str::to_owned).collect()
    }

    /// Says hello to the server; false if it was refused.
    pub(crate) fn hello(&self) -> bool {
        let answer = self.tell("hello", None);
        if answer != ["ok"] {
            eprintln!("no hello: {}", answer.join(" "));
        }
        answer == ["ok"]
    }

    /// Offers an end, which is closed here; true if it waits.
    pub(crate) fn offer(&self, local: u64, end: impl Into<OwnedFd>, is_sole: bool) -> bool {
        let (end, text) = (end.into(), format!("offer {local} {is_sole}"));
        send(&self.socket, &text, Some(end.as_fd()));
        // Before the server looks for the holders.
        drop(end);
        self.answer(&text) == ["true"]
    }

    /// Waits for an event that is a join.
    pub(crate) fn joined(&self) -> Joined {
        let words = self.tell("next", None);
        assert_eq!(words.first().map(String::as_str), Some("join"), "{words:?}");
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let inbox = |at| (number(at), number(at + 1) as u32, words[at + 2] == "true");
        Joined {
            local: number(1),
            stream: number(2),
            side: number(3) as u8,
            kind: number(4) as i32,
            peer_pid: number(5) as u32,
            ring_bytes: [number(6) as u32, number(7) as u32],
            region: number(8),
            inboxes: [inbox(9), inbox(12)],
        }
    }

    /// Waits for an event that is a refusal or a recall.
    pub(crate) fn told(&self) -> (String, u64, ReasonT) {
        let words = self.tell("next", None);
        let reason = words.get(2).and_then(|word| ReasonT::from_word(word));
        (words[0].clone(), words[1].parse().unwrap(), reason.unwrap())
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The possessions of a fake.
struct Fake {
    server: String,
    client: Option<SessionClient>,
    doorbell: OwnedFd,
    ends: HashMap<u64, OwnedFd>,
    joins: HashMap<u64, (JoinT, Mapping)>,
}

/// Becomes a fake, or a file system, if this process was started as one.
pub(crate) fn be_fake() {
    fuse::be_file_system();
    let Ok(server) = std::env::var(FAKE) else { return };
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let mut fake =
        Fake { server, client: None, doorbell, ends: HashMap::new(), joins: HashMap::new() };
    if identity::is_executed() {
        // The answer to the command of the program before this one.
        send(&socket, "ok", None);
    }
    fake.serve(&socket)
}

impl Fake {
    fn serve(&mut self, socket: &OwnedFd) -> ! {
        loop {
            let (text, fd) = receive(socket);
            if text.is_empty() {
                std::process::exit(0);
            }
            let words: Vec<&str> = text.split_whitespace().collect();
            if let ["leave", program @ ..] = &words[..] {
                identity::leave_to_child(program.first().copied(), self, socket);
            }
            let answer = self.act(&words, fd);
            send(socket, &answer, None);
        }
    }

    fn client(&mut self) -> &mut SessionClient {
        let client = self.client.as_mut().expect("no hello");
        client.with_deadline(Deadline::after(PATIENCE))
    }

    fn act(&mut self, words: &[&str], fd: Option<OwnedFd>) -> String {
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[0] {
            "hello" => self.hello(),
            "offer" => {
                let what = offer(number(1), words[2] == "true");
                let fd = fd.unwrap();
                let answer = self.client().offer(Some(fd.as_fd()), &what);
                self.ends.insert(what.local, fd);
                format!("{answer:?}").trim_start_matches("Ok(").trim_end_matches(')').into()
            }
            // In a set of its own.
            "offer-apart" => {
                let what = OfferT { set: number(1) as u32 + 1, ..offer(number(1), true) };
                let fd = fd.unwrap();
                let answer = self.client().offer(Some(fd.as_fd()), &what);
                self.ends.insert(what.local, fd);
                format!("{answer:?}")
            }
            "keep" => {
                self.ends.insert(number(1), fd.unwrap());
                "ok".into()
            }
            "again" => {
                let end = self.ends[&number(1)].try_clone().unwrap();
                self.client().offer(Some(end.as_fd()), &offer(number(2), true)).unwrap().to_string()
            }
            "adopt" => {
                let end = self.ends[&number(1)].try_clone().unwrap();
                let (what, side) = (offer(number(1), true), number(3) as u8);
                let adopted = self.client().adopt(Some(end.as_fd()), &what, number(2), side);
                adopted.unwrap().to_string()
            }
            "next" => self.next(),
            // The server has heeded all earlier messages when it answers this.
            "sync" => format!("{:?}", self.client().next()),
            "setsid" => {
                rustix::process::setsid().unwrap();
                "ok".into()
            }
            "bye" => {
                self.client = None;
                "ok".into()
            }
            "pipes" => self.pipes(number(1)),
            "garbage" => self.garbage(number(1), number(2)),
            "become" => identity::become_user(number(1) as u32),
            "exec" => self.exec(words[1]),
            "hold" => self.hold(number(1), words[2], fd.unwrap()),
            "connect" => self.connect(),
            "offer-held" => self.offer_held(number(1), words[2] == "close"),
            "send-held" => self.send_held(number(1)),
            "send-many-held" => self.send_many_held(number(1)),
            "send-beside" => self.send_beside(number(1)),
            "hoard" => self.hoard(number(1)),
            _ => self.act_on(number(1), words),
        }
    }

    /// Makes a pipe, or a TCP connection, and holds its lock until this process ends; the ends are
    /// of these sessions. Of a connection the first one's lock is held.
    fn hold(&mut self, local: u64, what: &str, source: OwnedFd) -> String {
        let (first, second, held) = if what == "pipe" {
            let flags = rustix::pipe::PipeFlags::CLOEXEC;
            let (reader, writer) = rustix::pipe::pipe_with(flags).unwrap();
            let held = writer.try_clone().unwrap();
            (reader, writer, held)
        } else {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let end = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let other = listener.accept().unwrap().0;
            let held = end.try_clone().unwrap().into();
            (end.into(), other.into(), held)
        };
        let is_held = sojourn_lab::hold::hold(source, held);
        self.ends.insert(local, first);
        self.ends.insert(local + 1, second);
        is_held.to_string()
    }

    /// Offers a session's end, and may close it when the server has it. How it went.
    fn offer_held(&mut self, local: u64, closes: bool) -> String {
        let end = self.ends.remove(&local).unwrap();
        let client = self.client.as_mut().unwrap();
        let client = client.with_deadline(Deadline::after(Duration::from_millis(300)));
        let answer = client.offer(Some(end.as_fd()), &offer(local, true));
        if closes {
            drop(end);
        } else {
            // Where nobody else has it, closing it would wait.
            std::mem::forget(end);
        }
        if answer.is_ok() { "answered".into() } else { "error".into() }
    }

    /// Connects and says nothing; the descriptor's number.
    fn connect(&mut self) -> String {
        let socket = self.connected();
        let number = std::os::fd::AsRawFd::as_raw_fd(&socket).to_string();
        std::mem::forget(socket);
        number
    }

    /// Carries out a command for one session.
    fn act_on(&mut self, local: u64, words: &[&str]) -> String {
        match words[0] {
            "left" => {
                self.joins.remove(&local);
                self.client().left(local, ReasonT::Operation, 1, 2).unwrap();
                "ok".into()
            }
            "write" => {
                let mapping = &self.joins[&local].1;
                mapping.span(5000, 8).unwrap().copy_from(words[2].as_bytes());
                "ok".into()
            }
            "read" => {
                let mut bytes = [0; 8];
                self.joins[&local].1.span(5000, 8).unwrap().copy_to(&mut bytes);
                String::from_utf8_lossy(&bytes).trim_end_matches('\0').into()
            }
            "ring" => {
                let join = &self.joins[&local].0;
                let peer = if words[2] == "peer" { &join.peer } else { &join.own };
                rustix::io::write(peer.ready.as_fd().unwrap(), &1u64.to_ne_bytes()).unwrap();
                "ok".into()
            }
            // Has whoever writes to the events of the own inbox wait, if that can be.
            "fill" => {
                let own = &self.joins[&local].0.own;
                let done = [&own.ready, &own.attention].map(|event| {
                    let event = event.as_fd().unwrap();
                    let _ = rustix::fs::fcntl_setfl(event, rustix::fs::OFlags::empty());
                    rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes()).is_ok()
                });
                format!("{} {}", done[0], done[1])
            }
            "rung" => {
                let join = &self.joins[&local].0;
                is_readable(join.own.ready.as_fd().unwrap()).to_string()
            }
            "peer-ends" => {
                is_readable(self.joins[&local].0.peer_process.as_fd().unwrap()).to_string()
            }
            "end-ends" => {
                let mut bytes = [0; 16];
                is_readable(self.ends[&local].as_fd());
                format!("{:?}", rustix::io::read(&self.ends[&local], &mut bytes))
            }
            "close" => {
                self.ends.remove(&local);
                "ok".into()
            }
            other => panic!("what is {other}?"),
        }
    }

    fn hello(&mut self) -> String {
        let address = identity::inherited_connection()
            .unwrap_or_else(|| Address::parse(&self.server).unwrap());
        let connection = Connection::connect(address, &session_connect_options());
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => return error.to_string(),
        };
        self.client = Some(SessionClient::bind(connection).unwrap());
        let doorbell = self.doorbell.try_clone().unwrap();
        match self.client().hello(c"fake", Some(doorbell.as_fd())) {
            Ok(_) => "ok".into(),
            Err(error) => error.to_string(),
        }
    }

    /// Waits for the doorbell as long as there is no event.
    fn next(&mut self) -> String {
        loop {
            match self.client().next() {
                Ok(EventT::None) => {}
                Ok(EventT::Join(join)) => return self.join(join),
                Ok(EventT::Recall(recall)) => {
                    return format!("recall {} {}", recall.local, recall.reason.word());
                }
                Ok(EventT::Refused(refusal)) => {
                    return format!("refused {} {}", refusal.local, refusal.reason.word());
                }
                Ok(EventT::Delegate(_) | EventT::Rerouted(_) | EventT::Route(_)) => {
                    return "delegated".into();
                }
                Ok(EventT::Wanted(wanted)) => return format!("wanted {}", wanted.inode),
                Err(error) => return format!("error {error}"),
            }
            if !is_readable(self.doorbell.as_fd()) {
                return "nothing".into();
            }
            let _ = rustix::io::read(&self.doorbell, &mut [0; 8]);
        }
    }

    fn join(&mut self, join: JoinT) -> String {
        let layout = sojourn_stream::Layout::new(join.ring_bytes).unwrap();
        let fd = join.region.as_fd().unwrap().try_clone_to_owned().unwrap();
        let inode = rustix::fs::fstat(&fd).unwrap().st_ino;
        let mapping = Segment::accept(fd, layout.len()).unwrap().map(Access::ReadWrite).unwrap();
        let inbox = |inbox: &sojourn_session::InboxT| {
            if let Some(memory) = inbox.memory.as_fd() {
                let memory = memory.try_clone_to_owned().unwrap();
                Segment::accept(memory, sojourn_stream::Inbox::LEN).unwrap();
                for event in [&inbox.ready, &inbox.attention] {
                    let flags = rustix::fs::fcntl_getfl(event.as_fd().unwrap()).unwrap();
                    let is_set = name_of(event.as_fd().unwrap()).ends_with("[eventpoll]");
                    assert!(is_set || flags.contains(rustix::fs::OFlags::NONBLOCK));
                }
            }
            format!("{} {} {}", inbox.id, inbox.slot, !inbox.memory.is_none())
        };
        let [r0, r1] = join.ring_bytes;
        let (own, peer) = (inbox(&join.own), inbox(&join.peer));
        let kind = join.kind as i32;
        let answer = format!(
            "join {} {} {} {kind} {} {r0} {r1} {inode} {own} {peer}",
            join.local, join.stream, join.side, join.peer_pid
        );
        self.joins.insert(join.local, (join, mapping));
        answer
    }

    /// Offers so many ends of pipes and keeps none of them open; µs for each.
    fn pipes(&mut self, count: u64) -> String {
        let begun = Instant::now();
        let mut kept = Vec::new();
        for local in 0..count {
            let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
            assert!(
                self.client().offer(Some(pipe.0.as_fd()), &offer(1_000_000 + local, true)).unwrap()
            );
            kept.push(pipe);
            kept.truncate(0);
        }
        format!("{:.2}", begun.elapsed().as_secs_f64() * 1e6 / count as f64)
    }

    /// Offers so many descriptors that are nothing of use, and collects so many of the answers.
    fn garbage(&mut self, count: u64, collected: u64) -> String {
        let things: Vec<OwnedFd> = vec![
            std::fs::File::open("/dev/zero").unwrap().into(),
            std::fs::File::open("/").unwrap().into(),
            std::fs::File::open("/proc/self/exe").unwrap().into(),
            eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap(),
            std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
            std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into(),
            self.doorbell.try_clone().unwrap(),
        ];
        for at in 0..count {
            let thing = &things[at as usize % things.len()];
            match self.client().offer(Some(thing.as_fd()), &offer(2_000_000 + at, at % 3 == 0)) {
                Ok(waits) => assert!(!waits),
                Err(error) => return format!("error {error}"),
            }
        }
        for _ in 0..collected {
            match self.client().next() {
                Ok(EventT::Refused(_)) => {}
                other => return format!("{other:?}"),
            }
        }
        "ok".into()
    }
}

/// Returns the name of a descriptor's object.
fn name_of(fd: BorrowedFd<'_>) -> String {
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    std::fs::read_link(link).unwrap().to_string_lossy().into_owned()
}

fn offer(local: u64, is_sole: bool) -> OfferT {
    OfferT { local, set: 0, ring_bytes: 16 << 10, is_sole, home: HomeT::Library }
}

/// Returns true if the file of a socket is there.
pub(crate) fn is_there(address: &str) -> bool {
    Path::new(address).exists()
}

/// Held while a process is started: until the child runs its own program it has every descriptor of
/// this one, of all tests, and a look for the holders of an end would find it.
pub(crate) static STARTING: std::sync::RwLock<()> = std::sync::RwLock::new(());

fn spawn(command: &mut Command) -> std::process::Child {
    // Tests may run among kin that nobody here may inspect: not in their session.
    let _ = rustix::process::setsid();
    let _alone = STARTING.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    command.spawn().unwrap()
}

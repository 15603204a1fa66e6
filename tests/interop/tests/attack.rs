//! Messages that break the rules of their interface, to servers in both languages.
//!
//! Each operation of each example gets requests that are certainly wrong: the client must be told
//! so in the way that the ACF says, and an honest client afterwards must not notice anything. Then
//! requests with random changes: whatever becomes of them, the server goes on.

mod common;

use common::{Language, Programs, Running, address, watchdog};
use sojourn_interop::{Request, connect, drive, requests, soon};
use sojourn_ipc::rt::loopback::Message;
use sojourn_ipc::rt::random::Random;
use sojourn_ipc::rt::{self, Fault};
use sojourn_ipc::{CallError, Connection, Reason};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;

const SEED: u64 = 5;

/// A way to spoil a request for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoiled {
    Shorter,
    Longer,
    Ragged,
    ItemLeftOver,
    DescriptorLeftOver,
    DescriptorMissing,
}

const WAYS: [Spoiled; 6] = [
    Spoiled::Shorter,
    Spoiled::Longer,
    Spoiled::Ragged,
    Spoiled::ItemLeftOver,
    Spoiled::DescriptorLeftOver,
    Spoiled::DescriptorMissing,
];

/// A message to be sent as it is.
struct Raw {
    body: Vec<u8>,
    items: Vec<Vec<u8>>,
    fds: Vec<OwnedFd>,
}

impl Raw {
    fn new(message: Message) -> Self {
        let Message { body, items, mut fds } = message;
        let body = body.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let fds = (0..).map_while(|at| fds.take(at)).collect();
        Self { body, items, fds }
    }

    /// `None`: there is nothing to spoil in this way.
    fn spoil(mut self, way: Spoiled) -> Option<Self> {
        match way {
            Spoiled::Shorter => self.body.truncate(self.body.len().checked_sub(8)?),
            Spoiled::Longer => self.body.extend([0; 8]),
            Spoiled::Ragged => self.body.extend([0; 4]),
            Spoiled::ItemLeftOver => self.items.push(vec![7; 100]),
            Spoiled::DescriptorLeftOver => self.fds.push(any_file()),
            Spoiled::DescriptorMissing => drop(self.fds.pop()?),
        }
        Some(self)
    }

    /// Sends it; answers what the client learns, for a one-way message by a call after it.
    fn send(&self, to: &mut Bound, request: &Request) -> Result<(), CallError> {
        let mut draft = to.connection.start(to.base + request.op, self.body.len());
        let mut writer = draft.encoder();
        writer.put_bytes(&self.body)?;
        self.items.iter().try_for_each(|item| writer.put_item(item))?;
        self.fds.iter().try_for_each(|fd| writer.put_fd(fd.as_fd()))?;
        if !request.oneway {
            return draft.call(soon()).map(drop);
        }
        draft.send(soon())?;
        rt::stub::bind(&mut to.connection, &request.interface, soon()).map(drop)
    }
}

fn any_file() -> OwnedFd {
    std::fs::File::open("/dev/null").expect("opened").into()
}

/// A connection with one interface bound.
struct Bound {
    connection: Connection,
    base: u16,
}

impl Bound {
    fn new(address: &str, request: &Request) -> Self {
        let mut connection = connect(address).expect("connected");
        let base = rt::stub::bind(&mut connection, &request.interface, soon()).expect("bound");
        Self { connection, base }
    }
}

/// A server to be attacked.
struct Target {
    file: &'static str,
    address: String,
    process: Running,
    _programs: Programs,
}

impl Target {
    fn start(file: &'static str, language: Language) -> Self {
        let programs = Programs::new();
        let (address, seed) = (address(), SEED.to_string());
        let mut command = match language {
            Language::C => Command::new(programs.target(file)),
            Language::Rust => Command::new(env!("CARGO_BIN_EXE_interop-server")),
        };
        command.arg(&address);
        match language {
            Language::C => command.arg(&seed),
            Language::Rust => command.args([file, &seed, "0"]),
        };
        Self { file, address, process: Running::quiet(command), _programs: programs }
    }

    /// All that is certainly wrong is refused; the oracle never sees it.
    fn refuses(&self, request: &Request) {
        let expected = match (request.faults, request.oneway) {
            (true, true) => Ok(()),
            (true, false) => Err(CallError::Fault(Fault::BAD_MESSAGE)),
            (false, _) => Err(CallError::Disconnected(Reason::BadMessage)),
        };
        let mut bound = Bound::new(&self.address, request);
        for (seed, way) in (SEED..).zip(WAYS) {
            let message = (request.draw)(seed).expect("encoded");
            let Some(raw) = Raw::new(message).spoil(way) else { continue };
            let got = raw.send(&mut bound, request);
            assert_eq!(got, expected, "{}, {}: {way:?}", self.file, request.name);
            if bound.connection.ended().is_some() {
                bound = Bound::new(&self.address, request);
            }
        }
    }

    /// Random changes: refused, or read as something else that is allowed.
    fn survives(&self, request: &Request, random: &mut Random) {
        let mut bound = Bound::new(&self.address, request);
        for seed in 0..8 {
            let mut message = (request.draw)(seed).expect("encoded");
            random.mutate(&mut message.body);
            let got = Raw::new(message).send(&mut bound, request);
            let is_allowed = matches!(
                got,
                Ok(()) | Err(CallError::Fault(_) | CallError::Disconnected(Reason::BadMessage))
            );
            assert!(is_allowed, "{}, {}, seed {seed}: {got:?}", self.file, request.name);
            if bound.connection.ended().is_some() {
                bound = Bound::new(&self.address, request);
            }
        }
    }
}

fn attack(file: &'static str, language: Language) {
    let _watchdog = watchdog(150);
    let mut target = Target::start(file, language);
    let all = requests(file);
    assert!(!all.is_empty());
    all.iter().for_each(|request| target.refuses(request));
    let connection = connect(&target.address).expect("connected");
    drive(file, connection, SEED, 2).expect("an honest client is served as ever");

    let mut random = Random::stream(SEED, 0, 3);
    all.iter().for_each(|request| target.survives(request, &mut random));
    let _still_served = Bound::new(&target.address, &all[0]);
    assert!(target.process.is_there(), "the server is dead");
}

#[test]
fn rust_refuses_what_breaks_the_rules() {
    for file in ["paper", "calc", "files", "corners"] {
        attack(file, Language::Rust);
    }
}

#[test]
fn rust_refuses_what_breaks_the_rules_for_every_type() {
    attack("everything", Language::Rust);
}

#[test]
fn c_refuses_what_breaks_the_rules() {
    for file in ["paper", "calc", "files", "corners"] {
        attack(file, Language::C);
    }
}

#[test]
fn c_refuses_what_breaks_the_rules_for_every_type() {
    attack("everything", Language::C);
}

//! Measurements of one system call, or one pipe, served by the kernel, by an emulation server on
//! several paths, or by a stream of Sojourn's. The program is the same for all paths that allow it
//! (`guest/guest.c`).
//!
//! Read `server.rs` (what is emulated) and `crates/emulation` (the library in the place of the
//! C library's calls) first. Not here: turns and tables; see `getpid` and `pipes` of the parent.

pub(super) mod client;
mod guests;
mod pipes;
mod ptrace;
pub(super) mod server;

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;
use sojourn_ipc::Wait;
use sojourn_lab::{Running, Sandbox};

use self::client::Client;
use self::guests::Guests;
pub(crate) use self::guests::LIBRARY;
use crate::local::process;
use crate::local::server::Admin;
use crate::os;
use crate::stats::median;
use crate::udp::world::{Placement, Waiting, World, say};

/// The path of the program's calls to the process that serves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallPath {
    /// The kernel.
    Kernel,
    /// A server by IPC; a static program's own system calls, rewritten by Sojourn's loader.
    Trampoline,
    /// A server by IPC; the C library's functions, taken over by a preloaded library.
    Library,
    /// Sojourn's stream, by `sojourn run`.
    Stream,
    /// A server by IPC, called by a program that is written for it: call and answer carry bytes.
    Call,
    /// A thread of the same process, over a Unix socket.
    Thread,
    /// A server over a Unix socket; the C library's functions, taken over.
    Process,
    /// A process that traces the program (ptrace(2)).
    Ptrace,
}

/// The measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// getpid(2).
    Pid,
    /// A transfer of this many bytes to the other program and back.
    Pipe(usize),
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    pub(crate) way: CallPath,
    pub(crate) waiting: Waiting,
    pub(crate) placement: Placement,
    pub(crate) work: Work,
    /// The time of the measurement (ms), after half as much to warm up.
    pub(crate) ms: u32,
}

/// The time limit of a program that makes one visit.
const LIMIT: Duration = Duration::from_secs(20);

/// The programs and servers that visits need.
pub(crate) struct Emulation {
    guests: Guests,
    sandbox: std::result::Result<Sandbox, String>,
}

impl Emulation {
    /// Sets up the parts that this machine allows. A missing part is an error of the paths that
    /// need it.
    pub(crate) fn new() -> Result<Self> {
        let sandbox = Sandbox::new().map_err(|error| format!("{error:#}"));
        let guests = Guests::new()?;
        let folders = sandbox.iter().map(Sandbox::folder).chain([guests.folder()]);
        crate::net::note(folders.map(std::path::Path::to_owned).collect());
        Ok(Self { guests, sandbox })
    }

    /// Returns the nanoseconds per operation: the median of a visit's samples.
    pub(crate) fn measure(&self, visit: &Visit) -> Result<f64> {
        let [near, _, server, _] = visit.placement.processors();
        let mut world = World::default();
        match visit.way {
            CallPath::Kernel => {
                let is_polled = visit.waiting == Waiting::Spinning;
                self.run(Command::new(self.guests.dynamic()), visit, is_polled)
            }
            CallPath::Stream => self.by_stream(visit),
            CallPath::Library | CallPath::Trampoline | CallPath::Process => {
                let by_socket = visit.way == CallPath::Process;
                let name = serve(&mut world, server, by_socket, wait(visit))?;
                let mut command = match visit.way {
                    CallPath::Trampoline => self.guests.loaded()?,
                    _ => self.guests.preloaded()?,
                };
                command.env("EMULATION_SERVER", &name);
                command.env("EMULATION_BY", if by_socket { "socket" } else { "ipc" });
                command.env("EMULATION_WAIT", word(wait(visit)));
                self.run(command, visit, false)
            }
            CallPath::Call => {
                let name = serve(&mut world, server, false, wait(visit))?;
                let visit = *visit;
                let bits = world.start(near, move |said| caller(&visit, &name, &said))?;
                Ok(f64::from_bits(bits))
            }
            CallPath::Thread => {
                let visit = *visit;
                let bits = world.start(near, move |said| in_threads(&visit, &said))?;
                Ok(f64::from_bits(bits))
            }
            CallPath::Ptrace => {
                let program = self.guests.dynamic();
                let words = words(visit, false, server::EMULATED_PID);
                let tracer = move |said: UnixStream| {
                    let text = ptrace::run(&program, &words, server::EMULATED_PID)?;
                    say(&said, parse(&text)?.to_bits())
                };
                Ok(f64::from_bits(world.start(server, tracer)?))
            }
        }
    }

    /// Runs the program to its end.
    fn run(&self, mut command: Command, visit: &Visit, is_polled: bool) -> Result<f64> {
        let is_own = matches!(visit.way, CallPath::Kernel | CallPath::Stream);
        let pid = if is_own { 0 } else { server::EMULATED_PID };
        command.args(words(visit, is_polled, pid));
        process::prepare_child(&mut command, None);
        let name = format!("{:?}", visit.way);
        parse(&Running::start(command)?.finish(LIMIT)?.success(&name)?)
    }

    /// Measures under `sojourn run`; fails if the pipes stayed in the kernel.
    fn by_stream(&self, visit: &Visit) -> Result<f64> {
        let sandbox = match &self.sandbox {
            Ok(sandbox) => sandbox,
            Err(error) => bail!("{error}"),
        };
        let mut admin = Admin::new(&sandbox.address())?;
        let before = admin.moves()?.joins;
        let mut command = sandbox.command(sojourn_lab::Mode::Sojourn, self.guests.dynamic());
        let spin = if visit.waiting == Waiting::Spinning { "always" } else { "never" };
        command.env("SOJOURN_STRICT", "on").env("SOJOURN_SPIN", spin);
        command.env_remove("XDG_CONFIG_HOME").env("HOME", "/nonexistent");
        let ns = self.run(command, visit, false)?;
        let moved = admin.moves()?.joins - before;
        ensure!(moved >= 2, "{moved} of two pipes moved");
        Ok(ns)
    }
}

/// Returns the wait of all processes of a visit. Two processes that spin have a processor each.
/// Three share the processors, so they yield.
fn wait(visit: &Visit) -> Wait {
    let is_alone = visit.placement != Placement::Single;
    match (visit.waiting, visit.work) {
        (Waiting::Sleeping, _) => Wait::Park,
        (Waiting::Spinning, Work::Pid) if is_alone => Wait::Spin(None),
        (Waiting::Spinning, _) if visit.way == CallPath::Call && is_alone => Wait::Spin(None),
        (Waiting::Spinning, _) => Wait::Yield,
    }
}

fn word(wait: Wait) -> &'static str {
    match wait {
        Wait::Spin(_) => "spin",
        Wait::Yield => "yield",
        _ => "park",
    }
}

/// Returns the program's arguments.
fn words(visit: &Visit, is_polled: bool, pid: i64) -> Vec<String> {
    let [near, far, ..] = visit.placement.processors();
    let (near, ms) = (near.to_string(), visit.ms.to_string());
    match visit.work {
        Work::Pid => vec!["getpid".into(), near, ms, pid.to_string()],
        Work::Pipe(size) => {
            let polls = u8::from(is_polled).to_string();
            vec!["pipe".into(), near, far.to_string(), size.to_string(), ms, polls]
        }
    }
}

/// Returns the median of the samples that the program printed.
pub(super) fn parse(text: &str) -> Result<f64> {
    let said: serde_json::Value = serde_json::from_str(text.trim()).context("no samples")?;
    let samples = said["samples"].as_array().map(Vec::as_slice).unwrap_or_default();
    let samples: Vec<f64> = samples.iter().filter_map(serde_json::Value::as_f64).collect();
    ensure!(!samples.is_empty(), "no samples");
    Ok(median(&samples))
}

fn listen(name: &str) -> Result<UnixListener> {
    Ok(UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?)
}

/// Starts a server and returns its name.
pub(super) fn serve(world: &mut World, cpu: usize, by_socket: bool, wait: Wait) -> Result<String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("sojourn-bench-emulation-{}-{number}", std::process::id());
    let text = name.clone();
    world.start(cpu, move |said| {
        if by_socket {
            let listener = listen(&text)?;
            say(&said, 0)?;
            return server::by_socket(&listener, wait);
        }
        server::by_ipc(&text, wait, || say(&said, 0))
    })?;
    Ok(name)
}

/// Returns the nanoseconds per operation: the median over groups of at least two microseconds.
fn sample(ms: u32, mut once: impl FnMut() -> Result<()>) -> Result<f64> {
    let all = u64::from(ms) * 1_000_000;
    let (start, mut count) = (os::now_ns(), 0);
    while os::now_ns() - start < all / 2 {
        once()?;
        count += 1;
    }
    let group = 2_000 / ((os::now_ns() - start) / count).max(1) + 1;
    let (begun, mut last, mut samples) = (os::now_ns(), os::now_ns(), Vec::new());
    while last - begun < all {
        for _ in 0..group {
            once()?;
        }
        let now = os::now_ns();
        samples.push((now - last) as f64 / group as f64);
        last = now;
    }
    Ok(median(&samples))
}

/// Measures a program that is written for the IPC: one call and its answer.
fn caller(visit: &Visit, name: &str, said: &UnixStream) -> Result<()> {
    let mut client = Client::connect(false, name, wait(visit))?;
    let ns = match visit.work {
        Work::Pid => sample(visit.ms, || client.pid().map(drop).map_err(Into::into))?,
        Work::Pipe(size) => {
            let (mut bytes, mut room) = (vec![1_u8; size], vec![0_u8; size]);
            sample(visit.ms, || {
                let number = bytes[0].wrapping_add(1);
                (bytes[0], bytes[size - 1]) = (number, number);
                client.echo(&bytes, &mut room)?;
                ensure!(room[0] == number && room[size - 1] == number, "damaged");
                Ok(())
            })?
        }
    };
    say(said, ns.to_bits())
}

/// Measures server and programs as threads of this process, over a Unix socket.
fn in_threads(visit: &Visit, said: &UnixStream) -> Result<()> {
    let name = format!("sojourn-bench-threads-{}", std::process::id());
    let (listener, wait) = (listen(&name)?, wait(visit));
    let [_, far, server, _] = visit.placement.processors();
    std::thread::Builder::new().spawn(move || {
        os::pin(server)?;
        server::by_socket(&listener, wait)
    })?;
    let mut client = Client::connect(true, &name, wait)?;
    let ns = match visit.work {
        Work::Pid => sample(visit.ms, || {
            ensure!(client.pid()? == server::EMULATED_PID, "not emulated");
            Ok(())
        })?,
        Work::Pipe(size) => {
            let (there, back) = (client.pipe()?, client.pipe()?);
            let mut other = Client::connect(true, &name, wait)?;
            std::thread::Builder::new().spawn(move || -> Result<()> {
                os::pin(far)?;
                let mut bytes = vec![0; size];
                loop {
                    take(&mut other, there, &mut bytes)?;
                    other.write(back, &bytes)?;
                }
            })?;
            let mut bytes = vec![0_u8; size];
            sample(visit.ms, || {
                let number = bytes[0].wrapping_add(1);
                (bytes[0], bytes[size - 1]) = (number, number);
                client.write(there, &bytes)?;
                take(&mut client, back, &mut bytes)?;
                ensure!(bytes[0] == number && bytes[size - 1] == number, "damaged");
                Ok(())
            })?
        }
    };
    say(said, ns.to_bits())
}

/// Fills `room` from a pipe.
fn take(client: &mut Client, pipe: i64, room: &mut [u8]) -> Result<()> {
    let mut filled = 0;
    while filled < room.len() {
        filled += client.read(pipe, &mut room[filled..])? as usize;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths that need only this program: each must answer with the bytes that were sent, which
    /// the measurement checks.
    #[test]
    fn ways_without_other_programs_answer() {
        for way in [CallPath::Call, CallPath::Thread] {
            for work in [Work::Pid, Work::Pipe(1), Work::Pipe(64 << 10)] {
                for waiting in Waiting::ALL {
                    let (placement, ms) = (Placement::Apart, 4);
                    let visit = Visit { way, waiting, placement, work, ms };
                    let emulation = Emulation {
                        guests: Guests::new().unwrap(),
                        sandbox: Err("not wanted".into()),
                    };
                    assert!(emulation.measure(&visit).unwrap() > 0.0, "{visit:?}");
                }
            }
        }
    }
}

//! The processes of one measurement: two ends, and the servers that they need.
//!
//! Each process is forked for one round, tied to a processor, and killed after the round, so that a
//! spinning server never disturbs the next measurement. Not here: turns and medians (the parent
//! module).

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use sojourn_ipc::{Address, Endpoint, ServerOptions};
use sojourn_udp::{Deadline, Handler, Port, Socket, Udp, UdpService, Wait};

use crate::os;

/// The implementations on the path between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UdpStacks {
    /// The kernel's sockets.
    Kernel,
    /// Two clients of one server.
    UserToUser,
    /// Clients of two servers, which exchange packets by the network.
    TwoServers,
    /// Programs in the processes of two servers, which exchange packets by the network.
    ServerToServer,
}

impl UdpStacks {
    pub(crate) const ALL: [Self; 4] =
        [Self::Kernel, Self::UserToUser, Self::TwoServers, Self::ServerToServer];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::UserToUser => "UDP server, user to user, one server",
            Self::TwoServers => "UDP server, user to user, two servers",
            Self::ServerToServer => "UDP server, server to server",
        }
    }

    /// Returns true if `placement` differs from the placements before it: without server processes,
    /// `Single` is the same as `Together`.
    pub(crate) fn has(self, placement: Placement) -> bool {
        placement != Placement::Single || matches!(self, Self::UserToUser | Self::TwoServers)
    }

    /// Returns the milliseconds of the paper's row (Maeda and Bershad 1992), whose clients were on
    /// two hosts.
    pub(crate) fn published_ms(self) -> f64 {
        match self {
            Self::Kernel => 4.8,
            Self::UserToUser | Self::TwoServers => 4.2,
            Self::ServerToServer => 4.0,
        }
    }
}

/// The processors of the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Placement {
    /// Both ends on one processor, servers on others.
    Together,
    /// Each end on its own processor.
    Apart,
    /// Both ends and their servers on one processor.
    Single,
}

impl Placement {
    pub(crate) const ALL: [Self; 3] = [Self::Together, Self::Apart, Self::Single];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Together => "together",
            Self::Apart => "apart",
            Self::Single => "all on one",
        }
    }

    /// Returns the processors of the near end, the far end, and the servers of both.
    pub(crate) fn processors(self) -> [usize; 4] {
        let all = os::processors();
        let at = |index: usize| all[index.min(all.len() - 1)];
        // With enough processors, every server has its own.
        match (self, all.len()) {
            (Self::Together, _) => [at(0), at(0), at(1), at(2)],
            (Self::Single, _) => [at(0); 4],
            (Self::Apart, 4..) => [at(0), at(1), at(2), at(3)],
            (Self::Apart, 3) => [at(0), at(1), at(2), at(2)],
            (Self::Apart, _) => [at(0), at(1), at(0), at(1)],
        }
    }
}

/// The way in which threads wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Waiting {
    /// Without ever sleeping.
    Spinning,
    /// Asleep at once.
    Sleeping,
}

impl Waiting {
    pub(crate) const ALL: [Self; 2] = [Self::Spinning, Self::Sleeping];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Spinning => "spinning",
            Self::Sleeping => "sleeping",
        }
    }

    fn wait(self) -> Wait {
        match self {
            Self::Spinning => Wait::Yield,
            Self::Sleeping => Wait::Park,
        }
    }
}

/// The work of one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub(crate) waiting: Waiting,
    pub(crate) bytes: usize,
    pub(crate) trips: u32,
}

const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
/// Longest time of a round.
const PATIENCE: Duration = Duration::from_secs(20);

/// The processes of a round; drop ends them.
#[derive(Default)]
pub(crate) struct World {
    children: Vec<libc::pid_t>,
}

impl Drop for World {
    fn drop(&mut self) {
        // In reverse order: clients end before their servers.
        for pid in self.children.iter().rev() {
            os::reap(*pid, Duration::ZERO);
        }
    }
}

impl World {
    /// Forks `body` on `cpu`; returns the first eight bytes that `body` writes, as a number.
    pub(crate) fn start(
        &mut self,
        cpu: usize,
        body: impl FnOnce(UnixStream) -> Result<()>,
    ) -> Result<u64> {
        let (near, far) = UnixStream::pair()?;
        let pid = os::fork(|| {
            os::die_after(PATIENCE.as_secs() as u32);
            if let Err(error) = os::pin(cpu).and_then(|()| body(far)) {
                eprintln!("{error:#}");
            }
            1
        })?;
        self.children.push(pid);
        near.set_read_timeout(Some(PATIENCE))?;
        let mut said = [0; 8];
        (&near).read_exact(&mut said).context("no answer in time, or its process died")?;
        Ok(u64::from_ne_bytes(said))
    }

    /// Starts a server, whose thread for packets polls if `spins` is true; returns its address.
    fn serve(&mut self, cpu: usize, waiting: Waiting, spins: bool) -> Result<String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("@sojourn-bench-udp-{}-{number}", std::process::id());
        let text = name.clone();
        self.start(cpu, move |said| {
            let options = ServerOptions { wait: waiting.wait(), ..Udp::options() };
            let endpoint = Endpoint::bind(Address::parse(&text)?, options)?;
            let udp = Udp::new(spins);
            say(&said, 0)?;
            let mut service = UdpService::<Udp>::new(udp);
            Ok(service.serve(&mut endpoint.server(), Deadline::NEVER)?)
        })?;
        Ok(name)
    }
}

/// Writes a number for the parent.
pub(crate) fn say(stream: &UnixStream, what: u64) -> Result<()> {
    Ok((&*stream).write_all(&what.to_ne_bytes())?)
}

/// Measures one round; returns its mean in nanoseconds per round trip.
pub(crate) fn measure(way: UdpStacks, placement: Placement, trial: &Trial) -> Result<f64> {
    let [near, far, one, other] = placement.processors();
    let mut world = World::default();
    let trial = *trial;
    let ns = match way {
        UdpStacks::Kernel => {
            let port = world.start(far, move |said| kernel_answers(&trial, &said))?;
            world.start(near, move |said| kernel_asks(&trial, port, &said))?
        }
        UdpStacks::UserToUser | UdpStacks::TwoServers => {
            // Within one server no packet comes from the network, so its thread for packets need
            // not poll.
            let spins = way == UdpStacks::TwoServers && trial.waiting == Waiting::Spinning;
            let first = world.serve(one, trial.waiting, spins)?;
            let second = match way {
                UdpStacks::TwoServers => world.serve(other, trial.waiting, spins)?,
                _ => first.clone(),
            };
            let port = world.start(far, move |said| client_answers(&trial, &second, &said))?;
            world.start(near, move |said| client_asks(&trial, &first, port, &said))?
        }
        UdpStacks::ServerToServer => {
            let port = world.start(far, move |said| server_answers(&trial, &said))?;
            world.start(near, move |said| server_asks(&trial, port, &said))?
        }
    };
    Ok(ns as f64 / f64::from(trial.trips))
}

/// Warms up, then times `trips` round trips; writes their nanoseconds for the parent.
fn time(trial: &Trial, said: &UnixStream, mut trip: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..trial.trips / 4 + 2 {
        trip()?;
    }
    let start = os::now_ns();
    for _ in 0..trial.trips {
        trip()?;
    }
    say(said, os::now_ns() - start)
}

fn target(port: u64) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port as u16)
}

fn kernel_socket(trial: &Trial) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(ANY)?;
    socket.set_nonblocking(trial.waiting == Waiting::Spinning)?;
    Ok(socket)
}

/// A datagram in a buffer.
struct Received {
    len: usize,
    from: SocketAddr,
}

fn kernel_receives(socket: &UdpSocket, buffer: &mut [u8]) -> Result<Received> {
    loop {
        match socket.recv_from(buffer) {
            // Yields, as the server's clients do: both ends may share the processor.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::yield_now()
            }
            received => {
                let (len, from) = received?;
                return Ok(Received { len, from });
            }
        }
    }
}

fn kernel_answers(trial: &Trial, said: &UnixStream) -> Result<()> {
    let socket = kernel_socket(trial)?;
    say(said, socket.local_addr()?.port().into())?;
    let mut buffer = [0; 2048];
    loop {
        let Received { len, from } = kernel_receives(&socket, &mut buffer)?;
        socket.send_to(&buffer[..len], from)?;
    }
}

fn kernel_asks(trial: &Trial, port: u64, said: &UnixStream) -> Result<()> {
    let (socket, to) = (kernel_socket(trial)?, target(port));
    let (data, mut buffer) = (vec![7; trial.bytes], [0; 2048]);
    time(trial, said, || {
        socket.send_to(&data, to)?;
        kernel_receives(&socket, &mut buffer).map(drop)
    })
}

fn client_answers(trial: &Trial, server: &str, said: &UnixStream) -> Result<()> {
    let mut socket = Socket::bind(Address::parse(server)?, ANY, trial.waiting.wait())?;
    say(said, socket.local_addr().port().into())?;
    let mut buffer = [0; 2048];
    loop {
        let received = socket.recv_from(&mut buffer, Deadline::NEVER)?;
        socket.send_to(&buffer[..received.len], received.from)?;
    }
}

fn client_asks(trial: &Trial, server: &str, port: u64, said: &UnixStream) -> Result<()> {
    let mut socket = Socket::bind(Address::parse(server)?, ANY, trial.waiting.wait())?;
    let (data, mut buffer) = (vec![7; trial.bytes], [0; 2048]);
    time(trial, said, || {
        socket.send_to(&data, target(port))?;
        Ok(socket.recv_from(&mut buffer, Deadline::NEVER).map(drop)?)
    })
}

fn server_answers(trial: &Trial, said: &UnixStream) -> Result<()> {
    let udp = Udp::new(trial.waiting == Waiting::Spinning);
    let echo: Handler = Box::new(|port, from, data| drop(port.send(from, data)));
    say(said, udp.open_here(ANY, echo)?.local().port().into())?;
    loop {
        std::thread::park();
    }
}

/// Asks a program in another server's process. The receiving thread itself sends the next question
/// when it has an answer; the thread that started it sleeps.
fn server_asks(trial: &Trial, port: u64, said: &UnixStream) -> Result<()> {
    let udp = Udp::new(trial.waiting == Waiting::Spinning);
    let (warm_up, trips) = (u64::from(trial.trips / 4 + 2), u64::from(trial.trips));
    let (answers, start) = (AtomicU64::new(0), AtomicU64::new(0));
    let (done, finished) = std::sync::mpsc::channel();
    let again: Handler = Box::new(move |port: &Port, from, data| {
        let count = answers.fetch_add(1, Ordering::Relaxed) + 1;
        if count == warm_up {
            start.store(os::now_ns(), Ordering::Relaxed);
        } else if count == warm_up + trips {
            let _ = done.send(os::now_ns() - start.load(Ordering::Relaxed));
            return;
        }
        let _ = port.send(from, data);
    });
    let own = udp.open_here(ANY, again)?;
    own.send(target(port), &vec![7; trial.bytes])?;
    match finished.recv_timeout(PATIENCE) {
        Ok(ns) => say(said, ns),
        Err(_) => bail!("a datagram was lost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_makes_its_round_trips() {
        let is_possible = socket_is_possible();
        for way in UdpStacks::ALL.into_iter().filter(|way| is_possible || *way == UdpStacks::Kernel)
        {
            for waiting in Waiting::ALL {
                let trial = Trial { waiting, bytes: 1024, trips: 3 };
                for placement in Placement::ALL {
                    assert!(measure(way, placement, &trial).unwrap() > 0.0, "{way:?}");
                }
            }
        }
    }

    /// Returns true if this process may open raw sockets.
    fn socket_is_possible() -> bool {
        Udp::new(false).open_here(ANY, Box::new(|_, _, _| ())).is_ok()
    }
}

//! A client of the protocol server that measures: it takes `lab-bench`'s words and measures as that
//! does, with its session in the process `sojourn-protocol`.
//!
//! Not here: the measurement (`sojourn_lab::measuring`), and the calls (`sojourn_protocol`).

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sojourn_lab::measuring::{End, Options, flow, pin};
use sojourn_protocol::{Address, Client, Deadline, OpenedSession, Session, WRITABLE, Wait};

/// How long the measured server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection with the protocol server, and the session there.
struct Served {
    client: Client,
    session: Session,
    /// The program's own duplicate, which it leaves alone.
    _socket: TcpStream,
}

/// Both directions of a session.
struct Half(Arc<Mutex<Served>>);

impl Read for Half {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let Served { client, session, .. } = &mut *lock(&self.0);
        client.receive(*session, buf, Deadline::NEVER).map_err(Error::other)
    }
}

impl Write for Half {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        let Served { client, session, .. } = &mut *lock(&self.0);
        loop {
            match client.try_send(*session, buf) {
                Err(error) if error.would_block() => {
                    client.wait(*session, WRITABLE, Deadline::NEVER).map_err(Error::other)?;
                }
                done => return done.map_err(Error::other),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

fn lock(served: &Mutex<Served>) -> std::sync::MutexGuard<'_, Served> {
    served.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures: `SERVER ping|bulk|pull tcp ADDRESS`, and options.
pub(crate) fn main(words: &[String]) -> anyhow::Result<()> {
    let first_option = words.iter().position(|word| word.starts_with("--"));
    let (plain, options) = words.split_at(first_option.unwrap_or(words.len()));
    let mut options = Options::parse(options)?;
    pin(options.pin)?;
    let plain: Vec<&str> = plain.iter().map(String::as_str).collect();
    let [server, what, "tcp", address] = plain.as_slice() else {
        anyhow::bail!("words: SERVER ping|bulk|pull tcp ADDRESS");
    };
    let end = open(server, address, &options)?;
    // The protocol server is a child of a session server, whose processor time counts, too.
    options.watched = options.watched.iter().flat_map(|pid| with_children(*pid)).collect();
    let said = match *what {
        "ping" => flow::ping(end, &options)?,
        "bulk" => flow::bulk(end, &options)?,
        "pull" => flow::pull(end, &options)?,
        _ => anyhow::bail!("no such measurement: {what}"),
    };
    println!("{said}");
    Ok(())
}

fn open(server: &str, address: &str, options: &Options) -> anyhow::Result<End> {
    let wait = if options.is_spinning { Wait::Spin(None) } else { Wait::Park };
    let until = Instant::now() + PATIENCE;
    let socket = loop {
        match options.connect(address) {
            Err(error) if error.kind() != ErrorKind::ConnectionRefused => return Err(error.into()),
            Err(error) if Instant::now() > until => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
            Ok(socket) => break socket,
        }
    };
    socket.set_nodelay(true)?;
    let mut client = Client::connect(Address::parse(server)?, wait)?;
    let OpenedSession { session, .. } = client.open(socket.as_fd(), true)?;
    let served = Arc::new(Mutex::new(Served { client, session, _socket: socket }));
    Ok(End::of(Half(Arc::clone(&served)), Half(served)))
}

/// Returns a process and its children.
fn with_children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.map(|one| std::fs::read_to_string(one.path().join("children")));
    let children = lists.flat_map(|list| {
        let numbers = |list: String| list.split_whitespace().flat_map(str::parse).collect();
        list.map(numbers).unwrap_or_else(|_| Vec::new())
    });
    std::iter::once(pid).chain(children).collect()
}

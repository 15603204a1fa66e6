//! The two ends of a connection, made by ordinary calls.

use crate::spinning::Spinning;
use sojourn_lab::measuring::{End, Options};
use std::fs::File;
use std::io::{Error, Read, Result, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::FromRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Calls `serve` in a new thread for every client, for ever. Datagrams have one thread for all
/// clients.
pub(crate) fn listen(kind: &str, address: &str, options: &Options, serve: fn(End)) -> Result<()> {
    match kind {
        "tcp" => {
            let listener = TcpListener::bind(address)?;
            options.apply(&listener)?;
            for stream in listener.incoming() {
                let end = of_tcp(stream?, options)?;
                std::thread::spawn(move || serve(end));
            }
        }
        "unix" => {
            let listener = UnixListener::bind(address)?;
            for stream in listener.incoming() {
                let end = of_unix(stream?)?;
                std::thread::spawn(move || serve(end));
            }
        }
        "udp" => return crate::datagrams::serve(address, options.is_spinning),
        other => return Err(Error::other(format!("no such kind to listen on: {other}"))),
    }
    Ok(())
}

/// Repeats `step` until it succeeds, for ten seconds, because the server may not listen yet.
pub(crate) fn retry<T>(step: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match step() {
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
            done => return done,
        }
    }
}

/// Connects to a server; returns the client's end.
pub(crate) fn connect(kind: &str, address: &str, options: &Options) -> Result<End> {
    retry(|| match kind {
        "tcp" => of_tcp(options.connect(address)?, options),
        "udp" => of_udp(address, options.is_spinning),
        "unix" => of_unix(UnixStream::connect(address)?),
        other => Err(Error::other(format!("no such kind to connect by: {other}"))),
    })
}

/// Starts this program again, with the arguments `words`, as a child whose standard input and
/// output are pipes; returns this side's end.
pub(crate) fn spawn(words: &[String]) -> Result<End> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(output), Some(input)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::other("no pipes"));
    };
    Ok(End {
        input: Box::new(input),
        output: Box::new(output),
        child: Some(child),
        is_datagrams: false,
    })
}

/// Returns the end whose descriptors are standard input and output, without buffers.
pub(crate) fn inherited() -> End {
    // SAFETY: the descriptors were given to this program for this purpose; nothing else uses them.
    let (input, output) = unsafe { (File::from_raw_fd(0), File::from_raw_fd(1)) };
    End { input: Box::new(input), output: Box::new(output), child: None, is_datagrams: false }
}

fn of_tcp(stream: TcpStream, options: &Options) -> Result<End> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(options.is_spinning)?;
    let stream = std::sync::Arc::new(stream);
    let (input, output) = (Half(stream.clone()), Half(stream));
    Ok(match options.is_spinning {
        false => End::of(input, output),
        true => End::of(Spinning(input), Spinning(output)),
    })
}

/// Makes a client's end of a datagram socket. UDP has no handshake, so the server is asked until it
/// answers.
fn of_udp(address: &str, is_spinning: bool) -> Result<End> {
    let server: std::net::SocketAddr = address.parse().map_err(Error::other)?;
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    crate::datagrams::greet(&socket)?;
    socket.set_nonblocking(is_spinning)?;
    let socket = std::sync::Arc::new(socket);
    let (input, output) = (Datagrams(socket.clone()), Datagrams(socket));
    let end = match is_spinning {
        false => End::of(input, output),
        true => End::of(Spinning(input), Spinning(output)),
    };
    Ok(End { is_datagrams: true, ..end })
}

fn of_unix(stream: UnixStream) -> Result<End> {
    let stream = std::sync::Arc::new(stream);
    Ok(End {
        input: Box::new(Half(stream.clone())),
        output: Box::new(Half(stream)),
        child: None,
        is_datagrams: false,
    })
}

/// One direction of a descriptor. Both directions share the descriptor instead of a duplicate.
struct Half<S>(std::sync::Arc<S>);

impl<S> Read for Half<S>
where
    for<'a> &'a S: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        (&*self.0).read(buf)
    }
}

impl<S> Write for Half<S>
where
    for<'a> &'a S: Write,
{
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        (&*self.0).write(buf)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A connected datagram socket.
struct Datagrams(std::sync::Arc<UdpSocket>);

impl Read for Datagrams {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.0.recv(buf)
    }
}

impl Write for Datagrams {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        self.0.send(buf)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

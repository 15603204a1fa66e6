//! The two ends of a connection, by ordinary calls.

use std::fs::File;
use std::io::{Error, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::FromRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One end. Closing it closes the connection; a child that was started for it is waited for.
pub(crate) struct End {
    pub(crate) input: Box<dyn Read + Send>,
    pub(crate) output: Box<dyn Write + Send>,
    pub(crate) child: Option<Child>,
}

/// Calls `serve` in a thread of its own for every client, for ever.
pub(crate) fn listen(kind: &str, address: &str, serve: fn(End)) -> Result<()> {
    match kind {
        "tcp" => {
            let listener = TcpListener::bind(address)?;
            for stream in listener.incoming() {
                let end = of_tcp(stream?)?;
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
        other => return Err(Error::other(format!("no such kind to listen on: {other}"))),
    }
    Ok(())
}

/// Does `step` until it succeeds, for ten seconds: the server may not be there yet.
pub(crate) fn patiently<T>(step: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match step() {
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
            done => return done,
        }
    }
}

/// A client's end.
pub(crate) fn connect(kind: &str, address: &str) -> Result<End> {
    patiently(|| match kind {
        "tcp" => of_tcp(TcpStream::connect(address)?),
        "unix" => of_unix(UnixStream::connect(address)?),
        other => Err(Error::other(format!("no such kind to connect by: {other}"))),
    })
}

/// The end of a child with pipes as its standard input and output: this program again, with these words.
pub(crate) fn spawn(words: &[String]) -> Result<End> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(output), Some(input)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::other("no pipes"));
    };
    Ok(End { input: Box::new(input), output: Box::new(output), child: Some(child) })
}

/// Standard input and output, without buffers.
pub(crate) fn inherited() -> End {
    // SAFETY: the descriptors were given to this program for this purpose; nothing else uses them.
    let (input, output) = unsafe { (File::from_raw_fd(0), File::from_raw_fd(1)) };
    End { input: Box::new(input), output: Box::new(output), child: None }
}

fn of_tcp(stream: TcpStream) -> Result<End> {
    stream.set_nodelay(true)?;
    let stream = std::sync::Arc::new(stream);
    Ok(End { input: Box::new(Half(stream.clone())), output: Box::new(Half(stream)), child: None })
}

fn of_unix(stream: UnixStream) -> Result<End> {
    let stream = std::sync::Arc::new(stream);
    Ok(End { input: Box::new(Half(stream.clone())), output: Box::new(Half(stream)), child: None })
}

/// Both directions of one descriptor, without a duplicate.
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

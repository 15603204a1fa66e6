//! The descriptors that a transfer uses, made by ordinary calls.

use std::fs::File;
use std::io::{Error, Result};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One side's descriptors: the same for sockets.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) input: File,
    pub(crate) output: File,
    pub(crate) is_socket: bool,
    /// The other side, if this one started it.
    pub(crate) child: Option<Child>,
}

impl Link {
    fn of_socket(fd: OwnedFd) -> Result<Self> {
        let input = File::from(fd);
        // The same number would do; a second one would make it a duplicate, which is another test.
        let raw = input.as_raw_fd();
        // SAFETY: `output` is never closed: see `Drop`.
        let output = unsafe { File::from_raw_fd(raw) };
        Ok(Self { input, output, is_socket: true, child: None })
    }

    /// No more will be sent.
    pub(crate) fn end_sending(&mut self) -> Result<()> {
        if self.is_socket {
            // SAFETY: a plain call on an open descriptor.
            let done = unsafe { libc::shutdown(self.output.as_raw_fd(), libc::SHUT_WR) };
            return if done == 0 { Ok(()) } else { Err(Error::last_os_error()) };
        }
        let null = File::open("/dev/null")?;
        // The old file is closed by the assignment.
        self.output = null;
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.is_socket {
            let null = File::open("/dev/null");
            if let Ok(null) = null {
                let output = std::mem::replace(&mut self.output, null);
                // `input` has the same number and closes it.
                let _ = output.into_raw_fd();
            }
        }
    }
}

/// Waits for a client.
pub(crate) fn accept(kind: &str, address: &str) -> Result<Link> {
    match kind {
        "tcp" => {
            let listener = TcpListener::bind(address)?;
            println!("listening {}", listener.local_addr()?);
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            Link::of_socket(stream.into())
        }
        "unix" => {
            let listener = UnixListener::bind(address)?;
            Link::of_socket(listener.accept()?.0.into())
        }
        other => Err(Error::other(format!("no such kind to listen on: {other}"))),
    }
}

/// Connects to a server that may not be there yet.
pub(crate) fn connect(kind: &str, address: &str) -> Result<Link> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let fd: Result<OwnedFd> = match kind {
            "tcp" => TcpStream::connect(address).and_then(|stream| {
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }),
            "unix" => UnixStream::connect(address).map(Into::into),
            other => return Err(Error::other(format!("no such kind to connect by: {other}"))),
        };
        match fd {
            Ok(fd) => return Link::of_socket(fd),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Runs this program again as the other side, joined to us by its standard input and output.
pub(crate) fn pair(kind: &str, words: &[String]) -> Result<Link> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("inherit").args(words);
    if kind == "pipe" {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::other("no pipes"));
        };
        let (input, output) = (OwnedFd::from(stdout).into(), OwnedFd::from(stdin).into());
        return Ok(Link { input, output, is_socket: false, child: Some(child) });
    }
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    let child = command.stdin(theirs.try_clone()?).stdout(theirs).spawn()?;
    drop(command);
    let mut link = Link::of_socket(ours.into())?;
    link.child = Some(child);
    Ok(link)
}

/// Standard input and output are the link.
pub(crate) fn inherited(kind: &str) -> Link {
    // SAFETY: the descriptors were given to this program for this purpose; nothing else uses them.
    let (input, output) =
        unsafe { (File::from_raw_fd(0), File::from_raw_fd(if kind == "pipe" { 1 } else { 0 })) };
    Link { input, output, is_socket: kind != "pipe", child: None }
}

/// Makes a descriptor non-blocking.
pub(crate) fn set_nonblocking(fd: RawFd) -> Result<()> {
    // SAFETY: plain calls on an open descriptor.
    let done = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

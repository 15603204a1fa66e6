//! The descriptors of a transfer, made by ordinary calls.

use std::fs::File;
use std::io::{Error, IoSliceMut, Read, Result};
use std::mem::ManuallyDrop;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One side's descriptors. For sockets, input and output have the same number.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) input: File,
    pub(crate) output: Output,
    /// The process of the other side, if this side started it.
    pub(crate) child: Option<Child>,
}

/// The descriptor through which bytes are sent.
#[derive(Debug)]
pub(crate) struct Output {
    /// Not closed here if it is a socket, because then the number belongs to `input`.
    file: ManuallyDrop<File>,
    is_socket: bool,
    has_ended: bool,
}

impl Output {
    fn new(file: File, is_socket: bool) -> Self {
        Self { file: ManuallyDrop::new(file), is_socket, has_ended: false }
    }

    pub(crate) fn is_socket(&self) -> bool {
        self.is_socket
    }

    pub(crate) fn number(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Ends the stream of this direction.
    pub(crate) fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        if !self.is_socket {
            // SAFETY: `has_ended` shows that the file is gone; nothing uses it from here on.
            unsafe { ManuallyDrop::drop(&mut self.file) };
            return Ok(());
        }
        // SAFETY: a plain call on an open descriptor.
        let done = unsafe { libc::shutdown(self.file.as_raw_fd(), libc::SHUT_WR) };
        if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_socket {
            // The end of a pipe is its close.
            let _ = self.end();
        }
    }
}

impl Side {
    fn of_socket(fd: OwnedFd) -> Self {
        let input = File::from(fd);
        // One number for both directions. A duplicate (dup(2)) would be another test, as it makes
        // the descriptor aliased. SAFETY: the output does not close it.
        let output = Output::new(unsafe { File::from_raw_fd(input.as_raw_fd()) }, true);
        Self { input, output, child: None }
    }
}

/// Listens, and waits for a client.
pub(crate) fn accept(kind: &str, address: &str) -> Result<Side> {
    match kind {
        "tcp" => {
            let listener = TcpListener::bind(address)?;
            println!("listening {}", listener.local_addr()?);
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            Ok(Side::of_socket(stream.into()))
        }
        "unix" => {
            let listener = UnixListener::bind(address)?;
            Ok(Side::of_socket(listener.accept()?.0.into()))
        }
        other => Err(Error::other(format!("no such kind to listen on: {other}"))),
    }
}

/// Connects to a server, which may not listen yet.
pub(crate) fn connect(kind: &str, address: &str) -> Result<Side> {
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
            Ok(fd) => return Ok(Side::of_socket(fd)),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Runs this program again as the other side, whose standard input and output are the link.
pub(crate) fn pair(kind: &str, words: &[String]) -> Result<Side> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("inherit").args(words);
    if kind == "pipe" {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::other("no pipes"));
        };
        let output = Output::new(OwnedFd::from(stdin).into(), false);
        return Ok(Side { input: OwnedFd::from(stdout).into(), output, child: Some(child) });
    }
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    let child = command.stdin(theirs.try_clone()?).stdout(theirs).spawn()?;
    drop(command);
    let mut link = Side::of_socket(ours.into());
    link.child = Some(child);
    Ok(link)
}

/// Makes the link of standard input and output.
pub(crate) fn inherited(kind: &str) -> Side {
    // SAFETY: the descriptors were given to this program for this purpose; nothing else uses them.
    let input = unsafe { OwnedFd::from_raw_fd(0) };
    if kind != "pipe" {
        return Side::of_socket(input);
    }
    // SAFETY: as for descriptor 0: given to this program for this purpose.
    let output = Output::new(unsafe { File::from_raw_fd(1) }, false);
    Side { input: input.into(), output, child: None }
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

/// A call that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveCall {
    /// read(2).
    Plain,
    /// recv(2) with `MSG_PEEK`: the bytes stay in the stream.
    Looks,
    /// recv(2) with `MSG_WAITALL`.
    WaitsForAll,
    /// readv(2).
    InParts,
}

/// Receives by the call `how`. All but read(2) and readv(2) need a socket.
pub(crate) fn receive(input: &File, buf: &mut [u8], how: ReceiveCall) -> Result<usize> {
    let flags = match how {
        ReceiveCall::Looks => libc::MSG_PEEK,
        ReceiveCall::WaitsForAll => libc::MSG_WAITALL,
        ReceiveCall::InParts => {
            let (one, two) = buf.split_at_mut(buf.len() / 3);
            return (&*input).read_vectored(&mut [IoSliceMut::new(one), IoSliceMut::new(two)]);
        }
        ReceiveCall::Plain => return (&*input).read(buf),
    };
    // SAFETY: the buffer has as many bytes as the call is told.
    let got = unsafe { libc::recv(input.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), flags) };
    match usize::try_from(got) {
        Ok(got) => Ok(got),
        Err(_) => Err(Error::last_os_error()),
    }
}

//! The options that all measurements share.

#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{Error, Result};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

/// `--name value` pairs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a frame (`--size`).
    pub size: usize,
    /// Duration of the measurement (`--time-ms`).
    pub time: Duration,
    /// Duration of the warm-up (`--warm-ms`).
    pub warm: Duration,
    /// The processor of this process (`--pin`).
    pub pin: Option<usize>,
    /// The processor of a child (`--child-pin`).
    pub child_pin: Option<usize>,
    /// Number of connections (`--sessions`).
    pub sessions: usize,
    /// Number of calls on every connection before the measurement (`--warm-calls`).
    pub warm_calls: u64,
    /// Polls instead of sleeping in the kernel (`--spin 1`).
    pub is_spinning: bool,
    /// A file to make when the measurement begins (`--mark`).
    pub mark: Option<PathBuf>,
    /// Congestion control of TCP (`--congestion NAME`); the system's default if `None`.
    pub congestion: Option<String>,
    /// Processes whose processor time counts too (`--watch PID`, may be given several times).
    pub watched: Vec<u32>,
    /// A file to make, instead of measuring, when every connection is warm; the calls go on until
    /// the file is removed (`--ready`).
    pub ready: Option<PathBuf>,
    /// Calls per second (`--pace`); as many as possible if `None`.
    pub pace: Option<u64>,
    /// Offset of frames within a page, in bytes below 256, at both ends (`--offset`).
    pub offset: usize,
    /// True if this end sends and receives each frame at another place, out of more memory than the
    /// caches hold (`--cold 1`).
    pub is_cold: bool,
}

impl Options {
    /// Parses options from the words of a command line.
    ///
    /// # Errors
    /// The first word that is no option, or whose value is invalid.
    pub fn parse(words: &[String]) -> Result<Self> {
        let ms = Duration::from_millis;
        let mut options = Self {
            size: 1,
            time: ms(100),
            warm: ms(30),
            pin: None,
            child_pin: None,
            sessions: 1,
            warm_calls: 100,
            is_spinning: false,
            mark: None,
            congestion: None,
            watched: Vec::new(),
            ready: None,
            pace: None,
            offset: 0,
            is_cold: false,
        };
        for pair in words.chunks(2) {
            let [name, value] = pair else {
                return Err(Error::other(format!("{}: no value", pair[0])));
            };
            let number = || {
                let wrong = |_| Error::other(format!("{name} {value}: not a number"));
                value.parse::<u64>().map_err(wrong)
            };
            match name.as_str() {
                "--size" => options.size = (number()? as usize).max(1),
                "--time-ms" => options.time = ms(number()?),
                "--warm-ms" => options.warm = ms(number()?),
                "--pin" => options.pin = Some(number()? as usize),
                "--child-pin" => options.child_pin = Some(number()? as usize),
                "--sessions" => options.sessions = number()? as usize,
                "--warm-calls" => options.warm_calls = number()?,
                "--spin" => options.is_spinning = number()? != 0,
                "--mark" => options.mark = Some(value.into()),
                "--congestion" => options.congestion = Some(value.clone()),
                "--watch" => options.watched.push(number()? as u32),
                "--pace" => options.pace = Some(number()?.max(1)),
                "--offset" => options.offset = number()? as usize & 0xFF,
                "--cold" => options.is_cold = number()? != 0,
                "--ready" => options.ready = Some(value.into()),
                _ => return Err(Error::other(format!("{name}: no such option"))),
            }
        }
        Ok(options)
    }
}

/// Ties this thread, and the threads that it starts, to a processor.
pub fn pin(processor: Option<usize>) -> Result<()> {
    let Some(processor) = processor else { return Ok(()) };
    // SAFETY: the set is plain bits; the index is limited to the size of the set.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor.min(libc::CPU_SETSIZE as usize - 1), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

impl Options {
    /// Makes the file of `--mark`, which tells a waiting program that the measurement begins.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn begin(&self) -> Result<()> {
        self.mark.as_ref().map_or(Ok(()), |path| std::fs::write(path, ""))
    }

    /// Connects. The congestion control is chosen before the connection exists, because a socket
    /// whose first congestion control paces goes on pacing after the change.
    ///
    /// # Errors
    /// As connect(2).
    pub fn connect(&self, address: &str) -> Result<TcpStream> {
        let address: SocketAddr = address.parse().map_err(Error::other)?;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        self.apply(&socket)?;
        rustix::net::connect(&socket, &address)?;
        Ok(socket.into())
    }

    /// Sets the congestion control of a TCP socket; connections of a listener inherit it.
    pub fn apply(&self, socket: &impl AsRawFd) -> Result<()> {
        let Some(name) = &self.congestion else { return Ok(()) };
        // SAFETY: the name has as many bytes as the call is told.
        let done = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_CONGESTION,
                name.as_ptr().cast(),
                name.len() as libc::socklen_t,
            )
        };
        if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
    }
}

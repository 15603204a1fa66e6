//! The options all measurements share.

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
    /// How long to measure (`--time-ms`).
    pub time: Duration,
    /// How long to warm up (`--warm-ms`).
    pub warm: Duration,
    /// Processor to stay on (`--pin`).
    pub pin: Option<usize>,
    /// The same for a child (`--child-pin`).
    pub child_pin: Option<usize>,
    /// Connections (`--sessions`).
    pub sessions: usize,
    /// Calls on every connection before measuring (`--warm-calls`).
    pub warm_calls: u64,
    /// Ask again and again instead of sleeping in the kernel (`--spin 1`).
    pub is_spinning: bool,
    /// A file to make when measuring begins (`--mark`).
    pub mark: Option<PathBuf>,
    /// Congestion control of TCP (`--congestion NAME`); otherwise the system's.
    pub congestion: Option<String>,
    /// Processes whose processor time counts, too (`--watch PID`, may be given several times).
    pub watched: Vec<u32>,
    /// Instead of measuring: make this file when everything is warm, and go on until it is gone
    /// (`--ready`).
    pub ready: Option<PathBuf>,
    /// Calls a second (`--pace`); otherwise as many as there can be.
    pub pace: Option<u64>,
    /// Where frames begin, in bytes behind a page (`--offset`, below 256), at both ends.
    pub offset: usize,
    /// Each frame is at another place, of more memory than caches have, where this end sends or
    /// receives (`--cold 1`).
    pub is_cold: bool,
}

impl Options {
    /// Of words as a user gives them.
    ///
    /// # Errors
    /// The first word that is no option, or whose value is not one.
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

/// Ties this thread, and those it starts, to a processor.
pub fn pin(processor: Option<usize>) -> Result<()> {
    let Some(processor) = processor else { return Ok(()) };
    // SAFETY: a set of plain bits; the index is checked by the macro's range below.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor.min(libc::CPU_SETSIZE as usize - 1), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

impl Options {
    /// Tells whoever waits for it that measuring begins.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn begin(&self) -> Result<()> {
        self.mark.as_ref().map_or(Ok(()), |path| std::fs::write(path, ""))
    }

    /// Connects. The congestion control is chosen before: one that paces and is replaced later
    /// leaves its pacing behind.
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

    /// Sets what these options say of a TCP socket; a listener's connections inherit it.
    pub fn apply(&self, socket: &impl AsRawFd) -> Result<()> {
        let Some(name) = &self.congestion else { return Ok(()) };
        // SAFETY: as many bytes as said.
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

//! A client with smoltcp's protocols: one session and one thread; reads and writes drive the
//! protocols.
//!
//! The measurements are those of `lab-bench`, over this end instead of a socket.

#![allow(unsafe_code, reason = "a system call without a safe wrapper")]

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::SocketAddrV4;
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, IpEndpoint};
use sojourn_lab::measuring::{End, Options, flow, pin};

use super::packet::Packets;

/// Bytes of either queue of a session: the bytes in flight on the slowest link at its full rate.
const QUEUE: usize = 512 << 10;
/// Datagrams in a queue.
const DATAGRAMS: usize = 64;
/// Longest time of any wait. The longest is that for queued bytes on a link that loses much.
const PATIENCE: Duration = Duration::from_secs(30);
/// The local port. Any will do, because the hosts of the run are new.
const PORT: u16 = 49_000;

/// The implementation with its one session.
struct Stack {
    device: Packets,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    peer: SocketAddrV4,
    is_spinning: bool,
}

/// The client's position on the link.
struct LinkEndpoint {
    interface: String,
    mac: [u8; 6],
    address: std::net::Ipv4Addr,
}

impl Stack {
    fn new(
        endpoint: &LinkEndpoint,
        peer: SocketAddrV4,
        is_udp: bool,
        is_spinning: bool,
    ) -> Result<Self> {
        let mut device = Packets::open(&endpoint.interface)?;
        let mut config = Config::new(EthernetAddress(endpoint.mac).into());
        config.random_seed = u64::from(std::process::id());
        let mut interface = Interface::new(config, &mut device, Instant::now());
        interface.update_ip_addrs(|all| {
            // Cannot fail: smoltcp's list of addresses is empty, so there is room.
            let _ = all.push(IpCidr::new(IpAddress::Ipv4(endpoint.address), 24));
        });
        let mut sockets = SocketSet::new(Vec::new());
        let handle = if is_udp { sockets.add(datagrams()?) } else { sockets.add(stream()) };
        Ok(Self { device, interface, sockets, handle, peer, is_spinning })
    }

    fn tcp(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    fn udp(&mut self) -> &mut udp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    fn poll(&mut self) {
        self.interface.poll(Instant::now(), &mut self.device, &mut self.sockets);
    }

    /// Processes packets and repeats `step` until it returns a value.
    fn until<T>(&mut self, mut step: impl FnMut(&mut Self) -> Result<Option<T>>) -> Result<T> {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            self.poll();
            if let Some(found) = step(self)? {
                return Ok(found);
            }
            if !self.is_spinning {
                self.sleep();
            }
            if std::time::Instant::now() > end {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }

    /// Sleeps until a packet arrives or a timer is due, at most a second.
    fn sleep(&mut self) {
        let now = Instant::now();
        let delay = self.interface.poll_delay(now, &self.sockets).map(Duration::from);
        let delay = delay.unwrap_or(Duration::MAX).min(Duration::from_secs(1));
        let mut watched =
            libc::pollfd { fd: self.device.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = libc::timespec {
            tv_sec: delay.as_secs().cast_signed(),
            tv_nsec: delay.subsec_nanos().into(),
        };
        // SAFETY: one entry; ppoll(2) takes a null pointer for the signal set. A wait that a signal
        // interrupts is a short wait.
        unsafe { libc::ppoll(&raw mut watched, 1, &raw const limit, std::ptr::null()) };
    }

    /// Connects; tries again while the server does not listen yet.
    fn connect(&mut self) -> Result<()> {
        let end = std::time::Instant::now() + PATIENCE;
        let peer = (IpAddress::Ipv4(*self.peer.ip()), self.peer.port());
        for port in PORT.. {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
            socket.connect(self.interface.context(), peer, port).map_err(Error::other)?;
            let is_connected = self.until(|stack| {
                let socket = stack.tcp();
                let is_over = socket.may_send() || !socket.is_open();
                Ok(is_over.then_some(socket.may_send()))
            })?;
            if is_connected || std::time::Instant::now() > end {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if self.tcp().may_send() { Ok(()) } else { Err(ErrorKind::ConnectionRefused.into()) }
    }

    /// Sends datagrams until the server answers one.
    fn greet(&mut self) -> Result<()> {
        let end = std::time::Instant::now() + PATIENCE;
        let mut answer = [0; 8];
        while std::time::Instant::now() < end {
            self.send_datagram(&[flow::SEND_BACK])?;
            let soon = std::time::Instant::now() + Duration::from_millis(50);
            while std::time::Instant::now() < soon {
                self.poll();
                if self.udp().recv_slice(&mut answer).is_ok() {
                    return Ok(());
                }
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    fn send_datagram(&mut self, bytes: &[u8]) -> Result<usize> {
        let peer = IpEndpoint::new(IpAddress::Ipv4(*self.peer.ip()), self.peer.port());
        self.udp().send_slice(bytes, peer).map_err(Error::other)?;
        self.poll();
        Ok(bytes.len())
    }
}

fn stream() -> tcp::Socket<'static> {
    let queue = || tcp::SocketBuffer::new(vec![0; QUEUE]);
    let mut socket = tcp::Socket::new(queue(), queue());
    socket.set_nagle_enabled(false);
    socket.set_congestion_control(tcp::CongestionControl::Cubic);
    socket
}

fn datagrams() -> Result<udp::Socket<'static>> {
    let queue = || {
        let places = vec![udp::PacketMetadata::EMPTY; DATAGRAMS];
        udp::PacketBuffer::new(places, vec![0; DATAGRAMS * 2048])
    };
    let mut socket = udp::Socket::new(queue(), queue());
    socket.bind(PORT).map_err(Error::other)?;
    Ok(socket)
}

/// One direction of the stream, or both directions of the datagrams.
struct Half(Arc<Mutex<Stack>>, bool);

impl Read for Half {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let is_udp = self.1;
        let mut stack = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stack.until(|stack| match is_udp {
            true => Ok(stack.udp().recv_slice(buf).ok().map(|(len, _)| len)),
            false if stack.tcp().can_recv() => {
                stack.tcp().recv_slice(buf).map(Some).map_err(Error::other)
            }
            false => Ok((!stack.tcp().may_recv()).then_some(0)),
        })
    }
}

impl Write for Half {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        let is_udp = self.1;
        let mut stack = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_udp {
            return stack.send_datagram(buf);
        }
        let sent = stack.until(|stack| {
            let sent = stack.tcp().send_slice(buf).map_err(Error::other)?;
            Ok((sent > 0).then_some(sent))
        })?;
        // Sends the bytes now; without this they would wait for the next call.
        stack.poll();
        Ok(sent)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Runs the client: `words` are the arguments of `lab-bench`, and `--interface NAME --mac ADDRESS
/// --address ADDRESS`.
pub(crate) fn main(words: &[String]) -> anyhow::Result<()> {
    let mut endpoint = LinkEndpoint {
        interface: String::new(),
        mac: [0; 6],
        address: std::net::Ipv4Addr::UNSPECIFIED,
    };
    let (mut plain, mut rest) = (Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !word.starts_with("--") {
            plain.push(word.as_str());
            continue;
        }
        let value = words.next().with_context(|| format!("{word}: no value"))?;
        match word.as_str() {
            "--interface" => endpoint.interface.clone_from(value),
            "--address" => endpoint.address = value.parse()?,
            "--mac" => endpoint.mac = mac(value)?,
            _ => rest.extend([word.clone(), value.clone()]),
        }
    }
    let [what, kind, peer] = plain[..] else { bail!("what, tcp or udp, and whose?") };
    let options = Options::parse(&rest)?;
    pin(options.pin)?;
    let is_udp = kind == "udp";
    let mut stack = Stack::new(&endpoint, peer.parse()?, is_udp, options.is_spinning)?;
    if is_udp { stack.greet() } else { stack.connect() }.context("no connection")?;
    let stack = Arc::new(Mutex::new(stack));
    let end = End::of(Half(Arc::clone(&stack), is_udp), Half(stack, is_udp));
    let end = End { is_datagrams: is_udp, ..end };
    let said = match what {
        "ping" => flow::ping(end, &options),
        "bulk" => flow::bulk(end, &options),
        "pull" => flow::pull(end, &options),
        other => bail!("no such measurement: {other}"),
    };
    println!("{}", said?);
    Ok(())
}

fn mac(text: &str) -> anyhow::Result<[u8; 6]> {
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
    let bytes: std::result::Result<Vec<u8>, _> = bytes.collect();
    bytes?.try_into().ok().context("six bytes")
}

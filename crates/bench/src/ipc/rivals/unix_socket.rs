//! A Unix stream socket; and, for many clients, a server that waits for all of them with epoll(7).

use std::io::ErrorKind;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use anyhow::{Context as _, Result};

use super::stream_io::{self, Side};
use crate::ipc::row::Many;
use crate::ipc::row::{Client, Kind, Make, Mode, Row, Server, Sides, Sink, receive_buffer};
use crate::os::Poller;

/// The row of a connected pair.
pub(crate) struct UnixSocket;

impl Row for UnixSocket {
    fn name(&self) -> &str {
        "unix stream socket"
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(mode.spins())?;
        far.set_nonblocking(mode.spins())?;
        Ok(Sides::new(
            move || Ok(Side::new(near.try_clone()?, near)),
            move || Ok(Side::new(far.try_clone()?, far)),
        ))
    }
}

/// Returns an epoll server, and the makers of its clients.
pub(crate) fn many(count: usize) -> Result<Many> {
    use std::os::linux::net::SocketAddrExt as _;
    let name = format!("sojourn-bench-{}-{count}", std::process::id());
    let address = SocketAddr::from_abstract_name(name)?;
    let listener = UnixListener::bind_addr(&address)?;
    let server: Make<Box<dyn Server>> = Box::new(move || {
        let poller = Poller::new()?;
        Ok(Box::new(EpollServer {
            listener,
            poller,
            clients: Vec::new(),
            buffer: receive_buffer(),
        }))
    });
    let clients = (0..count).map(|_| {
        let address = address.clone();
        let make: Make<Box<dyn Client>> = Box::new(move || {
            let stream = UnixStream::connect_addr(&address)?;
            Ok(Box::new(Side::new(stream.try_clone()?, stream)))
        });
        make
    });
    Ok(Many { server, clients: clients.collect() })
}

struct EpollServer {
    listener: UnixListener,
    poller: Poller,
    clients: Vec<UnixStream>,
    buffer: Vec<u8>,
}

impl EpollServer {
    /// Answers a request of one client, if one is there. Returns true if it was.
    fn answer(&mut self, client: usize, size: usize) -> Result<bool> {
        use std::io::Read as _;
        let stream = self.clients.get_mut(client).context("an event of an unknown client")?;
        let carried = size.max(1);
        match stream.read(&mut self.buffer[..carried]) {
            Ok(read) if read == carried => {}
            Ok(read) => stream_io::read_exact(stream, &mut self.buffer[read..carried])?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Sink::take_any(&self.buffer[..size], size)?;
        stream_io::write_all(stream, &[1])?;
        Ok(true)
    }
}

impl Server for EpollServer {
    fn admit(&mut self, clients: usize) -> Result<()> {
        for token in 0..clients {
            let (stream, _) = self.listener.accept()?;
            stream.set_nonblocking(true)?;
            self.poller.add(&stream, token as u64)?;
            self.clients.push(stream);
        }
        Ok(())
    }

    fn serve(&mut self, size: usize, count: u64) -> Result<()> {
        let mut left = count;
        let mut ready = Vec::with_capacity(64);
        while left > 0 {
            self.poller.wait(&mut ready)?;
            for &token in &ready {
                left -= u64::from(self.answer(token as usize, size)?);
            }
        }
        Ok(())
    }
}

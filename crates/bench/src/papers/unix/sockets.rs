//! The UDP sockets of a Unix server: datagrams that wait for a call, or calls that wait for a
//! datagram.
//!
//! Not here: packets (`server`).

use std::collections::VecDeque;
use std::net::SocketAddrV4;

/// Datagrams that wait in one socket.
const QUEUE_MAX: usize = 32;
/// The most sockets.
const SOCKETS_MAX: usize = 256;

/// A datagram.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    pub(crate) from: SocketAddrV4,
    pub(crate) data: Vec<u8>,
}

/// A call that waits for a datagram.
pub(crate) trait Waiter {
    /// Gives at most `most` bytes of a datagram.
    fn give(self, arrived: &Arrived, most: usize);
}

/// A call that waits.
#[derive(Debug)]
struct Waiting<W> {
    who: W,
    /// The most bytes that it takes.
    most: usize,
}

#[derive(Debug)]
struct Socket<W> {
    port: Option<u16>,
    queue: VecDeque<Arrived>,
    waiting: VecDeque<Waiting<W>>,
}

/// All sockets.
#[derive(Debug)]
pub(crate) struct Sockets<W>(Vec<Socket<W>>);

impl<W> Default for Sockets<W> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<W: Waiter> Sockets<W> {
    /// Makes a socket. Returns its number, or an error number of Linux, negative.
    pub(crate) fn make(&mut self) -> i64 {
        if self.0.len() == SOCKETS_MAX {
            return -i64::from(libc::EMFILE);
        }
        let (queue, waiting) = (VecDeque::new(), VecDeque::new());
        self.0.push(Socket { port: None, queue, waiting });
        self.0.len() as i64 - 1
    }

    /// Gives a socket its port. Returns 0, or an error number of Linux, negative.
    pub(crate) fn bind(&mut self, socket: usize, port: u16) -> i64 {
        if self.0.iter().any(|other| other.port == Some(port)) {
            return -i64::from(libc::EADDRINUSE);
        }
        match self.0.get_mut(socket) {
            Some(socket) => {
                socket.port = Some(port);
                0
            }
            None => -i64::from(libc::EBADF),
        }
    }

    /// Returns the port of a socket.
    pub(crate) fn port_of(&self, socket: usize) -> Option<u16> {
        self.0.get(socket)?.port
    }

    /// Takes a datagram for a port; without a socket there, or room, it is lost.
    pub(crate) fn arrived(&mut self, port: u16, from: SocketAddrV4, data: &[u8]) {
        let Some(socket) = self.0.iter_mut().find(|one| one.port == Some(port)) else { return };
        let arrived = Arrived { from, data: data.to_vec() };
        if let Some(Waiting { who, most }) = socket.waiting.pop_front() {
            who.give(&arrived, most);
        } else if socket.queue.len() < QUEUE_MAX {
            socket.queue.push_back(arrived);
        }
    }

    /// Answers a call with the next datagram, now or later. A call for no socket is dropped, which
    /// its caller hears.
    pub(crate) fn receive(&mut self, socket: usize, who: W, most: usize) {
        let Some(socket) = self.0.get_mut(socket) else { return };
        match socket.queue.pop_front() {
            Some(arrived) => who.give(&arrived, most),
            None => socket.waiting.push_back(Waiting { who, most }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    struct Call(Rc<RefCell<Vec<Vec<u8>>>>);

    impl Waiter for Call {
        fn give(self, arrived: &Arrived, most: usize) {
            self.0.borrow_mut().push(arrived.data[..most.min(arrived.data.len())].to_vec());
        }
    }

    #[test]
    fn datagrams_wait_for_calls_and_calls_for_datagrams_in_order() {
        let given = Rc::new(RefCell::new(Vec::new()));
        let call = || Call(Rc::clone(&given));
        let from = "10.0.0.1:5".parse().unwrap();
        let mut sockets = Sockets::default();
        let one = sockets.make() as usize;
        assert_eq!((sockets.bind(one, 7), sockets.port_of(one)), (0, Some(7)));
        let other = sockets.make() as usize;
        assert!(sockets.bind(other, 7) < 0 && sockets.bind(9, 8) < 0);
        sockets.arrived(7, from, b"one");
        sockets.arrived(8, from, b"nobody's");
        sockets.receive(one, call(), 2);
        sockets.receive(one, call(), 9);
        sockets.arrived(7, from, b"two");
        assert_eq!(*given.borrow(), [b"on".to_vec(), b"two".to_vec()]);
        for _ in 0..=QUEUE_MAX {
            sockets.arrived(7, from, b"more");
        }
        assert_eq!(sockets.0[one].queue.len(), QUEUE_MAX);
    }
}

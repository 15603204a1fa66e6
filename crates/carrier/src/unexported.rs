//! What a socket has received since it was exported.
//!
//! Not here: the export (`export`), and the programs that report segments past the packet filter
//! (`unfiltered`).

use crate::export::{Numbers, peek};
use rustix::fd::BorrowedFd;
use sojourn_proto::record::TcpRecord;
use sojourn_pump::tcp_info;
use sojourn_shm::sockopt::is_in_repair;

/// `TCP_CLOSE_WAIT` (`net/tcp_states.h`): the peer's FIN has come.
const CLOSE_WAIT: u8 = 8;

/// What a socket has received since it was exported: it came past the packet filter. The peer does
/// not send it again, because the kernel has acknowledged it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unexported {
    bytes: Vec<u8>,
    /// The peer's FIN has come behind the bytes.
    has_ended: bool,
}

impl Unexported {
    /// Adds this to a record, from the byte `first` on, as far as the record does not have it.
    /// Returns true if the peer's FIN follows the record's last byte.
    pub(crate) fn add_to(&self, tcp: &mut TcpRecord, first: u32) -> bool {
        let known = tcp.rcv_nxt.wrapping_sub(first) as usize;
        // The engine has received more than the kernel.
        let Some(missing) = self.bytes.get(known..) else { return false };
        tcp.receive_queue.extend(missing);
        tcp.rcv_nxt = tcp.rcv_nxt.wrapping_add(missing.len() as u32);
        self.has_ended
    }
}

/// Returns what the socket has received from the byte `first` on, at which it was exported. The
/// socket keeps it, so that nothing is lost if this process dies; it may have exported bytes as
/// well, if who exported them has died.
pub(crate) fn unexported(socket: BorrowedFd<'_>, first: u32) -> Unexported {
    if is_in_repair(socket) {
        // Who began to put the session back has died. The mode stays: it tells how far that came.
        return Unexported { bytes: Vec::new(), has_ended: false };
    }
    let has_ended = tcp_info::of(socket).is_ok_and(|info| info.state == CLOSE_WAIT);
    let mut bytes = peek(socket).unwrap_or_default();
    if let Ok(next) = Numbers::received(socket) {
        let since = next.wrapping_sub(first).wrapping_sub(u32::from(has_ended)) as usize;
        bytes.drain(..bytes.len().saturating_sub(since));
    }
    Unexported { bytes, has_ended }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{self, SIOCINQ};
    use rustix::fd::AsFd;
    use rustix::net::RecvFlags;
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};

    #[test]
    fn what_came_past_the_filter_has_bytes_and_an_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        let near = near.as_fd();
        let late = |bytes: &[u8], has_ended| Unexported { bytes: bytes.to_vec(), has_ended };
        far.write_all(b"exported").unwrap();
        rustix::net::recv(near, &mut [0; 2], RecvFlags::empty()).unwrap();
        let Ok(first) = Numbers::received(near) else {
            eprintln!("skipped: repair mode needs CAP_NET_ADMIN");
            return;
        };
        assert_eq!(unexported(near, first), late(b"", false));
        far.write_all(b"late").unwrap();
        let begun = std::time::Instant::now();
        while raw::queue_len(near, SIOCINQ).unwrap() < 10 {
            assert!(begun.elapsed() < std::time::Duration::from_secs(10));
        }
        assert_eq!(unexported(near, first), late(b"late", false));
        // Who exported the socket has taken the bytes.
        raw::discard(near, 6);
        assert_eq!(unexported(near, first), late(b"late", false), "it stays");
        far.write_all(b"st").unwrap();
        far.shutdown(Shutdown::Write).unwrap();
        // The FIN comes with the bytes or a moment later.
        let began = std::time::Instant::now();
        while tcp_info::of(near).unwrap().state != CLOSE_WAIT {
            assert!(began.elapsed() < std::time::Duration::from_secs(10));
            std::thread::yield_now();
        }
        assert_eq!(unexported(near, first), late(b"latest", true));
    }

    #[test]
    fn what_is_late_is_added_once_and_an_end_counts_at_the_end() {
        let first = u32::MAX - 1;
        let unexported = Unexported { bytes: b"abcd".to_vec(), has_ended: true };
        for (known, added, is_at_end) in
            [(0, &b"abcd"[..], true), (3, b"d", true), (4, b"", true), (5, b"", false)]
        {
            let rcv_nxt = first.wrapping_add(known);
            let mut tcp = TcpRecord { rcv_nxt, ..TcpRecord::default() };
            assert_eq!(unexported.add_to(&mut tcp, first), is_at_end, "{known}");
            assert_eq!(tcp.receive_queue, added);
            assert_eq!(tcp.rcv_nxt, rcv_nxt.wrapping_add(added.len() as u32));
        }
    }
}

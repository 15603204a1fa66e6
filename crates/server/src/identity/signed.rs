//! TCP connections whose segments are signed (RFC 2385, `TCP_MD5SIG` of tcp(7); RFC 5925, the
//! authentication option).
//!
//! The engine does not sign: the peer would drop all that it sends, and it would take what nobody
//! has signed. A socket that was accepted has the keys of its listener, and no option tells of the
//! older kind: `sock_diag` does, to whoever may administer networks, which a carrier may. Not here:
//! the questions (`diag`).

use super::diag::{Diag, DiagError};
use crate::raw;
use rustix::fd::BorrowedFd;
use std::net::SocketAddr;

/// `TCP_AO_INFO` (`linux/tcp.h`): refused for a socket without keys. The kernel takes a longer
/// `struct tcp_ao_info_opt` than it knows if the rest is zero.
const AO_INFO: i32 = 40;
const AO_INFO_LEN: usize = 128;
/// Length of `struct inet_diag_msg`, and `INET_DIAG_MD5SIG` of the attributes behind it.
const MESSAGE: usize = 72;
const MD5SIG: u16 = 18;
/// The bit of `INET_DIAG_INFO`, without which the kernel does not tell of keys.
const INFO: u8 = 1 << 1;
const NESTED: u16 = 1 << 15;

/// Returns true if the socket, whose ends these are, has a key to sign with.
pub(super) fn is_signed(
    end: BorrowedFd<'_>,
    ends: [SocketAddr; 2],
    diag: &mut Diag,
) -> Result<bool, DiagError> {
    if raw::getsockopt(end, libc::IPPROTO_TCP, AO_INFO, &mut [0; AO_INFO_LEN]).is_ok() {
        return Ok(true);
    }
    let mut has_keys = false;
    diag.own.tcp(ends, INFO, |message| has_keys |= tells_of_keys(message))?;
    Ok(has_keys)
}

/// Returns true if the kernel's answer for a socket lists keys.
pub(super) fn tells_of_keys(message: &[u8]) -> bool {
    let mut rest = message.get(MESSAGE..).unwrap_or_default();
    while let Some((head, _)) = rest.split_first_chunk::<4>() {
        let [a, b, c, d] = *head;
        if u16::from_ne_bytes([c, d]) & !NESTED == MD5SIG {
            return true;
        }
        let len = usize::from(u16::from_ne_bytes([a, b])).max(4).next_multiple_of(4);
        rest = rest.get(len..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_among_other_attributes() {
        let attribute = |len: u16, kind: u16| {
            let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.resize(usize::from(len).next_multiple_of(4), 0);
            bytes
        };
        let answer =
            |attributes: &[Vec<u8>]| [&vec![0; MESSAGE], &attributes.concat()[..]].concat();
        assert!(!tells_of_keys(&[0; MESSAGE]));
        assert!(!tells_of_keys(&answer(&[attribute(5, 8), attribute(12, 21)])));
        assert!(tells_of_keys(&answer(&[attribute(5, 8), attribute(108, MD5SIG)])));
        assert!(!tells_of_keys(&answer(&[vec![0; 3]])) && !tells_of_keys(&[18; 20]));
    }
}

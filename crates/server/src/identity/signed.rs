//! TCP connections whose segments are signed (RFC 2385, `TCP_MD5SIG` of tcp(7); RFC 5925, the
//! authentication option).
//!
//! The engine does not sign: the peer would drop all that it sends, and it would take what nobody
//! has signed. A socket that was accepted has the keys of its listener, and no option tells of the
//! older kind: `sock_diag` does, to whoever may administer networks, which a carrier may. Not here:
//! the questions (`diag`), and the answer (`keys`).

use super::diag::{Diag, DiagError};
use super::keys::tells_of_keys;
use rustix::fd::BorrowedFd;
use sojourn_shm::sockopt::option;
use std::net::SocketAddr;

/// `TCP_AO_INFO` (`linux/tcp.h`): refused for a socket without keys. The kernel takes a longer
/// `struct tcp_ao_info_opt` than it knows if the rest is zero.
const AO_INFO: i32 = 40;
const AO_INFO_LEN: usize = 128;
/// The bit of `INET_DIAG_INFO`, without which the kernel does not tell of keys.
const INFO: u8 = 1 << 1;

/// Returns true if the socket, whose ends these are, has a key to sign with.
pub(super) fn is_signed(
    end: BorrowedFd<'_>,
    ends: [SocketAddr; 2],
    diag: &mut Diag,
) -> Result<bool, DiagError> {
    if option(end, libc::IPPROTO_TCP, AO_INFO, &mut [0; AO_INFO_LEN]).is_ok() {
        return Ok(true);
    }
    let mut has_keys = false;
    diag.own.tcp(ends, INFO, |message| has_keys |= tells_of_keys(message))?;
    Ok(has_keys)
}

//! The options of a program's socket that the engine obeys, read from the kernel's socket.
//!
//! The carrier reads all of them when it takes a session out. The library reads those that have
//! changed when the program sets an option of a session that is away. So both understand them
//! alike. The options are described in tcp(7), socket(7), ip(7), ipv6(7). Not here: options that
//! the engine cannot obey, which the session server refuses and for which the library goes home.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use sojourn_proto::record::{ControllerKind, IpOptions, TcpOptions, UdpOptions};
use sojourn_proto::time::Duration;
use sojourn_shm::sockopt::{option, option_number};
use std::net::SocketAddr;

/// `SO_BUF_LOCK` (`asm-generic/socket.h`): the program has set the send size (1), the receive size
/// (2).
const SO_BUF_LOCK: i32 = 72;

/// Reads the options of a TCP socket.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn read(socket: BorrowedFd<'_>) -> Result<TcpOptions, Errno> {
    let tcp = |name| option_number(socket, libc::IPPROTO_TCP, name);
    let level = |name| option_number(socket, libc::SOL_SOCKET, name);
    let count = |value: i32| u64::try_from(value).unwrap_or(0);
    let mut congestion = [0; 16];
    option(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut congestion)?;
    let mut rate = [0xff; 8];
    option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut rate)?;
    // A kernel without this option (before 5.14) is taken to have sizes that grow.
    let locks = level(SO_BUF_LOCK).unwrap_or(0);
    Ok(TcpOptions {
        nodelay: tcp(libc::TCP_NODELAY)? != 0,
        cork: tcp(libc::TCP_CORK)? != 0,
        quickack: tcp(libc::TCP_QUICKACK)? != 0,
        keepalive: level(libc::SO_KEEPALIVE)? != 0,
        keepalive_idle: Duration::from_secs(count(tcp(libc::TCP_KEEPIDLE)?)),
        keepalive_interval: Duration::from_secs(count(tcp(libc::TCP_KEEPINTVL)?)),
        keepalive_count: u8::try_from(tcp(libc::TCP_KEEPCNT)?).unwrap_or(u8::MAX),
        user_timeout: Duration::from_millis(count(tcp(libc::TCP_USER_TIMEOUT)?)),
        sndbuf: level(libc::SO_SNDBUF)?.cast_unsigned(),
        rcvbuf: level(libc::SO_RCVBUF)?.cast_unsigned(),
        sndbuf_locked: locks & 1 != 0,
        rcvbuf_locked: locks & 2 != 0,
        max_pacing_rate: u64::from_ne_bytes(rate),
        controller: controller(&congestion),
        congestion,
        ..TcpOptions::default()
    })
}

/// Reads the options of a UDP socket.
pub fn read_udp(socket: BorrowedFd<'_>) -> UdpOptions {
    /// `asm-generic/socket.h`, `linux/udp.h`.
    const SO_NO_CHECK: i32 = 11;
    const UDP_SEGMENT: i32 = 103;
    const UDP_GRO: i32 = 104;
    let number = |level, name| option_number(socket, level, name).unwrap_or(0);
    let size = |name| u32::try_from(number(libc::SOL_SOCKET, name)).unwrap_or(0);
    UdpOptions {
        gso_size: u16::try_from(number(libc::SOL_UDP, UDP_SEGMENT)).unwrap_or(0),
        gro: number(libc::SOL_UDP, UDP_GRO) != 0,
        no_checksum: number(libc::SOL_SOCKET, SO_NO_CHECK) != 0,
        broadcast: false,
        rcvbuf: size(libc::SO_RCVBUF),
        sndbuf: size(libc::SO_SNDBUF),
        ..UdpOptions::default()
    }
}

/// Returns the engine's controller that comes nearest to the kernel's.
fn controller(name: &[u8]) -> ControllerKind {
    if name.starts_with(b"reno\0") { ControllerKind::Reno } else { ControllerKind::Cubic }
}

/// Reads the options for the IP headers of a socket's packets. `local` is the address on the wire:
/// an IPv4 session may be in an IPv6 socket.
pub fn read_ip(socket: BorrowedFd<'_>, local: SocketAddr) -> IpOptions {
    /// `IP_MTU_DISCOVER` values with the DF bit (`linux/in.h`): `WANT`, `DO`, and `PROBE`, which
    /// ignores the path's MTU.
    const WITH_DF: core::ops::RangeInclusive<i32> = 1..=3;
    let mut options = IpOptions::default();
    let (class, ttl) = if local.is_ipv4() {
        (sockopt::ip_tos(socket).ok(), sockopt::ip_ttl(socket).ok())
    } else {
        let hops = sockopt::ipv6_unicast_hops(socket).ok().map(u32::from);
        (sockopt::ipv6_tclass(socket).ok().and_then(|class| u8::try_from(class).ok()), hops)
    };
    options.traffic_class = class.unwrap_or(0);
    options.hop_limit =
        ttl.and_then(|ttl| u8::try_from(ttl).ok()).filter(|ttl| *ttl > 0).unwrap_or(64);
    let discover = option_number(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
    if local.is_ipv4() && sockopt::socket_domain(socket) == Ok(AddressFamily::INET) {
        options.dont_fragment = discover.is_ok_and(|how| WITH_DF.contains(&how));
    }
    options
}

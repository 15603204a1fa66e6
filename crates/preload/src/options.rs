//! Socket options: set and asked.
//!
//! The kernel always has the word; what an option means for a session that is away is said here.
//! Sessions with other hosts obey some themselves and know more than the kernel's silent socket:
//! see `asks` of the library.

use crate::errno;
use crate::gate::kernel;
use crate::gate::{is_open, tell, within};
use crate::library::{Answer, Change, Set, SocketOption, library, tcp_info};
use crate::raw::Kernel;
use crate::{buffers, raw};
use core::ffi::{c_int, c_void};
use libc::socklen_t;

type SetFn = unsafe extern "C-unwind" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
type GetFn = unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;

/// What setting an option means for a session.
#[derive(Clone, Copy, Debug)]
enum Setting {
    /// Nothing: it does not show in a stream, or only at an end that the kernel makes.
    Nothing,
    /// A time limit.
    Timeouts,
    /// Only the kernel can honour it.
    Binding,
    /// The same for streams; UDP sockets obey it while they are away.
    OfDatagrams,
    /// The same for streams; whether a UDP socket with it can be away the session server sees.
    Looked,
    /// It shows in packets: sessions with other hosts obey it.
    Obeyed(Change),
    /// The same, of `SO_KEEPALIVE`.
    Keepalive,
    /// It shows in packets, and sessions with other hosts do not obey it.
    Afar,
}

impl Setting {
    /// Whether the library hears of it in another way than as of something that changed.
    fn is_others(self) -> bool {
        matches!(self, Self::Timeouts | Self::Binding | Self::OfDatagrams | Self::Looked)
    }
}

/// Options that show in how bytes arrive bind the session to the kernel; so do those we do not
/// know.
fn setting(level: c_int, name: c_int) -> Setting {
    match level {
        libc::SOL_SOCKET => of_socket(name),
        libc::IPPROTO_TCP => of_tcp(name),
        libc::IPPROTO_IP => match name {
            libc::IP_TOS | libc::IP_TTL | libc::IP_MTU_DISCOVER => Setting::Obeyed(Change::Header),
            libc::IP_BIND_ADDRESS_NO_PORT | libc::IP_FREEBIND => Setting::Nothing,
            libc::IP_PKTINFO | libc::IP_RECVTTL | libc::IP_RECVTOS => Setting::OfDatagrams,
            libc::IP_RECVERR => Setting::Looked,
            libc::IP_MULTICAST_IF..=libc::IP_DROP_MEMBERSHIP | libc::IP_MULTICAST_ALL => {
                Setting::Looked
            }
            _ => Setting::Binding,
        },
        libc::IPPROTO_IPV6 => match name {
            libc::IPV6_TCLASS | libc::IPV6_UNICAST_HOPS => Setting::Obeyed(Change::Header),
            libc::IPV6_V6ONLY => Setting::Nothing,
            libc::IPV6_RECVPKTINFO | libc::IPV6_RECVHOPLIMIT | libc::IPV6_RECVTCLASS => {
                Setting::OfDatagrams
            }
            libc::IPV6_RECVERR | libc::IPV6_MTU_DISCOVER => Setting::Looked,
            libc::IPV6_MULTICAST_IF..=libc::IPV6_DROP_MEMBERSHIP => Setting::Looked,
            _ => Setting::Binding,
        },
        libc::SOL_UDP => match name {
            UDP_SEGMENT | UDP_GRO => Setting::OfDatagrams,
            _ => Setting::Binding,
        },
        _ => Setting::Binding,
    }
}

/// `linux/udp.h`.
const UDP_SEGMENT: c_int = 103;
const UDP_GRO: c_int = 104;

fn of_socket(name: c_int) -> Setting {
    /// `SO_RCVTIMEO_NEW`, `SO_SNDTIMEO_NEW`.
    const NEW_TIMEOUTS: [c_int; 2] = [66, 67];
    /// `SO_TIMESTAMP_NEW`, `SO_TIMESTAMPNS_NEW`.
    const NEW_TIMES: [c_int; 2] = [63, 64];
    match name {
        libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS => Setting::OfDatagrams,
        name if NEW_TIMES.contains(&name) => Setting::OfDatagrams,
        libc::SO_RCVTIMEO | libc::SO_SNDTIMEO => Setting::Timeouts,
        name if NEW_TIMEOUTS.contains(&name) => Setting::Timeouts,
        libc::SO_KEEPALIVE => Setting::Keepalive,
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => Setting::Obeyed(Change::SendBuffer),
        libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => Setting::Obeyed(Change::ReceiveBuffer),
        libc::SO_PRIORITY | libc::SO_DONTROUTE | libc::SO_MAX_PACING_RATE => Setting::Afar,
        libc::SO_REUSEADDR
        | libc::SO_REUSEPORT
        | libc::SO_LINGER
        | libc::SO_BROADCAST
        | libc::SO_BUSY_POLL
        | libc::SO_INCOMING_CPU
        | libc::SO_ZEROCOPY => Setting::Nothing,
        _ => Setting::Binding,
    }
}

fn of_tcp(name: c_int) -> Setting {
    match name {
        libc::TCP_NODELAY => Setting::Obeyed(Change::NoDelay),
        libc::TCP_CORK => Setting::Obeyed(Change::Cork),
        libc::TCP_QUICKACK => Setting::Obeyed(Change::QuickAck),
        libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT => {
            Setting::Obeyed(Change::Keepalive)
        }
        libc::TCP_USER_TIMEOUT => Setting::Obeyed(Change::UserTimeout),
        libc::TCP_CONGESTION | libc::TCP_NOTSENT_LOWAT | libc::TCP_THIN_LINEAR_TIMEOUTS => {
            Setting::Afar
        }
        // An established connection keeps its segment size.
        libc::TCP_MAXSEG
        | libc::TCP_SYNCNT
        | libc::TCP_DEFER_ACCEPT
        | libc::TCP_FASTOPEN
        | libc::TCP_FASTOPEN_CONNECT
        | libc::TCP_LINGER2 => Setting::Nothing,
        _ => Setting::Binding,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: passed on.
    let kernel =
        unsafe { kernel!(SYS_setsockopt, c"setsockopt" as SetFn; fd, level, name, value, len) };
    setsockopt_by(fd, level, name, value, len, kernel) as c_int
}

/// [`setsockopt`], with the kernel's call as it is made.
pub(crate) fn setsockopt_by(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
    kernel: impl Kernel,
) -> isize {
    let setting = setting(level, name);
    if let Some(result) = set_on_datagrams(fd, setting, kernel) {
        return result;
    }
    if !setting.is_others() {
        tell(|library| library.option_changed(fd, SocketOption::Other));
    }
    let set = match setting {
        Setting::Nothing => return kernel(),
        Setting::Binding | Setting::OfDatagrams | Setting::Looked => {
            tell(|library| library.option_changed(fd, SocketOption::Binding));
            return kernel();
        }
        Setting::Timeouts => {
            let result = kernel();
            if result == 0 && is_open() {
                within(|library| library.option_changed(fd, SocketOption::Timeouts));
            }
            return result;
        }
        Setting::Obeyed(change) => Set::Obeyed(change),
        Setting::Keepalive => Set::Keepalive(number_at(value, len) != Some(0)),
        Setting::Afar => Set::Afar,
    };
    if !is_open() || library().is_plain(fd) {
        return kernel();
    }
    let arguments = [fd as usize, level as usize, name as usize, value as usize, len as usize, 0];
    // SAFETY: the program's arguments; the kernel checks them.
    let inside = || unsafe { raw::call(libc::SYS_setsockopt, arguments) };
    match within(|library| library.set_option(fd, set, inside)).flatten() {
        Some(result) => errno::kernel(result),
        None => kernel(),
    }
}

/// Sets an option that means something else for a UDP socket than for a stream. `None`: it does
/// not, or `fd` is none.
fn set_on_datagrams(fd: c_int, setting: Setting, kernel: impl Kernel) -> Option<isize> {
    let is_obeyed = match setting {
        Setting::OfDatagrams | Setting::Obeyed(Change::Header) => true,
        Setting::Looked => false,
        _ => return None,
    };
    if !is_open() || within(|library| library.is_udp(fd)) != Some(true) {
        return None;
    }
    if !is_obeyed {
        tell(|library| library.option_changed(fd, SocketOption::Other));
        return Some(kernel());
    }
    let result = kernel();
    if result == 0 {
        within(|library| library.option_changed(fd, SocketOption::OfDatagrams));
    }
    Some(result)
}

/// The number that an option is set to, if it can be read: else the kernel refuses it.
fn number_at(value: *const c_void, len: socklen_t) -> Option<c_int> {
    let bytes = value.cast::<[u8; 4]>();
    if (len as usize) < size_of::<c_int>() {
        return None;
    }
    // SAFETY: plain data, which the program leaves alone during the call.
    unsafe { buffers::structure(bytes) }.map(c_int::from_ne_bytes)
}

/// What the library may know better.
#[derive(Clone, Copy)]
enum Asked {
    Info,
    SegmentSize,
    QuickAck,
    Keepalive,
    Error,
}

fn asked(level: c_int, name: c_int) -> Option<Asked> {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_INFO) => Some(Asked::Info),
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => Some(Asked::SegmentSize),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => Some(Asked::QuickAck),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => Some(Asked::Keepalive),
        (libc::SOL_SOCKET, libc::SO_ERROR) => Some(Asked::Error),
        _ => None,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: passed on.
    let kernel =
        unsafe { kernel!(SYS_getsockopt, c"getsockopt" as GetFn; fd, level, name, value, len) };
    getsockopt_by(fd, level, name, value, len, kernel) as c_int
}

/// [`getsockopt`], with the kernel's call as it is made.
pub(crate) fn getsockopt_by(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
    kernel: impl Kernel,
) -> isize {
    let Some(asked) = asked(level, name) else { return kernel() };
    if !is_open() || library().is_plain(fd) {
        return kernel();
    }
    if let Asked::Error = asked {
        return error_of(fd, value, len, kernel);
    }
    let arguments = [fd as usize, level as usize, name as usize, value as usize, len as usize, 0];
    // SAFETY: the program's arguments; the kernel checks them.
    let inside = || unsafe { raw::call(libc::SYS_getsockopt, arguments) };
    match within(|library| library.ask_option(fd, inside)).flatten() {
        Some((0, answer)) => {
            put_over(value, len, |bytes| overlay(asked, &answer, bytes));
            0
        }
        Some((error, _)) => errno::kernel(error),
        None => kernel(),
    }
}

/// `SO_ERROR`: the kernel's; if it has none, what the library knows of a peer that was killed.
#[inline(never)]
fn error_of(fd: c_int, value: *mut c_void, len: *mut socklen_t, kernel: impl Kernel) -> isize {
    within(|library| library.look_for_end(fd));
    let result = kernel();
    if result == 0 {
        put_over(value, len, |bytes| {
            let is_none = bytes.iter().all(|byte| *byte == 0);
            if is_none && within(|library| library.take_reset(fd)) == Some(true) {
                put_number(bytes, libc::ECONNRESET);
            }
        });
    }
    result
}

fn put_number(bytes: &mut [u8], value: c_int) {
    let len = bytes.len().min(size_of::<c_int>());
    bytes[..len].copy_from_slice(&value.to_ne_bytes()[..len]);
}

fn overlay(asked: Asked, answer: &Answer, bytes: &mut [u8]) {
    let mut number = |value: c_int| put_number(bytes, value);
    match asked {
        Asked::Error => {}
        Asked::Keepalive => number(answer.keepalive.into()),
        Asked::QuickAck => {
            if let Some(is_on) = answer.quickack {
                number(is_on.into());
            }
        }
        Asked::SegmentSize => {
            if let Some(info) = &answer.info {
                number(info.snd_mss as c_int);
            }
        }
        Asked::Info => {
            if let Some(info) = &answer.info {
                tcp_info::overlay(info, bytes);
            }
        }
    }
}

/// Changes what the kernel has just written: `len` says how much that is.
fn put_over(value: *mut c_void, len: *mut socklen_t, change: impl FnOnce(&mut [u8])) {
    if !buffers::is_writable(len) {
        return;
    }
    let mut bytes = [0; tcp_info::LEN];
    // SAFETY: writable, as just seen.
    let count = bytes.len().min(unsafe { len.read_unaligned() } as usize);
    if buffers::accessible(value as usize, count, buffers::Access::Write) < count {
        return;
    }
    // SAFETY: accessible, as just seen, for so many bytes; `bytes` has as many.
    unsafe { core::ptr::copy_nonoverlapping(value.cast::<u8>(), bytes.as_mut_ptr(), count) };
    change(&mut bytes[..count]);
    // SAFETY: as above.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), count) };
}

//! Calls of bpf(2) for which `aya` has no function, and calls on sockets and name spaces for which
//! `rustix` has none.
//!
//! Not here: the decision where and when to attach (`hook`, `port`), and the meaning of the socket
//! options (`group`).
#![allow(unsafe_code, reason = "system calls that aya and rustix do not have")]

use crate::rule::KEY_LEN;
use aya_obj::generated::bpf_insn;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::io;

const MAP_DELETE_ELEM: libc::c_long = 3;
const PROG_LOAD: libc::c_long = 5;
const PROG_ATTACH: libc::c_long = 8;
const PROG_QUERY: libc::c_long = 16;
const LINK_CREATE: libc::c_long = 28;
const SOCKET_FILTER: u32 = 1;

/// `enum bpf_attach_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum AttachPoint {
    /// Before the stack, after taps.
    TcxIngress = 46,
    /// After the stack, before taps.
    TcxEgress = 47,
    /// Before all other hooks.
    Xdp = 37,
}

/// Calls bpf(2) and returns the kernel's number.
fn bpf<T>(command: libc::c_long, attribute: &mut T) -> io::Result<i32> {
    let at = std::ptr::from_mut(attribute);
    // SAFETY: the attribute has the size that the call is told, and each pointer in it points to
    // memory that the caller holds, of the length in the attribute.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, at, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn bpf_fd<T>(command: libc::c_long, attribute: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attribute)?;
    // SAFETY: these commands return a new descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: impl AsFd) -> u32 {
    fd.as_fd().as_raw_fd() as u32
}

#[repr(C)]
struct Element {
    map: u32,
    key: *const u8,
    value: u64,
    flags: u64,
}

/// Removes an entry of a map. `key` has the length of the map's keys.
///
/// # Errors
/// The kernel's: `ENOENT` if there is none.
pub(crate) fn remove_entry(map: BorrowedFd<'_>, key: &[u8; KEY_LEN]) -> io::Result<()> {
    let mut element = Element { map: number(map), key: key.as_ptr(), value: 0, flags: 0 };
    bpf(MAP_DELETE_ELEM, &mut element).map(drop)
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    interface: u32,
    place: u32,
    flags: u32,
    relative: u32,
    reserved: u32,
    revision: u64,
}

/// Attaches a program to an interface for as long as the descriptor is open. `flags` are
/// `XDP_FLAGS_*` for XDP, else zero.
///
/// # Errors
/// `EINVAL` if the kernel (before 6.6) has no such attach point.
pub(crate) fn link(
    program: BorrowedFd<'_>,
    interface: u32,
    place: AttachPoint,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut attribute = LinkCreate {
        program: number(program),
        interface,
        place: place as u32,
        flags,
        ..LinkCreate::default()
    };
    bpf_fd(LINK_CREATE, &mut attribute)
}

#[repr(C)]
#[derive(Default)]
struct ProgramAttach {
    interface: u32,
    program: u32,
    place: u32,
    flags: u32,
    replaced: u32,
    relative: u32,
    revision: u64,
}

/// Attaches a program to an interface for as long as the interface exists.
///
/// # Errors
/// `EINVAL` if the kernel (before 6.6) has no such attach point.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    interface: u32,
    place: AttachPoint,
) -> io::Result<()> {
    let mut attribute = ProgramAttach {
        interface,
        program: number(program),
        place: place as u32,
        ..ProgramAttach::default()
    };
    bpf(PROG_ATTACH, &mut attribute).map(drop)
}

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions_len: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// Loads a socket filter. `name` has at most 15 bytes.
///
/// # Errors
/// `EPERM` without `CAP_BPF`; `EACCES` and `EINVAL` if the kernel does not accept the program.
pub(crate) fn load_socket_filter(name: &str, instructions: &[bpf_insn]) -> io::Result<OwnedFd> {
    let mut attribute = ProgramLoad {
        kind: SOCKET_FILTER,
        instructions_len: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        ..ProgramLoad::default()
    };
    let len = name.len().min(15);
    attribute.name[..len].copy_from_slice(&name.as_bytes()[..len]);
    bpf_fd(PROG_LOAD, &mut attribute)
}

/// Loads a socket filter that accepts nothing: `r0 = 0; exit`.
pub(crate) fn load_nothing() -> io::Result<OwnedFd> {
    const MOVE: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    let [zero, exit] = [MOVE, EXIT].map(|code| bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: Default::default(),
        off: 0,
        imm: 0,
    });
    load_socket_filter("sojourn_nothing", &[zero, exit])
}

#[repr(C)]
#[derive(Default)]
struct ProgramQuery {
    interface: u32,
    place: u32,
    flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    reserved: u32,
    rest: [u64; 4],
}

/// Returns the numbers of the programs at an attach point of an interface, at most 64.
///
/// # Errors
/// `EINVAL` if the kernel (before 6.6) has no such attach point, `EPERM` without `CAP_NET_ADMIN`.
pub(crate) fn programs_on(interface: u32, place: AttachPoint) -> io::Result<Vec<u32>> {
    let mut found = vec![0_u32; 64];
    let mut query = ProgramQuery {
        interface,
        place: place as u32,
        programs: found.as_mut_ptr() as u64,
        count: found.len() as u32,
        ..ProgramQuery::default()
    };
    bpf(PROG_QUERY, &mut query)?;
    found.truncate(query.count as usize);
    Ok(found)
}

/// Calls setsockopt(2). `T` is the option's type: plain data without padding.
pub(crate) fn set_option<T: Copy>(
    fd: impl AsFd,
    level: i32,
    name: i32,
    value: &T,
) -> io::Result<()> {
    let (at, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as u32);
    // SAFETY: the kernel reads as many bytes as the value has.
    let result = unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, at, len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Calls getsockopt(2) for options that are an `int`.
pub(crate) fn option(fd: impl AsFd, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0;
    let mut len = size_of::<i32>() as u32;
    let (at, len_at) = ((&raw mut value).cast(), &raw mut len);
    // SAFETY: room for the value and its length.
    let result = unsafe { libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, at, len_at) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Binds a packet socket: from here on it receives frames of `protocol` (host order) on the
/// interface.
pub(crate) fn bind_packet(fd: impl AsFd, interface: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: interface as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of_val(&address) as u32;
    // SAFETY: the kernel reads an address of that length.
    let result = unsafe { libc::bind(fd.as_fd().as_raw_fd(), (&raw const address).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives the calling thread a network name space of its own.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub(crate) fn leave_network() -> io::Result<()> {
    // SAFETY: the call changes only the thread's network namespace, on which no memory depends.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(any(test, debug_assertions))]
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    data_len: u32,
    data_out_len: u32,
    data: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_len: u32,
    context_out_len: u32,
    context: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    reserved: u32,
}

/// Runs a program on a made-up frame and returns the program's result. `context` begins like
/// `struct __sk_buff`, or is empty.
///
/// # Errors
/// `EINVAL` for frames on which the kernel does not run programs.
#[cfg(any(test, debug_assertions))]
pub(crate) fn test_run(program: BorrowedFd<'_>, frame: &[u8], context: &[u32]) -> io::Result<u32> {
    const PROG_TEST_RUN: libc::c_long = 10;
    let mut attribute = TestRun {
        program: number(program),
        data_len: frame.len() as u32,
        data: frame.as_ptr() as u64,
        context_len: size_of_val(context) as u32,
        context: if context.is_empty() { 0 } else { context.as_ptr() as u64 },
        repeat: 1,
        ..TestRun::default()
    };
    bpf(PROG_TEST_RUN, &mut attribute)?;
    Ok(attribute.result)
}

//! A library in the place of the C library's calls: getpid(2) and pipes are answered by the
//! emulation server of `sojourn-bench papers`, everything else by the kernel.
//!
//! It has both doors that Sojourn's own library has. Preloaded into a dynamic program it stands
//! before the C library's functions. Preloaded into the loader `sojourn-abi` it gives that the
//! table of functions that a program's rewritten system calls go to. It is no part of Sojourn: it
//! exists to measure what a call costs that a server answers. Read
//! `crates/bench/src/papers/emulation/server.rs`
//! first.

#![allow(unsafe_code, reason = "the C interface: raw pointers come in, and system calls go out")]

#[path = "../../bench/src/papers/emulation/client.rs"]
#[allow(dead_code, reason = "shared with the benchmark, which asks for more")]
mod client;

use core::arch::asm;
use core::ffi::{c_int, c_long, c_void};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::net::SocketAddrV4;

use client::Client;
use sojourn_abi::door::{self, Door, Entries, PutOff, Signal};
use sojourn_ipc::Wait;

/// Numbers of descriptors that the server's pipes have: a reading end, then its writing end.
const FIRST: usize = 1 << 20;

/// Numbers of descriptors that the server's sockets have.
const SOCKETS: usize = 1 << 22;
/// The most sockets.
const SOCKETS_MAX: usize = 256;

/// The number of the system call that makes a pipe without flags.
#[cfg(target_arch = "x86_64")]
const PIPE: c_long = libc::SYS_pipe;
#[cfg(target_arch = "aarch64")]
const PIPE: c_long = libc::SYS_pipe2;

thread_local! {
    /// This thread's connection: made when it is needed first, left alone at the thread's end.
    static CLIENT: RefCell<Option<ManuallyDrop<Client>>> = const { RefCell::new(None) };
    /// The thread is at work for this library, whose own calls are the kernel's.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A system call of the kernel's.
///
/// # Safety
/// As the call.
unsafe fn raw(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let answer;
    // SAFETY: the caller's promise; the kernel changes these registers and no others.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: the caller's promise; the kernel changes these registers and no others.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc #0",
            in("x8") number, inlateout("x0") a => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    answer
}

/// Asks the server; `None` if the call is this library's own.
fn ask(question: impl FnOnce(&mut Client) -> std::io::Result<i64>) -> Option<isize> {
    if IS_INSIDE.replace(true) {
        return None;
    }
    let answer = CLIENT.with_borrow_mut(|place| {
        let client = place.get_or_insert_with(connect);
        question(client).map_or(-(libc::EIO as isize), |answer| answer as isize)
    });
    IS_INSIDE.set(false);
    Some(answer)
}

/// A program that cannot reach its system cannot go on.
fn connect() -> ManuallyDrop<Client> {
    let word = |name: &str| std::env::var(name).unwrap_or_default();
    let by_socket = word("EMULATION_BY") == "socket";
    let wait = match word("EMULATION_WAIT").as_str() {
        "spin" => Wait::Spin(None),
        "yield" => Wait::Yield,
        "adaptive" => Wait::Adaptive,
        _ => Wait::Park,
    };
    match Client::connect(by_socket, &word("EMULATION_SERVER"), wait) {
        Ok(client) => {
            // SAFETY: a function that lives as long as the process.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            ManuallyDrop::new(client)
        }
        Err(error) => {
            eprintln!("no emulation server: {error}");
            std::process::abort()
        }
    }
}

/// A child has no part in its parent's connection and makes one of its own.
extern "C" fn in_child() {
    // It is never dropped: that would end the parent's.
    CLIENT.with_borrow_mut(|place| *place = None);
}

/// The pipe of a descriptor, if it is one of the server's.
fn pipe_of(descriptor: usize) -> Option<i64> {
    (FIRST..2 * FIRST).contains(&descriptor).then_some((descriptor - FIRST) as i64 / 2)
}

/// Makes a pipe, and writes its descriptors.
///
/// # Safety
/// There must be room for two descriptors.
unsafe fn pipe_at(both: *mut [c_int; 2]) -> Option<isize> {
    let made = ask(Client::pipe)?;
    if made >= 0 {
        let first = (FIRST as isize + 2 * made) as c_int;
        // SAFETY: the caller's promise.
        unsafe { both.write([first, first + 1]) };
    }
    Some(made.min(0))
}

/// The socket of a descriptor, if it is one of the server's.
fn socket_of(descriptor: usize) -> Option<u8> {
    descriptor.checked_sub(SOCKETS)?.try_into().ok()
}

/// The address that a program gives.
///
/// # Safety
/// There must be an address, of IPv4.
unsafe fn address_at(at: usize) -> SocketAddrV4 {
    // SAFETY: the caller's promise; programs align it as they like.
    let address = unsafe { (at as *const libc::sockaddr_in).read_unaligned() };
    SocketAddrV4::new(u32::from_be(address.sin_addr.s_addr).into(), u16::from_be(address.sin_port))
}

/// Receives a datagram as recvfrom(2) does.
///
/// # Safety
/// Arguments as those of the call, with room for an address.
unsafe fn receive_from(socket: u8, arguments: [usize; 6]) -> Option<isize> {
    let [_, room, len, _, from, from_len] = arguments;
    // SAFETY: the caller's promise: so much room for bytes.
    let room = unsafe { core::slice::from_raw_parts_mut(room as *mut u8, len) };
    let mut sender = None;
    let got = ask(|client| {
        let peer = client.receive_from(socket, room)?;
        sender = Some(peer.address);
        Ok(peer.number as i64)
    })?;
    if let Some(sender) = sender.filter(|_| from != 0) {
        // SAFETY: all zero is an address.
        let mut address: libc::sockaddr_in = unsafe { core::mem::zeroed() };
        address.sin_family = libc::AF_INET as _;
        address.sin_port = sender.port().to_be();
        address.sin_addr.s_addr = sender.ip().to_bits().to_be();
        // SAFETY: the caller's promise.
        unsafe {
            (from as *mut libc::sockaddr_in).write_unaligned(address);
            (from_len as *mut u32).write_unaligned(size_of::<libc::sockaddr_in>() as u32);
        }
    }
    Some(got)
}

/// Answers a call for datagrams; as [`emulated`].
///
/// # Safety
/// Arguments as those of the call.
unsafe fn of_sockets(number: c_long, arguments: [usize; 6]) -> Option<isize> {
    let [a, b, c, _, e, _] = arguments;
    if number == libc::SYS_socket {
        if a != libc::AF_INET as usize || b != libc::SOCK_DGRAM as usize {
            return None;
        }
        let made = ask(Client::socket)?;
        let fits = (0..SOCKETS_MAX as isize).contains(&made);
        return Some(if fits { SOCKETS as isize + made } else { -(libc::EMFILE as isize) });
    }
    let socket = socket_of(a)?;
    match number {
        // SAFETY: the caller's promise.
        libc::SYS_bind => ask(|client| client.bind(socket, unsafe { address_at(b) })),
        libc::SYS_sendto => {
            // SAFETY: the caller's promise: so many bytes, and an address.
            let (bytes, to) =
                unsafe { (core::slice::from_raw_parts(b as *const u8, c), address_at(e)) };
            ask(|client| client.send_to(socket, to, bytes))
        }
        // SAFETY: the caller's promise.
        libc::SYS_recvfrom => unsafe { receive_from(socket, arguments) },
        libc::SYS_close => Some(0),
        _ => None,
    }
}

/// Answers a call as the kernel does; `None`: it is the kernel's to answer.
///
/// # Safety
/// Arguments as those of the call.
unsafe fn emulated(number: c_long, arguments: [usize; 6]) -> Option<isize> {
    let [a, b, c, ..] = arguments;
    match number {
        libc::SYS_getpid => ask(Client::pid),
        // SAFETY: the caller's promise.
        libc::SYS_pipe2 => unsafe { pipe_at(a as *mut [c_int; 2]) },
        // SAFETY: the caller's promise.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_pipe => unsafe { pipe_at(a as *mut [c_int; 2]) },
        libc::SYS_read => {
            let pipe = pipe_of(a)?;
            // SAFETY: the caller's promise: so much room for bytes.
            let room = unsafe { core::slice::from_raw_parts_mut(b as *mut u8, c) };
            ask(|client| client.read(pipe, room))
        }
        libc::SYS_write => {
            let pipe = pipe_of(a)?;
            // SAFETY: the caller's promise: so many bytes.
            let bytes = unsafe { core::slice::from_raw_parts(b as *const u8, c) };
            ask(|client| client.write(pipe, bytes))
        }
        libc::SYS_close if pipe_of(a).is_some() => Some(0),
        // SAFETY: the caller's promise.
        _ => unsafe { of_sockets(number, arguments) },
    }
}

/// A call by its number, answered as the kernel does.
///
/// # Safety
/// As the call.
unsafe extern "C-unwind" fn by_number(number: i64, arguments: &[usize; 6]) -> isize {
    // SAFETY: the caller's promise.
    unsafe { emulated(number, *arguments).unwrap_or_else(|| raw(number as usize, *arguments)) }
}

/// The same, answered as the C library does.
///
/// # Safety
/// As the call.
unsafe fn by_name(number: c_long, arguments: [usize; 6]) -> isize {
    // SAFETY: the caller's promise.
    let answer = unsafe { by_number(number, &arguments) };
    if (-4095..0).contains(&answer) {
        // SAFETY: this thread's.
        unsafe { *libc::__errno_location() = -answer as c_int };
        return -1;
    }
    answer
}

/// Whatever the program calls may be emulated.
extern "C" fn concerns(_: i64) -> bool {
    true
}

extern "C" fn is_kernels(_: c_int) -> bool {
    false
}

extern "C" fn nothing() {}

extern "C" fn ends(_: c_int) {}

/// The emulation's program has no handlers.
unsafe extern "C-unwind" fn signalled(_: &Signal) -> PutOff {
    PutOff::default()
}

extern "C" fn nothing_due() -> u64 {
    0
}

static DOOR: Door = Door {
    call: by_number,
    concerns,
    is_kernels,
    entries: Entries::none,
    vfork_begins: nothing,
    vfork_ends: nothing,
    signal: signalled,
    due: nothing_due,
    thread_ends: ends,
};

/// syscall(2); and, for the loader, the table.
///
/// # Safety
/// As the call.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "as many as a system call has")]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    if number == door::NUMBER && a == door::VERSION {
        // SAFETY: who knows the number hands over such a place.
        unsafe { (b as *mut &Door).write(&DOOR) };
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { by_name(number, [a, b, c, d, e, f]) as c_long }
}

/// getpid(2).
#[unsafe(no_mangle)]
pub extern "C" fn getpid() -> c_int {
    // SAFETY: takes nothing.
    unsafe { by_name(libc::SYS_getpid, [0; 6]) as c_int }
}

/// pipe(2).
///
/// # Safety
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe(both: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { by_name(PIPE, [both as usize, 0, 0, 0, 0, 0]) as c_int }
}

/// read(2).
///
/// # Safety
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(descriptor: c_int, room: *mut c_void, len: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { by_name(libc::SYS_read, [descriptor as usize, room as usize, len, 0, 0, 0]) }
}

/// write(2).
///
/// # Safety
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(descriptor: c_int, bytes: *const c_void, len: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { by_name(libc::SYS_write, [descriptor as usize, bytes as usize, len, 0, 0, 0]) }
}

/// close(2).
///
/// # Safety
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { by_name(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]) as c_int }
}

/// socket(2).
#[unsafe(no_mangle)]
pub extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    let arguments = [family as usize, kind as usize, protocol as usize, 0, 0, 0];
    // SAFETY: takes numbers.
    unsafe { by_name(libc::SYS_socket, arguments) as c_int }
}

/// bind(2).
///
/// # Safety
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(descriptor: c_int, address: *const c_void, len: u32) -> c_int {
    let arguments = [descriptor as usize, address as usize, len as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { by_name(libc::SYS_bind, arguments) as c_int }
}

/// sendto(2).
///
/// # Safety
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    descriptor: c_int,
    bytes: *const c_void,
    len: usize,
    flags: c_int,
    to: *const c_void,
    to_len: u32,
) -> isize {
    let arguments =
        [descriptor as usize, bytes as usize, len, flags as usize, to as usize, to_len as usize];
    // SAFETY: the caller's promise.
    unsafe { by_name(libc::SYS_sendto, arguments) }
}

/// recvfrom(2).
///
/// # Safety
/// As the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    descriptor: c_int,
    room: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut c_void,
    from_len: *mut u32,
) -> isize {
    let arguments =
        [descriptor as usize, room as usize, len, flags as usize, from as usize, from_len as usize];
    // SAFETY: the caller's promise.
    unsafe { by_name(libc::SYS_recvfrom, arguments) }
}

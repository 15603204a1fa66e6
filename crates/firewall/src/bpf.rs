//! Questions to bpf(2): which eBPF programs are attached where. Only the commands that ask.
//!
//! Not here: what the programs mean for a session (`cgroups`, `linked`).

#![allow(unsafe_code, reason = "bpf(2), which rustix does not have")]

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

/// Commands of bpf(2).
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const PROG_QUERY: libc::c_int = 16;
const LINK_GET_FD_BY_ID: libc::c_int = 30;
const LINK_GET_NEXT_ID: libc::c_int = 31;
/// Bytes that are read of what the kernel tells of a program or link.
pub(crate) const INFO_LEN: usize = 128;

/// Where programs are attached, and which of them are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attachment {
    /// A control group's descriptor, or an interface's index.
    pub(crate) target: u32,
    /// `BPF_CGROUP_*`, `BPF_TCX_*`.
    pub(crate) kind: u32,
    /// `BPF_F_QUERY_*`.
    pub(crate) flags: u32,
}

/// Asks for the programs that are attached there: puts their numbers into `numbers`, as many as
/// there is room for. Returns how many there are.
pub(crate) fn programs_at(at: Attachment, numbers: &mut [u32]) -> Result<usize, Errno> {
    let room = if numbers.is_empty() { 0 } else { numbers.as_mut_ptr() as u64 };
    let asked = numbers.len() as u32;
    let mut words = [two(at.target, at.kind), two(at.flags, 0), room, two(asked, 0)];
    bpf(PROG_QUERY, &mut words)?;
    let [a, b, c, d, ..] = words[3].to_ne_bytes();
    Ok(u32::from_ne_bytes([a, b, c, d]) as usize)
}

/// Opens a program by its number.
pub(crate) fn program(number: u32) -> Result<OwnedFd, Errno> {
    open(PROG_GET_FD_BY_ID, number)
}

/// Opens a link by its number.
pub(crate) fn link(number: u32) -> Result<OwnedFd, Errno> {
    open(LINK_GET_FD_BY_ID, number)
}

/// Returns the number of the first link after `last`.
pub(crate) fn next_link(last: u32) -> Result<u32, Errno> {
    let mut words = [two(last, 0), 0];
    bpf(LINK_GET_NEXT_ID, &mut words)?;
    let [_, _, _, _, next @ ..] = words[0].to_ne_bytes();
    Ok(u32::from_ne_bytes(next))
}

/// Returns what the kernel tells of a program (`struct bpf_prog_info`) or of a link
/// (`struct bpf_link_info`).
pub(crate) fn info_of(object: &OwnedFd) -> Result<[u8; INFO_LEN], Errno> {
    let mut info = [0u8; INFO_LEN];
    let fd = object.as_raw_fd().cast_unsigned();
    bpf(OBJ_GET_INFO_BY_FD, &mut [two(fd, INFO_LEN as u32), info.as_mut_ptr() as u64])?;
    Ok(info)
}

fn open(command: libc::c_int, number: u32) -> Result<OwnedFd, Errno> {
    let fd = bpf(command, &mut [two(number, 0), 0])?;
    // SAFETY: the kernel has just made it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls bpf(2) with the first words of its attributes; returns its answer.
fn bpf(command: libc::c_int, words: &mut [u64]) -> Result<libc::c_int, Errno> {
    // SAFETY: the kernel reads and writes the words that it is given, and memory that they name,
    // which the caller has and which outlives the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, words.as_mut_ptr(), size_of_val(words)) };
    if answer < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    libc::c_int::try_from(answer).map_err(|_| Errno::IO)
}

fn two(low: u32, high: u32) -> u64 {
    let [low, high] = [low, high].map(u32::to_ne_bytes);
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&low);
    bytes[4..].copy_from_slice(&high);
    u64::from_ne_bytes(bytes)
}

//! The limits that the shipped systemd unit puts on the server, for servers of the lab: what they
//! may not do there would else be seen by users first.
//!
//! Not all of the unit: kinds of sockets, and no new privileges. Its capabilities are compared with
//! what the server keeps in `crates/server/tests/privileges.rs`.

#![allow(unsafe_code, reason = "a hook between fork and exec")]

use std::os::unix::process::CommandExt as _;
use std::process::Command;

const UNIT: &str = include_str!("../../server/systemd/sojournd.service");
/// In `struct seccomp_data`: the call's number, and the low half of its first argument.
const NUMBER: u32 = 0;
const FAMILY: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };

/// The families of sockets that the unit allows.
fn families(unit: &str) -> Vec<u32> {
    let line = unit.lines().find_map(|line| line.strip_prefix("RestrictAddressFamilies="));
    let number = |name: &str| match name {
        "AF_UNIX" => libc::AF_UNIX,
        "AF_INET" => libc::AF_INET,
        "AF_INET6" => libc::AF_INET6,
        "AF_NETLINK" => libc::AF_NETLINK,
        "AF_PACKET" => libc::AF_PACKET,
        "AF_XDP" => libc::AF_XDP,
        other => panic!("the lab does not know {other} of the unit"),
    };
    line.unwrap_or_default().split_whitespace().map(|name| number(name).unsigned_abs()).collect()
}

/// As systemd does it: socket(2) of any other family fails with `EAFNOSUPPORT`.
fn filter(families: &[u32]) -> Vec<libc::sock_filter> {
    let one = |code: u32, jt: usize, jf: usize, k: u32| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: jf as u8,
        k,
    };
    let load = |offset| one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let is = |value, jt, jf| one(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, value);
    let end = |answer| one(libc::BPF_RET | libc::BPF_K, 0, 0, answer);
    let count = families.len();
    let mut steps = vec![load(NUMBER), is(libc::SYS_socket as u32, 0, count + 2), load(FAMILY)];
    steps.extend(families.iter().enumerate().map(|(at, family)| is(*family, count - at, 0)));
    steps.push(end(libc::SECCOMP_RET_ERRNO | libc::EAFNOSUPPORT.unsigned_abs()));
    steps.push(end(libc::SECCOMP_RET_ALLOW));
    steps
}

/// Puts the limits on what `command` will be.
pub(crate) fn limit(command: &mut Command) {
    let mut steps = filter(&families(UNIT));
    let hook = move || {
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: two system calls; the program and its steps live until they return.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
                    == 0
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the hook makes system calls only; nothing is allocated, no lock is taken.
    unsafe { command.pre_exec(hook) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_families_of_the_unit_can_be_had() {
        let script = "
import socket
for family, kind in [(socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_UNIX, socket.SOCK_STREAM), (socket.AF_ALG, socket.SOCK_SEQPACKET)]:
    try: socket.socket(family, kind); print('yes')
    except OSError as error: print(error.errno)
";
        let mut command = Command::new("python3");
        limit(command.args(["-c", script]));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, format!("yes\nyes\n{}\n", libc::EAFNOSUPPORT), "{output:?}");
        assert_eq!(families("[Service]\nRestrictAddressFamilies=AF_UNIX AF_PACKET\n"), [1, 17]);
    }
}

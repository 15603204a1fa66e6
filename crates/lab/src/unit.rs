//! The limits that the shipped systemd unit puts on the server, for servers of the lab. Without
//! them a call that the unit forbids would fail only at users.
//!
//! All servers that carry have the first of these limits (`limit`): kinds of sockets, and no new
//! privileges. [`become_unit`] adds the unit's user, its capabilities and its system calls. Not
//! here: mounts, devices and control groups, which only a service manager can set up.

#![allow(unsafe_code, reason = "a hook between fork and exec")]

use rustix::thread::{
    CapabilitySet, CapabilitySets, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities,
};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// In place of the user `sojourn`.
pub const USER: u32 = 61_011;

const UNIT: &str = include_str!("../../server/systemd/sojournd.service");
/// Offsets in `struct seccomp_data` (seccomp(2)): of the call's number, and of the low half of its
/// first argument.
const NUMBER: u32 = 0;
const FAMILY: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };

/// Returns the families of sockets that the unit allows.
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

/// Returns a filter that makes socket(2) of any other family fail with `EAFNOSUPPORT`, as systemd's
/// `RestrictAddressFamilies=` does (systemd.exec(5)).
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

/// Puts the limits on the program that `command` will run. `has_xdp`: with the line that a unit
/// needs besides for a server with `--xdp`.
pub(crate) fn limit(command: &mut Command, has_xdp: bool) {
    let mut families = families(UNIT);
    families.extend(has_xdp.then_some(libc::AF_XDP.unsigned_abs()));
    let mut steps = filter(&families);
    let hook = move || {
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: two system calls; the filter program and its steps live until they return.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
                    == 0
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the hook makes system calls only; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(hook) };
}

/// The values of that setting of the unit's, of all its lines.
fn setting(name: &str) -> Vec<&'static str> {
    let lines = UNIT.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines.collect()
}

/// The capabilities that the unit gives.
#[must_use]
pub fn capabilities() -> CapabilitySet {
    let one = |name: &str| name.strip_prefix("CAP_").and_then(CapabilitySet::from_name);
    let names = setting("AmbientCapabilities").into_iter().flat_map(str::split_whitespace);
    names.filter_map(one).collect()
}

/// The system calls that a group of systemd's means.
fn group(name: &str, calls: &mut BTreeSet<String>) -> Option<()> {
    if !name.starts_with('@') {
        calls.insert(name.into());
        return Some(());
    }
    let words = ["syscall-filter", "--no-pager", name];
    let said = Command::new("systemd-analyze").args(words).output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let words = said.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    words.filter(|word| !word.is_empty() && *word != name).try_for_each(|word| group(word, calls))
}

/// The system calls that the unit allows: later lines add or take away (systemd.exec(5)). `None` if
/// nothing here knows systemd's groups.
fn calls() -> Option<BTreeSet<String>> {
    // What systemd always adds to a list of what is allowed.
    let mut allowed = BTreeSet::from(["execve".to_owned()]);
    group("@default", &mut allowed)?;
    for line in setting("SystemCallFilter") {
        let mut named = BTreeSet::new();
        let names = line.trim_start_matches('~').split_whitespace();
        names.map(|name| group(name, &mut named)).collect::<Option<()>>()?;
        match line.starts_with('~') {
            true => allowed.retain(|call| !named.contains(call)),
            false => allowed.extend(named),
        }
    }
    (allowed.len() > 100).then_some(allowed)
}

/// The filter of these calls, as far as this kind of processor has them; all others fail.
fn filter_of(calls: &BTreeSet<String>) -> Option<seccompiler::BpfProgram> {
    let architecture = std::env::consts::ARCH.try_into().ok()?;
    let compile = |calls: &[&String]| {
        let named: Vec<_> = calls.iter().map(|call| format!(r#"{{"syscall":"{call}"}}"#)).collect();
        let text = format!(
            r#"{{"unit":{{"mismatch_action":{{"errno":{}}},"match_action":"allow","filter":[{}]}}}}"#,
            libc::EPERM,
            named.join(",")
        );
        seccompiler::compile_from_json(text.as_bytes(), architecture)
    };
    let known: Vec<_> = calls.iter().filter(|call| compile(&[call]).is_ok()).collect();
    compile(&known).ok()?.remove("unit")
}

/// Makes `command` what the unit starts: its user, without root's rights, with the unit's
/// capabilities and no system calls but the unit's. Returns false if this process lacks the rights
/// for that, or nothing here knows systemd's groups of system calls.
pub fn become_unit(command: &mut Command) -> bool {
    let given = capabilities();
    let held = rustix::thread::capabilities(None).map(|held| held.permitted);
    let Some(filter) = calls().and_then(|calls| filter_of(&calls)) else { return false };
    if !held.is_ok_and(|held| held.contains(given | CapabilitySet::SETUID)) {
        return false;
    }
    let hook = move || {
        for number in 0..u64::BITS {
            let one = CapabilitySet::from_bits_retain(1 << number);
            if !given.contains(one) && remove_capability_from_bounding_set(one).is_err() {
                break;
            }
        }
        set_keep_capabilities(true)?;
        // SAFETY: three system calls, without memory but an empty list's.
        let is_user = unsafe {
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(USER, USER, USER) == 0
                && libc::setresuid(USER, USER, USER) == 0
        };
        if !is_user {
            return Err(std::io::Error::last_os_error());
        }
        let sets = CapabilitySets { effective: given, permitted: given, inheritable: given };
        set_capabilities(None, sets)?;
        given.iter().try_for_each(|one| configure_capability_in_ambient_set(one, true))?;
        // It forbids new privileges, too.
        seccompiler::apply_filter(&filter).map_err(std::io::Error::other)
    };
    // SAFETY: the hook makes system calls, and allocates only where it fails.
    unsafe { command.pre_exec(hook) };
    true
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
        limit(command.args(["-c", script]), false);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, format!("yes\nyes\n{}\n", libc::EAFNOSUPPORT), "{output:?}");
        assert_eq!(families("[Service]\nRestrictAddressFamilies=AF_UNIX AF_PACKET\n"), [1, 17]);
    }
}

//! Users whom this user name space cannot tell apart: all without a number of their own here have
//! one and the same (user_namespaces(7), "Unmapped user and group IDs").
//!
//! Whoever decides by a user's number would take each of them for all others. Not here: the
//! decisions (`place`, the session server).

use rustix::process::Uid;
use std::fs::read_to_string;

/// The kernel's number for users without one, unless an administrator has changed it.
const OVERFLOW: u32 = 65_534;
/// Every number but the last, which means none.
const ALL: u64 = u32::MAX as u64;

/// Returns the number that stands for all users of other user name spaces here; `None` where each
/// user has a number of its own.
#[must_use]
pub fn unmapped_user() -> Option<Uid> {
    let map = read_to_string("/proc/self/uid_map");
    let overflow = read_to_string("/proc/sys/kernel/overflowuid");
    let overflow = overflow.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(OVERFLOW);
    match map {
        Ok(map) if is_whole(&map) => None,
        // A kernel without user name spaces has no such file.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && has_processes() => None,
        _ => Some(Uid::from_raw(overflow)),
    }
}

fn has_processes() -> bool {
    std::path::Path::new("/proc/self/status").exists()
}

/// Returns true if a map (`/proc/PID/uid_map`: first number here, first there, count) has all
/// numbers.
fn is_whole(map: &str) -> bool {
    let count = |line: &str| line.split_ascii_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().filter_map(count).fold(0, u64::saturating_add) == ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_map_tells_all_users_apart() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(is_whole("0 0 1000\n1000 1000 4294966295\n"));
        assert!(!is_whole("0 1000 1\n"));
        assert!(!is_whole("0 1000 1\n1 100000 65536\n"));
        assert!(!is_whole(""));
        assert!(!is_whole("0 0 4294967294\n0 0 x\n"));
    }
}

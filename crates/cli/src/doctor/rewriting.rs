//! Whether system calls that preloaded programs make themselves could be rewritten here (setting
//! `rewrite`): what the kernel and its policies say about it.
//!
//! Not here: whether a program's code allows it, which only its own process sees.

#![allow(unsafe_code, reason = "a mapping whose protection is tried")]

use super::item::Item;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

const NAME: &str = "rewriting";
const PAGE: usize = 4096;

/// Checks what rewriting needs. `is_wanted`: the setting is on.
pub(super) fn rewriting(is_wanted: bool) -> Item {
    let state = if is_wanted { "on" } else { "off" };
    match obstacle() {
        None => Item::ok(NAME, format!("{state}; possible on this machine (setting `rewrite`)")),
        Some(why) if is_wanted => Item::limited(
            NAME,
            format!("on, but {why}"),
            "programs that make system calls themselves run as with `rewrite = off`",
        ),
        Some(why) => Item::ok(NAME, format!("off; it would not be possible: {why}")),
    }
}

fn obstacle() -> Option<&'static str> {
    if !cfg!(target_arch = "x86_64") {
        return Some("system calls are rewritten on x86-64 only");
    }
    if !can_change_code() {
        return Some("code that is in use must not be written here (PR_SET_MDWE, or a policy)");
    }
    let is_seen = |file: &str| std::fs::read(format!("/proc/self/{file}")).is_ok();
    if !is_seen("syscall") || !is_seen("schedstat") {
        return Some("/proc does not show what threads do");
    }
    None
}

/// Returns true if a page may be made executable after it was written, and written while it is.
fn can_change_code() -> bool {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, which nobody else uses.
    let Ok(at) =
        (unsafe { mmap_anonymous(core::ptr::null_mut(), PAGE, access, MapFlags::PRIVATE) })
    else {
        return false;
    };
    let code = MprotectFlags::READ | MprotectFlags::EXEC;
    // SAFETY: the mapping that was just made.
    unsafe {
        let can = mprotect(at, PAGE, code).is_ok()
            && mprotect(at, PAGE, code | MprotectFlags::WRITE).is_ok();
        let _ = munmap(at, PAGE);
        can
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_wanted_is_no_limit() {
        use crate::doctor::item::State;
        assert_eq!(rewriting(false).state, State::Ok);
        assert!(rewriting(false).found.starts_with("off"));
        assert!(rewriting(true).found.starts_with("on"));
    }
}

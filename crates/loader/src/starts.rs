//! The record of programs' starts (`sojourn_abi::starts`): its system calls, the guest's own entry,
//! and the guest's children.
//!
//! Not here: the children of dynamic programs (`crates/preload`, `record` and `loaded`).

use crate::plain::starts_with;
use crate::raw;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering};
use sojourn_abi::starts::system::System;
use sojourn_abi::starts::{self, Files, Key, PATH};
use std::sync::OnceLock;

/// The guest's entry in the record.
#[derive(Debug)]
struct Own {
    folder: Vec<u8>,
    key: Key,
}

/// `None` without a cache folder.
// FORK: set before the guest runs.
static OWN: OnceLock<Option<Own>> = OnceLock::new();
/// True once the guest's entry says that it has a hot session.
static IS_NOTED: AtomicBool = AtomicBool::new(false);

/// Keeps the guest's key, and the folder's place by the guest's environment.
pub(crate) fn keep(key: Key, environment: &[*const c_char]) {
    let mut room = [0; PATH];
    let folder = starts::folder(|name| value_of(environment.iter().copied(), name), &mut room);
    let own = folder.map(|folder| Own { folder: folder.to_vec(), key });
    let _ = OWN.set(own);
}

/// Notes that the guest has a hot session, or that it is about to lose the rights to note it.
pub(crate) extern "C" fn is_hot() {
    if !IS_NOTED.swap(true, Ordering::Relaxed)
        && let Some(Some(Own { folder, key })) = OWN.get()
    {
        starts::is_hot(&files(), folder, key);
    }
}

/// Counts the start of a child with this environment. Returns true if it is to be started plainly.
pub(crate) fn is_small(
    key: &Key,
    environment: impl Iterator<Item = *const c_char> + Clone,
) -> bool {
    let mut room = [0; PATH];
    let folder = starts::folder(|name| value_of(environment.clone(), name), &mut room);
    folder.is_some_and(|folder| starts::is_small(&files(), folder, key))
}

/// Returns the value of the first variable that begins with `name`, which includes its `=`.
pub(crate) fn value_of<'e>(
    mut environment: impl Iterator<Item = *const c_char>,
    name: &[u8],
) -> Option<&'e [u8]> {
    let variable = environment.find(|one| starts_with(*one, name))?;
    // SAFETY: a string of the environment, which begins with the name.
    Some(unsafe { CStr::from_ptr(variable.add(name.len())) }.to_bytes())
}

/// Returns the kernel's files.
fn files() -> impl Files {
    // SAFETY: the arguments are those of `System`, which are local, or the guest's environment's.
    let call = |number, arguments| unsafe { raw::call(number, arguments) };
    System { call, status: raw::status }
}

//! The loader's own arguments, and the program run as without Sojourn.
//!
//! This is all that the loader does where it loads no programs (`main`). Not here: the program
//! loaded (`begin`).

use crate::raw;
use core::ffi::{CStr, c_char, c_int};
use sojourn_abi::stack::AuxEntry;
use std::fmt::Display;

/// The variable with the path of the file to load.
pub(crate) const FILE: &[u8] = b"SOJOURN_ABI_FILE=";
/// The exit status of `sojourn run` if Sojourn itself has failed.
pub(crate) const NOT_RUN: c_int = 125;

/// The variable that suppresses the message about a program that cannot be loaded. With the value
/// `child` the program may not be meant, so that `strict` does not hold for it.
const QUIET: &[u8] = b"SOJOURN_ABI_QUIET=";
/// That variable for a child that nobody has asked to load.
pub(crate) const CHILD: &CStr = c"SOJOURN_ABI_QUIET=child";

/// The arguments, environment and auxiliary vector of the loader's own start.
pub(crate) struct Given {
    pub(crate) words: Vec<*const c_char>,
    /// The whole environment.
    pub(crate) variables: Vec<*const c_char>,
    /// The environment without the loader's own variables.
    pub(crate) environment: Vec<*const c_char>,
    pub(crate) auxiliary: Vec<AuxEntry>,
    pub(crate) path: &'static CStr,
}

/// Copies the auxiliary vector without its end.
///
/// # Safety
/// `first` must be the address of such a vector, which ends with a zero.
pub(crate) unsafe fn vector(first: *const AuxEntry) -> Vec<AuxEntry> {
    let mut all = Vec::new();
    let mut at = first;
    // SAFETY: entries up to the vector's end.
    unsafe {
        while (*at).kind != 0 {
            all.push(*at);
            at = at.add(1);
        }
    }
    all
}

/// Collects the arguments of the loader's start; `None` if it was not started by `sojourn run`.
///
/// # Safety
/// The arguments must be those of `main`.
pub(crate) unsafe fn given(
    count: usize,
    words: *const *const c_char,
    environment: *const *const c_char,
) -> Option<Given> {
    // SAFETY: there are `count` words. The environment ends with a null pointer. The auxiliary
    // vector lies behind that and ends with a zero (System V ABI, AMD64 supplement, "Process
    // Initialization").
    let (words, all, auxiliary) = unsafe {
        let words = core::slice::from_raw_parts(words, count).to_vec();
        let len = (0..).take_while(|at| !(*environment.add(*at)).is_null()).count();
        let auxiliary = vector(environment.add(len + 1).cast());
        (words, core::slice::from_raw_parts(environment, len), auxiliary)
    };
    let path = all.iter().find(|one| starts_with(**one, FILE))?;
    // SAFETY: a string of the environment, which begins with `FILE`.
    let path = unsafe { CStr::from_ptr(path.add(FILE.len())) };
    let is_own = |one: &*const c_char| starts_with(*one, FILE) || starts_with(*one, QUIET);
    let environment = all.iter().copied().filter(|one| !is_own(one)).collect();
    Some(Given { words, variables: all.to_vec(), environment, auxiliary, path })
}

/// Runs the program without Sojourn, or refuses to if `strict` is set.
pub(crate) fn plainly(given: &Given, refusal: impl Display) -> c_int {
    let quiet = std::env::var_os("SOJOURN_ABI_QUIET");
    let is_child = quiet.as_ref().is_some_and(|value| value == "child");
    let is_strict = std::env::var_os("SOJOURN_STRICT")
        .is_some_and(|value| ["true", "on", "yes", "1"].iter().any(|word| value == *word));
    let is_strict = is_strict && !is_child;
    let name = given.path.to_string_lossy();
    if is_strict {
        eprintln!("sojourn: {name} cannot be accelerated (strict is set): {refusal}");
        return NOT_RUN;
    }
    if quiet.is_none() {
        eprintln!("sojourn: {name} runs without acceleration: {refusal}");
    }
    let ended = |list: &[*const c_char]| {
        list.iter().copied().chain([core::ptr::null()]).collect::<Vec<_>>()
    };
    let (words, environment) = (ended(&given.words), ended(&given.environment));
    let [file, words, environment] =
        [given.path.as_ptr() as usize, words.as_ptr() as usize, environment.as_ptr() as usize];
    // The C library's function is not used, because the preload library would let the loader start
    // the program again.
    // SAFETY: both lists end with a null pointer.
    let refused = unsafe { raw::call(libc::SYS_execve, [file, words, environment, 0, 0, 0]) };
    let error = std::io::Error::from_raw_os_error(-refused as i32);
    eprintln!("sojourn: {name}: cannot be run: {error}");
    NOT_RUN
}

/// Returns true if `string` begins with `with`.
pub(crate) fn starts_with(string: *const c_char, with: &[u8]) -> bool {
    // SAFETY: a string that ends with a zero, behind which no byte is compared.
    with.iter().enumerate().all(|(at, byte)| unsafe { *string.add(at) as u8 == *byte })
}

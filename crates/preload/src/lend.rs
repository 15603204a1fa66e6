//! The table of functions by which `sojourn-buffers` is lent the rings of sessions that are away.
//!
//! Not here: the lending (`sojourn-library`, `io::lend`), and what the program sees
//! (`sojourn-buffers`).

use crate::guard::{is_open, within};
use crate::library::{Amount, Call, Lending, Lent, LentPiece, Route};
use crate::process::was_cancelled;
use crate::transfer::{receive_route, send_route};
use core::ffi::c_int;
use sojourn_lending::{
    self as table, Deadline, ELSEWHERE, INTERRUPTED, LENT, RawPiece, TIMED_OUT, Table,
};

// The lender's words hold what the library needs.
const _: () = assert!(size_of::<Lent>() <= 32 && align_of::<Lent>() <= 8);

/// The table.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(non_upper_case_globals, reason = "the name is C's")]
pub(crate) static sojourn_buffers_v1: Table = Table { loan, give_back, reserve, commit, forget };

unsafe extern "C" fn loan(
    fd: c_int,
    at_least: usize,
    max: usize,
    until_ns: u64,
    lent: *mut table::Lent,
) -> c_int {
    let lending =
        lend(receive_route(fd), |call| call.loan(amount(at_least, max), Deadline::at_ns(until_ns)));
    // SAFETY: the caller's place for the answer (`Table`).
    unsafe { answer(lending, lent) }
}

unsafe extern "C" fn reserve(
    fd: c_int,
    at_least: usize,
    max: usize,
    until_ns: u64,
    lent: *mut table::Lent,
) -> c_int {
    let lending =
        lend(send_route(fd), |call| call.reserve(amount(at_least, max), Deadline::at_ns(until_ns)));
    // SAFETY: the caller's place for the answer (`Table`).
    unsafe { answer(lending, lent) }
}

fn amount(at_least: usize, max: usize) -> Amount {
    Amount { at_least: at_least.max(1), max: max.max(at_least).max(1) }
}

/// Asks a session of bytes for memory; `None` if the route leads elsewhere.
fn lend(route: Route<'_>, ask: impl FnOnce(&Call<'_>) -> Lending) -> Option<Lending> {
    match route {
        Route::Stream(call) => within(|_| ask(&call)),
        _ => None,
    }
}

/// Writes the answer to `place`.
///
/// # Safety
/// `place` may be written.
unsafe fn answer(lending: Option<Lending>, place: *mut table::Lent) -> c_int {
    let (lent, pieces) = match lending {
        Some(Lending::Lent(lent, pieces)) => (lent, pieces),
        None | Some(Lending::Elsewhere) => return ELSEWHERE,
        Some(Lending::TimedOut) => return TIMED_OUT,
        // The ordinary call that the caller makes now ends the thread.
        Some(Lending::Interrupted) if was_cancelled() => return ELSEWHERE,
        Some(Lending::Interrupted) => return INTERRUPTED,
    };
    let raw = |piece: LentPiece| RawPiece { at: piece.at, len: piece.len };
    // SAFETY: the contract of this function.
    let place = unsafe { &mut *place };
    place.pieces = pieces.map(raw);
    // SAFETY: large and aligned enough, as asserted above; owned by the words from now on.
    unsafe { place.held.as_mut_ptr().cast::<Lent>().write(lent) };
    LENT
}

/// Takes what the words of `lent` hold, if the library may be entered. If not, the memory stays
/// mapped.
///
/// # Safety
/// `lent` holds memory that was lent, and was not taken before.
unsafe fn take(lent: *mut table::Lent) -> Option<Lent> {
    // SAFETY: the contract of this function; written by `answer`.
    is_open().then(|| unsafe { (*lent).held.as_ptr().cast::<Lent>().read() })
}

unsafe extern "C" fn give_back(lent: *mut table::Lent, len: usize) -> c_int {
    // SAFETY: the caller's contract (`Table`).
    let Some(lent) = (unsafe { take(lent) }) else { return ELSEWHERE };
    match within(|library| lent.give_back(library, len)) {
        Some(true) => LENT,
        _ => ELSEWHERE,
    }
}

unsafe extern "C" fn commit(place: *mut table::Lent, len: usize) -> c_int {
    // SAFETY: the caller's contract (`Table`).
    let Some(lent) = (unsafe { take(place) }) else { return ELSEWHERE };
    match within(|library| lent.commit(library, len)) {
        Some(None) => LENT,
        Some(Some(lent)) => {
            // SAFETY: the same place that it was taken from.
            unsafe { (*place).held.as_mut_ptr().cast::<Lent>().write(lent) };
            ELSEWHERE
        }
        None => ELSEWHERE,
    }
}

unsafe extern "C" fn forget(lent: *mut table::Lent) {
    // SAFETY: the caller's contract (`Table`).
    if let Some(lent) = unsafe { take(lent) } {
        within(|library| lent.forget(library));
    }
}

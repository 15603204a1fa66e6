//! Items, descriptors and grants: their way from an `sj_out` into a message.

use crate::status::Status;
use crate::types::Out;
use rustix::fd::BorrowedFd;
use sojourn_ipc::rt::gather::TABLE_LEN;
use sojourn_ipc::rt::{FDS_MAX, GRANTS_MAX, Grant, GrantId, ITEMS_MAX, Writer};

/// Returns true if there are items, descriptors or grants.
///
/// # Safety
/// `out` was begun by us.
#[inline]
pub(crate) unsafe fn has_any(out: *const Out) -> bool {
    // SAFETY: the caller's contract; `sj_start` has written the counts.
    unsafe { ((*out).n_items | (*out).n_fds | (*out).n_grants) != 0 }
}

/// Refuses counts and descriptors that no message can have.
///
/// # Safety
/// `out` was begun by us, and C has written as many elements as its counts say.
#[inline(never)]
pub(crate) unsafe fn check(out: *const Out) -> Result<(), Status> {
    // SAFETY: the caller's contract.
    let (items, fds, grants) = unsafe { ((*out).n_items, (*out).n_fds, (*out).n_grants) };
    let is_sound = items as usize <= ITEMS_MAX
        && fds as usize <= FDS_MAX
        && grants as usize <= GRANTS_MAX
        && (0..items as usize).all(|at| {
            // SAFETY: within the array, as just checked; written by C.
            let item = unsafe { (*out).items[at] };
            item.len == 0 || !item.start.is_null() && isize::try_from(item.len).is_ok()
        })
        && (0..fds as usize).all(|at| {
            // SAFETY: within the array, whose count was checked; written by C.
            unsafe { (*out).fds[at] >= 0 }
        });
    if is_sound { Ok(()) } else { Err(Status::Invalid) }
}

/// Returns the length of the message as it travels, to which the limits apply.
///
/// # Safety
/// As for [`check`], which has accepted it.
pub(crate) unsafe fn total(out: *const Out, body_len: usize) -> u64 {
    // SAFETY: the caller's contract.
    let count = unsafe { (*out).n_items } as usize;
    let padded = |len: usize| (len as u64).saturating_add(7) & !7;
    (0..count).fold((TABLE_LEN as u64).saturating_add(padded(body_len)), |sum, at| {
        // SAFETY: `at` is below the count, which the caller's contract has within the array.
        sum.saturating_add(padded(unsafe { (*out).items[at].len }))
    })
}

/// Gives all items, descriptors and grants to `writer`.
///
/// # Safety
/// As for [`check`], which has accepted it; items stay as they are, and descriptors open, for `'d`.
#[inline(never)]
pub(crate) unsafe fn attach<'d>(out: *const Out, mut writer: Writer<'_, 'd>) -> Result<(), Status> {
    // SAFETY: the caller's contract.
    let (items, fds, grants) = unsafe { ((*out).n_items, (*out).n_fds, (*out).n_grants) };
    for at in 0..items as usize {
        // SAFETY: checked to be within the array; readable for `'d` by the caller's contract.
        let bytes = unsafe {
            let item = (*out).items[at];
            match item.len {
                0 => &[][..],
                len => core::slice::from_raw_parts(item.start, len),
            }
        };
        writer.put_item(bytes).map_err(|_| Status::Invalid)?;
    }
    for at in 0..fds as usize {
        // SAFETY: checked not to be negative; open for `'d`, or the kernel says that it is not.
        let fd = unsafe { BorrowedFd::borrow_raw((*out).fds[at]) };
        writer.put_fd(fd).map_err(|_| Status::Invalid)?;
    }
    for at in 0..grants as usize {
        // SAFETY: checked to be within the array; written by C.
        let grant = unsafe { (*out).grants[at] };
        let grant = Grant {
            id: GrantId(grant.id),
            flags: grant.flags,
            offset: grant.offset,
            len: grant.len,
        };
        writer.grant(grant).map_err(|_| Status::Invalid)?;
    }
    Ok(())
}

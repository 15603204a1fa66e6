//! Slices of accessible memory from the program's buffers, in rounds of bounded size.
//!
//! A buffer may be far larger than the data that arrives, and its far end may be inaccessible.
//! Neither must be noticeable. So memory is validated one window at a time, and a further round is
//! made only after the previous window was used up. Not here: the validation (`buffers`).

use crate::buffers::{Access, accessible};
use libc::iovec;
use rustix::io::{Errno, IoSlice, IoSliceMut};

/// The most slices in a round.
const SLICES: usize = crate::library::PARTS_MAX;
/// The most bytes in a round.
const WINDOW: usize = 1 << 18;
/// `IOV_MAX` (limits.h): the kernel refuses longer lists.
pub(crate) const IOV_MAX: usize = 1024;
/// `MAX_RW_COUNT` of include/linux/fs.h: the most bytes that one call transfers.
pub(crate) const TRANSFER_MAX: usize = 0x7fff_f000;

/// The place in the buffers at which a round begins.
#[derive(Clone, Copy, Default)]
struct Position {
    index: usize,
    offset: usize,
}

/// The slices of one round, as raw vectors of validated memory.
struct Window {
    slices: [iovec; SLICES],
    count: usize,
    bytes: usize,
    /// True if the memory behind these bytes is inaccessible.
    ends_badly: bool,
}

const NOTHING: iovec = iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };

impl Window {
    #[inline]
    fn new(buffers: &[iovec], at: Position, access: Access, limit: usize) -> Self {
        let mut window = Self { slices: [NOTHING; SLICES], count: 0, bytes: 0, ends_badly: false };
        let mut offset = at.offset;
        for buffer in &buffers[at.index..] {
            let wanted = (buffer.iov_len - offset).min(limit - window.bytes);
            if wanted > 0 {
                let start = buffer.iov_base as usize + offset;
                let good = accessible(start, wanted, access);
                window.slices[window.count] = iovec { iov_base: start as *mut _, iov_len: good };
                window.count += usize::from(good > 0);
                window.bytes += good;
                window.ends_badly = good < wanted;
            }
            if window.ends_badly || window.count == SLICES || window.bytes >= limit {
                break;
            }
            offset = 0;
        }
        window
    }
}

impl Position {
    fn advance(&mut self, buffers: &[iovec], mut by: usize) {
        while let Some(buffer) = buffers.get(self.index) {
            let rest = buffer.iov_len - self.offset;
            if by < rest {
                self.offset += by;
                return;
            }
            by -= rest;
            *self = Position { index: self.index + 1, offset: 0 };
        }
    }
}

/// The outcome of a call that is made in rounds.
pub(crate) enum Rounds {
    /// The call is over, with this result.
    Done(Result<usize, Errno>),
    /// The session went home after this many bytes.
    Left(usize),
}

#[inline]
fn rounds(
    buffers: &[iovec],
    access: Access,
    limit: usize,
    mut each: impl FnMut(&mut Window, bool) -> Option<Result<usize, Errno>>,
) -> Rounds {
    let mut at = Position::default();
    let mut total = 0;
    loop {
        let mut window = Window::new(buffers, at, access, limit);
        // The kernel sends nothing of a piece that it cannot read whole, and chooses the pieces: it
        // serves a send from there on.
        let is_the_kernels = access == Access::Read && window.ends_badly;
        if window.count == 0 || is_the_kernels {
            let is_bad = window.ends_badly && total == 0;
            return Rounds::Done(if is_bad { Err(Errno::FAULT) } else { Ok(total) });
        }
        match each(&mut window, total > 0) {
            None => return Rounds::Left(total),
            Some(Err(error)) => {
                return Rounds::Done(if total > 0 { Ok(total) } else { Err(error) });
            }
            Some(Ok(moved)) => {
                total += moved;
                if moved < window.bytes || window.ends_badly {
                    return Rounds::Done(Ok(total));
                }
                at.advance(buffers, moved);
                if at.index >= buffers.len() {
                    return Rounds::Done(Ok(total));
                }
            }
        }
    }
}

/// Receives into `buffers`. `each` gets the slices, and true if this is a further round, which must
/// not wait. With `in_one` there is one round of any size.
#[inline]
pub(crate) fn receive(
    buffers: &[iovec],
    in_one: bool,
    mut each: impl FnMut(&mut [IoSliceMut<'_>], bool) -> Option<Result<usize, Errno>>,
) -> Rounds {
    let limit = if in_one { TRANSFER_MAX } else { WINDOW };
    rounds(buffers, Access::Write, limit, |window, is_further| {
        // SAFETY: an `IoSliceMut` has the layout of an `iovec`. The memory is writable and belongs
        // to this call, as for the kernel.
        let slices = unsafe {
            core::slice::from_raw_parts_mut(window.slices.as_mut_ptr().cast(), window.count)
        };
        each(slices, is_further)
    })
}

/// Sends from `buffers`, up to the first round with inaccessible memory.
#[inline]
pub(crate) fn send(
    buffers: &[iovec],
    mut each: impl FnMut(&[IoSlice<'_>]) -> Option<Result<usize, Errno>>,
) -> Rounds {
    rounds(buffers, Access::Read, WINDOW, |window, _| {
        // SAFETY: an `IoSlice` has the layout of an `iovec`. The memory is readable and belongs to
        // this call, as for the kernel.
        let slices =
            unsafe { core::slice::from_raw_parts(window.slices.as_ptr().cast(), window.count) };
        each(slices)
    })
}

/// Calls `each` with room for one datagram of at most `most` bytes. Returns `None` if a part of the
/// buffers is inaccessible.
pub(crate) fn datagram_room<R>(
    buffers: &[iovec],
    most: usize,
    each: impl FnOnce(&mut [IoSliceMut<'_>]) -> R,
) -> Option<R> {
    let mut window = Window::new(buffers, Position::default(), Access::Write, most);
    if window.ends_badly {
        return None;
    }
    // SAFETY: an `IoSliceMut` has the layout of an `iovec`. The memory is writable and belongs to
    // this call.
    let slices =
        unsafe { core::slice::from_raw_parts_mut(window.slices.as_mut_ptr().cast(), window.count) };
    Some(each(slices))
}

/// Calls `each` with one datagram of at most `most` bytes. Returns `None` if a part of the buffers
/// is inaccessible.
pub(crate) fn datagram<R>(
    buffers: &[iovec],
    most: usize,
    each: impl FnOnce(&[IoSlice<'_>]) -> R,
) -> Option<R> {
    let window = Window::new(buffers, Position::default(), Access::Read, most);
    if window.ends_badly {
        return None;
    }
    // SAFETY: an `IoSlice` has the layout of an `iovec`. The memory is readable and belongs to this
    // call.
    let slices =
        unsafe { core::slice::from_raw_parts(window.slices.as_ptr().cast(), window.count) };
    Some(each(slices))
}

/// Returns the sum of the lengths; `None` if the kernel would not accept these buffers.
pub(crate) fn total(buffers: &[iovec]) -> Option<usize> {
    let mut total = 0usize;
    for buffer in buffers {
        total =
            total.checked_add(buffer.iov_len).filter(|total| isize::try_from(*total).is_ok())?;
    }
    (total <= TRANSFER_MAX).then_some(total)
}

/// Copies the non-empty buffers behind the first `skip` bytes of `buffers` into `rest`, as far as
/// they fit.
pub(crate) fn beyond<'a>(buffers: &[iovec], skip: usize, rest: &'a mut [iovec]) -> &'a [iovec] {
    let mut at = Position::default();
    at.advance(buffers, skip);
    let mut offset = at.offset;
    let left = buffers[at.index.min(buffers.len())..].iter().map(|buffer| {
        // SAFETY: the offset is within the first buffer, and 0 for the others.
        let base = unsafe { buffer.iov_base.byte_add(offset) };
        let len = buffer.iov_len - core::mem::take(&mut offset);
        iovec { iov_base: base, iov_len: len }
    });
    let mut count = 0;
    for (place, buffer) in rest.iter_mut().zip(left.filter(|buffer| buffer.iov_len > 0)) {
        *place = buffer;
        count += 1;
    }
    &rest[..count]
}

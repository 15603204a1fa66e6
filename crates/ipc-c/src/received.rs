//! The C functions on received messages of both sides.
//!
//! An item in memory that the peer can write is copied once to private memory when C asks for a
//! pointer to it, and the copy is kept as long as the message.

use crate::client::ConnectionHandle;
use crate::errno::guard_or;
use crate::handle::{MessageNumber, free, give, guard};
use crate::message::{ItemCopy, Received, SERVER};
use crate::scratch::zeroed;
use crate::server_handle::ServerHandle;
use crate::status::Status;
use crate::types::In;
use core::ffi::{c_int, c_uint, c_void};
use rustix::fd::IntoRawFd;
use sojourn_ipc::raw::{self, Incoming, bytes_of_mut};
use sojourn_ipc::rt::Item;
use sojourn_ipc::{KeptGrant, WRITE};

/// The handle that received a message.
enum Holder<'h> {
    Connection(&'h mut ConnectionHandle),
    Server(&'h mut ServerHandle),
}

/// The message that a handle received last.
struct Present<'h> {
    incoming: &'h mut Incoming,
    received: &'h mut Received,
}

impl Holder<'_> {
    fn present(&mut self) -> Option<Present<'_>> {
        Some(match self {
            Self::Connection(handle) => Present {
                incoming: raw::reply_of(&mut handle.inner),
                received: &mut handle.received,
            },
            Self::Server(handle) => Present {
                incoming: raw::request_of(handle.server.as_mut()?),
                received: &mut handle.received,
            },
        })
    }
}

/// Returns the handle whose present message this is.
///
/// # Safety
/// Null, or written by `message::fill` or `message::clear`, the handle not freed and used by no
/// other thread now.
unsafe fn holder<'h>(message: *const In) -> Option<Holder<'h>> {
    if message.is_null() {
        return None;
    }
    // SAFETY: the caller's contract.
    let (word, number) = unsafe { ((*message).private[0] as usize, (*message).private[1]) };
    if word == 0 {
        return None;
    }
    let address = word & !SERVER;
    let mut holder = if word & SERVER == 0 {
        // SAFETY: of a handle that lives, by the caller's contract.
        Holder::Connection(unsafe {
            &mut *core::ptr::with_exposed_provenance_mut::<ConnectionHandle>(address)
        })
    } else {
        // SAFETY: of a handle that lives, by the caller's contract.
        Holder::Server(unsafe {
            &mut *core::ptr::with_exposed_provenance_mut::<ServerHandle>(address)
        })
    };
    let is_present = holder.present()?.received.number == MessageNumber(number);
    is_present.then_some(holder)
}

/// Copies `len` bytes of `item` to `target`.
///
/// # Safety
/// `target` can be written so far.
unsafe fn copy_out(item: Item<'_>, target: *mut c_void, len: usize) -> Status {
    if len > item.len() || (target.is_null() && len > 0) {
        return Status::Invalid;
    }
    if len > 0 {
        // SAFETY: the caller's contract; nothing is read from it.
        let target = unsafe { core::slice::from_raw_parts_mut(target.cast::<u8>(), len) };
        item.copy_into(target);
    }
    Status::Ok
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_copy(target: *mut c_void, source: *const c_void, len: usize) {
    // SAFETY: as the header asks.
    unsafe { sojourn_shm::copy::racy(source.cast(), target.cast(), len) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_item_copy(
    message: *mut In,
    index: c_uint,
    target: *mut c_void,
    len: usize,
) -> Status {
    guard(|| {
        // SAFETY: as the header asks.
        let mut holder = unsafe { holder(message) };
        let Some(Present { incoming, received }) = holder.as_mut().and_then(Holder::present) else {
            return Status::Invalid;
        };
        let Some(item) = incoming.item(index as usize) else { return Status::Invalid };
        // Bytes that C may have read already must not change, so an existing private copy is used.
        let copy = received.copies.iter_mut().find(|copy| copy.index == index as usize);
        let item = match copy {
            Some(copy) => Item::Private(&bytes_of_mut(&mut copy.words)[..item.len()]),
            None => item,
        };
        // SAFETY: as the header asks.
        unsafe { copy_out(item, target, len) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_item(message: *mut In, index: c_uint) -> *const c_void {
    guard_or(core::ptr::null(), || {
        // SAFETY: as the header asks.
        let mut holder = unsafe { holder(message) };
        let present = holder.as_mut().and_then(Holder::present);
        present
            .and_then(|Present { incoming, received }| {
                let item = incoming.item(index as usize)?;
                private(item, index as usize, &mut received.copies)
            })
            .unwrap_or(core::ptr::null())
    })
}

/// Returns the item in private memory, and copies it first if needed.
fn private(item: Item<'_>, index: usize, copies: &mut Vec<ItemCopy>) -> Option<*const c_void> {
    if let Item::Private(bytes) = item {
        return Some(bytes.as_ptr().cast());
    }
    if let Some(copy) = copies.iter().find(|copy| copy.index == index) {
        return Some(copy.words.as_ptr().cast());
    }
    let mut words = zeroed(item.len())?;
    item.copy_into(&mut bytes_of_mut(&mut words)[..item.len()]);
    let start = words.as_ptr();
    copies.push(ItemCopy { index, words });
    Some(start.cast())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_take_fd(message: *mut In, index: c_uint) -> c_int {
    guard_or(-1, || {
        // SAFETY: as the header asks.
        let mut holder = unsafe { holder(message) };
        let present = holder.as_mut().and_then(Holder::present);
        let fd = present.and_then(|present| present.incoming.take_fd(index as usize));
        fd.map_or(-1, IntoRawFd::into_raw_fd)
    })
}

/// Runs `look` on grant `index` of the present message and on its flags.
///
/// # Safety
/// As for [`holder`].
unsafe fn with_grant<T>(
    message: *mut In,
    index: c_uint,
    look: impl FnOnce(Item<'_>, u32) -> T,
) -> Option<T> {
    // SAFETY: the caller's contract.
    let mut holder = unsafe { holder(message) };
    let incoming = holder.as_mut().and_then(Holder::present)?.incoming;
    let flags = incoming.grant_refs().get(index as usize)?.flags;
    Some(look(incoming.grant(index as usize)?, flags))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_grant_copy(
    message: *mut In,
    index: c_uint,
    target: *mut c_void,
    len: usize,
) -> Status {
    guard(|| {
        // SAFETY: as the header asks.
        let copied = unsafe { with_grant(message, index, |grant, _| copy_out(grant, target, len)) };
        copied.unwrap_or(Status::Invalid)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_grant_write(
    message: *mut In,
    index: c_uint,
    offset: usize,
    source: *const c_void,
    len: usize,
) -> Status {
    guard(|| {
        let write = |grant: Item<'_>, flags: u32| {
            let fits = offset.checked_add(len).is_some_and(|end| end <= grant.len());
            if flags & WRITE == 0 || !fits || (source.is_null() && len > 0) {
                return Status::Invalid;
            }
            if let Some(start) = start_of(grant) {
                // SAFETY: within the grant, which was resolved for writing; `source` is readable as
                // the header asks.
                unsafe { sojourn_shm::copy::racy(source.cast(), start.add(offset), len) };
            }
            Status::Ok
        };
        // SAFETY: as the header asks.
        unsafe { with_grant(message, index, write) }.unwrap_or(Status::Invalid)
    })
}

/// Returns the address of the first byte of a grant.
fn start_of(grant: Item<'_>) -> Option<*mut u8> {
    match grant {
        Item::Shared(bytes) => Some(bytes.as_ptr().cast_mut()),
        Item::Private(_) => None,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_grant_map(message: *mut In, index: c_uint) -> *mut c_void {
    guard_or(core::ptr::null_mut(), || {
        // SAFETY: as the header asks.
        let start = unsafe { with_grant(message, index, |grant, _| start_of(grant)) };
        start.flatten().map_or(core::ptr::null_mut(), |start| start.cast())
    })
}

/// `sj_kept`.
#[derive(Debug)]
struct Kept(KeptGrant);

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_grant_keep(message: *mut In, index: c_uint, out: *mut *mut Kept) -> Status {
    guard(|| {
        // SAFETY: as the header asks.
        let (Some(Holder::Server(handle)), false) = (unsafe { holder(message) }, out.is_null())
        else {
            return Status::Invalid;
        };
        let kept =
            handle.server.as_ref().and_then(|server| raw::keep_grant(server, index as usize));
        match kept {
            // SAFETY: not null, so it can be written as the header asks.
            Some(kept) => unsafe { give(out, Kept(kept)) },
            None => Status::Invalid,
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_kept_map(kept: *const Kept, len: *mut usize) -> *mut c_void {
    guard_or(core::ptr::null_mut(), || {
        // SAFETY: null or a handle, as the header asks.
        let span = unsafe { kept.as_ref() }.and_then(|kept| kept.0.span());
        let Some(span) = span else { return core::ptr::null_mut() };
        if !len.is_null() {
            // SAFETY: not null, so it can be written as the header asks.
            unsafe { len.write(span.len()) };
        }
        span.as_ptr().cast()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_kept_free(kept: *mut Kept) {
    // SAFETY: null or a handle, as the header asks.
    unsafe { free(kept) }
}

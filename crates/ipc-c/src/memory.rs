//! The C functions of memory that is passed by reference: creation, and registration with a
//! connection.

use crate::client::ConnectionHandle;
use crate::errno::guard_or;
use crate::handle::{deadline, free, give, guard, handle, shared};
use crate::status::Status;
use core::ffi::c_void;
use sojourn_ipc::{GrantId, Memory, WRITE};
use sojourn_shm::Access;

/// `sj_memory`.
#[derive(Debug)]
pub(crate) struct MemoryHandle(Memory);

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_memory_new(len: usize, flags: u32, out: *mut *mut MemoryHandle) -> Status {
    guard(|| {
        if out.is_null() || len == 0 || isize::try_from(len).is_err() || flags & !WRITE != 0 {
            return Status::Invalid;
        }
        let others = if flags & WRITE != 0 { Access::ReadWrite } else { Access::Read };
        match Memory::new(len, others) {
            // SAFETY: not null, so it can be written as the header asks.
            Ok(memory) => unsafe { give(out, MemoryHandle(memory)) },
            Err(error) => Status::of_segment(&error),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_memory_map(memory: *const MemoryHandle, len: *mut usize) -> *mut c_void {
    guard_or(core::ptr::null_mut(), || {
        // SAFETY: null or a handle, as the header asks.
        let Ok(memory) = (unsafe { shared(memory) }) else { return core::ptr::null_mut() };
        let size = memory.0.len();
        if !len.is_null() {
            // SAFETY: not null, so it can be written as the header asks.
            unsafe { len.write(size) };
        }
        memory.0.span(0, size).map_or(core::ptr::null_mut(), |all| all.as_ptr().cast())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_memory_free(memory: *mut MemoryHandle) {
    // SAFETY: null or a handle, as the header asks.
    unsafe { free(memory) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_memory_register(
    connection: *mut ConnectionHandle,
    memory: *const MemoryHandle,
    deadline_ns: i64,
    id: *mut u32,
) -> Status {
    guard(|| {
        // SAFETY: null or handles, as the header asks.
        let (connection, memory) = unsafe { (handle(connection), shared(memory)) };
        let (Ok(connection), Ok(memory), false) = (connection, memory, id.is_null()) else {
            return Status::Invalid;
        };
        match connection.inner.register(&memory.0, deadline(deadline_ns)) {
            Ok(number) => {
                // SAFETY: not null, so it can be written as the header asks.
                unsafe { id.write(number.0) };
                Status::Ok
            }
            Err(error) => Status::of_call(&error),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_memory_unregister(
    connection: *mut ConnectionHandle,
    id: u32,
    deadline_ns: i64,
) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let Ok(connection) = (unsafe { handle(connection) }) else { return Status::Invalid };
        match connection.inner.unregister(GrantId(id), deadline(deadline_ns)) {
            Ok(()) => Status::Ok,
            Err(error) => Status::of_call(&error),
        }
    })
}

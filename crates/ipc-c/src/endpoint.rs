//! The C functions of endpoints.

use crate::errno::guard_or;
use crate::handle::{free, give, guard, shared};
use crate::options::{address, server_options};
use crate::server_handle::ServerHandle;
use crate::status::Status;
use crate::types::{LocalObject, Options};
use core::ffi::{c_char, c_int, c_void};
use rustix::fd::IntoRawFd;
use sojourn_ipc::Endpoint;
use sojourn_ipc::raw::EndpointState;
use std::sync::Arc;

/// `sj_endpoint`.
#[derive(Debug)]
pub(crate) struct EndpointHandle(Endpoint);

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_listen(
    name: *const c_char,
    options: *const Options,
    out: *mut *mut EndpointHandle,
) -> Status {
    guard(|| {
        if out.is_null() {
            return Status::Invalid;
        }
        // SAFETY: null or a string and null or readable, as the header asks.
        let both = unsafe { address(name).and_then(|name| Ok((name, server_options(options)?))) };
        let (address, options) = match both {
            Ok(both) => both,
            Err(status) => return status,
        };
        match Endpoint::bind(address, options) {
            // SAFETY: not null, so it can be written as the header asks.
            Ok(endpoint) => unsafe { give(out, EndpointHandle(endpoint)) },
            Err(error) => Status::of_bind(&error),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_close(endpoint: *mut EndpointHandle) {
    // SAFETY: null or a handle, as the header asks.
    unsafe { free(endpoint) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_endpoint_set_local(endpoint: *const EndpointHandle, object: *mut c_void) {
    guard_or((), || {
        // SAFETY: null or a handle, as the header asks.
        if let Ok(endpoint) = unsafe { shared(endpoint) } {
            endpoint.0.set_local(Arc::new(LocalObject(object)));
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_offer(endpoint: *const EndpointHandle, fd: *mut c_int) -> Status {
    guard(|| {
        // SAFETY: null or a handle, as the header asks.
        let (Ok(endpoint), false) = (unsafe { shared(endpoint) }, fd.is_null()) else {
            return Status::Invalid;
        };
        match endpoint.0.offer() {
            Ok(socket) => {
                // SAFETY: not null, so it can be written as the header asks.
                unsafe { fd.write(socket.into_raw_fd()) };
                Status::Ok
            }
            Err(errno) => Status::system(errno.raw_os_error()),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_server_new(
    endpoint: *const EndpointHandle,
    out: *mut *mut ServerHandle,
) -> Status {
    // SAFETY: as the header asks.
    unsafe { server_new(endpoint, out, true) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sj_answerer_new(
    endpoint: *const EndpointHandle,
    out: *mut *mut ServerHandle,
) -> Status {
    // SAFETY: as the header asks.
    unsafe { server_new(endpoint, out, false) }
}

/// # Safety
/// Null or a handle; null or writable.
unsafe fn server_new(
    endpoint: *const EndpointHandle,
    out: *mut *mut ServerHandle,
    receives: bool,
) -> Status {
    guard(|| {
        // SAFETY: the caller's contract.
        let (Ok(endpoint), false) = (unsafe { shared(endpoint) }, out.is_null()) else {
            return Status::Invalid;
        };
        let server = receives.then(|| endpoint.0.server());
        // SAFETY: the caller's contract.
        unsafe { give(out, ServerHandle::new(server, EndpointState::of(&endpoint.0))) }
    })
}

//! The conversion of addresses and options from C.

use crate::status::{Status, explain};
use crate::types::{Options, WaitOut};
use core::ffi::{CStr, c_char};
use core::time::Duration;
use rustix::process::Uid;
use sojourn_ipc::{Address, ConnectOptions, ServerOptions, Wait};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Reads an address.
///
/// # Safety
/// Null or a string.
pub(crate) unsafe fn address(text: *const c_char) -> Result<Address, Status> {
    if text.is_null() {
        return Err(Status::Invalid);
    }
    // SAFETY: a string, by the caller's contract.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    match core::str::from_utf8(bytes) {
        Ok(text) => Address::parse(text).map_err(|error| Status::of_address(&error)),
        // The kernel treats names as bytes, so names that are not UTF-8 are accepted.
        Err(_) => Ok(match bytes.strip_prefix(b"@") {
            Some(name) => Address::Abstract(name.into()),
            None => Address::Path(OsStr::from_bytes(bytes).into()),
        }),
    }
}

/// # Safety
/// Null or readable.
unsafe fn read(options: *const Options) -> Option<Options> {
    // SAFETY: the caller's contract; every bit pattern is a value.
    unsafe { options.as_ref() }.copied()
}

impl WaitOut {
    /// Returns the way of waiting, if the options choose one.
    pub(crate) fn wait(self) -> Option<Wait> {
        match (self.wait, self.spin_us) {
            (0, _) => Some(Wait::Adaptive),
            (1, 0) => Some(Wait::Spin(None)),
            (1, limit_us) => Some(Wait::Spin(Some(Duration::from_micros(limit_us.into())))),
            (2, _) => Some(Wait::Park),
            (3, _) => Some(Wait::Yield),
            _ => None,
        }
    }
}

impl From<Wait> for WaitOut {
    fn from(wait: Wait) -> Self {
        let (wait, spin_us) = match wait {
            Wait::Adaptive => (0, 0),
            Wait::Spin(None) => (1, 0),
            // A limit of 0 would mean spinning for ever, so the least limit is used.
            Wait::Spin(Some(limit)) => {
                (1, u32::try_from(limit.as_micros()).unwrap_or(u32::MAX).max(1))
            }
            Wait::Park => (2, 0),
            Wait::Yield => (3, 0),
        };
        Self { wait, spin_us }
    }
}

fn wait(options: &Options) -> Result<Wait, Status> {
    let wanted = WaitOut { wait: options.wait, spin_us: options.spin_us };
    wanted.wait().ok_or_else(|| {
        explain(&"options: wait is 0 (adaptive), 1 (spin), 2 (park) or 3 (yield)");
        Status::Invalid
    })
}

fn or<T: PartialEq + Default>(value: T, default: T) -> T {
    if value == T::default() { default } else { value }
}

/// Returns a client's options.
///
/// # Safety
/// Null (all defaults) or readable.
pub(crate) unsafe fn connect_options(options: *const Options) -> Result<ConnectOptions, Status> {
    let default = ConnectOptions::default();
    // SAFETY: the caller's contract.
    let Some(options) = (unsafe { read(options) }) else { return Ok(default) };
    let Ok(area) = u32::try_from(options.area) else {
        explain(&"options: area is below 4 GiB");
        return Err(Status::Invalid);
    };
    Ok(ConnectOptions {
        wait: wait(&options)?,
        area,
        max_inflight: options.max_inflight,
        max_message: or(options.max_message, default.max_message),
        timeout: match options.timeout_ms {
            0 => default.timeout,
            limit_ms => Duration::from_millis(limit_ms.into()),
        },
        server_user: (options.check_uid != 0).then(|| Uid::from_raw_unchecked(options.server_uid)),
    })
}

/// Returns a server's options.
///
/// # Safety
/// Null (all defaults) or readable.
pub(crate) unsafe fn server_options(options: *const Options) -> Result<ServerOptions, Status> {
    let default = ServerOptions::default();
    // SAFETY: the caller's contract.
    let Some(options) = (unsafe { read(options) }) else { return Ok(default) };
    Ok(ServerOptions {
        wait: wait(&options)?,
        area: or(options.area, default.area),
        max_message: or(options.max_message, default.max_message),
        max_inflight: or(options.max_inflight, default.max_inflight),
        max_clients: or(options.max_clients, default.max_clients),
        max_granted: or(options.max_granted, default.max_granted),
        ..default
    })
}

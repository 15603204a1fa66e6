//! Socket options: `setsockopt` and `getsockopt`.
//!
//! The kernel always decides if an option is valid. The table of `sojourn_options` has the effect
//! of each option on a session that is away; this file passes that on to the library. Sessions with
//! other hosts obey some options themselves, and know more about the connection than the kernel's
//! idle socket: see `remote::options` of the library.

use crate::errno;
use crate::guard::kernel;
use crate::guard::{home, is_open, tell, within};
use crate::library::{
    Corking, EngineAnswers, OptionAnswer, OptionChange, SocketOption, library, tcp_info,
};
use crate::raw::Kernel;
use crate::{buffers, raw};
use core::ffi::{c_int, c_void};
use libc::socklen_t;
use sojourn_options::{Answer, Change, Setting};

type SetFn = unsafe extern "C-unwind" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
type GetFn = unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;

/// Returns true if the library is told about the option in another way than as
/// [`SocketOption::Other`].
fn is_told_otherwise(setting: Setting) -> bool {
    use Setting::{DatagramsObey, DatagramsOffered, Home, Timeout};
    matches!(setting, Timeout | Home | DatagramsObey | DatagramsOffered)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel =
        unsafe { kernel!(SYS_setsockopt, c"setsockopt" as SetFn; fd, level, name, value, len) };
    setsockopt_by(fd, level, name, value, len, kernel) as c_int
}

/// Serves [`setsockopt`]; `kernel` makes the kernel's call.
#[allow(clippy::too_many_arguments, reason = "those of the call that it serves")]
pub(crate) fn setsockopt_by(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
    kernel: impl Kernel,
) -> isize {
    if !is_open() {
        return kernel();
    }
    let setting = sojourn_options::setting(level, name);
    if let Some(result) = set_on_datagrams(fd, setting, kernel) {
        return result;
    }
    // A UDP socket refuses options of TCP, so there is nothing to tell.
    if !is_told_otherwise(setting) && level != libc::IPPROTO_TCP {
        tell(|library| library.option_changed(fd, SocketOption::Other));
    }
    if let Some(corking) = corking(setting, value, len) {
        tell(|library| library.corked(fd, corking));
    }
    let set = match setting {
        Setting::Ignored => return kernel(),
        Setting::Timeout if !is_negative(value, len) => {
            let result = kernel();
            if result == 0 && is_open() {
                within(|library| library.option_changed(fd, SocketOption::Timeouts));
            }
            return result;
        }
        // With a time limit below nothing calls do not wait, but the socket tells no other limit
        // than without one (`sock_set_timeout` of the kernel), so the library could not know.
        Setting::Timeout | Setting::Home | Setting::DatagramsObey | Setting::DatagramsOffered => {
            tell(|library| library.option_changed(fd, SocketOption::Binding));
            return kernel();
        }
        Setting::Engine(change) => OptionChange::Obeyed(change),
        Setting::Keepalive => OptionChange::Keepalive(number_at(value, len) != Some(0)),
        Setting::NotRemote => OptionChange::NotRemote,
    };
    if !is_open() || library().is_kernel_only(fd) {
        return kernel();
    }
    let arguments = [fd as usize, level as usize, name as usize, value as usize, len as usize, 0];
    // SAFETY: the kernel checks the program's arguments.
    let inside = || unsafe { raw::call(libc::SYS_setsockopt, arguments) };
    let result = match within(|library| library.set_option(fd, set, inside)).flatten() {
        Some(result) => errno::kernel(result),
        None => kernel(),
    };
    if setting == Setting::Engine(Change::UserTimeout) {
        tell(|library| library.option_changed(fd, SocketOption::Timeouts));
    }
    result
}

/// Sets an option that has a different effect on a UDP socket than on a stream. Returns `None` if
/// the option is not one of these, or if `fd` is not a UDP socket.
fn set_on_datagrams(fd: c_int, setting: Setting, kernel: impl Kernel) -> Option<isize> {
    let is_obeyed = match setting {
        Setting::DatagramsObey | Setting::Engine(Change::Header) => true,
        Setting::DatagramsOffered => false,
        _ => return None,
    };
    if !is_open() || within(|library| library.is_udp(fd)) != Some(true) {
        return None;
    }
    if !is_obeyed {
        tell(|library| library.option_changed(fd, SocketOption::Other));
        return Some(kernel());
    }
    let result = kernel();
    if result == 0 {
        within(|library| library.option_changed(fd, SocketOption::OfDatagrams));
    }
    Some(result)
}

/// Returns what an option of TCP does to bytes that are held back.
fn corking(setting: Setting, value: *const c_void, len: socklen_t) -> Option<Corking> {
    let is_on = || number_at(value, len).is_some_and(|value| value != 0);
    match setting {
        Setting::Engine(Change::Cork) => Some(if is_on() { Corking::In } else { Corking::Out }),
        Setting::Engine(Change::NoDelay) => is_on().then_some(Corking::Push),
        _ => None,
    }
}

/// Returns true if an option is set to a negative number of seconds (`struct timeval`).
fn is_negative(value: *const c_void, len: socklen_t) -> bool {
    if (len as usize) < size_of::<libc::timeval>() {
        return false;
    }
    // SAFETY: plain data, which the program leaves alone during the call.
    unsafe { buffers::structure(value.cast::<libc::timeval>()) }.is_some_and(|time| time.tv_sec < 0)
}

/// Returns the number that an option is set to; `None` if it cannot be read, in which case the
/// kernel refuses the call.
fn number_at(value: *const c_void, len: socklen_t) -> Option<c_int> {
    let bytes = value.cast::<[u8; 4]>();
    if (len as usize) < size_of::<c_int>() {
        return None;
    }
    // SAFETY: plain data, which the program leaves alone during the call.
    unsafe { buffers::structure(bytes) }.map(c_int::from_ne_bytes)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's arguments, passed on unchanged.
    let kernel =
        unsafe { kernel!(SYS_getsockopt, c"getsockopt" as GetFn; fd, level, name, value, len) };
    getsockopt_by(fd, level, name, value, len, kernel) as c_int
}

/// Serves [`getsockopt`]; `kernel` makes the kernel's call.
#[allow(clippy::too_many_arguments, reason = "those of the call that it serves")]
pub(crate) fn getsockopt_by(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
    kernel: impl Kernel,
) -> isize {
    if !is_open() {
        return kernel();
    }
    let Some(asked) = sojourn_options::answer(level, name) else { return kernel() };
    if library().is_kernel_only(fd) {
        return kernel();
    }
    if asked == Answer::Home {
        home(fd, true);
        return kernel();
    }
    if asked == Answer::Error {
        return error_of(fd, value, len, kernel);
    }
    let arguments = [fd as usize, level as usize, name as usize, value as usize, len as usize, 0];
    // SAFETY: the kernel checks the program's arguments.
    let inside = || unsafe { raw::call(libc::SYS_getsockopt, arguments) };
    match within(|library| library.ask_option(fd, inside)).flatten() {
        Some(OptionAnswer { result: 0, engine }) => {
            put_over(value, len, |bytes| overlay(asked, &engine, bytes));
            0
        }
        Some(OptionAnswer { result, .. }) => errno::kernel(result),
        None => kernel(),
    }
}

/// Answers `SO_ERROR`: the kernel's pending error, or else `ECONNRESET` if the library knows that
/// the peer was killed.
#[inline(never)]
fn error_of(fd: c_int, value: *mut c_void, len: *mut socklen_t, kernel: impl Kernel) -> isize {
    within(|library| library.look_for_end(fd));
    let result = kernel();
    if result == 0 {
        put_over(value, len, |bytes| {
            let is_none = bytes.iter().all(|byte| *byte == 0);
            if is_none && within(|library| library.take_reset(fd)) == Some(true) {
                put_number(bytes, libc::ECONNRESET);
            }
        });
    }
    result
}

fn put_number(bytes: &mut [u8], value: c_int) {
    let len = bytes.len().min(size_of::<c_int>());
    bytes[..len].copy_from_slice(&value.to_ne_bytes()[..len]);
}

fn overlay(asked: Answer, known: &EngineAnswers, bytes: &mut [u8]) {
    let mut number = |value: c_int| put_number(bytes, value);
    match asked {
        Answer::Error | Answer::Home => {}
        Answer::Keepalive => number(known.keepalive.into()),
        Answer::QuickAck => {
            if let Some(is_on) = known.quickack {
                number(is_on.into());
            }
        }
        Answer::SegmentSize => {
            if let Some(info) = &known.info {
                number(info.snd_mss as c_int);
            }
        }
        Answer::Info => {
            if let Some(info) = &known.info {
                tcp_info::overlay(info, bytes);
            }
        }
    }
}

/// Changes the value that the kernel has just written; `len` holds its length.
fn put_over(value: *mut c_void, len: *mut socklen_t, change: impl FnOnce(&mut [u8])) {
    if !buffers::is_writable(len) {
        return;
    }
    let mut bytes = [0; tcp_info::LEN];
    // SAFETY: the length is writable, as checked above, and so readable.
    let count = bytes.len().min(unsafe { len.read_unaligned() } as usize);
    if buffers::accessible(value as usize, count, buffers::Access::Write) < count {
        return;
    }
    // SAFETY: `count` bytes of the value are accessible, as checked above; `bytes` has at least as
    // many.
    unsafe { core::ptr::copy_nonoverlapping(value.cast::<u8>(), bytes.as_mut_ptr(), count) };
    change(&mut bytes[..count]);
    // SAFETY: `count` bytes of the value are accessible, as checked above.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), count) };
}

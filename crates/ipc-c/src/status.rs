//! Outcomes as numbers: `sj_status`, errno, and sentences for people.

use crate::errno::{guard_or, set_errno};
use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int};
use once_cell::race::OnceBox;
use sojourn_ipc::{AddressError, BindError, CallError, ConnectError, Gone, Reason};
use sojourn_shm::SegmentError;
use std::ffi::CString;

/// `sj_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok = 0,
    Timeout = 1,
    Disconnected = 2,
    Fault = 3,
    Invalid = 4,
    TooLarge = 5,
    System = 6,
    BadMessage = 7,
    Gone = 8,
    Busy = 9,
    Refused = 10,
}

impl From<Gone> for Status {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl Status {
    /// `SJ_SYSTEM`, with errno.
    #[cold]
    pub(crate) fn system(number: c_int) -> Self {
        set_errno(number);
        Self::System
    }

    /// The status of a failed call; a fault's code goes elsewhere.
    #[cold]
    pub(crate) fn of_call(error: &CallError) -> Self {
        match error {
            CallError::Timeout => Self::Timeout,
            CallError::Disconnected(_) => Self::Disconnected,
            CallError::Fault(_) => Self::Fault,
            CallError::Reply(_) => Self::BadMessage,
            CallError::Arguments(_) => Self::Invalid,
            CallError::TooLarge => Self::TooLarge,
            CallError::Busy => Self::Busy,
            CallError::System(number) => Self::system(*number),
            // A case that the Rust interface has and the header does not.
            _ => Self::system(libc::ENOTRECOVERABLE),
        }
    }

    pub(crate) fn of_segment(error: &SegmentError) -> Self {
        match error {
            SegmentError::System(errno) => Self::system(errno.raw_os_error()),
            _ => Self::BadMessage,
        }
    }

    pub(crate) fn of_connect(error: &ConnectError) -> Self {
        explain(error);
        match error {
            ConnectError::NotFound(_) => Self::system(libc::ENOENT),
            ConnectError::Permission(_) => Self::system(libc::EACCES),
            ConnectError::Refused(..) => {
                set_errno(libc::ECONNREFUSED);
                Self::Refused
            }
            ConnectError::WrongServer(..) => {
                set_errno(libc::EPERM);
                Self::Refused
            }
            ConnectError::TimedOut(_) => Self::Timeout,
            ConnectError::Protocol(_) => Self::BadMessage,
            ConnectError::Region(_, error) => Self::of_segment(error),
            ConnectError::System(_, errno) => Self::system(errno.raw_os_error()),
        }
    }

    pub(crate) fn of_bind(error: &BindError) -> Self {
        explain(error);
        match error {
            BindError::InUse(_) => Self::system(libc::EADDRINUSE),
            BindError::NotAListener(_) => Self::Invalid,
            BindError::System(_, errno) => Self::system(errno.raw_os_error()),
        }
    }

    pub(crate) fn of_address(error: &AddressError) -> Self {
        explain(error);
        Self::Invalid
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Keeps the sentence for `sj_error`.
pub(crate) fn explain(error: &dyn core::fmt::Display) {
    let mut text = error.to_string();
    text.retain(|character| character != '\0');
    LAST_ERROR.with_borrow_mut(|last| *last = CString::new(text).unwrap_or_default());
}

#[unsafe(no_mangle)]
extern "C" fn sj_error() -> *const c_char {
    guard_or(c"".as_ptr(), || LAST_ERROR.with_borrow(|last| last.as_ptr()))
}

#[unsafe(no_mangle)]
extern "C" fn sj_status_text(status: c_int) -> *const c_char {
    let text: &'static CStr = match status {
        0 => c"success",
        1 => c"the deadline passed",
        2 => c"disconnected",
        3 => c"the server answered with a fault",
        4 => c"an argument is not acceptable",
        5 => c"the message is larger than the peer accepts",
        6 => c"a system call failed",
        7 => c"the peer's message breaks the rules of the interface",
        8 => c"the client is gone",
        9 => c"all calls of this connection are outstanding",
        10 => c"the endpoint does not take us",
        _ => c"unknown status",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn sj_reason_text(reason: c_int) -> *const c_char {
    guard_or(c"".as_ptr(), || reason_text(reason).as_ptr())
}

fn reason_text(reason: c_int) -> &'static CStr {
    static TEXTS: OnceBox<Vec<CString>> = OnceBox::new();
    let texts = TEXTS.get_or_init(|| {
        let text = |reason: Reason| CString::new(reason.text()).unwrap_or_default();
        Box::new(reasons().map(text).collect())
    });
    if reason == 0 {
        return c"the connection has not ended";
    }
    let known = usize::try_from(reason).ok().and_then(|code| texts.get(code.checked_sub(1)?));
    known.map_or(c"unknown reason", |text| text.as_c_str())
}

/// All reasons, by number from 1.
pub(crate) fn reasons() -> impl Iterator<Item = Reason> {
    (1..).map(|code| (code, Reason::from_code(code))).map_while(|(code, reason)| {
        // What is unknown counts as another.
        (reason.code() == code).then_some(reason)
    })
}

/// The reason with that number, if there is one.
pub(crate) fn reason(code: c_int) -> Option<Reason> {
    reasons().find(|reason| i64::from(reason.code()) == i64::from(code))
}

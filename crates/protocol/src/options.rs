//! Options of a session's socket: set and asked as the preload library does for programs.
//!
//! The kernel decides if an option is valid, the table of `sojourn_options` says what it does to a
//! session that is away. A client chooses the number and the length: so only those options are
//! served whose value is as many bytes as it says, and names nothing of this process's. Setting one
//! may send the session home, so this runs on the thread for slow work. Not here: that thread
//! (`slow`).
#![allow(unsafe_code, reason = "options by number, which no safe wrapper has")]

use crate::calls::Socket;
use rustix::io::Errno;
use sojourn_library::{EngineAnswers, OptionChange, SocketOption, library, tcp_info};
use sojourn_options::{Answer, OptionName, Setting};
use sojourn_session::protocol::server::OPTION_MAX;

/// The longest value of an option.
const LEN: usize = OPTION_MAX as usize;

impl Socket {
    /// Sets an option.
    ///
    /// # Errors
    /// Those of setsockopt(2). `ENOPROTOOPT`, too, for an option that is only for the caller's own
    /// socket.
    pub(crate) fn set_option(&self, option: OptionName, value: &[u8]) -> Result<(), Errno> {
        if !sojourn_options::can_be_set_for_another(option) {
            return Err(Errno::NOPROTOOPT);
        }
        let fd = self.number();
        let kernel = || set(fd, option, value);
        let result = match sojourn_options::setting(option.level, option.number) {
            Setting::Ignored => kernel(),
            Setting::Home | Setting::DatagramsObey | Setting::DatagramsOffered => {
                library().option_changed(fd, SocketOption::Binding);
                kernel()
            }
            // Calls here never wait in the kernel: the limits are the clients' own.
            Setting::Timeout => kernel(),
            Setting::Engine(change) => self.set_on_engine(OptionChange::Obeyed(change), kernel),
            Setting::Keepalive => {
                let is_on = value.iter().take(4).any(|byte| *byte != 0);
                self.set_on_engine(OptionChange::Keepalive(is_on), kernel)
            }
            Setting::NotRemote => self.set_on_engine(OptionChange::NotRemote, kernel),
        };
        status(result)
    }

    fn set_on_engine(&self, what: OptionChange, kernel: impl Fn() -> isize) -> isize {
        library().set_option(self.number(), what, &kernel).unwrap_or_else(kernel)
    }

    /// Asks for an option. Returns its value, `size` bytes at most.
    ///
    /// # Errors
    /// As for [`Socket::set_option`].
    pub(crate) fn get_option(&self, option: OptionName, size: usize) -> Result<Vec<u8>, Errno> {
        if !sojourn_options::can_be_read_for_another(option) {
            return Err(Errno::NOPROTOOPT);
        }
        let fd = self.number();
        let mut value = [0; LEN];
        let mut len = size.min(LEN);
        let asked = sojourn_options::answer(option.level, option.number);
        if asked == Some(Answer::Error) {
            library().look_for_end(fd);
        }
        let mut kernel = || get(fd, option, &mut value, &mut len);
        let engine = match asked {
            Some(asked) if asked != Answer::Error => library().ask_option(fd, &mut kernel),
            _ => None,
        };
        let (result, known) = match engine {
            Some(answer) => (answer.result, Some(answer.engine)),
            None => (kernel(), None),
        };
        status(result)?;
        let value = &mut value[..len];
        if let (Some(asked), Some(known)) = (asked, known) {
            overlay(asked, &known, value);
        }
        // The kernel's error comes first; the library's is told once.
        let is_none = asked == Some(Answer::Error) && value.iter().all(|byte| *byte == 0);
        if is_none && library().take_reset(fd) {
            put(value, libc::ECONNRESET);
        }
        Ok(value.to_vec())
    }
}

/// Lays the engine's answer over the kernel's.
fn overlay(asked: Answer, known: &EngineAnswers, value: &mut [u8]) {
    match asked {
        Answer::Error | Answer::Home => {}
        Answer::Keepalive => put(value, known.keepalive.into()),
        Answer::QuickAck => known.quickack.into_iter().for_each(|on| put(value, on.into())),
        Answer::SegmentSize => {
            if let Some(info) = &known.info {
                put(value, info.snd_mss.cast_signed());
            }
        }
        Answer::Info => known.info.iter().for_each(|info| tcp_info::overlay(info, value)),
    }
}

fn put(value: &mut [u8], number: i32) {
    let len = value.len().min(size_of::<i32>());
    value[..len].copy_from_slice(&number.to_ne_bytes()[..len]);
}

/// Returns the result of a system call as one: an error as its negative number.
fn result(returned: i32) -> isize {
    let error = || std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    if returned < 0 { -(error() as isize) } else { returned as isize }
}

fn status(result: isize) -> Result<(), Errno> {
    if result >= 0 { Ok(()) } else { Err(Errno::from_raw_os_error(-result as i32)) }
}

fn set(fd: i32, option: OptionName, value: &[u8]) -> isize {
    // SAFETY: the kernel reads `value` and no further.
    result(unsafe {
        let len = value.len() as libc::socklen_t;
        libc::setsockopt(fd, option.level, option.number, value.as_ptr().cast(), len)
    })
}

fn get(fd: i32, option: OptionName, value: &mut [u8; LEN], len: &mut usize) -> isize {
    let mut option_len = (*len).min(value.len()) as libc::socklen_t;
    // SAFETY: `value` has `option_len` bytes, which the kernel writes at most: of options that
    // count otherwise none comes here (`can_be_read_for_another`).
    let returned = result(unsafe {
        let at = value.as_mut_ptr().cast();
        libc::getsockopt(fd, option.level, option.number, at, &raw mut option_len)
    });
    *len = (option_len as usize).min(value.len());
    returned
}

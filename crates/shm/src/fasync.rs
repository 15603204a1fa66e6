//! Signals for I/O (`O_ASYNC`, fcntl(2), signal(7)): whom a file's signals go to, and sending one
//! for something that did not happen in the kernel.
//!
//! The kernel alone may send such a signal: it fills in what `rt_sigqueueinfo(2)` refuses to other
//! threads, checks the permission of whoever has set the owner, and knows what to do when the queue
//! is full. So [`Sender`] has a pipe of its own. It gives that the owner and the signal of the
//! program's file, and makes happen there what happened elsewhere.
//!
//! The signal names the number under which `O_ASYNC` was set (`si_fd`). The pipe's end is under the
//! program's number for that moment, so a sender needs a thread with a descriptor table of its own
//! ([`crate::aside`]). Not here: when a signal is due.

use crate::descriptor::{of_program, result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{geteuid, getuid};

/// `O_ASYNC`, which rustix does not name.
pub const ASYNC: OFlags = OFlags::from_bits_retain(libc::O_ASYNC as u32);

/// Commands of fcntl(2) that libc does not name (`linux/fcntl.h`).
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;
const F_GETOWNER_UIDS: i32 = 17;

/// The first signal that is queued, for the kernel (the C library uses two itself).
const QUEUED: i32 = 32;

/// What a signal tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Something can be read (`POLL_IN`).
    Input,
    /// There is room (`POLL_OUT`).
    Output,
}

/// `struct f_owner_ex`, fcntl(2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OwnerId {
    /// A thread, a process or a process group.
    kind: i32,
    id: i32,
}

/// Who gets a file's signals, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    whom: OwnerId,
    /// The user and the effective user of whoever has set the owner.
    users: [u32; 2],
    /// 0: `SIGIO`, without the file's number.
    signal: i32,
}

impl Owner {
    /// Returns the owner of the program's file; `None` if it has none, or one that has ended.
    ///
    /// # Errors
    /// Those of fcntl(2); `EINVAL` for kernels that do not tell the owner's users.
    pub fn of(fd: BorrowedFd<'_>) -> Result<Option<Self>, Errno> {
        let (mut whom, mut users) = (OwnerId::default(), [0u32; 2]);
        fcntl(fd, F_GETOWN_EX, core::ptr::from_mut(&mut whom) as usize)?;
        if whom.id == 0 {
            return Ok(None);
        }
        fcntl(fd, F_GETOWNER_UIDS, core::ptr::from_mut(&mut users) as usize)?;
        let signal = fcntl(fd, F_GETSIG, 0)? as i32;
        Ok(Some(Self { whom, users, signal }))
    }

    /// Returns true if the signal tells the file's number.
    pub fn hears_number(&self) -> bool {
        self.signal != 0
    }

    /// Returns true if several signals may wait for the owner, one for each event.
    pub fn hears_each(&self) -> bool {
        self.signal >= QUEUED
    }

    /// Gives a file this owner and this signal.
    fn own(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        fcntl(fd, F_SETOWN_EX, core::ptr::from_ref(&self.whom) as usize)?;
        fcntl(fd, F_SETSIG, self.signal as usize).map(drop)
    }
}

/// Sends signals; for a thread with a descriptor table of its own.
#[derive(Debug)]
pub struct Sender {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Sender {
    /// Makes a sender.
    ///
    /// # Errors
    /// Those of pipe(2).
    pub fn new() -> Result<Self, Errno> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // With room for one page the pipe is full with one byte, so that each read is one for which
        // every kernel tells the writer (Linux 5.5 to 5.14: only if the pipe was full).
        fcntl_setpipe_size(&writer, 4096)?;
        Ok(Self { reader, writer })
    }

    /// Sends `owner` the signal of a file that has the number `number`, `times` times.
    ///
    /// # Errors
    /// `EPERM`: the owner was set with other rights than this thread has. Others: those of
    /// fcntl(2).
    pub fn send(&self, owner: Owner, number: i32, event: Event, times: u32) -> Result<(), Errno> {
        if owner.users != [getuid().as_raw(), geteuid().as_raw()] {
            return Err(Errno::PERM);
        }
        let end = match event {
            Event::Input => &self.reader,
            Event::Output => &self.writer,
        };
        owner.own(end.as_fd())?;
        if event == Event::Output {
            rustix::io::write(&self.writer, &[0])?;
        }
        // Between these two nothing happens in the pipe but what is to be told.
        let armed = if owner.hears_number() {
            with_number(end.as_fd(), number, arm)
        } else {
            arm(end.as_fd())
        };
        let sent = armed.and_then(|()| match event {
            Event::Input => (0..times).try_for_each(|_| self.pass_byte()),
            Event::Output => rustix::io::read(&self.reader, &mut [0]).map(drop),
        });
        fcntl_setfl(end, OFlags::NONBLOCK)?;
        if sent.is_err() {
            // The pipe is empty for the next signal.
            let _ = rustix::io::read(&self.reader, &mut [0]);
        }
        sent
    }

    fn pass_byte(&self) -> Result<(), Errno> {
        rustix::io::write(&self.writer, &[0])?;
        rustix::io::read(&self.reader, &mut [0]).map(drop)
    }
}

fn arm(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    fcntl_setfl(fd, OFlags::NONBLOCK | ASYNC)
}

/// Calls `f` with the file of `fd` under that number, in this thread's own table. Afterwards the
/// number means what it did before: an epoll set that has it still knows it, because the file
/// stays open.
fn with_number(
    fd: BorrowedFd<'_>,
    number: i32,
    f: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let at = of_program(number).ok_or(Errno::BADF)?;
    if fd.as_raw_fd() == number {
        return f(at);
    }
    let before = match fcntl_dupfd_cloexec(at, 0) {
        Ok(before) => Some(before),
        Err(Errno::BADF) => None,
        Err(error) => return Err(error),
    };
    put_at(fd, number)?;
    let result = f(at);
    match before {
        Some(before) => put_at(before.as_fd(), number)?,
        // SAFETY: this function has opened the number, in this thread's table.
        None => unsafe { rustix::io::close(number) },
    }
    result
}

fn put_at(fd: BorrowedFd<'_>, number: i32) -> Result<(), Errno> {
    // SAFETY: no memory depends on either number.
    let status = unsafe { libc::syscall(libc::SYS_dup3, fd.as_raw_fd(), number, libc::O_CLOEXEC) };
    result(status).map(drop)
}

fn fcntl(fd: BorrowedFd<'_>, command: i32, argument: usize) -> Result<i64, Errno> {
    // SAFETY: `argument` is a number, or the address of what the command reads or writes.
    result(unsafe { libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), command, argument) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aside;
    use std::sync::Mutex;

    /// Signals are the process's.
    static ALONE: Mutex<()> = Mutex::new(());

    /// What a signal tells: number, code, band, descriptor.
    type Told = (i32, i32, i64, i32);

    /// Calls `f` in a thread that blocks `signals`, with a sender in another with a table of its
    /// own; returns the signals that the first thread's process then finds.
    fn told(signals: &[i32], f: impl FnOnce(&mut dyn FnMut(Owner, Event, u32))) -> Vec<Told> {
        let _alone = ALONE.lock().unwrap();
        // SAFETY: the set is filled before it is used; nothing else is touched.
        let set = unsafe {
            let mut set = core::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut());
            set
        };
        let kept = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let number = fcntl_dupfd_cloexec(&kept, 800).unwrap();
        let at = number.as_raw_fd();
        let aside::Sides { aside: mut other, worker } = aside::pair::<(OwnedFd, Sender)>();
        // The thread inherits the mask.
        let thread = std::thread::spawn(move || {
            worker.serve(|| Some((aside::keep_only(at).ok()?, Sender::new().ok()?)));
        });
        f(&mut |owner, event, times| {
            // The number is open in the other table, where it means something else.
            let sent = other.call(move |(_, sender)| sender.send(owner, at, event, times));
            assert_eq!(sent, Some(Ok(())));
            assert_eq!(other.call(|(kept, _)| rustix::io::fcntl_getfd(kept).is_ok()), Some(true));
        });
        drop(other);
        thread.join().unwrap();
        let mut all = Vec::new();
        loop {
            // SAFETY: `info` is filled if the call succeeds; nothing else is touched.
            unsafe {
                let mut info = core::mem::zeroed::<[i32; 32]>();
                let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                let into = info.as_mut_ptr().cast();
                if libc::sigtimedwait(&raw const set, into, &raw const no_time) < 0 {
                    break;
                }
                let band = i64::from(info[4]) | i64::from(info[5]) << 32;
                // The caller compares with the number that was asked for.
                all.push((info[0], info[2], band, if info[6] == at { -1 } else { info[6] }));
            }
        }
        all
    }

    fn owner(kind: i32, id: i32, signal: i32) -> Owner {
        let users = [getuid().as_raw(), geteuid().as_raw()];
        Owner { whom: OwnerId { kind, id }, users, signal }
    }

    /// Only this thread blocks the signals, so they are for it.
    fn this_thread() -> i32 {
        rustix::thread::gettid().as_raw_nonzero().get()
    }

    const OF_THREAD: i32 = 0;
    const IN: i64 = 0x41;
    const OUT: i64 = 0x304;

    #[test]
    fn a_queued_signal_tells_event_and_number_once_for_each() {
        let (first, this) = (libc::SIGRTMIN() + 3, this_thread());
        let found = told(&[first], |send| {
            send(owner(OF_THREAD, this, first), Event::Input, 3);
            send(owner(OF_THREAD, this, first), Event::Output, 1);
        });
        let input = (first, 1, IN, -1);
        assert_eq!(found, [input, input, input, (first, 2, OUT, -1)]);
    }

    #[test]
    fn a_plain_signal_tells_nothing_and_waits_once() {
        let this = this_thread();
        let found = told(&[libc::SIGIO], |send| {
            send(owner(OF_THREAD, this, 0), Event::Input, 1);
            send(owner(OF_THREAD, this, 0), Event::Input, 1);
        });
        assert_eq!(found, [(libc::SIGIO, 0x80, 0, 0)]);
    }

    #[test]
    fn the_owner_of_a_file_is_read_with_the_users_who_set_it() {
        let (reader, _writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        assert_eq!(Owner::of(reader.as_fd()), Ok(None));
        let set = owner(OF_THREAD, this_thread(), libc::SIGRTMIN());
        set.own(reader.as_fd()).unwrap();
        let read = Owner::of(reader.as_fd()).unwrap().unwrap();
        assert_eq!(read, set);
        assert!(read.hears_each() && read.hears_number());
        let sender = Sender::new().unwrap();
        let others = Owner { users: [u32::MAX - 1, 0], ..read };
        assert_eq!(sender.send(others, 0, Event::Input, 1), Err(Errno::PERM));
    }
}

//! The library's own descriptors in the program's table: few, at high numbers, and hidden from the
//! program.
//!
//! Not here: when a number may be taken (`host::numbers`), and the protocol thread's own table
//! (`protocol::outside`).
//!
//! # Theory of operation
//! The library's own descriptors are the bell, by which the protocol thread is woken and gets
//! descriptors; the epoll set with the descriptors of sessions that are away; the file that says
//! how busy the machine is; and the event descriptors of inboxes. Descriptors that the protocol
//! thread receives for the program's threads cross the bell's socket, too. They wait in it until a
//! thread that may take numbers at that moment receives them.

use crate::host::Host;
use crate::host::lock::lock;
use crate::host::numbers;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, IoSlice, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use rustix::process::Resource;
use sojourn_ipc::ancillary;
use sojourn_shm::{FdNumber, MovableFd, wait};
use std::sync::{Mutex, OnceLock};

/// Numbers below the limit of open files that the library uses for itself, where the limit allows.
const HIDDEN: u64 = 256;
/// The same where the limit is low: the program meets the first of them later.
const FEW: u64 = 4;
/// How long a thread in a call that must not take long waits for other threads' calls before it
/// makes a descriptor; it gives up after that.
const HOLD_LIMIT: Duration = Duration::from_millis(2);
/// The same where nobody waits for the call.
const LONG_LIMIT: Duration = Duration::from_millis(50);

/// The descriptors that are open in the program's table as long as there is a protocol thread.
#[derive(Debug)]
pub(crate) struct ProtocolDescriptors {
    bell: MovableFd,
    /// The other end of the bell, until the protocol thread has it in its own table.
    far: Mutex<Option<MovableFd>>,
    /// The epoll set with the descriptors of sessions that are away.
    pub(crate) watched: MovableFd,
    /// `/proc/loadavg`.
    load: Option<MovableFd>,
}

/// The library's own descriptors of one process.
#[derive(Debug)]
pub(crate) struct OwnDescriptors {
    // FORK: one process's.
    kit: OnceLock<ProtocolDescriptors>,
    places: Mutex<Vec<FdNumber>>,
    /// A message in the bell's socket waits for a thread of the program's to take it.
    is_wanted: AtomicBool,
    taken: Mutex<Option<Option<Vec<MovableFd>>>>,
    /// Is called with a number that is about to be closed.
    forget: fn(i32),
}

impl OwnDescriptors {
    pub(crate) fn new(forget: fn(i32)) -> Self {
        Self {
            kit: OnceLock::new(),
            places: Mutex::default(),
            is_wanted: AtomicBool::new(false),
            taken: Mutex::default(),
            forget,
        }
    }

    pub(crate) fn kit(&self) -> Option<&ProtocolDescriptors> {
        self.kit.get()
    }

    /// Makes the kit, if there is none. The caller is the program's only thread or, if `is_ours`, a
    /// thread of the library's. Returns `None` if no numbers are left. `other` is a descriptor of
    /// the program's. The first descriptor at a high number makes the kernel enlarge the process's
    /// table, and where the table has several users that waits for a grace period of RCU, some 20
    /// ms (`expand_fdtable`): so `other` is duplicated there before the program's calls are kept
    /// away.
    pub(crate) fn make_kit(
        &self,
        is_ours: bool,
        other: Option<BorrowedFd<'_>>,
    ) -> Option<&ProtocolDescriptors> {
        if self.kit.get().is_none() {
            if let Some(other) = other {
                drop(duplicate_high(other));
            }
            let _hold = if is_ours { Some(numbers::hold(LONG_LIMIT)?) } else { None };
            let made = self.open_kit()?;
            // There is no race: only the thread that starts, or is, the protocol thread makes a
            // kit.
            let _ = self.kit.set(made);
        }
        self.kit.get()
    }

    fn open_kit(&self) -> Option<ProtocolDescriptors> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (bell, far) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .ok()?;
        let (bell, far) = (self.hide(bell)?, self.hide(far)?);
        let watched = self.hide(epoll::create(epoll::CreateFlags::CLOEXEC).ok()?)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let load = rustix::fs::openat(CWD, "/proc/loadavg", flags, Mode::empty()).ok();
        let load = load.and_then(|load| self.hide(load));
        wait::read_load_from(load.as_ref().map(MovableFd::number));
        Some(ProtocolDescriptors { bell, far: Mutex::new(Some(far)), watched, load })
    }

    /// Takes the bell's other end, once; dropping it closes it in this table.
    pub(crate) fn take_far(&self) -> Option<MovableFd> {
        lock(&self.kit()?.far).take()
    }

    /// Makes one more descriptor. The caller is in none of the calls that `numbers` counts;
    /// `may_wait`: it has time.
    ///
    /// # Errors
    /// Those of `make`; `EAGAIN` if the program's calls left no moment; `EMFILE` if no high number
    /// is free.
    pub(crate) fn make(
        &self,
        may_wait: bool,
        make: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<MovableFd, Errno> {
        let limit = if may_wait { LONG_LIMIT } else { HOLD_LIMIT };
        // Without a hold the program could meet the number before it is a high one.
        let _hold = numbers::hold(limit).ok_or(Errno::AGAIN)?;
        self.hide(make()?).ok_or(Errno::MFILE)
    }

    /// Moves a descriptor to a high number. If none is free the descriptor is closed: `None`.
    fn hide(&self, fd: OwnedFd) -> Option<MovableFd> {
        let high = duplicate_high(fd.as_fd()).ok()?;
        let held = MovableFd::new(high, self.forget);
        lock(&self.places).push(held.place());
        Some(held)
    }

    /// Forgets the place of an own number that is about to be closed.
    pub(crate) fn forget(&self, number: i32) {
        // A closed descriptor's place says `i32::MAX`, see `MovableFd`.
        lock(&self.places).retain(|place| {
            let at = place.number();
            at != number && at != i32::MAX
        });
    }

    pub(crate) fn owns(&self, fd: i32) -> bool {
        lock(&self.places).iter().any(|place| place.number() == fd)
    }

    /// Returns the first of the library's own numbers from `from` on.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let places = lock(&self.places);
        let numbers = places.iter().filter_map(|place| u32::try_from(place.number()).ok());
        numbers.filter(|fd| *fd >= from && *fd != i32::MAX as u32).min()
    }

    /// Moves the library's descriptor away from `fd`, where the program is about to put its own.
    pub(crate) fn vacate(&self, fd: i32) {
        let places = lock(&self.places);
        let Some(place) = places.iter().find(|place| place.number() == fd) else { return };
        let new = crate::host::kernel::at(fd).and_then(duplicate_high);
        place.move_to(new.ok());
        if let Some(kit) = self.kit()
            && let Some(load) = &kit.load
        {
            wait::read_load_from(Some(load.number()));
        }
    }

    /// Closes all of the library's own descriptors. Calls on them fail from now on.
    pub(crate) fn close_all(&self, host: &dyn Host) {
        let places = core::mem::take(&mut *lock(&self.places));
        for place in places {
            let number = place.number();
            place.move_to(None);
            host.close(number);
        }
        wait::read_load_from(None);
    }

    /// Lists, in a `fork` child, the numbers of the parent's library except its bell. The list is
    /// empty if another thread of the parent was changing it when the parent called `fork`.
    pub(crate) fn numbers_to_close(&self) -> Vec<i32> {
        let Ok(places) = self.places.try_lock() else { return Vec::new() };
        let numbers = places.iter().map(FdNumber::number);
        numbers.filter(|fd| *fd != i32::MAX && Some(*fd) != self.bell_number()).collect()
    }

    /// Returns the bell's number, through which `fork` children ask for sessions.
    pub(crate) fn bell_number(&self) -> Option<i32> {
        self.kit().map(|kit| kit.bell.number())
    }

    /// Wakes the protocol thread.
    pub(crate) fn ring(&self) {
        if let Some(kit) = self.kit() {
            // The socket is full only if the protocol thread has bells to hear and is awake anyhow.
            let _ = rustix::net::send(&kit.bell, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Sends a descriptor of the program's to the protocol thread's own table.
    pub(crate) fn pass(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        let kit = self.kit().ok_or(Errno::BADF)?;
        send_descriptors(kit.bell.as_fd(), &[fd])
    }

    /// Asks a thread of the program's to take what the protocol thread has sent through the bell's
    /// socket.
    pub(crate) fn want(&self) {
        *lock(&self.taken) = None;
        self.is_wanted.store(true, Ordering::SeqCst);
    }

    /// Returns true if [`OwnDescriptors::take_wanted`] has something to do.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Takes the waiting message; the caller is the program's only thread, inside a call.
    #[cold]
    pub(crate) fn take_wanted(&self) {
        let mut taken = lock(&self.taken);
        if self.is_wanted.swap(false, Ordering::SeqCst) {
            // The program may have started threads since the protocol thread saw only one. If their
            // calls leave no moment the message is the protocol thread's, once it is late.
            let Some(_hold) = numbers::hold(HOLD_LIMIT) else { return };
            *taken = Some(self.take());
            drop(taken);
            self.ring();
        }
    }

    /// Returns the descriptors that were taken, and `None` while none were. With `is_late` the
    /// protocol thread no longer waits for the program, and takes the message itself if it gets a
    /// hold.
    pub(crate) fn taken(&self, is_late: bool) -> Option<Option<Vec<MovableFd>>> {
        let mut taken = lock(&self.taken);
        if taken.is_none() && is_late {
            let _hold = numbers::hold(HOLD_LIMIT)?;
            self.is_wanted.store(false, Ordering::SeqCst);
            return Some(self.take());
        }
        taken.take()
    }

    /// Receives and hides the descriptors of one message. `None` if too few numbers were free.
    fn take(&self) -> Option<Vec<MovableFd>> {
        let ReceivedDescriptors { sent, fds } =
            receive_descriptors(self.kit()?.bell.as_fd()).ok()?;
        let hidden: Option<Vec<MovableFd>> = fds.into_iter().map(|fd| self.hide(fd)).collect();
        hidden.filter(|hidden| hidden.len() == sent)
    }
}

/// Sends descriptors in one message; its only byte is their count.
pub(crate) fn send_descriptors(
    socket: BorrowedFd<'_>,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    ancillary::send(socket, &[IoSlice::new(&[fds.len() as u8])], fds)
}

/// The descriptors of one message.
#[derive(Debug)]
pub(crate) struct ReceivedDescriptors {
    /// The number of descriptors sent.
    pub(crate) sent: usize,
    /// They, or none where the table was full.
    pub(crate) fds: Vec<OwnedFd>,
}

/// Receives the next message.
pub(crate) fn receive_descriptors(socket: BorrowedFd<'_>) -> Result<ReceivedDescriptors, Errno> {
    let mut count = [0];
    let arrived = ancillary::receive(socket, &mut count)?;
    if arrived.len == 0 {
        return Err(Errno::PIPE);
    }
    Ok(ReceivedDescriptors { sent: usize::from(count[0]), fds: arrived.fds })
}

/// Duplicates a descriptor to a number among the highest that the limit of open files allows, in
/// the upper half of the numbers.
fn duplicate_high(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let limit =
        rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(1 << 20).min(1 << 20);
    let most = (limit / 2).min(HIDDEN);
    let mut room = if most < HIDDEN { FEW.min(most) } else { HIDDEN };
    loop {
        match fcntl_dupfd_cloexec(fd, (limit - room) as i32) {
            Err(Errno::MFILE) if room < most => room = (room + FEW).min(most),
            made => return made,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd;

    #[test]
    fn no_number_is_taken_while_a_call_of_the_programs_makes_or_names_one() {
        let _alone = lock(&numbers::ALONE);
        let own = OwnDescriptors::new(|_| ());
        let mut is_made = false;
        numbers::begin();
        let refused = own.make(false, || {
            is_made = true;
            epoll::create(epoll::CreateFlags::CLOEXEC)
        });
        numbers::end();
        assert_eq!(refused.map(drop), Err(Errno::AGAIN));
        assert!(!is_made);
    }

    #[test]
    fn descriptors_cross_and_a_message_says_how_many_were_sent() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
                .unwrap();
        rustix::net::send(&one, &[0], SendFlags::empty()).unwrap();
        send_descriptors(one.as_fd(), &[one.as_fd(), other.as_fd()]).unwrap();
        assert_eq!(receive_descriptors(other.as_fd()).unwrap().sent, 0, "a ring");
        let ReceivedDescriptors { sent, fds } = receive_descriptors(other.as_fd()).unwrap();
        assert_eq!((sent, fds.len()), (2, 2));
        assert!(fds.iter().all(|fd| fd.as_raw_fd() >= 0));
        assert_eq!(receive_descriptors(other.as_fd()).unwrap_err(), Errno::AGAIN);
        drop((one, fds));
        assert_eq!(receive_descriptors(other.as_fd()).unwrap_err(), Errno::PIPE);
    }
}

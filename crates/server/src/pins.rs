//! Names for pipes: they say which two descriptors are ends of one pipe, as long as one of the ends
//! is known here.
//!
//! # Theory of operation
//! Inode numbers of pipes come again after 2³² others, and the kernel does not look whether one is
//! still in use: neither an offer that waits nor an open descriptor keeps a number from being
//! another pipe's as well. A watch of inotify(7) never belongs to two objects. If an object has a
//! watch already, inotify_add_watch(2) returns the number of that watch. While the watch is there
//! the object is there too, even if all ends of the pipe are closed. So the name of a pipe is the
//! number of its watch in the server's one set of watches. A watch is no end: readers and writers
//! notice each other's end as if it were not there. It reports nothing of the traffic either.
//!
//! A watch takes the right to read the pipe: of pipes that another user made only root's server can
//! have one. Not here: the offers (`service::ends`).

use crate::key::Key;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct Shared {
    set: OwnedFd,
    /// Pins of each watch.
    counts: Mutex<HashMap<i32, usize>>,
}

/// The pipes that the server knows.
#[derive(Clone, Debug)]
pub struct Pins(Arc<Shared>);

/// The keeper of a set of watches.
pub(crate) trait Holder: Send + Sync + core::fmt::Debug {
    /// Lets go of one pin on the pipe of that watch.
    fn release(&self, watch: i32);
}

/// A pin on a pipe: while there is one, no other pipe has this one's key.
#[derive(Debug)]
pub struct Pin {
    watch: i32,
    holder: Arc<dyn Holder>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<i32, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties the queue of events: those of watches that have ended are of no use.
    fn forget_events(&self) {
        let mut bytes = [0; 1024];
        while matches!(rustix::io::read(&self.set, &mut bytes), Ok(1..)) {}
    }
}

impl Pins {
    /// # Errors
    /// No inotify, or too many of one user's.
    pub fn new() -> Result<Self, Errno> {
        let set = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared { set, counts: Mutex::default() })))
    }

    /// Pins the pipe that `name`, opened with `O_PATH`, names.
    ///
    /// # Errors
    /// `EACCES`: the pipe is another user's; others: there is no room for another watch.
    pub fn pin(&self, name: BorrowedFd<'_>) -> Result<Pin, Errno> {
        let path = format!("/proc/self/fd/{}", name.as_raw_fd());
        // Locked meanwhile, so that no other thread ends the watch that is found.
        let mut counts = self.0.lock();
        let watch = inotify::add_watch(&self.0.set, path, WatchFlags::DELETE_SELF)?;
        *counts.entry(watch).or_default() += 1;
        Ok(Pin::held(watch, Arc::clone(&self.0) as Arc<dyn Holder>))
    }
}

impl Pin {
    /// Returns the pin on the pipe of that watch, which `holder` has made.
    pub(crate) fn held(watch: i32, holder: Arc<dyn Holder>) -> Self {
        Self { watch, holder }
    }

    /// Returns the number of the watch.
    pub(crate) fn watch(&self) -> i32 {
        self.watch
    }

    /// Returns the key of one end of the pipe.
    #[must_use]
    pub fn key(&self, writes: bool) -> Key {
        Key::Pipe { object: self.watch.unsigned_abs().into(), writes }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.holder.release(self.watch);
    }
}

impl Holder for Shared {
    fn release(&self, watch: i32) {
        let mut counts = self.lock();
        let Some(count) = counts.get_mut(&watch) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&watch);
            let _ = inotify::remove_watch(&self.set, watch);
            self.forget_events();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::io::{Read, Write};

    fn name(end: &impl AsRawFd) -> OwnedFd {
        let path = format!("/proc/self/fd/{}", end.as_raw_fd());
        openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn watches(pins: &Pins) -> usize {
        let path = format!("/proc/self/fdinfo/{}", pins.0.set.as_raw_fd());
        std::fs::read_to_string(path).unwrap().matches("inotify wd:").count()
    }

    #[test]
    fn both_ends_are_of_one_pipe_and_of_no_other() {
        let pins = Pins::new().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let (other, _writer) = std::io::pipe().unwrap();
        let pin = |end: BorrowedFd<'_>| pins.pin(end).unwrap();
        let [first, second, third] =
            [name(&reader), name(&writer), name(&other)].map(|name| pin(name.as_fd()));
        assert_eq!(first.key(false).mirror(), second.key(true));
        assert_ne!(first.key(false), third.key(false));
        assert_eq!(watches(&pins), 2);
        drop((first, third));
        assert_eq!(watches(&pins), 1);
        drop(second);
        assert_eq!(watches(&pins), 0);
    }

    #[test]
    fn a_pipe_that_is_closed_is_still_no_other() {
        let pins = Pins::new().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let stale = pins.pin(name(&reader).as_fd()).unwrap();
        drop((reader, writer));
        assert_eq!(watches(&pins), 1, "its object is there");
        let (reader, _writer) = std::io::pipe().unwrap();
        let fresh = pins.pin(name(&reader).as_fd()).unwrap();
        assert_ne!(stale.key(false), fresh.key(false));
    }

    #[test]
    fn a_pin_hides_no_end_of_its_pipe() {
        let pins = Pins::new().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let _pin = pins.pin(name(&reader).as_fd()).unwrap();
        drop(writer);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the end of the file");
        let (reader, mut writer) = std::io::pipe().unwrap();
        let _pin = pins.pin(name(&writer).as_fd()).unwrap();
        drop(reader);
        let error = writer.write(&[0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    }
}

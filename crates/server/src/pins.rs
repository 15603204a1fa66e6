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
//! A FIFO whose name is removed is gone with its last end, and its watch with it. Numbers of
//! watches come again after 2³¹ others; one that does while a pin still has it is refused.
//!
//! # One more end
//! A pin tells when its pipe is opened once more (`IN_OPEN`), by `/proc` or by a mount of the very
//! FIFO. The kernel says so before the opener has its descriptor, so who counts holders after the
//! pin was made misses nobody. Opening it with `O_PATH` is not told.
//!
//! A watch takes the right to read the pipe: of pipes that another user made only root's server can
//! have one. Not here: the offers (`service::ends`), what follows when a pipe is opened
//! (`service::opens`).

use crate::key::Key;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most watches that one user may have, here: the server's own (inotify(7)).
const WATCHES_MAX: &str = "/proc/sys/fs/inotify/max_user_watches";
/// Bytes of events that are read at once.
const EVENTS_LEN: usize = 4096;

#[derive(Debug)]
struct Shared {
    set: OwnedFd,
    counts: Mutex<Counts>,
}

/// Pins of each watch.
type Counts = HashMap<i32, Count>;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    pins: usize,
    /// The kernel has ended the watch: the number may come to mean another pipe.
    is_over: bool,
}

/// Pipes that were opened once more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Opens {
    /// The numbers of their watches.
    pub(crate) watches: Vec<u32>,
    /// The kernel had too much to say: it may have been any.
    pub(crate) may_be_any: bool,
}

/// Returns the number of pipes that the server may watch; `None`: the kernel does not tell.
pub(crate) fn watches_max() -> Option<usize> {
    std::fs::read_to_string(WATCHES_MAX).ok()?.trim().parse().ok()
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
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// `EACCES`: the pipe is another user's; `EBUSY`: its number may still mean another one;
    /// others: there is no room for another watch.
    pub fn pin(&self, name: BorrowedFd<'_>) -> Result<Pin, Errno> {
        let path = format!("/proc/self/fd/{}", name.as_raw_fd());
        // Locked meanwhile, so that no other thread ends the watch that is found.
        let mut counts = self.0.lock();
        let watch = inotify::add_watch(&self.0.set, path, WatchFlags::OPEN)?;
        let count = counts.entry(watch).or_default();
        if count.is_over {
            // The watch, if it is a new one, ends with the old number's last pin.
            return Err(Errno::BUSY);
        }
        count.pins += 1;
        Ok(Pin::held(watch, Arc::clone(&self.0) as Arc<dyn Holder>))
    }

    /// Waits until a pipe that is pinned is opened once more, and tells which. `None` once `end`
    /// has ended. For one thread: a report is given once.
    pub(crate) fn await_opens(&self, end: BorrowedFd<'_>) -> Option<Opens> {
        loop {
            let set = self.0.set.as_fd();
            let mut both = [PollFd::new(&set, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
            if poll(&mut both, None).is_ok() && !both[1].revents().is_empty() {
                return None;
            }
            let opens = self.take_opens();
            if opens != Opens::default() {
                return Some(opens);
            }
        }
    }

    fn take_opens(&self) -> Opens {
        let mut opens = Opens::default();
        let mut space = [MaybeUninit::uninit(); EVENTS_LEN];
        let mut events = inotify::Reader::new(&self.0.set, &mut space);
        // What the kernel says of a watch, and what is done with its number, must not cross.
        let mut counts = self.0.lock();
        while let Ok(event) = events.next() {
            let (watch, what) = (event.wd(), event.events());
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                // The end of any watch may be among what is missing.
                opens.may_be_any = true;
                counts.values_mut().for_each(|count| count.is_over = true);
            }
            if what.contains(ReadFlags::IGNORED)
                && let Some(count) = counts.get_mut(&watch)
            {
                count.is_over = true;
            }
            if what.contains(ReadFlags::OPEN) && !opens.watches.contains(&watch.unsigned_abs()) {
                opens.watches.push(watch.unsigned_abs());
            }
        }
        opens
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
        count.pins = count.pins.saturating_sub(1);
        if count.pins == 0 {
            counts.remove(&watch);
            // Fails if the kernel has ended it.
            let _ = inotify::remove_watch(&self.set, watch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
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
    fn who_opens_a_pinned_pipe_once_more_is_noticed() {
        let pins = Pins::new().unwrap();
        let (life, end) = std::io::pipe().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let pin = pins.pin(name(&reader).as_fd()).unwrap();
        drop(name(&writer));
        assert_eq!(pins.take_opens(), Opens::default(), "a name is no end");
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let again = std::fs::File::open(path).unwrap();
        let opens = pins.await_opens(life.as_fd()).unwrap();
        assert_eq!(opens, Opens { watches: vec![pin.watch().unsigned_abs()], may_be_any: false });
        drop((again, end));
        assert_eq!(pins.await_opens(life.as_fd()), None, "the end");
    }

    #[test]
    fn the_number_of_a_fifo_that_is_gone_is_no_pipes_while_a_pin_has_it() {
        let pins = Pins::new().unwrap();
        let path = std::env::temp_dir().join(format!("sojourn-pins-{}", std::process::id()));
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let reader = openat(CWD, &path, flags, Mode::empty()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let stale = pins.pin(name(&reader).as_fd()).unwrap();
        drop(reader);
        assert_eq!(watches(&pins), 0, "it is gone");
        assert_eq!(pins.take_opens(), Opens::default());
        let count = pins.0.lock()[&stale.watch()];
        assert!(count.is_over && count.pins == 1);
        // As if 2³¹ watches had been made since.
        let (reader, _writer) = std::io::pipe().unwrap();
        let fresh = pins.pin(name(&reader).as_fd()).unwrap();
        pins.0.lock().get_mut(&fresh.watch()).unwrap().is_over = true;
        assert_eq!(pins.pin(name(&reader).as_fd()).unwrap_err(), Errno::BUSY);
        drop((fresh, stale));
        pins.pin(name(&reader).as_fd()).unwrap();
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

//! The emulation server's pipes: bytes, and who waits for some or for room. Pure.
//!
//! Not here: how questions come and answers go; a waiter ([`Waiter`]) knows that.

use std::collections::VecDeque;

/// Bytes that a pipe holds, as one of the kernel's.
const CAPACITY: usize = 64 << 10;

/// Somebody whose call is not answered yet.
pub(crate) trait Waiter {
    /// Answers a read.
    fn give(self, bytes: &[u8]);
    /// Answers a write that is complete.
    fn wrote(self, count: usize);
}

/// A write of which something did not fit.
struct Writer<W> {
    who: W,
    rest: Vec<u8>,
    count: usize,
}

struct Pipe<W> {
    bytes: VecDeque<u8>,
    reader: Option<(W, usize)>,
    writer: Option<Writer<W>>,
}

/// All pipes of a server.
pub(crate) struct Pipes<W> {
    all: Vec<Pipe<W>>,
}

impl<W: Waiter> Pipes<W> {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self { all: Vec::new() }
    }

    /// A new one: its number.
    pub(crate) fn make(&mut self) -> i64 {
        self.all.push(Pipe { bytes: VecDeque::new(), reader: None, writer: None });
        self.all.len() as i64 - 1
    }

    /// Takes what fits; how many bytes that was. If it was not all of them the caller keeps the
    /// rest here ([`Pipes::park`]). `None`: no such pipe.
    pub(crate) fn write(&mut self, pipe: usize, bytes: &[u8]) -> Option<usize> {
        let pipe = self.all.get_mut(pipe)?;
        let mut taken = 0;
        if pipe.bytes.is_empty()
            && let Some((who, most)) = pipe.reader.take()
        {
            // Who waits for bytes gets them without a stop in the pipe.
            taken = most.min(bytes.len());
            who.give(&bytes[..taken]);
        }
        let room = CAPACITY - pipe.bytes.len();
        let more = room.min(bytes.len() - taken);
        pipe.bytes.extend(&bytes[taken..taken + more]);
        Some(taken + more)
    }

    /// Keeps what did not fit of a write of `count` bytes.
    pub(crate) fn park(&mut self, pipe: usize, who: W, rest: Vec<u8>, count: usize) {
        if let Some(pipe) = self.all.get_mut(pipe) {
            pipe.writer = Some(Writer { who, rest, count });
        }
    }

    /// Answers a read at once, or when there are bytes. A pipe that does not exist has none, ever,
    /// and its waiter is forgotten.
    pub(crate) fn read(&mut self, pipe: usize, who: W, most: usize) {
        let Some(pipe) = self.all.get_mut(pipe) else { return };
        if pipe.bytes.is_empty() {
            pipe.reader = Some((who, most));
            return;
        }
        let len = most.min(pipe.bytes.len());
        who.give(&pipe.bytes.make_contiguous()[..len]);
        pipe.bytes.drain(..len);
        pipe.refill();
    }
}

impl<W: Waiter> Pipe<W> {
    /// Lets a writer that waits go on.
    fn refill(&mut self) {
        let Some(mut writer) = self.writer.take() else { return };
        let more = (CAPACITY - self.bytes.len()).min(writer.rest.len());
        self.bytes.extend(writer.rest.drain(..more));
        if writer.rest.is_empty() {
            writer.who.wrote(writer.count);
        } else {
            self.writer = Some(writer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Clone, Default)]
    struct Note(Rc<RefCell<Answers>>);

    /// Count and bytes of each.
    type Answers = Vec<(usize, Vec<u8>)>;

    impl Waiter for Note {
        fn give(self, bytes: &[u8]) {
            self.0.borrow_mut().push((bytes.len(), bytes.to_vec()));
        }
        fn wrote(self, count: usize) {
            self.0.borrow_mut().push((count, Vec::new()));
        }
    }

    #[test]
    fn bytes_come_in_order_whether_the_reader_or_the_writer_was_first() {
        let (mut pipes, note) = (Pipes::new(), Note::default());
        let at = pipes.make() as usize;
        pipes.read(at, note.clone(), 2);
        assert!(note.0.borrow().is_empty());
        assert_eq!(pipes.write(at, b"abcde"), Some(5));
        pipes.read(at, note.clone(), 9);
        let all: Vec<u8> = note.0.borrow().iter().flat_map(|one| one.1.clone()).collect();
        assert_eq!((all.as_slice(), note.0.borrow().len()), (&b"abcde"[..], 2));
    }

    #[test]
    fn a_write_that_does_not_fit_is_answered_when_it_does() {
        let (mut pipes, note) = (Pipes::new(), Note::default());
        let at = pipes.make() as usize;
        let bytes = vec![7; CAPACITY + 10];
        let taken = pipes.write(at, &bytes).unwrap();
        assert_eq!(taken, CAPACITY);
        pipes.park(at, note.clone(), bytes[taken..].to_vec(), bytes.len());
        pipes.read(at, note.clone(), 4);
        pipes.read(at, note.clone(), 100);
        let lens: Vec<usize> = note.0.borrow().iter().map(|one| one.0).collect();
        assert_eq!(lens, [4, 100, CAPACITY + 10]);
        assert_eq!(pipes.write(99, b"x"), None);
    }
}

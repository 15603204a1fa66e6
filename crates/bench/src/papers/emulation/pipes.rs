//! The emulation server's pipes: their bytes, and the calls that wait for bytes or for room. Pure.
//!
//! Not here: the transport of requests and answers; each waiting call ([`Waiter`]) knows its own.

use std::collections::VecDeque;

/// The bytes that a pipe holds, as many as one of the kernel's.
const CAPACITY: usize = 64 << 10;

/// A call that is not answered yet.
pub(crate) trait Waiter {
    /// Answers a read.
    fn give(self, bytes: &[u8]);
    /// Answers a write that is complete.
    fn wrote(self, count: usize);
}

/// A write that did not fit completely.
struct Writer<W> {
    who: W,
    rest: Vec<u8>,
    count: usize,
}

/// A read that waits.
struct Reader<W> {
    who: W,
    /// The most bytes that it takes.
    most: usize,
}

struct Pipe<W> {
    bytes: VecDeque<u8>,
    reader: Option<Reader<W>>,
    writer: Option<Writer<W>>,
}

/// All pipes of a server.
pub(crate) struct Pipes<W> {
    all: Vec<Pipe<W>>,
}

impl<W: Waiter> Pipes<W> {
    /// Makes a server without pipes.
    pub(crate) fn new() -> Self {
        Self { all: Vec::new() }
    }

    /// Makes a pipe and returns its number.
    pub(crate) fn make(&mut self) -> i64 {
        self.all.push(Pipe { bytes: VecDeque::new(), reader: None, writer: None });
        self.all.len() as i64 - 1
    }

    /// Takes the bytes that fit and returns their count. If some are left, the caller parks them
    /// here ([`Pipes::park`]). `None`: no such pipe.
    pub(crate) fn write(&mut self, pipe: usize, bytes: &[u8]) -> Option<usize> {
        let pipe = self.all.get_mut(pipe)?;
        let mut taken = 0;
        if pipe.bytes.is_empty()
            && let Some(Reader { who, most }) = pipe.reader.take()
        {
            // A reader that waits gets the bytes directly, without a copy in the pipe.
            taken = most.min(bytes.len());
            who.give(&bytes[..taken]);
        }
        let room = CAPACITY - pipe.bytes.len();
        let more = room.min(bytes.len() - taken);
        pipe.bytes.extend(&bytes[taken..taken + more]);
        Some(taken + more)
    }

    /// Keeps the rest of a write of `count` bytes until there is room.
    pub(crate) fn park(&mut self, pipe: usize, who: W, rest: Vec<u8>, count: usize) {
        if let Some(pipe) = self.all.get_mut(pipe) {
            pipe.writer = Some(Writer { who, rest, count });
        }
    }

    /// Answers a read at once, or when there are bytes. A read of a pipe that does not exist is
    /// never answered.
    pub(crate) fn read(&mut self, pipe: usize, who: W, most: usize) {
        let Some(pipe) = self.all.get_mut(pipe) else { return };
        if pipe.bytes.is_empty() {
            pipe.reader = Some(Reader { who, most });
            return;
        }
        let len = most.min(pipe.bytes.len());
        who.give(&pipe.bytes.make_contiguous()[..len]);
        pipe.bytes.drain(..len);
        pipe.refill();
    }
}

impl<W: Waiter> Pipe<W> {
    /// Moves bytes of a waiting writer into the pipe, as far as there is room.
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

    /// The count and the bytes of each answer.
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

//! What a program has looked at with `MSG_PEEK` and not taken yet: it is the same when the program
//! takes it.
//!
//! The bytes stay in the ring, where they count, and whence they go to the kernel if the session
//! goes home. But the ring is memory of the peer, too, which can write others there meanwhile: a
//! program that has looked at a length, checked it, and then receives another one has been deceived
//! in a way that the kernel excludes. So what was looked at is kept in private memory, and laid
//! over what is received, whichever way that comes. Not here: receiving (`receive`). Sessions with
//! other hosts need none of it: the writer of their rings is this process.
//!
//! The memory is a mapping of its own, made by the first call that looks, a few pages as a rule:
//! nothing is allocated in a program's heap. More than [`PEEKED_MAX`] at once only the kernel
//! shows.

use rustix::io::IoSliceMut;
use sojourn_shm::Mapping;

/// Bytes that are kept at most.
pub(crate) const PEEKED_MAX: usize = 256 * 1024;

/// See the head of this file. The bytes are those that come next.
#[derive(Debug, Default)]
pub(crate) struct Peeked {
    memory: Option<Mapping>,
    start: usize,
    len: usize,
}

impl Peeked {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The next `len` bytes have been copied to `bufs`: lays over them what was kept, and keeps
    /// what is new. With `peek` they stay, else they are taken. False: they cannot be kept; the
    /// call must not show them.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(&mut self, bufs: &mut [IoSliceMut<'_>], len: usize, peek: bool) -> bool {
        self.lay_over(bufs, len);
        if peek {
            return self.keep(bufs, len);
        }
        let taken = len.min(self.len);
        (self.start, self.len) = (self.start + taken, self.len - taken);
        true
    }

    /// Nothing is kept any more.
    pub(crate) fn forget(&mut self) {
        (self.start, self.len) = (0, 0);
    }

    fn lay_over(&self, bufs: &mut [IoSliceMut<'_>], len: usize) {
        let (mut at, end) = (0, len.min(self.len));
        for buf in bufs {
            let part = buf.len().min(end - at);
            let span = self.memory.as_ref().and_then(|all| all.span(self.start + at, part));
            at += span.map_or(0, |span| span.copy_to(buf));
        }
    }

    fn keep(&mut self, bufs: &[IoSliceMut<'_>], len: usize) -> bool {
        if len > PEEKED_MAX {
            return false;
        }
        if self.memory.is_none() {
            self.memory = Mapping::private(PEEKED_MAX).ok();
        }
        let Some(memory) = &self.memory else { return false };
        if self.start + len > PEEKED_MAX {
            self.start = 0;
            self.len = 0;
        }
        // Those before are there already, or are laid down again at the beginning.
        let (mut at, mut skip) = (self.len, self.len);
        for buf in bufs {
            let Some(new) = buf.get(skip..).filter(|new| !new.is_empty()) else {
                skip = skip.saturating_sub(buf.len());
                continue;
            };
            skip = 0;
            let part = new.len().min(len.saturating_sub(at));
            let Some(span) = memory.span(self.start + at, part) else { return false };
            at += span.copy_from(&new[..part]);
        }
        self.len = self.len.max(at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(peeked: &mut Peeked, bytes: &[u8], peek: bool) -> Vec<u8> {
        let mut copy = bytes.to_vec();
        let (one, two) = copy.split_at_mut(bytes.len() / 3);
        let bufs = &mut [IoSliceMut::new(one), IoSliceMut::new(&mut []), IoSliceMut::new(two)];
        assert!(peeked.settle(bufs, bytes.len(), peek));
        copy
    }

    #[test]
    fn what_was_shown_once_is_shown_again_and_taken() {
        let mut peeked = Peeked::default();
        assert_eq!(shown(&mut peeked, b"abcdef", true), b"abcdef");
        assert_eq!(shown(&mut peeked, b"xxxxxxgh", true), b"abcdefgh", "and more beside");
        assert_eq!(shown(&mut peeked, b"yy", false), b"ab");
        assert_eq!(shown(&mut peeked, b"yyy", true), b"cde", "a look at less forgets nothing");
        assert_eq!(shown(&mut peeked, b"zzzzzzij", false), b"cdefghij");
        assert!(peeked.is_empty());
        assert_eq!(shown(&mut peeked, b"k", false), b"k");
    }

    #[test]
    fn there_is_room_again_for_what_comes_later() {
        let mut peeked = Peeked::default();
        let half = PEEKED_MAX / 2;
        for round in 0..5u8 {
            let all = vec![round; PEEKED_MAX];
            assert_eq!(shown(&mut peeked, &all[..half + 100], true), all[..half + 100]);
            assert_eq!(shown(&mut peeked, &[99; 50], false), all[..50]);
            assert_eq!(shown(&mut peeked, &vec![99; half + 50], false), all[..half + 50]);
            assert!(peeked.is_empty());
        }
        let mut more = vec![1; PEEKED_MAX + 1];
        let len = more.len();
        assert!(!peeked.settle(&mut [IoSliceMut::new(&mut more)], len, true));
    }

    #[test]
    fn what_is_kept_survives_when_it_is_moved_to_the_front() {
        let mut peeked = Peeked::default();
        let bytes: Vec<u8> = (0..PEEKED_MAX).map(|at| (at % 251) as u8).collect();
        let junk = vec![0; PEEKED_MAX];
        assert_eq!(shown(&mut peeked, &bytes, true), bytes);
        assert_eq!(shown(&mut peeked, &junk[..1000], false), bytes[..1000]);
        let mut next = junk.clone();
        next[PEEKED_MAX - 1000..].fill(7);
        let seen = shown(&mut peeked, &next, true);
        assert_eq!(seen[..PEEKED_MAX - 1000], bytes[1000..]);
        assert_eq!(shown(&mut peeked, &junk, false), seen);
    }
}

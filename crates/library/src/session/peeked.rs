//! The bytes that a program has looked at with `MSG_PEEK` and not taken: a later receive returns
//! the same ones.
//!
//! The bytes stay in the ring, where they count, and from where they go to the kernel if the
//! session goes home. But the ring is the peer's memory, too, and the peer can change them
//! meanwhile: a program that looks at a length, checks it, and then receives another one has been
//! deceived in a way that the kernel excludes. So peeked bytes are copied to private memory, and
//! laid over the bytes received later, whether those come from the ring or from the kernel. Not
//! here: receiving (`io::receive`). Remote sessions need none of it: this process writes their
//! rings.
//!
//! The private memory is a mapping, made by the first call that peeks, of which a few pages are
//! used as a rule: nothing is allocated in the program's heap. More than [`PEEKED_MAX`] bytes at
//! once only the kernel can show.

use rustix::io::IoSliceMut;
use sojourn_shm::Mapping;

/// Bytes that are kept at most.
pub(crate) const PEEKED_MAX: usize = 256 * 1024;

/// The kept bytes of one session, which are the next that a receive returns.
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

    /// Lays the kept bytes over the first of the `len` bytes that a receive has copied to `bufs`.
    /// With `peek` all `len` bytes are kept from now on, else those taken are dropped. Returns
    /// false if the bytes cannot be kept: then the call must not show them.
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

    /// Drops all kept bytes.
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
        // The first `self.len` bytes are in the mapping already; after a restart at its beginning
        // `len` is 0 and all are copied.
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

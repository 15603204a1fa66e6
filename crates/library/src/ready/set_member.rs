//! A joined session in a set: the events that it reports now, and the notes that this needs.
//!
//! Ring and kernel are seen through [`ReadinessSource`]. Not here: the list of members
//! (`set_ready`, which is to be read first).

use crate::host::epoll::bit;
use crate::ready::set_readiness::{ReadinessSource, RingReadiness};
use sojourn_stream::SlotNumber;

/// A joined session in a set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Member {
    pub(crate) fd: i32,
    pub(crate) inbox: u32,
    pub(crate) slot: SlotNumber,
    pub(crate) events: u32,
    pub(crate) data: u64,
    pub(crate) is_listed: bool,
    pub(crate) is_spent: bool,
    pub(crate) is_vacant: bool,
    pub(crate) kernel_has: bool,
    /// The kernel's events have not been reported yet.
    pub(crate) has_news: bool,
    /// The session's bytes may still come through the kernel: counted in `ReadyList::in_kernel`.
    pub(crate) is_in_kernel: bool,
    /// While listed: the time of listing (nanoseconds), and whether it is that of a bell, which
    /// rings for the first of the bytes.
    pub(crate) at_ns: u64,
    pub(crate) is_rung: bool,
    /// The member is among those of `ReadyList::rung`.
    pub(crate) is_noted: bool,
    /// The last round that found the member ready, and the events that it found; no events if they
    /// have to be looked for again, because something has changed since.
    pub(crate) seen: u64,
    pub(crate) found: u32,
    /// The last look that no bell had asked for found nothing, as where a program receives all
    /// there is after each event.
    pub(crate) was_empty: bool,
    /// The round that last reported the member, or in which it joined: until then the kernel may
    /// have reported it.
    pub(crate) round: u64,
}

/// What a look at a member finds.
struct MemberReadiness {
    /// The events to report.
    events: u32,
    ring: RingReadiness,
}

impl Member {
    /// Returns the events to report. The member is armed if there are none, or if its events are
    /// reported only once.
    pub(crate) fn look(&mut self, source: &dyn ReadinessSource, in_kernel: &mut usize) -> u32 {
        if self.is_spent {
            return 0;
        }
        if self.events & bit::ET == 0 {
            return self.look_at_level(source, in_kernel);
        }
        source.arm(self.fd, self.wants(bit::INPUT), false);
        let MemberReadiness { mut events, ring } = self.now(source, in_kernel);
        // A bell for room rings at each read of the peer, so it is armed only where there is no
        // room.
        if ring.output == Some(false) && self.wants(bit::OUTPUT) {
            source.arm(self.fd, false, true);
            events = self.now(source, in_kernel).events;
        }
        events
    }

    /// Looks at a level-triggered member. What is most likely not ready is armed first, so that one
    /// look is enough: a look takes a cache line from the peer's processor. A bell for room rings
    /// at each read of the peer, so it is never armed where there may be room.
    fn look_at_level(&mut self, source: &dyn ReadinessSource, in_kernel: &mut usize) -> u32 {
        let (input, output) = (self.wants(bit::INPUT), self.wants(bit::OUTPUT));
        let is_armed = self.was_empty && !self.is_rung && !output;
        if is_armed {
            source.arm(self.fd, input, false);
        }
        let mut events = self.now(source, in_kernel).events;
        if !self.is_rung {
            self.was_empty = events == 0;
        }
        if events == 0 && !is_armed {
            // Armed before the second look: an event after that look rings.
            source.arm(self.fd, input, output);
            events = self.now(source, in_kernel).events;
        }
        events
    }

    /// Notes that something about the member has changed: what a look has found no longer holds.
    pub(crate) fn changed(&mut self) {
        self.found = 0;
    }

    pub(crate) fn wants(&self, bits: u32) -> bool {
        self.events & bits != 0
    }

    fn now(&mut self, source: &dyn ReadinessSource, in_kernel: &mut usize) -> MemberReadiness {
        let ring = source.ring(self.fd, self.events);
        if self.is_in_kernel != ring.is_in_kernel {
            self.is_in_kernel = ring.is_in_kernel;
            *in_kernel =
                *in_kernel + usize::from(ring.is_in_kernel) - usize::from(!ring.is_in_kernel);
        }
        if ring.is_home {
            return MemberReadiness { events: 0, ring };
        }
        let mut found = ring.others;
        if ring.input {
            found |= bit::INPUT;
        }
        if ring.output == Some(true) {
            found |= bit::OUTPUT & !bit::WRBAND;
        }
        if ring.error {
            found |= bit::ERR;
        }
        if self.kernel_has {
            // The kernel's buffer tells nothing of room once bytes go to the ring.
            let not_asked = if ring.output.is_some() { bit::OUTPUT } else { 0 };
            let asked = (self.events & !not_asked) | bit::IN | bit::RDHUP;
            let said = source.kernel(self.fd, asked & 0xffff) & !not_asked;
            self.kernel_has = said != 0;
            let is_edge = self.events & bit::ET == 0 || self.has_news;
            // Beside an event of the ring the kernel's events are reported again: an edge of the
            // kernel's reports all that is ready, too.
            if is_edge || found & (self.events | bit::ALWAYS) != 0 {
                found |= said;
            }
        }
        MemberReadiness { events: found & (self.events | bit::ALWAYS), ring }
    }
}

//! One carried session among those of a pump, and the tables that find it by number, flow or time.
//!
//! Not here: turning the pump (`pump`), and the session itself (`carried`).

use crate::aggregate::Aggregate;
use crate::carried::Carried;
use crate::hash::WordHasher;
use crate::link_hop::LinkId;
use crate::placement::Placement;
use crate::session_number::SessionNumber;
use sojourn_proto::time::Instant;
use sojourn_wire::FlowKey;
use sojourn_wire::frame::Frame;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;

/// The time at which a session is looked at; the order is that of the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timer {
    pub(crate) when: Instant,
    pub(crate) number: SessionNumber,
}

/// The times at which sessions are looked at.
pub(crate) type Timers = BTreeSet<Timer>;

pub(crate) struct DrivenSession {
    pub(crate) carried: Carried,
    pub(crate) link: LinkId,
    pub(crate) flow: FlowKey,
    /// The time at which the session wants to be woken.
    pub(crate) due: Option<Instant>,
    /// The session's place among the timers, not later than `due`.
    pub(crate) timer: Option<Instant>,
    /// The session is in the list of dirty ones.
    pub(crate) is_dirty: bool,
    /// The session is in the list of postponed ones.
    pub(crate) is_postponed: bool,
    /// The session cannot stay here: it goes home once arrived bytes are delivered.
    pub(crate) is_ending: bool,
}

/// The sessions, by their numbers.
pub(crate) type DrivenSessions =
    HashMap<SessionNumber, DrivenSession, BuildHasherDefault<WordHasher>>;
/// The numbers of sessions, by the flow of their own frames.
pub(crate) type Flows = HashMap<FlowKey, SessionNumber, BuildHasherDefault<WordHasher>>;

impl DrivenSession {
    pub(crate) fn arrived(
        &mut self,
        frame: &Frame<'_>,
        segment_size: u16,
        placement: Option<&mut Placement<'_>>,
        at: Instant,
    ) {
        self.is_ending |= self.carried.arrived(frame, segment_size, placement, at).is_err();
    }

    /// Notes that something has happened to the session.
    pub(crate) fn mark(&mut self, number: SessionNumber, dirty: &mut Vec<SessionNumber>) {
        if !self.is_dirty {
            self.is_dirty = true;
            dirty.push(number);
        }
    }

    /// Returns true if the session may stay. `aggregate`: it may have to go home with all others.
    pub(crate) fn is_to_stay(&mut self, aggregate: Option<&mut Aggregate>, at: Instant) -> bool {
        let bytes = self.carried.take_exchanged();
        if bytes > 0
            && let Some(all) = aggregate
            && all.count_away(at, bytes)
        {
            self.carried.go_with_all();
            self.is_ending = true;
        }
        !self.is_ending
    }

    /// Sets the session's timer. With each message almost every timer is put off before it expires.
    /// So an entry among the timers stays where it is, and when it expires the pump looks at `due`.
    pub(crate) fn set_timer(
        &mut self,
        number: SessionNumber,
        when: Option<Instant>,
        timers: &mut Timers,
    ) {
        self.due = when;
        let Some(when) = when.filter(|when| self.timer.is_none_or(|set| *when < set)) else {
            return;
        };
        if let Some(before) = self.timer.replace(when) {
            timers.remove(&Timer { when: before, number });
        }
        timers.insert(Timer { when, number });
    }
}

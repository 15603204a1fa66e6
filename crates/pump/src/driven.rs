//! One carried session among those of a pump, and how it is found: by number, by flow, by time.
//!
//! Not here: who turns it (`pump`), what it is (`carried`).

use crate::carried::Carried;
use crate::hash::Words;
use crate::link_hop::LinkId;
use crate::placement::Placement;
use sojourn_proto::time::Instant;
use sojourn_wire::FlowKey;
use sojourn_wire::frame::Frame;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasherDefault;

/// When it is looked at which session.
pub(crate) type Timers = BTreeSet<(Instant, u32)>;

pub(crate) struct DrivenSession {
    pub(crate) carried: Carried,
    pub(crate) link: LinkId,
    pub(crate) flow: FlowKey,
    /// When it wants to hear of the time.
    pub(crate) due: Option<Instant>,
    /// Its place among the timers: not later than that.
    pub(crate) timer: Option<Instant>,
    /// It is among the dirty ones.
    pub(crate) is_dirty: bool,
    /// It is among the postponed ones.
    pub(crate) is_postponed: bool,
    /// It cannot stay here: once what has arrived is delivered it goes home.
    pub(crate) is_ending: bool,
}

/// The sessions, by their numbers.
pub(crate) type DrivenSessions = HashMap<u32, DrivenSession, BuildHasherDefault<Words>>;
/// Their numbers, by what their own frames say.
pub(crate) type Flows = HashMap<FlowKey, u32, BuildHasherDefault<Words>>;

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

    /// Something has happened to it.
    pub(crate) fn mark(&mut self, number: u32, dirty: &mut Vec<u32>) {
        if !self.is_dirty {
            self.is_dirty = true;
            dirty.push(number);
        }
    }

    /// Almost every timer is put off before it runs out, with each message. So one that is set
    /// stays where it is, and when its time comes it is looked whether that was meant.
    pub(crate) fn set_timer(&mut self, number: u32, when: Option<Instant>, timers: &mut Timers) {
        self.due = when;
        let Some(when) = when.filter(|when| self.timer.is_none_or(|set| *when < set)) else {
            return;
        };
        if let Some(before) = self.timer.replace(when) {
            timers.remove(&(before, number));
        }
        timers.insert((when, number));
    }
}

//! The interface `admin`: the questions and orders of `sojourn` and other tools.
//!
//! Every user sees its own sessions, and root sees all; the registry decides that. Not here: the
//! calls of programs' libraries (`session`).

use super::{Sojournd, State, Stop, fault};
use crate::memory::Memory;
use crate::registry::{Page, Registry};
use rustix::process::Uid;
use sojourn_ipc::rt::{Caller, Fault};
use sojourn_session::{
    AdminConcernedOut, AdminConnectionsOut, AdminListOut, AdminProcessesOut, AdminRefusedOut,
    AdminServer, AdminStatsOut, AdminStreamTimesOut, FAULT_NOT_ALLOWED, FAULT_RESOURCES, HomeT,
    Inode, ProcessId, ServerStatsT, StreamNumber, TimesInfoT,
};
use sojourn_stream::{Layer, LayerTimes};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// How long a session may be timed for one question (s).
const TIMED_MAX_S: u32 = 60;

impl Sojournd {
    /// Returns the user whose rights an administrator's connection has. A library's connection has
    /// none: its program may have made it as root, and given up that right since (`prepare` in the
    /// library).
    fn administrator(&self, caller: &Caller) -> Result<Uid, Fault> {
        match self.lock().registry.info(caller.client) {
            Some(_) => Err(fault(FAULT_NOT_ALLOWED)),
            None => Ok(Uid::from_raw_unchecked(caller.credentials.uid)),
        }
    }
}

impl Sojournd {
    /// Makes a list for an administrator of that user.
    ///
    /// # Errors
    /// [`FAULT_RESOURCES`]: the user has asked for so much already.
    fn timed<T>(&self, uid: Uid, list: impl FnOnce(&Registry) -> T) -> Result<T, Fault> {
        let is_free = self.is_owner(uid);
        let allowance = || self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        if !is_free && !allowance().may_ask(uid, begun) {
            return Err(fault(FAULT_RESOURCES));
        }
        let listed = list(&self.lock().registry);
        if !is_free {
            allowance().note(uid, begun, Instant::now());
        }
        Ok(listed)
    }
}

impl AdminServer for Sojournd {
    fn list(&self, caller: &Caller, after: u64) -> Result<AdminListOut, Fault> {
        let (uid, now_ms) = (self.administrator(caller)?, self.now_ms());
        let Page { rows: sessions, last } =
            self.timed(uid, |all| all.list(uid, after, now_ms, &Memory))?;
        Ok(AdminListOut { last, count: sessions.len() as u32, sessions: Some(sessions) })
    }

    fn stats(&self, caller: &Caller) -> Result<AdminStatsOut, Fault> {
        let uid = self.administrator(caller)?;
        let bytes = self.timed(uid, |all| all.bytes(&Memory))?;
        let state = self.lock();
        let counters = state.registry.counters();
        let returns = counters.returns.to_vec();
        let counters = ServerStatsT {
            offers: counters.offers,
            joins: counters.joins,
            returns: returns.iter().sum(),
            refusals: counters.refusals,
            scans: counters.scans,
            bytes,
            processes: state.registry.process_count() as u32,
            streams: state.registry.stream_count() as u32,
            uptime_ms: self.now_ms(),
        };
        let count = returns.len() as u32;
        Ok(AdminStatsOut { counters, count, returns_by_reason: Some(returns) })
    }

    fn refused(&self, caller: &Caller, after: u64) -> Result<AdminRefusedOut, Fault> {
        let (uid, now_ms) = (self.administrator(caller)?, self.now_ms());
        let Page { rows: refusals, last } =
            self.timed(uid, |all| all.refused(uid, after, now_ms))?;
        Ok(AdminRefusedOut { last, count: refusals.len() as u32, refusals: Some(refusals) })
    }

    fn connections(&self, caller: &Caller, after: u64) -> Result<AdminConnectionsOut, Fault> {
        let uid = self.administrator(caller)?;
        let Page { rows: connections, last } =
            self.timed(uid, |all| all.connections(uid, after, &Memory))?;
        let count = connections.len() as u32;
        Ok(AdminConnectionsOut { last, count, connections: Some(connections) })
    }

    fn recall_stream(&self, caller: &Caller, stream: u64) -> Result<bool, Fault> {
        let uid = self.administrator(caller)?;
        let mut state = self.lock();
        let State { registry, notifier, .. } = &mut *state;
        let is_there = registry.recall_for(StreamNumber(stream), uid, self.now_ms());
        Self::ring(registry, notifier);
        Ok(is_there)
    }

    fn stream_times(
        &self,
        caller: &Caller,
        stream: u64,
        seconds: u32,
    ) -> Result<AdminStreamTimesOut, Fault> {
        let uid = self.administrator(caller)?;
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
        let until = u32::try_from(now).unwrap_or(0).saturating_add(seconds.min(TIMED_MAX_S));
        let until = if seconds == 0 { 0 } else { until };
        let found = self.lock().registry.times(StreamNumber(stream), uid, until, &Memory);
        Ok(AdminStreamTimesOut { ret: found.is_some(), times: info(&found.unwrap_or_default()) })
    }

    fn move_in(&self, caller: &Caller, pid: u32, inode: u64, home: HomeT) -> Result<bool, Fault> {
        let uid = self.administrator(caller)?;
        let mut state = self.lock();
        let State { registry, notifier, .. } = &mut *state;
        let is_told = registry.request_move(ProcessId(pid), Inode(inode), home, uid, self.now_ms());
        Self::ring(registry, notifier);
        Ok(is_told)
    }

    fn processes(&self, caller: &Caller, after: u64) -> Result<AdminProcessesOut, Fault> {
        let uid = self.administrator(caller)?;
        let Page { rows: pids, last } = self.timed(uid, |all| all.processes(uid, after))?;
        let pids: Vec<_> = pids.into_iter().map(|pid| pid.0).collect();
        Ok(AdminProcessesOut { last, count: pids.len() as u32, pids: Some(pids) })
    }

    fn concerned(&self, caller: &Caller) -> Result<AdminConcernedOut, Fault> {
        let uid = self.administrator(caller)?;
        // Rules are root's matter, and a server's own user can read them in its log.
        let may_know = self.is_owner(uid);
        let all = if may_know { self.lock().concerned.list() } else { Vec::new() };
        Ok(AdminConcernedOut { count: all.len() as u32, sessions: Some(all) })
    }

    fn stop(&self, caller: &Caller, force: bool) {
        let Ok(uid) = self.administrator(caller) else { return };
        if self.is_owner(uid) {
            let wanted = if force { Stop::Now } else { Stop::WhenEmpty };
            self.stop.fetch_max(wanted as u8, Ordering::Relaxed);
        }
    }
}

/// Times as they travel.
fn info(told: &LayerTimes) -> TimesInfoT {
    let sum = |layer: Layer| told.sums[layer as usize];
    TimesInfoT {
        sent: told.sent,
        received: told.received,
        entry_copy_in_ns: sum(Layer::EntryCopyIn),
        protocol_output_ns: sum(Layer::ProtocolOutput),
        ip_output_ns: sum(Layer::IpOutput),
        link_output_ns: sum(Layer::LinkOutput),
        queue_ns: sum(Layer::Queue),
        ip_input_ns: sum(Layer::IpInput),
        protocol_input_ns: sum(Layer::ProtocolInput),
        wake_up_ns: sum(Layer::WakeUp),
        in_socket_ns: sum(Layer::InSocket),
        copy_out_exit_ns: sum(Layer::CopyOutExit),
    }
}

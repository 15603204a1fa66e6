//! The TCP state of a session with another host, as its program reports it: windows, round-trip
//! time, losses.

use serde::Serialize;
use sojourn_session::ConnectionInfoT;
use std::fmt::{self, Display};

/// TCP states by Linux's numbers, which begin at 1.
const STATES: [&str; 11] = [
    "established",
    "syn-sent",
    "syn-received",
    "fin-wait-1",
    "fin-wait-2",
    "time-wait",
    "closed",
    "close-wait",
    "last-ack",
    "listen",
    "closing",
];
/// Linux's value for "no slow start threshold".
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// The TCP state of a connection. The fields are those of `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Connection {
    pub(crate) state: &'static str,
    pub(crate) mss: u32,
    /// Bytes.
    pub(crate) snd_wnd: u32,
    pub(crate) rcv_wnd: u32,
    /// Segments.
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: Option<u32>,
    pub(crate) srtt_us: u32,
    pub(crate) rttvar_us: u32,
    pub(crate) unacked: u32,
    pub(crate) retransmissions: u32,
    pub(crate) loss_events: u32,
}

impl Connection {
    pub(crate) fn of(told: &ConnectionInfoT) -> Self {
        let state = (told.state as usize).checked_sub(1).and_then(|at| STATES.get(at));
        Self {
            state: state.copied().unwrap_or("unknown"),
            mss: told.mss,
            snd_wnd: told.snd_wnd,
            rcv_wnd: told.rcv_wnd,
            cwnd: told.cwnd,
            ssthresh: (told.ssthresh < NO_THRESHOLD).then_some(told.ssthresh),
            srtt_us: told.srtt_us,
            rttvar_us: told.rttvar_us,
            unacked: told.unacked,
            retransmissions: told.retransmissions,
            loss_events: told.loss_events,
        }
    }
}

impl Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |us: u32| format!("{}.{:03}", us / 1000, us % 1000);
        let threshold = self.ssthresh.map_or_else(|| "-".into(), |segments| segments.to_string());
        write!(
            f,
            "{}  windows {} out, {} in  cwnd {}  ssthresh {}  mss {}  rtt {}/{} ms  unacked {}  retransmissions {}  losses {}",
            self.state,
            self.snd_wnd,
            self.rcv_wnd,
            self.cwnd,
            threshold,
            self.mss,
            ms(self.srtt_us),
            ms(self.rttvar_us),
            self.unacked,
            self.retransmissions,
            self.loss_events
        )
    }
}

//! A congestion controller: the algorithm, slow start's end, and the window before the last
//! reduction.
//!
//! Not here: how an algorithm moves the window ([`super::cubic`], [`super::reno`]).

use super::cubic::Cubic;
use super::hystart::HyStart;
use super::reno::Reno;
use super::window::{Acked, Signal, Window};
use crate::time::Duration;

/// The kind of congestion controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// NewReno's window rules (RFC 5681).
    Reno,
}

/// An algorithm with its state.
#[derive(Clone, Copy, Debug)]
enum Algorithm {
    Cubic(Cubic),
    Reno(Reno),
}

/// The state of a controller before a reduction.
#[derive(Clone, Copy, Debug)]
struct SavedState {
    window: Window,
    algorithm: Algorithm,
}

/// A congestion controller.
#[derive(Clone, Copy, Debug)]
pub struct Controller {
    algorithm: Algorithm,
    pub(super) hystart: HyStart,
    /// The state before the last reduction, for [`Controller::undo`].
    saved: Option<SavedState>,
}

impl Controller {
    /// Creates a controller that begins with `window` and with CUBIC's `W_max` in bytes from an
    /// earlier connection or record (0 if it is not known).
    pub fn new(kind: Kind, window: &Window, w_max: u64) -> Controller {
        let algorithm = match kind {
            Kind::Cubic => Algorithm::Cubic(Cubic::new(window, w_max)),
            Kind::Reno => Algorithm::Reno(Reno::default()),
        };
        Controller { algorithm, hystart: HyStart::new(window.ssthresh == u64::MAX), saved: None }
    }

    /// Returns the kind of this controller.
    pub fn kind(&self) -> Kind {
        match self.algorithm {
            Algorithm::Cubic(_) => Kind::Cubic,
            Algorithm::Reno(_) => Kind::Reno,
        }
    }

    /// Returns CUBIC's `W_max` in bytes; 0 if there is none.
    pub fn w_max(&self) -> u64 {
        match &self.algorithm {
            Algorithm::Cubic(cubic) => cubic.remembered(),
            Algorithm::Reno(_) => 0,
        }
    }

    /// Lets the window grow after an acknowledgement outside of recovery.
    pub fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        // HyStart++ sees every acknowledgement, because its rounds go on even if the window may not
        // grow.
        let share = self.hystart.on_ack(window, acked);
        if !acked.limited {
            return;
        }
        let mut bytes = acked.bytes;
        if window.in_slow_start() {
            bytes = window.slow_start(bytes / share);
        }
        if bytes == 0 {
            return;
        }
        match &mut self.algorithm {
            Algorithm::Cubic(cubic) => cubic.avoid(window, acked, bytes),
            Algorithm::Reno(reno) => reno.avoid(window, bytes),
        }
    }

    /// Lowers the threshold because of congestion. The caller moves the window towards the
    /// threshold. Saves the state before the reduction for [`Controller::undo`], unless this is a
    /// further timeout of the same recovery (`again`).
    pub fn on_congestion(&mut self, window: &mut Window, signal: Signal, again: bool) {
        if !again || self.saved.is_none() {
            self.saved = Some(SavedState { window: *window, algorithm: self.algorithm });
        }
        self.hystart.stop();
        let ssthresh = match &mut self.algorithm {
            Algorithm::Cubic(cubic) => cubic.on_congestion(window, signal),
            Algorithm::Reno(_) => window.cwnd / 2,
        };
        window.ssthresh = ssthresh.max(window.least());
    }

    /// Makes the last reduction final: [`Controller::undo`] does nothing after this call (Linux
    /// clears `prior_ssthresh`).
    pub fn confirm(&mut self) {
        self.saved = None;
    }

    /// Takes the last reduction back because it was needless: the window is at least the one before
    /// it (RFC 9438, 4.9; Linux's `tcp_undo_cwnd_reduction`). Returns false if there is no
    /// reduction that can be taken back.
    pub fn undo(&mut self, window: &mut Window) -> bool {
        let Some(SavedState { window: old, algorithm }) = self.saved.take() else { return false };
        window.set(window.cwnd.max(old.cwnd));
        window.ssthresh = window.ssthresh.max(old.ssthresh);
        self.algorithm = algorithm;
        true
    }

    /// Tells that nothing was in the network for `idle`: CUBIC's clock stands still for that time
    /// (RFC 9438, 5.8).
    pub fn on_idle(&mut self, idle: Duration) {
        if let Algorithm::Cubic(cubic) = &mut self.algorithm {
            cubic.on_idle(idle);
        }
    }
}

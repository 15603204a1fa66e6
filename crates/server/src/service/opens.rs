//! Pipes that are opened once more while their ends are known here: the streams go home.
//!
//! A pipe can be opened through `/proc`, and a FIFO whose name is removed where its very file is
//! mounted. The opener uses the kernel and knows of no stream. Not here: how that is noticed
//! (`pins`), who holds an end before it moves (`holders`).

use super::{Sojournd, State};
use crate::beat::Beat;
use crate::pins::Opens;
use crate::prober::Prober;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Weak;

/// Works until the server or the prober is gone.
pub(super) fn work(server: &Weak<Sojournd>, prober: &Prober, end: &OwnedFd, beat: &Beat) {
    while let Some(opens) = prober.await_opens(end.as_fd()) {
        let _busy = beat.busy();
        let Some(server) = server.upgrade() else { return };
        server.opened(&opens);
    }
}

impl Sojournd {
    fn opened(&self, opens: &Opens) {
        let mut state = self.lock();
        let State { registry, notifier, .. } = &mut *state;
        let now_ms = self.now_ms();
        if opens.may_be_any {
            registry.any_opened(now_ms);
        }
        for watch in &opens.watches {
            registry.opened((*watch).into(), now_ms);
        }
        Self::ring(registry, notifier);
    }
}

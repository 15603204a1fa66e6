//! Joins: sessions that the server has paired wait in line, and begin to move out.
//!
//! Not here: the order (`admission`), and the steps after the beginning (`out`).

use crate::carrier::{Carrier, OpenedJoin, SOCKET};
use crate::joined::JoinedStream;
use crate::next_hop::next_hop_of;
use crate::session::{Phase, Session};
use crate::waiting::{Queued, Waiting};
use sojourn_filter::Key;
use sojourn_proto::time::Instant;
use sojourn_pump::now;
use sojourn_session::{JoinT, LocalNumber, ReasonT, StreamNumber};
use sojourn_stream::Traffic;

impl Carrier {
    pub(super) fn joined(&mut self, join: &JoinT) {
        let local = LocalNumber(join.local);
        let opened = self.open(join);
        let Some(Session { key, phase }) = self.table.remove(&local) else {
            self.sessions.left(local, ReasonT::Closed, Traffic::default());
            return;
        };
        let joined = JoinedStream {
            stream: StreamNumber(join.stream),
            side: join.side,
            ring_bytes: join.ring_bytes,
            region: join.region.clone(),
        };
        let Some(opened) = opened else {
            return self.sessions.left(local, ReasonT::Resources, Traffic::default());
        };
        let place = opened.ends.own;
        let phase = match phase {
            Phase::Offered { mut socket } => {
                if socket.watch(&self.set, SOCKET | local.0).is_err() {
                    return self.sessions.left(local, ReasonT::Resources, Traffic::default());
                }
                let OpenedJoin { stream, ends } = opened;
                self.admission.push(ends.peer.inbox, local);
                Phase::Queued(Box::new(Queued { socket, stream, joined, ends }))
            }
            Phase::UdpOffered(plan) => Self::begin_datagrams(*plan, joined, opened),
            _ => return self.sessions.left(local, ReasonT::Resources, Traffic::default()),
        };
        self.slots.insert(place, local);
        self.table.insert(local, Session { key, phase });
        self.timers.set(local, Some(now()));
    }

    /// Begins with the sessions whose turn it is.
    pub(crate) fn admit(&mut self, at: Instant) {
        loop {
            let Self { admission, table, .. } = self;
            let is_moving =
                |local: LocalNumber| table.get(&local).is_some_and(Session::is_moving_out);
            let Some(local) = admission.next(at, is_moving) else { return };
            match self.table.remove(&local) {
                Some(Session { key, phase: Phase::Queued(queued) }) => {
                    let phase = Phase::Waiting(Box::new(self.begin(&key, *queued)));
                    self.table.insert(local, Session { key, phase });
                    self.timers.set(local, Some(now()));
                }
                // It has ended in the line.
                Some(other) => drop(self.table.insert(local, other)),
                None => {}
            }
        }
    }

    fn begin(&mut self, key: &Key, queued: Queued) -> Waiting {
        // Filter and socket are made now, while the program still has the kernel in both
        // directions. A failure shows again later, and is reported then.
        if let Some(next_hop) = next_hop_of(&mut self.metastate, key) {
            let program = self.program_at(&queued.ends);
            let _ = self.links.prepare(&next_hop, program);
        }
        self.load_unfiltered();
        // Reading the settings takes a while, and nothing waits for the session yet.
        let tuning = self.tuning.at(now());
        // The program's side may send to its ring from now on, and then says so. For the time being
        // it receives from the kernel: the acknowledgement of the bytes sent takes a round trip or
        // more.
        queued.stream.consent();
        queued.stream.attention();
        queued.into_waiting(now(), tuning)
    }
}

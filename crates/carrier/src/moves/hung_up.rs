//! Sockets that have no connection any more while their sessions are away or on their way out.
//!
//! A program can disconnect its socket past the library (connect(2) with `AF_UNSPEC`), and anybody
//! may then have the addresses: the filter must not give that program another one's packets, nor
//! let it send in the other one's name. So the rule goes as soon as the kernel says so, which it
//! does without the socket's lock. The program loses its session, as it would in the kernel. Not
//! here: the return, for which the carrier itself disconnects the socket (`end`, `import`).

use crate::carrier::Carrier;
use crate::session::{Parked, Phase, Session};
use sojourn_session::{LocalNumber, ReasonT};

impl Carrier {
    /// Looks at a session whose socket the kernel says something of.
    pub(crate) fn hung_up(&mut self, local: LocalNumber) {
        let Self { table, links, .. } = self;
        let Some(Session { key, phase }) = table.get_mut(&local) else { return };
        match phase {
            Phase::Waiting(waiting) if waiting.turned.is_some() && waiting.socket.is_hung_up() => {}
            Phase::Delegated(delegated) if delegated.socket.is_hung_up() => {
                delegated.stream.ledger().lose();
                delegated.call_home(ReasonT::Closed);
            }
            Phase::Working(working) => {
                if let Parked::TakenOut(waiting, _) | Parked::Released(waiting, _) = &working.parked
                    && waiting.socket.is_hung_up()
                {
                    // The assistant may be waiting for the socket's lock.
                    links.release_everywhere(key);
                    working.asked.end = true;
                }
                return;
            }
            _ => return,
        }
        self.end(local);
    }
}

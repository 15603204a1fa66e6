//! Receiving on a TCP session with another host: from the kernel until the carrier has the session,
//! then from the ring alone, because the kernel's socket hears nothing any more.
//!
//! Not here: what calls on all sessions share (`io::receive`), and giving the kernel up
//! (`remote::carried`). Read `docs/understand/moves.md`.

use crate::io::from_kernel::FromKernel;
use crate::io::receive::NothingRead;
use crate::process::library::OwnSession;
use crate::session::directions::{Receiver, RxPhase};
use crate::session::received::Received;
use rustix::io::{Errno, IoSliceMut};
use sojourn_session::ReasonT;
use sojourn_stream::{Stop, Stream};

impl OwnSession<'_> {
    /// Looks while the direction is joined: all bytes come from the kernel until it is given up.
    pub(super) fn look_while_leaving(
        self,
        rx: &mut Receiver,
        stream: &Stream,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
        kernel: &mut dyn FromKernel,
    ) -> Received {
        if stream.is_frozen() {
            return Received::Leave(ReasonT::PeerLeft);
        }
        self.consent_to_carrier(rx, stream);
        if rx.phase == RxPhase::Ring {
            return self.look_at_remote_ring(rx, stream, bufs, peek);
        }
        let found = self.receive_at_kernel(bufs, peek, kernel);
        // These may have been the kernel's last bytes: once it has none it can be given up.
        self.consent_to_carrier(rx, stream);
        match found {
            Err(Errno::AGAIN) if rx.phase == RxPhase::Ring => {
                self.look_at_remote_ring(rx, stream, bufs, peek)
            }
            Err(Errno::AGAIN | Errno::INTR) => Received::Empty,
            // The peer has closed the connection before it was away.
            Ok(0) if bufs.iter().any(|buf| !buf.is_empty()) && !stream.is_frozen() => {
                Received::Leave(ReasonT::PeerLeft)
            }
            other => Received::Done(other),
        }
    }

    /// Looks at the ring, which alone has bytes now.
    pub(super) fn look_at_remote_ring(
        self,
        rx: &mut Receiver,
        stream: &Stream,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Received {
        match self.read_ring_first(rx, bufs, peek) {
            Ok(step) => step,
            // The carrier may not have begun its ring yet.
            Err(NothingRead { stop: Stop::Empty | Stop::NotOnRing, .. }) => {
                self.found_nothing(rx, stream)
            }
            Err(nothing) => nothing.leave(),
        }
    }
}

//! Where a call that receives wants its bytes: those of a session with another host may be put
//! there by whoever takes the packet in.
//!
//! Only by the call itself, when it turns the pump, and only while nothing that came before is left
//! to be read: else bytes go to the session's ring, from which every call reads. Not here: what of
//! a packet is a session's (`sojourn_pump`), waiting (`sleep`).

use crate::io::call_flags::Recv;
use crate::remote::net::Net;
use crate::session::Session;
use crate::session::directions::{Receiver, RxPhase};
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;
use sojourn_pump::Placement;
use std::io::IoSliceMut;

/// See the head of this file.
pub(crate) struct Room<'b> {
    generation: u32,
    bytes: RefCell<&'b mut [u8]>,
    /// Bytes that are there.
    done: Cell<usize>,
}

impl<'b> Room<'b> {
    /// What is left of a call's buffer beyond the `got` bytes it has. A call with several buffers,
    /// or that only looks, reads from the ring.
    pub(crate) fn of(
        generation: u32,
        bufs: &'b mut [IoSliceMut<'_>],
        got: usize,
        how: Recv,
    ) -> Self {
        let bytes = match bufs {
            [one] if !how.peek => one.get_mut(got..).unwrap_or_default(),
            _ => &mut [],
        };
        Self { generation, bytes: RefCell::new(bytes), done: Cell::new(0) }
    }

    /// For a call that does not receive.
    pub(crate) fn none() -> Self {
        Self { generation: 0, bytes: RefCell::default(), done: Cell::new(0) }
    }

    /// Bytes that are there.
    pub(crate) fn done(&self) -> usize {
        self.done.get()
    }
}

impl Session {
    /// Takes packets that have arrived, if it is packets that this session's bytes come in, and
    /// nothing has been put into `room` yet. What is there then.
    #[inline]
    pub(crate) fn turn_for(&self, room: &Room<'_>) -> usize {
        if self.is_delegated()
            && room.done() == 0
            && let Some(net) = crate::process::library::library().net()
            && let Ok(mut bytes) = room.bytes.try_borrow_mut()
        {
            room.done.set(net.turn_into(self, room.generation, &mut bytes));
        }
        room.done()
    }

    /// Whether what comes next may go past the ring.
    fn may_place(&self, rx: &Receiver, generation: u32) -> bool {
        rx.phase == RxPhase::Ring
            && !rx.is_promised
            && self.generation.load(Ordering::Relaxed) == generation
            && rx.stream.as_ref().is_some_and(|stream| stream.available() == Ok(0))
    }
}

impl Net {
    /// As [`Net::turn`], for a call that wants that session's bytes in `room`. How many are there.
    fn turn_into(&self, session: &Session, generation: u32, room: &mut [u8]) -> usize {
        let done = self.turn_now(|pump, may_wait, at| {
            // The order of the locks is the other one: this does not wait.
            let rx = session.rx.try_lock().ok().filter(|_| !room.is_empty());
            let rx = rx.filter(|rx| session.may_place(rx, generation));
            let Some(stream) = rx.as_ref().and_then(|rx| rx.stream.as_ref()) else {
                pump.turn(may_wait, at);
                return 0;
            };
            let mut placement = Placement::new(session.slot(), room);
            pump.turn_for(Some(&mut placement), may_wait, at);
            stream.got_beside(placement.done());
            placement.done()
        });
        done.unwrap_or(0)
    }
}

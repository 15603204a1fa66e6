//! Direct placement: the thread that takes a packet in may put the payload into the buffer of the
//! receiving call, past the session's ring.
//!
//! Only the receiving call itself does this, when it turns the pump, and only while nothing older
//! is left to be read. All other bytes go to the ring, from which every call reads. Not here: the
//! payload of a packet (`sojourn_pump`), and waiting (`io::sleep`).

use crate::io::call_flags::Recv;
use crate::process::library::OwnSession;
use crate::remote::net::Net;
use crate::session::Session;
use crate::session::directions::{Receiver, RxPhase};
use crate::session::identity::Generation;
use core::cell::{Cell, RefCell};
use sojourn_pump::Placement;
use std::io::IoSliceMut;

/// The room in a receiving call's buffer that bytes may be placed in.
pub(crate) struct Room<'b> {
    generation: Generation,
    bytes: RefCell<&'b mut [u8]>,
    /// Bytes placed so far.
    done: Cell<usize>,
}

impl<'b> Room<'b> {
    /// Makes the room from the rest of a call's buffer, beyond the `got` bytes that it has. A call
    /// with several buffers, or one that peeks, has no room: it reads from the ring.
    pub(crate) fn of(
        generation: Generation,
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

    /// Makes no room, for a call that does not receive.
    pub(crate) fn none() -> Self {
        Self { generation: Generation::default(), bytes: RefCell::default(), done: Cell::new(0) }
    }

    /// Returns the number of bytes placed.
    pub(crate) fn done(&self) -> usize {
        self.done.get()
    }
}

impl OwnSession<'_> {
    /// Takes in packets that have arrived, if this session's bytes come in packets and none are in
    /// `room` yet. Returns the number of bytes in `room` then.
    #[inline]
    pub(crate) fn turn_for(self, room: &Room<'_>) -> usize {
        if self.is_delegated()
            && room.done() == 0
            && let Some(net) = self.library.net()
            && let Ok(mut bytes) = room.bytes.try_borrow_mut()
        {
            room.done.set(net.turn_into(self, room.generation, &mut bytes));
        }
        room.done()
    }
}

impl Session {
    /// Returns true if the next bytes may be placed: the ring is empty, and no older bytes are to
    /// come.
    fn may_place(&self, rx: &Receiver, generation: Generation) -> bool {
        rx.phase == RxPhase::Ring
            && rx.promised == 0
            && self.is_still(generation)
            && rx.stream.as_ref().is_some_and(|stream| stream.available() == Ok(0))
    }
}

impl Net {
    /// Turns the pump once, with `room` for that session's bytes. Returns the number placed.
    fn turn_into(&self, session: OwnSession<'_>, generation: Generation, room: &mut [u8]) -> usize {
        let done = self.turn_now(session.library, |pump, may_wait, at| {
            // Elsewhere the session's lock is taken before the pump's, so this one must not wait
            // for it.
            let rx = session.rx.try_lock().ok().filter(|_| !room.is_empty());
            let rx = rx.filter(|rx| session.may_place(rx, generation));
            let Some(stream) = rx.as_ref().and_then(|rx| rx.stream.as_ref()) else {
                pump.turn(may_wait, at);
                return 0;
            };
            let mut placement = Placement::new(session.pump_number(), room);
            pump.turn_for(Some(&mut placement), may_wait, at);
            stream.got_beside(placement.done());
            placement.done()
        });
        done.unwrap_or(0)
    }
}

//! What a program asks of a session with another host, and sets on it, while it is carried:
//! options, `TCP_INFO`, lengths of queues.
//!
//! # Theory of operation
//! The kernel's socket is asked and told first, and what it refuses is refused. It is silent,
//! however, so of what moves it knows nothing: that the engine answers. Both happen under the lock
//! that a return holds, so that no answer mixes the two homes, and what is set is not undone by a
//! return that has begun.
//!
//! Keepalive is the exception: a socket that is deaf must not ask the peer anything. So it is off
//! in the kernel while the session is away, and [`Session::keepalive`] says what the program has
//! set. An option that is set after the join and before the session is delegated may have come too
//! late for the record; whoever begins to carry it reads all of them again
//! ([`Session::take_new_options`]).
//!
//! Not here: numbers and structures of C (`sojourn-preload`), which option means what
//! (`sojourn_pump::options`).

use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::library::Library;
use crate::session::Session;
use crate::session::directions::{RxPhase, Sender, TxPhase};
use core::sync::atomic::Ordering;
use rustix::net::sockopt;
use sojourn_options::Change;
use sojourn_proto::tcp::TcpInfo;
use sojourn_proto::time::Instant;
use sojourn_pump::{Carried, Pump, now};
use sojourn_session::ReasonT;

/// What is known here, to be put over the kernel's answer.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// `SO_KEEPALIVE`.
    pub keepalive: bool,
    /// `TCP_INFO`, and `TCP_MAXSEG` in it; none before the engine has the session.
    pub info: Option<TcpInfo>,
    /// `TCP_QUICKACK`, likewise.
    pub quickack: Option<bool>,
}

/// What a program has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// An option that the engine obeys.
    Obeyed(Change),
    /// `SO_KEEPALIVE`, to this.
    Keepalive(bool),
    /// One that only the kernel obeys on sessions with other hosts.
    NotRemote,
}

/// A queue whose length is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// `FIONREAD`: received and not read.
    Input,
    /// `SIOCOUTQ`: written and not acknowledged.
    Output,
    /// `SIOCOUTQNSD`: written and not sent.
    Unsent,
}

impl Library {
    /// The session of `fd` and the generation of its slot, if it is carried. One that is an
    /// ancestor's goes home first.
    fn carried(&self, fd: i32) -> Option<(&Session, u32)> {
        let entry = self.table.known(fd)?;
        if entry.session.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let Some((session, generation)) = self.own_session(entry) else {
            self.recall_foreign(fd);
            return None;
        };
        (session.is_carried() && !session.is_datagram()).then_some((session, generation))
    }

    /// Sets an option of a session that is carried: `kernel` sets it there, and answers as system
    /// calls do. `None`, and `kernel` was not called: it is not carried. What the engine cannot
    /// obey sends the session home.
    pub fn set_option(&self, fd: i32, set: Set, kernel: impl FnOnce() -> isize) -> Option<isize> {
        let (session, generation) = self.carried(fd)?;
        let (result, is_obeyed) = session.at_rest(generation, |_| {
            let result = kernel();
            (result, result < 0 || session.option_set(set))
        })?;
        if !is_obeyed {
            self.go_home(fd, ReasonT::Option, false);
        }
        Some(result)
    }

    /// Asks for an option of a session that is carried: `kernel`'s answer, and what is to be put
    /// over it. `None` as above.
    pub fn ask_option(&self, fd: i32, kernel: impl FnOnce() -> isize) -> Option<(isize, Known)> {
        let (session, generation) = self.carried(fd)?;
        session.at_rest(generation, |_| {
            let result = kernel();
            let known = session.ask(|carried, at| carried.known(at));
            let keepalive = session.keepalive.load(Ordering::SeqCst);
            let quickack = known.map(|known| known.quickack);
            (result, Known { keepalive, info: known.map(|known| known.info), quickack })
        })
    }

    /// Asks for the length of a queue of a session that is carried: `kernel`'s answer, given what
    /// it holds itself. `None` as above.
    pub fn ask_queue(
        &self,
        fd: i32,
        queue: Queue,
        kernel: impl FnOnce(&dyn Fn(usize) -> usize) -> isize,
    ) -> Option<isize> {
        let (session, generation) = self.carried(fd)?;
        session.at_rest(generation, |tx| {
            kernel(&|kernels| match queue {
                Queue::Input => session.carried_input(kernels),
                Queue::Output => kernels + session.carried_output(tx, false),
                Queue::Unsent => kernels + session.carried_output(tx, true),
            })
        })
    }
}

impl Session {
    /// Does something while the session can neither go home nor become another. `None`: it is none,
    /// or another, already.
    fn at_rest<R>(&self, generation: u32, work: impl FnOnce(&Sender) -> R) -> Option<R> {
        let tx = lock(&self.tx);
        let is_it = self.generation.load(Ordering::SeqCst) == generation;
        (is_it && tx.phase != TxPhase::Home).then(|| work(&tx))
    }

    fn ask<R>(&self, ask: impl FnOnce(&Carried, Instant) -> R) -> Option<R> {
        if !self.is_delegated() {
            return None;
        }
        crate::process::library::library().net()?.with_pump(|pump| {
            let at = now();
            // What has arrived counts.
            pump.turn(false, at);
            pump.session(self.slot()).map(|carried| ask(carried, at))
        })
    }

    /// What `SO_KEEPALIVE` is, before the carrier switches it off in the kernel.
    pub(crate) fn learn_keepalive(&self) {
        let _tx = lock(&self.tx);
        let is_on = kernel::at(self.number()).and_then(sockopt::socket_keepalive);
        self.keepalive.store(is_on.unwrap_or(false), Ordering::SeqCst);
    }

    /// The kernel's socket has a new value of an option. False: it is not obeyed here.
    fn option_set(&self, set: Set) -> bool {
        let change = match set {
            Set::NotRemote => return false,
            Set::Obeyed(change) => change,
            Set::Keepalive(is_on) => {
                self.keepalive.store(is_on, Ordering::SeqCst);
                Change::Keepalive
            }
        };
        let mut is_obeyed = true;
        if self.is_delegated() {
            if let Some(net) = crate::process::library::library().net() {
                net.with_pump(|pump| {
                    is_obeyed = self.set_in(pump, change);
                    pump.mark(self.slot());
                    pump.serve(false, now());
                });
            }
            return is_obeyed;
        }
        // SYNC: before the second look at `is_delegated`; pairs with `Net::begin`, which sets that
        // and then looks here, all under the pump's lock.
        self.has_new_options.store(true, Ordering::SeqCst);
        if self.is_delegated()
            && let Some(net) = crate::process::library::library().net()
        {
            net.with_pump(|pump| self.take_new_options(pump));
        }
        true
    }

    fn set_in(&self, pump: &mut Pump, change: Change) -> bool {
        let Ok(fd) = kernel::at(self.number()) else { return false };
        let keepalive = self.keepalive.load(Ordering::SeqCst);
        if change == Change::Keepalive && keepalive {
            let _ = sockopt::set_socket_keepalive(fd, false);
        }
        pump.session(self.slot()).is_some_and(|carried| carried.set(change, fd, keepalive, now()))
    }

    /// The session has just been delegated: what the program has set since the record was made
    /// holds, too.
    pub(crate) fn take_new_options(&self, pump: &mut Pump) {
        if self.has_new_options.swap(false, Ordering::SeqCst) {
            for change in Change::ALL {
                self.set_in(pump, change);
            }
        }
    }

    /// What `FIONREAD` says where the kernel has `kernels` bytes.
    fn carried_input(&self, kernels: usize) -> usize {
        let held_back = self.ask(|carried, _| carried.held_back()).unwrap_or(0);
        let rx = lock(&self.rx);
        let (Some(stream), RxPhase::Ring) = (&rx.stream, rx.phase) else { return kernels };
        let all = kernels + held_back + stream.available().unwrap_or(0);
        // On its way from the kernel to here: the program may have heard of it.
        let is_promised = rx.is_promised && stream.totals().1 == 0;
        if is_promised { all.max(rx.promised) } else { all }
    }

    /// What is written and not acknowledged, or not sent, beside what the kernel has.
    fn carried_output(&self, tx: &Sender, is_unsent: bool) -> usize {
        let (Some(stream), TxPhase::Ring) = (&tx.stream, tx.phase) else { return 0 };
        let unsent = self.ask(|carried, _| carried.unsent_bytes());
        unsent.filter(|_| is_unsent).unwrap_or_else(|| stream.pending())
    }
}

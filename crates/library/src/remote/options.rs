//! Questions and changes of a program about a session with another host while it is away: options,
//! `TCP_INFO`, lengths of queues.
//!
//! Not here: C's numbers and structures (`sojourn-preload`), and the meaning of options
//! (`sojourn_pump::options`).
//!
//! # Theory of operation
//! The kernel's socket is asked and changed first, and what it refuses is refused. It is silent,
//! however, so it knows nothing of what changes while the session is away: the engine answers for
//! that. Both happen under the lock that a return holds, so that no answer mixes the two homes, and
//! a return that has begun does not undo a change.
//!
//! Keepalive is the exception: a deaf socket must not probe the peer. So it is off in the kernel
//! while the session is away, and [`RemoteTcp::keepalive`] has the program's setting. An option
//! that is set after the join and before the delegation may have come too late for the record; the
//! thread that begins to run the engine reads all options again ([`Session::take_new_options`]).

use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::library::{FoundSession, Library, OwnSession};
use crate::session::Session;
use crate::session::directions::{RxPhase, Sender, TxPhase};
use crate::session::identity::Generation;
use crate::session::transport::{RemoteTcp, Transport};
use core::sync::atomic::Ordering;
use rustix::net::sockopt;
use sojourn_options::Change;
use sojourn_proto::tcp::TcpInfo;
use sojourn_proto::time::Instant;
use sojourn_pump::{Carried, Pump, now};
use sojourn_session::ReasonT;

/// The engine's answers, to be laid over the kernel's.
#[derive(Clone, Copy, Debug)]
pub struct EngineAnswers {
    /// `SO_KEEPALIVE`.
    pub keepalive: bool,
    /// `TCP_INFO`, which contains `TCP_MAXSEG`; `None` before the engine has the session.
    pub info: Option<TcpInfo>,
    /// `TCP_QUICKACK`; `None` before the engine has the session.
    pub quickack: Option<bool>,
}

/// The answer to a program that asks for an option.
#[derive(Clone, Copy, Debug)]
pub struct OptionAnswer {
    /// The result of the kernel's call.
    pub result: isize,
    /// What is to be laid over the kernel's answer.
    pub engine: EngineAnswers,
}

/// A change that a program has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionChange {
    /// An option that the engine obeys.
    Obeyed(Change),
    /// `SO_KEEPALIVE`, with the program's value.
    Keepalive(bool),
    /// An option that only the kernel obeys on sessions with other hosts.
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

/// A TCP session with another host, as it was when a call began.
struct RemoteSession<'a> {
    session: OwnSession<'a>,
    /// The generation of its slot.
    generation: Generation,
    tcp: &'a RemoteTcp,
}

impl Library {
    /// Returns the session of `fd`, if it is a TCP session with another host. An ancestor's session
    /// goes home first.
    fn remote_tcp(&self, fd: i32) -> Option<RemoteSession<'_>> {
        let entry = self.table.known(fd)?;
        entry.session.load(Ordering::Relaxed)?;
        let Some(FoundSession { session, generation }) = self.own_session(entry) else {
            self.recall_foreign(fd);
            return None;
        };
        if session.service.is_any() {
            // The kernel decides once it has the session, which leaves it again when it is hot.
            self.go_home(fd, ReasonT::Option, false);
            return None;
        }
        let Transport::RemoteTcp(tcp) = session.session.transport() else { return None };
        Some(RemoteSession { session, generation, tcp })
    }

    /// Sets an option of a carried session: `kernel` sets it on the socket, and returns the system
    /// call's result. `None` means that the session is not carried, and that `kernel` was not
    /// called. An option that the engine cannot obey sends the session home.
    pub fn set_option(
        &self,
        fd: i32,
        set: OptionChange,
        kernel: impl FnOnce() -> isize,
    ) -> Option<isize> {
        let remote = self.remote_tcp(fd)?;
        let (result, is_obeyed) = remote.at_rest(|_| {
            let result = kernel();
            (result, result < 0 || remote.session.option_set(remote.tcp, set))
        })?;
        if !is_obeyed {
            self.go_home(fd, ReasonT::Option, false);
        }
        Some(result)
    }

    /// Asks for an option of a carried session. `None` means the same as for
    /// [`Library::set_option`].
    pub fn ask_option(&self, fd: i32, kernel: impl FnOnce() -> isize) -> Option<OptionAnswer> {
        let remote = self.remote_tcp(fd)?;
        remote.at_rest(|_| {
            let result = kernel();
            let known = remote.session.ask(|carried, at| carried.known(at));
            let keepalive = remote.tcp.keepalive.load(Ordering::SeqCst);
            let quickack = known.map(|known| known.quickack);
            let engine = EngineAnswers { keepalive, info: known.map(|known| known.info), quickack };
            OptionAnswer { result, engine }
        })
    }

    /// Asks for the length of a queue of a carried session; `kernel` gets a function that adds the
    /// session's bytes to the kernel's. `None` means the same as for [`Library::set_option`].
    pub fn ask_queue(
        &self,
        fd: i32,
        queue: Queue,
        kernel: impl FnOnce(&dyn Fn(usize) -> usize) -> isize,
    ) -> Option<isize> {
        let is_served = || self.session_of(fd).is_some_and(|session| session.service.is_any());
        if queue == Queue::Input && is_served() {
            return None;
        }
        let remote = self.remote_tcp(fd)?;
        remote.at_rest(|tx| {
            kernel(&|kernels| match queue {
                Queue::Input => remote.session.carried_input(kernels),
                Queue::Output => kernels + remote.session.carried_output(tx, false),
                Queue::Unsent => kernels + remote.session.carried_output(tx, true),
            })
        })
    }
}

impl RemoteSession<'_> {
    /// Does `work` while the session can neither go home nor have its slot used again. `None` means
    /// that it is home, or another session, already.
    fn at_rest<R>(&self, work: impl FnOnce(&Sender) -> R) -> Option<R> {
        let tx = lock(&self.session.tx);
        let is_it = self.session.generation() == self.generation;
        (is_it && tx.phase != TxPhase::Home).then(|| work(&tx))
    }
}

impl OwnSession<'_> {
    fn ask<R>(self, ask: impl FnOnce(&Carried, Instant) -> R) -> Option<R> {
        if !self.is_delegated() {
            return None;
        }
        self.library.net()?.with_pump(self.library, |pump| {
            let at = now();
            // Packets that have arrived count.
            pump.turn(false, at);
            pump.session(self.pump_number()).map(|carried| ask(carried, at))
        })
    }

    /// Takes over a new value of an option from the kernel's socket. Returns false if the engine
    /// does not obey the option.
    fn option_set(self, tcp: &RemoteTcp, set: OptionChange) -> bool {
        let change = match set {
            OptionChange::NotRemote => return false,
            OptionChange::Obeyed(change) => change,
            OptionChange::Keepalive(is_on) => {
                tcp.keepalive.store(is_on, Ordering::SeqCst);
                Change::Keepalive
            }
        };
        let mut is_obeyed = true;
        if self.is_delegated() {
            if let Some(net) = self.library.net() {
                net.with_pump(self.library, |pump| {
                    is_obeyed = self.set_in(tcp, pump, change);
                    pump.mark(self.pump_number());
                    pump.serve(false, now());
                });
            }
            return is_obeyed;
        }
        // SYNC: before the second look at `is_delegated`; pairs with `Net::begin`, which sets that
        // and then looks here, all under the pump's lock.
        tcp.has_new_options.store(true, Ordering::SeqCst);
        if self.is_delegated()
            && let Some(net) = self.library.net()
        {
            net.with_pump(self.library, |pump| self.take_new_options(tcp, pump));
        }
        true
    }

    /// Returns the result of `FIONREAD` where the kernel has `kernels` bytes.
    fn carried_input(self, kernels: usize) -> usize {
        let held_back = self.ask(|carried, _| carried.held_back()).unwrap_or(0);
        let rx = lock(&self.rx);
        let (Some(stream), RxPhase::Ring) = (&rx.stream, rx.phase) else { return kernels };
        let all = kernels + held_back + stream.available().unwrap_or(0);
        // Bytes on their way from the kernel to the ring count: the program may have heard of them.
        if stream.totals().received == 0 { all.max(rx.promised) } else { all }
    }

    /// Counts the bytes written and not acknowledged, or not sent, beside the kernel's.
    fn carried_output(self, tx: &Sender, is_unsent: bool) -> usize {
        let (Some(stream), TxPhase::Ring) = (&tx.stream, tx.phase) else { return 0 };
        let unsent = self.ask(|carried, _| carried.unsent_bytes());
        unsent.filter(|_| is_unsent).unwrap_or_else(|| stream.pending())
    }
}

impl Session {
    /// Notes the program's `SO_KEEPALIVE`, before the carrier switches it off in the kernel.
    pub(crate) fn learn_keepalive(&self, tcp: &RemoteTcp) {
        let _tx = lock(&self.tx);
        let is_on = kernel::at(self.number()).and_then(sockopt::socket_keepalive);
        tcp.keepalive.store(is_on.unwrap_or(false), Ordering::SeqCst);
    }

    fn set_in(&self, tcp: &RemoteTcp, pump: &mut Pump, change: Change) -> bool {
        let Ok(fd) = kernel::at(self.number()) else { return false };
        let keepalive = tcp.keepalive.load(Ordering::SeqCst);
        // A deaf socket must not probe the peer: the engine does.
        if change == Change::Keepalive && keepalive {
            let _ = sockopt::set_socket_keepalive(fd, false);
        }
        pump.session(self.pump_number())
            .is_some_and(|carried| carried.set(change, fd, keepalive, now()))
    }

    /// Takes over the options that the program has set since the record was made; called when the
    /// session has just been delegated.
    pub(crate) fn take_new_options(&self, tcp: &RemoteTcp, pump: &mut Pump) {
        if tcp.has_new_options.swap(false, Ordering::SeqCst) {
            for change in Change::ALL {
                self.set_in(tcp, pump, change);
            }
        }
    }
}

//! Data calls on a stream that the protocol server serves: each is a call there. A receive may wait
//! in the server; any other call that has to wait has the server ring, and sleeps in this process.
//!
//! Not here: the calls to the server (`remote::protocol_server`), readiness (`remote::served`),
//! datagrams (`io::datagrams::served`).

use crate::host::{Host, Interrupt};
use crate::io::call_flags::{Recv, Send};
use crate::io::receive::after_wait;
use crate::io::sleep::Waited;
use crate::process::library::OwnSession;
use crate::remote::direct::Ended;
use crate::remote::served::Asked;
use crate::session::identity::Generation;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use sojourn_session::ReasonT;
use sojourn_shm::Deadline;

/// Returns the end of a wait as calls have it, after handlers that were put off have run.
pub(crate) fn waited(host: &dyn Host, ended: Ended, until: Deadline) -> Waited {
    if ended == Ended::TimedOut {
        return Waited::TimedOut;
    }
    host.wait_begins();
    let interrupt = host.interrupt();
    host.wait_ends();
    waited_until(interrupt, until)
}

fn waited_until(interrupt: Interrupt, until: Deadline) -> Waited {
    match interrupt {
        Interrupt::None => Waited::Look,
        Interrupt::Break => Waited::Interrupted,
        // signal(7): a socket call with a time limit is not restarted.
        Interrupt::Restart if until != Deadline::NEVER => Waited::Interrupted,
        Interrupt::Restart => Waited::Restart,
    }
}

impl OwnSession<'_> {
    /// Receives; the result is as that of [`OwnSession::recv`].
    pub(crate) fn recv_served(
        self,
        generation: Generation,
        bufs: &mut [IoSliceMut<'_>],
        how: Recv,
    ) -> Option<Result<usize, Errno>> {
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let may_wait = self.may_wait(how.dont_wait);
        let limit = self.receive_timeout.load(Ordering::Relaxed);
        let (mut got, mut deadline, mut is_last) = (0, None, false);
        loop {
            let until = match may_wait {
                true => *deadline.get_or_insert_with(|| Deadline::from_limit(limit)),
                false => Deadline::NEVER,
            };
            let asked = match may_wait && !how.peek {
                true => self.receive_waiting(generation, bufs, got, until),
                false => self.receive_now(generation, bufs, got, how.peek),
            };
            let result = match asked {
                Asked::Home => return (got > 0).then_some(Ok(got)),
                Asked::Unknown if how.peek => return None,
                Asked::Unknown => Err(self.is_cut()),
                Asked::Answer(ControlFlow::Break(ended)) => {
                    // The server has looked once more before it ended the wait.
                    let waited = waited(self.library.host(), ended, until);
                    match after_wait(waited, got > 0, until, &mut is_last) {
                        Some(error) => Err(error),
                        None => continue,
                    }
                }
                Asked::Answer(ControlFlow::Continue(0)) => return Some(Ok(got)),
                Asked::Answer(ControlFlow::Continue(len)) => {
                    got += len;
                    if got < wanted {
                        self.arm_for_set();
                    }
                    if got >= wanted || how.peek || !how.wait_all {
                        return Some(Ok(got));
                    }
                    continue;
                }
                Asked::Refused(Errno::AGAIN) if may_wait => {
                    let waited = self.wait_served(true, false, until);
                    match after_wait(waited, got > 0, until, &mut is_last) {
                        Some(error) => Err(error),
                        None => continue,
                    }
                }
                Asked::Refused(error) => {
                    if error == Errno::AGAIN {
                        self.arm_for_set();
                    }
                    Err(error)
                }
            };
            return Some(if got > 0 { Ok(got) } else { result });
        }
    }

    /// Asks for bytes that are there.
    fn receive_now(
        self,
        generation: Generation,
        bufs: &mut [IoSliceMut<'_>],
        got: usize,
        peek: bool,
    ) -> Asked<ControlFlow<Ended, usize>> {
        self.ask_service(generation, |server, number| {
            server.receive(number, bufs, got, peek).map(ControlFlow::Continue)
        })
    }

    /// Asks for bytes, and waits for them in the server; if no connection is left for that, asks
    /// for those that are there.
    fn receive_waiting(
        self,
        generation: Generation,
        bufs: &mut [IoSliceMut<'_>],
        got: usize,
        until: Deadline,
    ) -> Asked<ControlFlow<Ended, usize>> {
        let mut is_receipt = false;
        let asked = self.ask_service(generation, |server, number| {
            match server.receive_waiting(number, bufs, got, until) {
                Some(received) => {
                    is_receipt = matches!(received, Ok(ControlFlow::Continue(1..)));
                    received
                }
                None => server.receive(number, bufs, got, false).map(ControlFlow::Continue),
            }
        });
        if is_receipt {
            self.service.received();
        }
        asked
    }

    /// Sends; the result is as that of [`OwnSession::send`].
    pub(crate) fn send_served(
        self,
        generation: Generation,
        bufs: &[IoSlice<'_>],
        how: Send,
    ) -> Option<Result<usize, Errno>> {
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let may_wait = self.may_wait(how.dont_wait);
        let limit = self.send_timeout.load(Ordering::Relaxed);
        let (mut sent, mut deadline) = (0, None);
        while sent < wanted {
            let asked =
                self.ask_service(generation, |server, number| server.send(number, bufs, sent));
            let result = match asked {
                Asked::Home => return (sent > 0).then_some(Ok(sent)),
                Asked::Unknown => Err(self.is_cut()),
                Asked::Answer(len) => {
                    sent += len;
                    continue;
                }
                Asked::Refused(Errno::AGAIN) if may_wait => {
                    let until = *deadline.get_or_insert_with(|| Deadline::from_limit(limit));
                    match self.wait_served(false, true, until) {
                        Waited::Look if !until.is_over() => continue,
                        Waited::Restart if sent == 0 => continue,
                        Waited::TimedOut | Waited::Look => Err(Errno::AGAIN),
                        Waited::Interrupted | Waited::Restart => Err(Errno::INTR),
                    }
                }
                Asked::Refused(Errno::AGAIN) => {
                    self.library.set_full(&self);
                    Err(Errno::AGAIN)
                }
                // The kernel knows best what a send returns then, and which signal comes with it.
                Asked::Refused(Errno::PIPE | Errno::CONNRESET) if sent == 0 => {
                    self.leave(ReasonT::PeerDied, false);
                    return None;
                }
                Asked::Refused(error) => Err(error),
            };
            return Some(if sent > 0 { Ok(sent) } else { result });
        }
        Some(Ok(sent))
    }

    /// Waits until the server has told of what is waited for: input, output.
    pub(crate) fn wait_served(self, input: bool, output: bool, deadline: Deadline) -> Waited {
        // Read before the server is asked to ring: what it tells from then on ends the sleep.
        let said = self.service.news().load(Ordering::SeqCst);
        self.watch_by_service(input, output);
        let host = self.library.host();
        host.wait_begins();
        let has_news = || self.service.news().load(Ordering::SeqCst) != said;
        let must_sleep =
            || !has_news() && host.interrupt() == Interrupt::None && self.service.is_begun();
        while must_sleep() && !deadline.is_over() {
            host.futex_wait(self.service.news(), said, deadline.left());
        }
        let interrupt = host.interrupt();
        host.wait_ends();
        if has_news() || !self.service.is_begun() {
            return Waited::Look;
        }
        match interrupt {
            Interrupt::None => Waited::TimedOut,
            interrupt => waited_until(interrupt, deadline),
        }
    }
}

//! A stream on which some messages carry a descriptor, with moves at every point of it: each
//! descriptor comes once, with its byte.
//!
//! The test tries all short sequences of steps of two ends and their protocol threads, and many
//! long random ones, on real sockets with both ends in this process: a thread would only choose
//! among these orders. The part of a call under its session's lock is one step here.

use crate::host::kernel;
use crate::io::call_flags::{Recv, Send};
use crate::io::calls::Route;
use crate::io::from_kernel::FromKernel;
use crate::process::library::library;
use crate::session_fakes::{Pair, common_inbox, is_away, write};
use core::mem::MaybeUninit;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use sojourn_session::ReasonT;

/// A step of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The writer sends a byte.
    Send,
    /// The writer sends a byte with a descriptor.
    Pass,
    /// The reader asks for so many bytes.
    Receive(usize),
    /// The reader peeks.
    Look,
    /// Both ends move, if they are home.
    Move,
    /// An end is called home.
    Home(usize),
    /// The protocol threads take the peer's messages.
    Attend,
}

const STEPS: [Step; 9] = [
    Step::Send,
    Step::Pass,
    Step::Receive(1),
    Step::Receive(3),
    Step::Look,
    Step::Move,
    Step::Home(0),
    Step::Home(1),
    Step::Attend,
];

/// The receiving call's control buffer.
#[derive(Default)]
struct Control {
    came: Vec<OwnedFd>,
}

impl Control {
    fn receive(
        &mut self,
        fd: i32,
        bufs: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
    ) -> Result<usize, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let got = rustix::net::recvmsg(kernel::at(fd)?, bufs, &mut beside, flags)?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(all) = message {
                self.came.extend(all);
            }
        }
        Ok(got.bytes)
    }
}

impl FromKernel for Control {
    fn take(&mut self, fd: i32, bufs: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        let mut flags = RecvFlags::DONTWAIT;
        flags.set(RecvFlags::PEEK, peek);
        self.receive(fd, bufs, flags)
    }

    fn has_ended(&self) -> bool {
        !self.came.is_empty()
    }
}

/// One session on its way through a history.
struct Flow {
    pair: Pair,
    /// For each byte that was sent: true if it carries a descriptor.
    sent: Vec<bool>,
    received: usize,
}

impl Flow {
    fn new() -> Self {
        Self { pair: Pair::new(), sent: Vec::new(), received: 0 }
    }

    fn do_step(&mut self, step: Step) {
        match step {
            Step::Send => {
                if write(self.pair.fd(0), &[self.sent.len() as u8]) == Ok(1) {
                    self.sent.push(false);
                }
            }
            Step::Pass => self.pass(),
            Step::Receive(len) => self.receive(len, false),
            Step::Look => self.receive(3, true),
            Step::Move => {
                if !(0..2).any(|end| is_away(self.pair.fd(end))) {
                    assert!(self.pair.join_in_no_set([common_inbox(), common_inbox()]));
                }
            }
            Step::Home(end) => {
                if let Some(session) = library().session_of(self.pair.fd(end)) {
                    session.leave(ReasonT::User, false);
                }
            }
            Step::Attend => {
                for session in (0..2).filter_map(|end| library().session_of(self.pair.fd(end))) {
                    session.attend();
                }
            }
        }
    }

    /// As a shell serves `sendmsg` with a descriptor, whose number is that of its byte.
    fn pass(&mut self) {
        let (fd, at) = (self.pair.fd(0), self.sent.len());
        library().go_home_with_control(fd);
        if let Route::Stream(call) = library().writing(fd) {
            assert_eq!(call.send(&[], Send::default()), None, "at home, nothing to follow");
        }
        let number = eventfd(at as u32 + 1, EventfdFlags::empty()).unwrap();
        let all = [number.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&all)));
        let bytes = [at as u8];
        let bufs = [IoSlice::new(&bytes)];
        let sent =
            rustix::net::sendmsg(kernel::at(fd).unwrap(), &bufs, &mut beside, SendFlags::empty());
        assert_eq!(sent, Ok(1));
        self.sent.push(true);
    }

    /// As a shell serves `recvmsg` with a control buffer.
    fn receive(&mut self, len: usize, peek: bool) {
        let fd = self.pair.fd(1);
        let mut buf = [0; 3];
        let mut control = Control::default();
        let bufs = &mut [IoSliceMut::new(&mut buf[..len])];
        let got = loop {
            match library().reading(fd) {
                Route::Plain | Route::Kernel(_) => break control.take(fd, bufs, peek),
                Route::Datagrams(_) => panic!("a stream"),
                Route::Stream(call) => {
                    let how = Recv { peek, dont_wait: true, ..Recv::default() };
                    if let Some(done) = call.recv(bufs, how, &mut control) {
                        break done;
                    }
                }
            }
        };
        let Ok(got) = got else {
            assert_eq!(got, Err(Errno::AGAIN));
            return;
        };
        let expected: Vec<u8> = (self.received..self.received + got).map(|at| at as u8).collect();
        assert_eq!(buf[..got], expected, "bytes");
        let passed = (self.received..self.received + got).filter(|at| self.sent[*at]);
        let number = |fd: OwnedFd| {
            let mut number = [0; 8];
            // A look has had a duplicate: the number is put back.
            rustix::io::read(&fd, &mut number).unwrap();
            rustix::io::write(&fd, &number).unwrap();
            u64::from_ne_bytes(number) as usize - 1
        };
        let mut came: Vec<usize> = control.came.into_iter().map(number).collect();
        // A peek that fills the buffer also has the descriptor of the kernel's next message: Linux
        // attaches it without looking for room for a byte of that message.
        came.retain(|at| !peek || *at < self.received + got);
        assert_eq!(came, passed.collect::<Vec<_>>(), "descriptors");
        self.received += if peek { 0 } else { got };
    }

    fn end(&mut self) {
        for _ in 0..2 * self.sent.len() + 4 {
            self.do_step(Step::Attend);
            self.do_step(Step::Receive(3));
        }
        assert_eq!(self.received, self.sent.len(), "all that was sent");
    }
}

fn run(steps: &[Step]) {
    let told = Script(steps);
    let mut flow = Flow::new();
    steps.iter().for_each(|step| flow.do_step(*step));
    flow.end();
    drop(told);
}

/// Names the history that a panic ends.
struct Script<'a>(&'a [Step]);

impl Drop for Script<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:?}", self.0);
        }
    }
}

#[test]
fn every_short_history_keeps_descriptors_with_their_bytes() {
    // The first two are given: whatever comes before a move and a message is tried by the longer
    // ones.
    let mut steps = [Step::Pass, Step::Move, Step::Send, Step::Send, Step::Send, Step::Send];
    for history in 0..STEPS.len().pow(4) {
        let mut rest = history;
        for step in &mut steps[2..] {
            *step = STEPS[rest % STEPS.len()];
            rest /= STEPS.len();
        }
        run(&steps);
    }
}

#[test]
fn long_histories_keep_descriptors_with_their_bytes() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..1500 {
        let steps = [(); 40].map(|()| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            STEPS[(random % STEPS.len() as u64) as usize]
        });
        run(&steps);
    }
}

//! `sync` of single operations: a transport that writes down how it was told to wait, and when.
//!
//! That a connection then does wait so is seen by `tests/interop/tests/waits.rs`.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sojourn_ipc::rt::loopback::{LoopDraft, LoopReply, LoopServer, Loopback};
use sojourn_ipc::rt::{self, CallError, Deadline, Draft, Transport, Wait, Writer};
use sojourn_stubs_rust::local::{self, local_random};

const SEED: u64 = 5;
/// How the connection waits: none of the operations' own ways.
const AS_CONNECTED: Wait = Wait::Spin(Some(Duration::from_micros(50)));

/// What happened on a transport.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Set(Wait),
    Start(u16),
    Over,
}

type Log = Rc<RefCell<Vec<Step>>>;

/// A loopback with a memory.
#[derive(Debug)]
struct Recorder {
    inner: Loopback,
    wait: Wait,
    log: Log,
    /// The next wait does not come back.
    panics: bool,
}

impl Transport for Recorder {
    type Draft<'c, 'd> = Recorded<'c, 'd>;

    fn start<'c, 'd>(&'c mut self, op: u16, body_len: usize) -> Recorded<'c, 'd> {
        self.log.borrow_mut().push(Step::Start(op));
        let log = Rc::clone(&self.log);
        Recorded { inner: self.inner.start(op, body_len), log, panics: self.panics }
    }

    fn set_wait(&mut self, wait: Wait) -> Wait {
        self.log.borrow_mut().push(Step::Set(wait));
        std::mem::replace(&mut self.wait, wait)
    }

    fn local<L: std::any::Any + Send + Sync>(&self) -> Option<Arc<L>> {
        self.inner.local()
    }
}

struct Recorded<'c, 'd> {
    inner: LoopDraft<'c, 'd>,
    log: Log,
    panics: bool,
}

impl<'d> Draft<'d> for Recorded<'_, 'd> {
    type Reply = LoopReply;

    fn encoder(&mut self) -> Writer<'_, 'd> {
        self.inner.encoder()
    }

    fn call(self, deadline: Deadline) -> Result<LoopReply, CallError> {
        assert!(!self.panics, "as the test wants it");
        let result = self.inner.call(deadline);
        self.log.borrow_mut().push(Step::Over);
        result
    }

    fn send(self, deadline: Deadline) -> Result<(), CallError> {
        let result = self.inner.send(deadline);
        self.log.borrow_mut().push(Step::Over);
        result
    }
}

/// A client of a server that knows the values of `SEED`.
fn start() -> (Log, local::LocalClient<Recorder>) {
    let oracle = local_random::LocalOracle::new(SEED);
    let service = local::LocalService::<local_random::LocalOracle>::new(oracle);
    let service: Rc<RefCell<dyn rt::Service<LoopServer>>> = Rc::new(RefCell::new(service));
    let log = Log::default();
    let inner = Loopback::new(&service, 1);
    let wait = AS_CONNECTED;
    let recorder = Recorder { inner, wait, log: Rc::clone(&log), panics: false };
    let client = local::LocalClient::bind(recorder).expect("bound");
    log.borrow_mut().clear();
    (log, client)
}

/// What `idl/local.acf` says, by the operation's number; `None`: nothing.
fn said(op: u16) -> Option<Wait> {
    match op {
        0 | 14 | 15 => Some(Wait::Park), // twice, big, tell
        1 => Some(Wait::Spin(Some(Duration::from_micros(9)))), // events
        2 => Some(Wait::Spin(None)),     // fill
        10 => Some(Wait::Adaptive),      // failing
        _ => None,
    }
}

#[test]
fn each_call_waits_as_its_operation_says_and_then_as_before() {
    let (log, mut client) = start();
    local_random::drive(&mut client, SEED, 2).expect("all as it must be");
    let log = log.borrow();
    let mut rest = log.as_slice();
    let mut with_a_way_of_their_own = 0;
    while !rest.is_empty() {
        rest = match *rest {
            [
                Step::Set(wait),
                Step::Start(op),
                Step::Over,
                Step::Set(AS_CONNECTED),
                ref rest @ ..,
            ] => {
                assert_eq!(Some(wait), said(op), "operation {op}");
                with_a_way_of_their_own += 1;
                rest
            }
            [Step::Start(op), Step::Over, ref rest @ ..] => {
                assert_eq!(said(op), None, "operation {op}");
                rest
            }
            _ => panic!("neither one nor the other: {rest:?}"),
        };
    }
    assert_eq!(with_a_way_of_their_own, 2 * 6);
}

#[test]
fn whatever_comes_of_a_call_the_transport_waits_as_before() {
    let (log, mut client) = start();
    let long = Duration::from_millis(1);
    let is_as_before =
        |client: &mut local::LocalClient<Recorder>| client.transport().wait == AS_CONNECTED;
    // The server expects another value.
    assert!(matches!(client.twice(&long), Err(CallError::Fault(_))));
    let faulty = [Step::Set(Wait::Park), Step::Start(0), Step::Over, Step::Set(AS_CONNECTED)];
    assert_eq!(*log.borrow(), faulty);
    // Faults and failures that become values.
    assert!(client.failing(1).is_ok() && is_as_before(&mut client));
    // Refused before anything is sent.
    assert_eq!(client.big(&[0; 1001]), Err(CallError::TooLarge));
    assert!(client.fill(&mut [0; 1001]).is_err() && is_as_before(&mut client));
    // Somebody else's panic passes through.
    client.transport().panics = true;
    let thrown = catch_unwind(AssertUnwindSafe(|| client.twice(&long)));
    assert!(thrown.is_err() && is_as_before(&mut client));
    assert_eq!(log.borrow().last(), Some(&Step::Set(AS_CONNECTED)));
}

#[test]
fn transports_with_one_way_to_wait_need_not_care() {
    let (_, client) = start();
    let mut loopback = client.into_inner().inner;
    for wait in [Wait::Park, Wait::Adaptive] {
        assert_eq!(loopback.set_wait(wait), wait);
    }
}

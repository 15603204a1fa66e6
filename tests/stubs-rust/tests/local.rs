//! What an ACF changes in generated Rust, key by key. Over the loopback.

use std::cell::RefCell;
use std::ffi::CString;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sojourn_ipc::rt::loopback::{LoopServer, Loopback};
use sojourn_ipc::{Wait, rt};
use sojourn_stubs_rust::convert::{POOL, Polar};
use sojourn_stubs_rust::local::{self, EventT, JobT, PlaceT};

#[derive(Debug, Default)]
struct Local {
    run_down: Mutex<Vec<u64>>,
}

impl local::LocalServer for Local {
    fn twice(&self, _: &rt::Caller, a: &Duration) -> Result<Duration, rt::Fault> {
        Ok(*a * 2)
    }

    fn events(&self, _: &rt::Caller, a: &[EventT]) -> Result<EventT, rt::Fault> {
        a.last().cloned().ok_or(rt::Fault(0x1000))
    }

    fn fill(&self, _: &rt::Caller, a: &mut [u16]) -> Result<(), rt::Fault> {
        a.iter_mut().zip(0..).for_each(|(a, n)| *a = n);
        Ok(())
    }

    fn part(&self, _: &rt::Caller, n: u32, a: &mut Vec<u8>) -> Result<(), rt::Fault> {
        a.resize(n as usize / 2, 7);
        Ok(())
    }

    fn pooled(&self, _: &rt::Caller, a: &[i64]) -> Result<i64, rt::Fault> {
        Ok(a.iter().sum())
    }

    fn provided(&self, _: &rt::Caller, a: &[i32]) -> Result<i64, rt::Fault> {
        Ok(a.iter().map(|a| i64::from(*a)).sum())
    }

    fn by_hand(&self, _: &rt::Caller, a: i32) -> Result<i32, rt::Fault> {
        Ok(a * 10)
    }

    fn never(&self, _: &rt::Caller, _: i32) -> Result<i32, rt::Fault> {
        Err(rt::Fault(0x1001))
    }

    fn here(&self, _: &rt::Caller, a: i32) -> Result<i32, rt::Fault> {
        Ok(a)
    }

    fn failing(&self, _: &rt::Caller, a: i32) -> Result<local::LocalFailingOut, rt::Fault> {
        if a < 0 {
            return Err(rt::Fault(0x1234));
        }
        let e = EventT { id: a, span: Duration::ZERO, place: None };
        Ok(local::LocalFailingOut { comm: 0, fault: 0, e })
    }

    fn work(
        &self,
        _: &rt::Caller,
        a: i32,
        total: i64,
        name: CString,
        reply: local::LocalWorkDeferredReply,
    ) {
        let total = total + i64::from(a);
        let ret = i32::try_from(name.count_bytes()).unwrap_or(i32::MAX);
        std::thread::spawn(move || {
            if a > 0 {
                reply.send(local::LocalWorkOut { ret, total }).expect("the client waits");
            } else if a < 0 {
                reply.fault(rt::Fault(0x1005)).expect("the client waits");
            } else {
                drop(reply);
            }
        });
    }

    fn begin(&self, _: &rt::Caller, a: i32, reply: local::LocalBeginDeferredReply) {
        reply.send(JobT(a.unsigned_abs().into())).expect("the client waits");
    }

    fn end(&self, _: &rt::Caller, job: &mut JobT) -> Result<i32, rt::Fault> {
        let a = job.0 as i32;
        *job = JobT::NULL;
        Ok(a)
    }

    fn big(&self, _: &rt::Caller, _: &[u8]) -> Result<(), rt::Fault> {
        Ok(())
    }

    fn tell(&self, _: &rt::Caller, _: i32) {}

    fn heavy(&self, _: &rt::Caller, _: &[u8]) -> Result<(), rt::Fault> {
        Ok(())
    }

    fn heavy_later(&self, _: &rt::Caller, _: Vec<u8>, reply: local::LocalHeavyLaterDeferredReply) {
        reply.send(()).expect("the client waits");
    }

    fn job_t_run_down(&self, handle: JobT) {
        self.run_down.lock().expect("unpoisoned").push(handle.0);
    }
}

fn start() -> (Arc<Local>, local::LocalClient<Loopback>) {
    let server = Arc::new(Local::default());
    let service = local::LocalService::<Local>::new(Arc::clone(&server));
    let service: Rc<RefCell<dyn rt::Service<LoopServer>>> = Rc::new(RefCell::new(service));
    let client = local::LocalClient::bind(Loopback::new(&service, 1)).expect("bound");
    (server, client)
}

#[test]
fn types_are_converted() {
    let (_, mut client) = start();
    assert_eq!(client.twice(&Duration::from_millis(750)), Ok(Duration::from_millis(1500)));
    let place = Some(Box::new(Polar::from(PlaceT { x: 3.0, y: 4.0 })));
    let events = [
        EventT { id: 1, span: Duration::ZERO, place: None },
        EventT { id: 2, span: Duration::new(1, 2), place },
    ];
    let last = client.events(&events).expect("called");
    assert_eq!(last, events[1]);
    assert_eq!(last.place.expect("there").distance, 5.0);
}

#[test]
fn a_conversion_may_refuse_a_message() {
    // `convert::span::from_wire` answers `None`.
    let mut refused = rt::loopback::Message { body: vec![u64::MAX, 0], ..Default::default() };
    let read = refused.read(false, |d| local::local_wire::get_twice_request(d).map(|r| r.a));
    assert_eq!(read.expect_err("refused").cause, rt::Cause::Converted);
}

#[test]
fn the_caller_provides_memory() {
    let (_, mut client) = start();
    let mut buffer = [9_u16; 5];
    client.fill(&mut buffer).expect("called");
    assert_eq!(buffer, [0, 1, 2, 3, 4]);
    let mut part = vec![1, 2, 3];
    client.part(8, &mut part).expect("called");
    assert_eq!(part, [7; 4]);
    // More than the range allows is an error, not a truncation.
    assert!(client.fill(&mut [0; 1001]).is_err());
}

#[test]
fn pools_and_providers_are_asked() {
    let (_, mut client) = start();
    POOL.give(Vec::with_capacity(1000));
    assert_eq!(client.pooled(&[1, 2, 3]), Ok(6));
    assert!(POOL.take(0).capacity() >= 1000, "the vector went back");
    assert_eq!(client.provided(&[1, -2]), Ok(-1));
}

#[test]
fn hand_written_sides_are_called() {
    let (_, mut client) = start();
    assert_eq!(client.by_hand(1), Ok(20));
    assert_eq!(client.server_by_hand(5), Ok(-5));
}

#[test]
fn failures_become_values_where_the_acf_says_so() {
    let (_, mut client) = start();
    let good = client.failing(4).expect("called");
    assert_eq!((good.comm, good.fault, good.e.id), (0, 0, 4));
    let bad = client.failing(-1).expect("a status");
    assert_eq!((bad.comm, bad.fault, bad.e.id), (0, 0x1234, 0));
}

#[test]
fn answers_may_come_later_or_never() {
    let (_, mut client) = start();
    let mut total = 40;
    let done = client.work(2, total, c"four").expect("called");
    total = done.total;
    assert_eq!((done.ret, total), (4, 42));
    assert_eq!(client.work(-1, 0, c""), Err(rt::CallError::Fault(rt::Fault(0x1005))));
    assert_eq!(client.work(0, 0, c""), Err(rt::CallError::Fault(rt::Fault::DROPPED)));
}

#[test]
fn handles_issued_by_deferred_answers_are_run_down_too() {
    let (server, mut client) = start();
    let mut one = client.begin(11).expect("called");
    let _left = client.begin(22).expect("called");
    assert_eq!(client.end(&mut one), Ok(11));
    assert!(one.is_null());
    drop(client);
    assert_eq!(*server.run_down.lock().expect("unpoisoned"), [22]);
}

#[test]
fn sizes_are_bounded_and_options_are_there() {
    let (_, mut client) = start();
    assert_eq!(client.big(&[0; 900]), Ok(()));
    assert_eq!(client.big(&[0; 1001]), Err(rt::CallError::TooLarge));
    let options = local::local_connect_options();
    assert_eq!(options.wait, Wait::Spin(Some(Duration::from_micros(50))));
    assert_eq!((options.max_message, options.max_inflight), (1 << 20, 4));
    assert_eq!(local::local_server_options().max_inflight, 4);
}

#[test]
fn max_message_counts_what_travels_beside_the_body_on_both_sides() {
    let (_, mut client) = start();
    // 16 bytes of body and the rest as a string item.
    assert_eq!((client.heavy(&[0; 984]), client.heavy_later(&[0; 984])), (Ok(()), Ok(())));
    assert_eq!(client.heavy(&[0; 985]), Err(rt::CallError::TooLarge));
    assert_eq!(client.heavy_later(&[0; 985]), Err(rt::CallError::TooLarge));
    // A client that knows nothing of this limit.
    let mut transport = client.into_inner();
    let mut heavy = |op: u16, len: usize| {
        let bytes = vec![0; len];
        let size = local::local_wire::heavy_request_size(rt::Forms::machine(), &bytes)?;
        rt::stub::call(
            &mut transport,
            op,
            size,
            rt::Deadline::NEVER,
            |w| local::local_wire::put_heavy_request(w, &bytes),
            |_| Ok(()),
        )
    };
    let refused = Err(rt::CallError::Fault(rt::Fault::BAD_MESSAGE));
    for op in [16, 17] {
        assert_eq!((heavy(op, 984), heavy(op, 985)), (Ok(()), refused), "operation {op}");
    }
}

#[test]
fn a_violation_is_answered_with_a_fault() {
    use rt::{Draft as _, Transport as _};
    let (_, client) = start();
    let mut transport = client.into_inner();
    let draft = transport.start(0, 8);
    let answer = draft.call(rt::Deadline::NEVER).map(|_| ());
    assert_eq!(answer, Err(rt::CallError::Fault(rt::Fault::BAD_MESSAGE)));
    let unknown = transport.start(999, 0).call(rt::Deadline::NEVER).map(|_| ());
    assert_eq!(unknown, Err(rt::CallError::Fault(rt::Fault::UNKNOWN_OPERATION)));
}

#[test]
fn direct_calls_pass_everything_by_reference() {
    let server: Arc<dyn local::LocalServer + Send + Sync> = Arc::new(Local::default());
    let nobody: Rc<RefCell<dyn rt::Service<LoopServer>>> =
        Rc::new(RefCell::new(local::LocalService::<Local>::new(Local::default())));
    let transport =
        Loopback::new(&nobody, 1).with_local(Arc::new(local::LocalLocal(Arc::clone(&server))));
    let mut client = local::LocalClient::bind(transport).expect("bound");
    let mut buffer = [9_u16; 3];
    client.fill(&mut buffer).expect("called");
    assert_eq!(buffer, [0, 1, 2]);
    assert_eq!(client.work(1, 1, c"x").expect("called").total, 2);
    assert_eq!(client.work(-1, 1, c"x"), Err(rt::CallError::Fault(rt::Fault(0x1005))));
}

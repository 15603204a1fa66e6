//! Generated clients and servers over the real transport, in one process and between threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sojourn_ipc::rt;
use sojourn_ipc::{Address, ConnectOptions, Connection, Deadline, Endpoint, Server, ServerOptions};
use sojourn_stubs_rust::{calc, everything, paper};

/// Everything here ends by then, whatever goes wrong.
fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn name(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("sojourn-stubs-{what}-{}-{n}", std::process::id())
}

/// An endpoint whose one server thread runs `service`.
fn serve<V>(what: &str, service: V) -> (String, Endpoint, JoinHandle<()>)
where
    V: rt::Service<Server> + Send + 'static,
{
    let address = name(what);
    let endpoint =
        Endpoint::bind(Address::abstract_name(&address), ServerOptions::default()).expect("bound");
    let mut server = endpoint.server();
    let mut service = service;
    let thread = std::thread::spawn(move || {
        // Ends when the endpoint is closed, or at the deadline.
        let _closed = rt::serve(&mut server, &mut service, soon());
    });
    (address, endpoint, thread)
}

fn connect(address: &str) -> Connection {
    Connection::connect(Address::abstract_name(address), &ConnectOptions::default())
        .expect("connected")
}

#[derive(Debug, Default)]
struct Calc {
    memory: std::sync::Mutex<f64>,
}

impl calc::CalcServer for Calc {
    fn add(&self, _: &rt::Caller, a: i32, b: i32) -> Result<i32, rt::Fault> {
        Ok(a.wrapping_add(b))
    }

    fn apply(
        &self,
        _: &rt::Caller,
        op: calc::OperatorT,
        a: i32,
        b: i32,
    ) -> Result<calc::CalcApplyOut, rt::Fault> {
        let result = match op {
            calc::OperatorT::Add => a.checked_add(b),
            calc::OperatorT::Subtract => a.checked_sub(b),
            calc::OperatorT::Multiply => a.checked_mul(b),
            calc::OperatorT::Divide => a.checked_div(b),
        };
        Ok(match result {
            Some(result) => calc::CalcApplyOut { ret: calc::CALC_OK, result },
            None => calc::CalcApplyOut { ret: calc::CALC_OVERFLOW, result: 0 },
        })
    }

    fn sum(&self, _: &rt::Caller, terms: &[i32]) -> Result<i64, rt::Fault> {
        Ok(terms.iter().map(|t| i64::from(*t)).sum())
    }

    fn store(&self, _: &rt::Caller, value: f64) {
        *self.memory.lock().expect("unpoisoned") = value;
    }

    fn recall(&self, _: &rt::Caller, reply: calc::CalcRecallDeferredReply) {
        let value = *self.memory.lock().expect("unpoisoned");
        // From another thread, which is what deferring is for.
        std::thread::spawn(move || reply.send(value).expect("the client waits"));
    }
}

#[test]
fn a_calculator_over_the_transport() {
    let service = calc::CalcService::<Calc>::new(Calc::default());
    let (address, endpoint, thread) = serve("calc", service);
    let mut client = calc::CalcClient::bind(connect(&address)).expect("bound");
    assert_eq!(client.add(2, 3).expect("added"), 5);
    let applied = client.apply(calc::OperatorT::Divide, 7, 2).expect("applied");
    assert_eq!((applied.ret, applied.result), (calc::CALC_OK, 3));
    let terms: Vec<i32> = (0..4096).collect();
    assert_eq!(client.sum(&terms).expect("summed"), 4095 * 2048);
    // One more than the range allows is refused before it is sent.
    let refused = client.sum(&[1; 4097]).expect_err("refused");
    assert!(matches!(refused, rt::CallError::Arguments(_)), "{refused}");
    client.store(2.5).expect("sent");
    assert_eq!(client.with_deadline(soon()).recall().expect("recalled"), 2.5);

    drop(endpoint);
    thread.join().expect("the server ends");
    // `comm_status`: the failure is the status, not an error.
    let applied = client.apply(calc::OperatorT::Add, 1, 1).expect("a status");
    assert_ne!(applied.ret, calc::CALC_OK);
    assert!(client.add(1, 1).is_err());
}

#[test]
fn a_server_in_this_address_space_is_called_directly() {
    #[derive(Debug)]
    struct Direct;
    impl calc::CalcServer for Direct {
        fn add(&self, _: &rt::Caller, a: i32, b: i32) -> Result<i32, rt::Fault> {
            Ok(a - b) // not what the server behind the transport answers
        }
        fn apply(
            &self,
            _: &rt::Caller,
            _: calc::OperatorT,
            _: i32,
            _: i32,
        ) -> Result<calc::CalcApplyOut, rt::Fault> {
            Err(rt::Fault(0x1001))
        }
        fn sum(&self, _: &rt::Caller, _: &[i32]) -> Result<i64, rt::Fault> {
            Err(rt::Fault(0x1001))
        }
        fn store(&self, _: &rt::Caller, _: f64) {}
        fn recall(&self, _: &rt::Caller, reply: calc::CalcRecallDeferredReply) {
            reply.fault(rt::Fault(0x1001)).expect("the client waits");
        }
    }
    let service = calc::CalcService::<Calc>::new(Calc::default());
    let (address, endpoint, thread) = serve("direct", service);
    endpoint.set_local(Arc::new(calc::CalcLocal(Arc::new(Direct))));
    let mut client = calc::CalcClient::bind(connect(&address)).expect("bound");
    assert_eq!(client.add(5, 3).expect("called directly"), 2);
    assert_eq!(client.sum(&[5, 3]).expect("sum() is not by_ref, so it is sent"), 8);
    drop(endpoint);
    thread.join().expect("the server ends");
}

#[test]
fn one_endpoint_serves_several_interfaces() {
    #[derive(Debug)]
    struct Paper;
    impl paper::PaperServer for Paper {
        fn func(&self, _: &rt::Caller, a: i32, b: i32, c: &[u8; 20]) -> Result<i32, rt::Fault> {
            Ok(a + b + c.iter().map(|c| i32::from(*c)).sum::<i32>())
        }
    }
    let mut router = rt::Router::new();
    router.add(calc::CalcService::<Calc>::new(Calc::default())).expect("room");
    router.add(paper::PaperService::<Paper>::new(Paper)).expect("room");
    let (address, endpoint, thread) = serve("router", router);
    let mut paper = paper::PaperClient::bind(connect(&address)).expect("bound");
    assert_eq!(paper.func(1, 2, &[1; 20]).expect("called"), 23);
    let mut calc = calc::CalcClient::bind(connect(&address)).expect("bound");
    assert_eq!(calc.add(1, 2).expect("added"), 3);
    let unknown = everything::EverythingClient::bind(connect(&address)).expect_err("refused");
    assert_eq!(unknown, rt::CallError::Fault(rt::Fault::UNKNOWN_INTERFACE));
    drop(endpoint);
    thread.join().expect("the server ends");
}

#[test]
fn every_operation_over_the_transport() {
    let seed = 11;
    let oracle = everything::everything_random::EverythingOracle::new(seed);
    let service =
        everything::EverythingService::<everything::everything_random::EverythingOracle>::new(
            oracle,
        );
    let (address, endpoint, thread) = serve("everything", service);
    let mut client =
        everything::EverythingClient::bind_by(connect(&address), soon()).expect("bound");
    everything::everything_random::drive(&mut client, seed, 10).expect("all as it must be");
    // A server answers a client made for its base interface.
    let mut base = everything::EverythingBaseClient::bind(connect(&address)).expect("bound");
    assert!(base.ping(1).is_err(), "the oracle expects other values");
    drop(endpoint);
    thread.join().expect("the server ends");
}

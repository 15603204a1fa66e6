//! Calls between two processes' worth of threads: every way a message can travel.
//!
//! Client and server are threads here, but their connection is forced to behave as between processes
//! (`Connection::is_local` is what a same-process connection uses; see `local.rs` for that).

mod common;

use common::{Echo, call, call_with_items, watchdog};
use sojourn_ipc::{CallError, Connection, Deadline, Wait};
use std::time::Duration;

#[test]
fn short_and_long_bodies_come_back_as_sent() {
    let _watchdog = watchdog(60);
    let echo = Echo::start(Default::default());
    let mut connection = echo.connect();
    for len in [0, 1, 7, 8, 47, 48, 49, 111, 112, 113, 1000, 4096, 65536, 70000, 200_000, 3_000_000]
    {
        let body: Vec<u8> = (0..len).map(|n| (n * 31 % 251) as u8).collect();
        assert_eq!(call(&mut connection, 1, &body), Ok(body), "length {len}");
    }
}

#[test]
fn items_of_every_length_come_back_as_sent() {
    let _watchdog = watchdog(60);
    let echo = Echo::start(Default::default());
    let mut connection = echo.connect();
    let big: Vec<u8> = (0..1_000_000u32).map(|n| (n % 253) as u8).collect();
    for lens in
        [&[0][..], &[1], &[8, 9, 10], &[65536], &[65000, 3000], &[1_000_000, 0, 5], &[100; 16]]
    {
        let items: Vec<&[u8]> = lens.iter().map(|len| &big[..*len]).collect();
        let (body, back) = call_with_items(&mut connection, b"head", &items).unwrap();
        assert_eq!(body, b"head");
        assert_eq!(back, items, "lengths {lens:?}");
    }
}

#[test]
fn every_waiting_policy_works() {
    let _watchdog = watchdog(60);
    for wait in [Wait::Adaptive, Wait::Park, Wait::Spin(Some(Duration::from_micros(50)))] {
        let echo = Echo::start_with(wait);
        let mut connection = echo.connect_with(wait);
        for n in 0..200u32 {
            let body = n.to_ne_bytes();
            assert_eq!(call(&mut connection, 1, &body).unwrap(), body);
        }
    }
}

#[test]
fn a_deadline_ends_a_call_and_the_late_answer_is_not_taken_for_another() {
    let _watchdog = watchdog(60);
    let echo = Echo::start(Default::default());
    let mut connection = echo.connect();
    // Operation 2 is answered only when operation 3 comes.
    let draft = connection.start(2, 0);
    let error = draft.call(Deadline::after(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error, CallError::Timeout);
    assert_eq!(call(&mut connection, 3, b"now").unwrap(), b"now");
    for n in 0..100u8 {
        assert_eq!(call(&mut connection, 1, &[n]).unwrap(), [n]);
    }
}

#[test]
fn many_calls_may_be_outstanding_and_finish_in_any_order() {
    let _watchdog = watchdog(60);
    let echo = Echo::start(Default::default());
    let mut connection = echo.connect();
    let limit = Deadline::after(Duration::from_secs(20));
    let mut pending = vec![];
    for n in 0..8u8 {
        let mut draft = connection.start(1, 1);
        draft.encoder().put_bytes(&[n]).unwrap();
        pending.push((n, draft.submit(limit).unwrap()));
    }
    assert_eq!(connection.start(1, 0).submit(limit).unwrap_err(), CallError::Busy);
    for (n, pending) in pending.into_iter().rev() {
        assert_eq!(connection.finish(pending, limit).unwrap().body(), [n]);
    }
}

#[test]
fn one_way_messages_arrive_in_order_and_wait_only_for_room() {
    let _watchdog = watchdog(60);
    let echo = Echo::start(Default::default());
    let mut connection = echo.connect();
    let limit = Deadline::after(Duration::from_secs(20));
    for n in 0..1000u32 {
        let mut draft = connection.start(10, 4);
        draft.encoder().put_bytes(&n.to_ne_bytes()).unwrap();
        draft.send(limit).unwrap();
    }
    // Operation 11 answers how many came, and whether they were in order.
    assert_eq!(
        call(&mut connection, 11, &[]).unwrap(),
        [1000u32.to_ne_bytes(), 1u32.to_ne_bytes()].concat()
    );
}

#[test]
fn notifications_coalesce_both_ways() {
    let _watchdog = watchdog(60);
    let echo = Echo::start(Default::default());
    let mut connection = echo.connect();
    connection.notify(1).unwrap();
    connection.notify(4).unwrap();
    // The server echoes bits shifted by one; both may come at once or one after the other.
    let mut seen = 0;
    while seen != 10 {
        seen |= connection.wait_notify(Deadline::after(Duration::from_secs(20))).unwrap();
        assert_eq!(seen & !10, 0);
    }
    let error = connection.wait_notify(Deadline::after(Duration::from_millis(10))).unwrap_err();
    assert_eq!(error, CallError::Timeout);
}

#[test]
fn many_clients_are_served_by_several_threads() {
    let _watchdog = watchdog(120);
    let echo = Echo::start_threads(2, Default::default());
    let clients: Vec<_> = (0..40u8)
        .map(|n| {
            let mut connection: Connection = echo.connect();
            std::thread::spawn(move || {
                for round in 0..50u8 {
                    assert_eq!(call(&mut connection, 1, &[n, round]).unwrap(), [n, round]);
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

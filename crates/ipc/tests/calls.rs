//! Calls, every way a message can travel: each test runs with the server in this process and with
//! the server in another.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::service::{COUNT, COUNTED, ECHO, KEEP, RELEASE, SIZED, UNHEARD};
use common::{Echo, Home, ask, call, call_until, call_with_items, limit, soon, watchdog};
use rustix::fd::AsFd;
use sojourn_ipc::{
    ApartSocket, CallError, ConnectOptions, Connection, Deadline, Ending, Parted, Reason,
    ServerOptions, Wait,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[test]
fn child_entry() {
    common::child::entry(&[]);
}

macro_rules! in_both_homes {
    ($($test:ident)*) => {
        mod within {
            $(#[test] fn $test() { super::$test(super::Home::Within); })*
        }
        mod across {
            $(#[test] fn $test() { super::$test(super::Home::Across); })*
        }
    };
}

in_both_homes! {
    short_and_long_bodies_come_back_as_sent
    items_of_every_length_come_back_as_sent
    every_waiting_policy_works
    a_connection_changes_how_it_waits
    a_deadline_ends_a_call_and_the_late_answer_is_not_taken_for_another
    an_answer_can_be_awaited_in_several_goes
    a_wait_for_an_answer_can_be_stopped
    a_connection_goes_on_apart_from_its_socket
    the_end_of_a_connection_apart_from_its_socket_wakes_who_waits
    lines_of_given_up_calls_come_back
    many_calls_may_be_outstanding_and_finish_in_any_order
    one_way_messages_arrive_in_order_and_wait_only_for_room
    room_is_noticed_while_no_answer_comes
    notifications_coalesce_both_ways
    many_clients_are_served_by_several_threads
    answers_larger_than_an_area_come_whole
    a_client_that_takes_its_answer_and_goes_has_heard_it
}

const LENS: [usize; 17] =
    [0, 1, 7, 8, 47, 48, 49, 111, 112, 113, 1000, 4096, 65536, 65552, 70000, 200_000, 3_000_000];

fn short_and_long_bodies_come_back_as_sent(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    assert_eq!(connection.is_local(), home == Home::Within);
    for len in LENS {
        let body: Vec<u8> = (0..len).map(|n| (n * 31 % 251) as u8).collect();
        for deadline in [limit(), Deadline::NEVER] {
            let back = call_until(&mut connection, ECHO, &body, deadline);
            assert!(back.as_ref() == Ok(&body), "length {len}");
        }
    }
}

fn items_of_every_length_come_back_as_sent(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    let big: Vec<u8> = (0..1_000_000u32).map(|n| (n % 253) as u8).collect();
    for lens in
        [&[0][..], &[1], &[8, 9, 10], &[65536], &[65000, 3000], &[1_000_000, 0, 5], &[100; 16]]
    {
        let items: Vec<&[u8]> = lens.iter().map(|len| &big[..*len]).collect();
        let (body, back) = call_with_items(&mut connection, b"head", &items).unwrap();
        assert_eq!(body, b"head");
        assert!(back == items, "lengths {lens:?}");
    }
}

fn every_waiting_policy_works(home: Home) {
    let _watchdog = watchdog(60);
    let bounded = Wait::Spin(Some(Duration::from_micros(50)));
    for wait in [Wait::Adaptive, Wait::Park, bounded, Wait::Yield, Wait::Spin(None)] {
        let echo = Echo::start_with(home, 1, ServerOptions { wait, ..Default::default() });
        let mut connection = echo.connect_waiting(wait);
        // A pair that spins takes both processors from everybody else: not for long.
        let rounds = if wait == Wait::Spin(None) { 20u32 } else { 200 };
        for n in 0..rounds {
            let body = n.to_ne_bytes();
            assert_eq!(call(&mut connection, ECHO, &body).unwrap(), body);
        }
    }
}

fn a_connection_changes_how_it_waits(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect_waiting(Wait::Park);
    let mut before = Wait::Park;
    let bounded = Wait::Spin(Some(Duration::from_micros(50)));
    for round in 0..5u8 {
        for wait in [Wait::Spin(None), Wait::Adaptive, bounded, Wait::Yield, Wait::Park] {
            // Between a call's two halves as well.
            let pending = connection.start(ECHO, 0).submit(limit()).unwrap();
            assert_eq!(connection.set_wait(wait), before);
            connection.finish(pending, limit()).unwrap();
            assert_eq!(call(&mut connection, ECHO, &[round; 200]).unwrap(), [round; 200]);
            before = wait;
        }
    }
    // A wait that sleeps ends at its deadline after one that did not, and the reverse.
    for wait in [Wait::Spin(None), Wait::Park, Wait::Yield, Wait::Spin(None)] {
        connection.set_wait(wait);
        assert_eq!(connection.start(KEEP, 0).call(soon(5)).unwrap_err(), CallError::Timeout);
    }
    assert_eq!(call(&mut connection, RELEASE, b"end").unwrap(), b"end");
}

fn a_deadline_ends_a_call_and_the_late_answer_is_not_taken_for_another(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    let error = connection.start(KEEP, 0).call(soon(20)).unwrap_err();
    assert_eq!(error, CallError::Timeout);
    assert_eq!(call(&mut connection, RELEASE, b"now").unwrap(), b"now");
    for n in 0..100u8 {
        assert_eq!(call(&mut connection, ECHO, &[n]).unwrap(), [n]);
    }
}

fn an_answer_can_be_awaited_in_several_goes(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    let pending = connection.start(KEEP, 0).submit(limit()).unwrap();
    for _ in 0..3 {
        assert_eq!(connection.await_answer(&pending, soon(2)), Err(CallError::Timeout));
        assert_eq!(call(&mut connection, ECHO, b"meanwhile").unwrap(), b"meanwhile");
    }
    assert_eq!(call(&mut connection, RELEASE, b"x").unwrap(), b"x");
    // There it stays until it is taken.
    for _ in 0..2 {
        connection.await_answer(&pending, limit()).unwrap();
    }
    assert_eq!(connection.finish(pending, limit()).unwrap().body(), b"late");
}

fn a_wait_for_an_answer_can_be_stopped(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    let pending = connection.start(KEEP, 0).submit(limit()).unwrap();
    assert_eq!(connection.await_answer_unless(&pending, limit(), &|| true), Ok(false));
    assert_eq!(call(&mut connection, RELEASE, b"x").unwrap(), b"x");
    assert_eq!(connection.await_answer_unless(&pending, limit(), &|| false), Ok(true));
    assert_eq!(connection.await_answer_unless(&pending, limit(), &|| true), Ok(true), "there");
    assert_eq!(connection.finish(pending, limit()).unwrap().body(), b"late");
}

/// Parts the connection from its socket; returns also how often the server was woken by it.
fn part(connection: &mut Connection) -> (Arc<OnceLock<ApartSocket>>, Ending, Arc<AtomicU32>) {
    let (kept, woken) = (Arc::<OnceLock<ApartSocket>>::default(), Arc::<AtomicU32>::default());
    let (socket, count) = (Arc::clone(&kept), Arc::clone(&woken));
    let wake = move || {
        count.fetch_add(1, Ordering::SeqCst);
        socket.get().unwrap().wake_server();
    };
    let Parted { socket, ending } = connection.part_from_socket(Box::new(wake)).unwrap();
    kept.set(socket).unwrap();
    (kept, ending, woken)
}

fn a_connection_goes_on_apart_from_its_socket(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let (mut connection, mut other) = (echo.connect(), echo.connect());
    let (_kept, _ending, woken) = part(&mut connection);
    assert!(connection.part_from_socket(Box::new(|| ())).is_none(), "once");
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut draft = connection.start(ECHO, 0);
    draft.encoder().put_fd(file.as_fd()).unwrap();
    assert!(matches!(draft.call(limit()), Err(CallError::System(_))), "descriptors");
    // The server's thread sleeps between the other's calls, until this connection's lane is cold.
    common::until("a cold lane", || {
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            call(&mut other, ECHO, b"other").unwrap();
        }
        for len in [1, 100, 5000] {
            let body = vec![7; len];
            assert!(call(&mut connection, ECHO, &body) == Ok(body), "{len}");
        }
        woken.load(Ordering::SeqCst) > 0
    });
}

fn the_end_of_a_connection_apart_from_its_socket_wakes_who_waits(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let over = Err(CallError::Disconnected(Reason::PeerDied));
    for wait in [Wait::Park, Wait::Adaptive, Wait::Spin(None)] {
        let mut connection = echo.connect();
        connection.set_wait(wait);
        let (_kept, ending, _) = part(&mut connection);
        let answered = connection.start(ECHO, 0).submit(limit()).unwrap();
        connection.await_answer(&answered, limit()).unwrap();
        let pending = connection.start(KEEP, 0).submit(limit()).unwrap();
        let other = std::thread::spawn(move || {
            // The other thread may sleep by now; if not, it must see the end before it does.
            std::thread::sleep(Duration::from_millis(5));
            ending.end();
        });
        assert_eq!(connection.await_answer(&pending, Deadline::NEVER), over);
        assert_eq!(connection.finish(answered, limit()).unwrap().body(), b"", "was there before");
        other.join().unwrap();
    }
}

fn lines_of_given_up_calls_come_back(home: Home) {
    let _watchdog = watchdog(60);
    let options = ServerOptions { max_inflight: 2, ..Default::default() };
    let echo = Echo::start_with(home, 1, options);
    let mut connection = echo.connect();
    for round in 0..20u8 {
        // On the call line, given up; one-way messages must not make its line forgotten.
        assert_eq!(connection.start(KEEP, 0).call(soon(1)).unwrap_err(), CallError::Timeout);
        connection.start(99, 0).send(limit()).unwrap();
        assert_eq!(call(&mut connection, RELEASE, &[round]).unwrap(), [round]);
        let pending = connection.start(KEEP, 0).submit(limit()).unwrap();
        connection.give_up(&pending);
        assert_eq!(call(&mut connection, RELEASE, &[round]).unwrap(), [round]);
        // Two can be outstanding again.
        let one = connection.start(ECHO, 0).submit(limit()).unwrap();
        let two = connection.start(ECHO, 0).submit(limit()).unwrap();
        connection.finish(two, limit()).unwrap();
        connection.finish(one, limit()).unwrap();
    }
}

fn many_calls_may_be_outstanding_and_finish_in_any_order(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    let mut pending = vec![];
    for n in 0..8u8 {
        let mut draft = connection.start(ECHO, 1);
        draft.encoder().put_bytes(&[n]).unwrap();
        pending.push((n, draft.submit(limit()).unwrap()));
    }
    assert_eq!(connection.start(ECHO, 0).submit(limit()).unwrap_err(), CallError::Busy);
    for (n, pending) in pending.into_iter().rev() {
        assert_eq!(connection.finish(pending, limit()).unwrap().body(), [n]);
    }
}

fn one_way_messages_arrive_in_order_and_wait_only_for_room(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    for n in 0..1000u32 {
        let mut draft = connection.start(COUNT, 4);
        draft.encoder().put_bytes(&n.to_ne_bytes()).unwrap();
        draft.send(limit()).unwrap();
    }
    assert_eq!(ask(&mut connection, COUNTED, &[]).unwrap(), [1000, 1]);
}

/// All calls kept, all slots used once: a message must still find the room they left.
fn room_is_noticed_while_no_answer_comes(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect_waiting(Wait::Park);
    let kept: Vec<_> = (0..7).map(|_| connection.start(KEEP, 0).submit(limit()).unwrap()).collect();
    for n in 0..200u32 {
        let mut draft = connection.start(COUNT, 4);
        draft.encoder().put_bytes(&n.to_ne_bytes()).unwrap();
        draft.send(limit()).unwrap();
    }
    assert_eq!(call(&mut connection, RELEASE, b"x").unwrap(), b"x");
    for pending in kept {
        assert_eq!(connection.finish(pending, limit()).unwrap().body(), b"late");
    }
    assert_eq!(ask(&mut connection, COUNTED, &[]).unwrap(), [200, 1]);
}

fn notifications_coalesce_both_ways(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    connection.notify(1).unwrap();
    connection.notify(4).unwrap();
    // The server echoes bits shifted by one; both may come at once or one after the other.
    let mut seen = 0;
    while seen != 10 {
        seen |= connection.wait_notify(limit()).unwrap();
        assert_eq!(seen & !10, 0);
    }
    assert_eq!(connection.wait_notify(soon(10)).unwrap_err(), CallError::Timeout);
}

fn many_clients_are_served_by_several_threads(home: Home) {
    let _watchdog = watchdog(120);
    let echo = Echo::start_with(home, 2, Default::default());
    let clients: Vec<_> = (0..40u8)
        .map(|n| {
            let mut connection: Connection = echo.connect();
            std::thread::spawn(move || {
                for round in 0..50u8 {
                    assert_eq!(call(&mut connection, ECHO, &[n, round]).unwrap(), [n, round]);
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

fn answers_larger_than_an_area_come_whole(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let options = ConnectOptions { area: 4096, max_message: 2_000_000, ..Default::default() };
    let mut connection = echo.connect_with(options);
    for len in [4000u64, 4096, 8192, 8193, 1_000_000] {
        let body = call(&mut connection, SIZED, &len.to_ne_bytes()).unwrap();
        assert!(body.len() as u64 == len && (0..).zip(&body).all(|(n, byte)| *byte == n as u8));
    }
}

/// A server that keeps what was answered in vain would give it to the next client once more.
fn a_client_that_takes_its_answer_and_goes_has_heard_it(home: Home) {
    let _watchdog = watchdog(120);
    let echo = Echo::start(home);
    let mut witness = echo.connect();
    for _ in 0..1000 {
        let taker = std::thread::spawn({
            let mut connection = echo.connect_waiting(Wait::Park);
            let sent = connection.start(KEEP, 0).submit(limit()).unwrap();
            // What comes later is served later.
            call(&mut connection, ECHO, b"").unwrap();
            move || assert_eq!(connection.finish(sent, limit()).unwrap().body(), b"late")
        });
        call(&mut witness, RELEASE, b"").unwrap();
        taker.join().unwrap();
    }
    assert_eq!(ask(&mut witness, UNHEARD, b"").unwrap(), [0]);
}

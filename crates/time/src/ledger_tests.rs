//! Tests of the pure core: streams of events, whole and broken, against sums that must hold.

use crate::event::{
    Ends, Event, Inode, Kind, PacketId, Protocol, SocketId, Stamp, arrived, sent, taken,
};
use crate::ledger::{ARRIVALS_MAX, Ledger, SESSIONS_MAX};
use crate::row::{Direction, Row};
use crate::session::Cell;
use proptest::prelude::*;

const SOCK: SocketId = SocketId(77);

/// The packet of that number; 0: none.
fn packet(number: u64) -> Option<PacketId> {
    (number != 0).then_some(PacketId(number))
}

fn event(kind: Kind, protocol: Protocol, stamps: &[(usize, u64)]) -> Event {
    let mut event = Event {
        kind,
        thread: 1,
        process: 1,
        result: 10,
        packet: None,
        first: 0,
        last: 0,
        usual: 0,
        ends: Ends { sock: SOCK, inode: Inode(5), protocol, ..Ends::default() },
        stamps: [Stamp::default(); crate::event::STAMPS],
    };
    for (place, at) in stamps {
        event.stamps[*place].at = *at;
    }
    event
}

fn tcp_arrival(first: u32, last: u32, ready: u64) -> Event {
    let stamps = [
        (arrived::DEVICE, ready - 40),
        (arrived::FILTER, ready - 30),
        (arrived::IP, ready - 20),
        (arrived::IN, ready - 15),
        (arrived::READY, ready),
    ];
    Event { first, last, ..event(Kind::Arrived, Protocol::Tcp, &stamps) }
}

fn tcp_take(first: u32, last: u32, (enter, run, exit): (u64, u64, u64)) -> Event {
    let stamps = [(taken::ENTER, enter), (taken::RUN, run), (taken::EXIT, exit)];
    Event { first, last, ..event(Kind::Taken, Protocol::Tcp, &stamps) }
}

fn rows(ledger: &Ledger) -> Vec<(Row, u64)> {
    let session = ledger.sessions()[0];
    let timed = Row::ALL.into_iter().filter(|row| session.cell(*row) == Cell::Timed);
    timed.map(|row| (row, session.row(row).sum_ns())).collect()
}

#[test]
fn a_send_is_divided_and_its_rest_is_told_apart() {
    let mut ledger = Ledger::default();
    let stamps = [
        (sent::ENTER, 100),
        (sent::OUT, 150),
        (sent::IP, 170),
        (sent::LINK, 180),
        (sent::DONE, 200),
        (sent::EXIT, 900),
    ];
    ledger.add(&event(Kind::Sent, Protocol::Tcp, &stamps));
    let session = ledger.sessions()[0];
    let expected = [
        (Row::EntryCopyIn, 50),
        (Row::ProtocolOutput, 20),
        (Row::IpOutput, 10),
        (Row::LinkOutput, 20),
    ];
    assert_eq!(rows(&ledger), expected);
    assert_eq!((session.send.total.sum_ns(), session.rest.sum_ns()), (100, 700));
}

#[test]
fn borders_that_are_not_stamped_are_in_the_next_row() {
    let mut ledger = Ledger::default();
    let stamps = [(sent::ENTER, 100), (sent::LINK, 180), (sent::DONE, 200), (sent::EXIT, 200)];
    ledger.add(&event(Kind::Sent, Protocol::Tcp, &stamps));
    assert_eq!(rows(&ledger), [(Row::IpOutput, 80), (Row::LinkOutput, 20)]);
    let session = ledger.sessions()[0];
    assert_eq!(session.cell(Row::EntryCopyIn), Cell::InNext);
    assert_eq!(session.cell(Row::KernelCopyOut), Cell::Absent);
}

#[test]
fn a_send_that_leaves_later_is_counted_and_not_timed() {
    let mut ledger = Ledger::default();
    ledger.add(&event(Kind::Sent, Protocol::Tcp, &[(sent::ENTER, 100), (sent::EXIT, 120)]));
    let session = ledger.sessions()[0];
    assert_eq!((session.send.calls, session.send.without, session.chains()), (1, 1, 0));
}

#[test]
fn a_receive_is_divided_by_where_its_reader_was() {
    let cases = [
        // Asleep in the call.
        ((50, 130, 160), vec![(Row::WakeUp, 30), (Row::CopyOutExit, 30)]),
        // Asleep in epoll, then the call.
        ((150, 130, 160), vec![(Row::WakeUp, 30), (Row::InSocket, 20), (Row::CopyOutExit, 10)]),
        // At work all the while.
        ((150, 90, 160), vec![(Row::InSocket, 50), (Row::CopyOutExit, 10)]),
        // Looking again and again.
        ((90, 20, 160), vec![(Row::CopyOutExit, 60)]),
    ];
    for (moments, expected) in cases {
        let mut ledger = Ledger::default();
        ledger.add(&tcp_arrival(10, 20, 100));
        ledger.add(&tcp_take(10, 20, moments));
        let before =
            [(Row::Device, 10), (Row::Filter, 10), (Row::IpInput, 5), (Row::ProtocolInput, 15)];
        assert_eq!(rows(&ledger), [&before[..], &expected].concat(), "{moments:?}");
        assert_eq!(ledger.sessions()[0].receive.total.sum_ns(), 100, "{moments:?}");
    }
}

#[test]
fn tcp_is_matched_by_numbers_that_wrap() {
    let mut ledger = Ledger::default();
    let (a, b, c) = (u32::MAX - 5, 4, 14);
    ledger.add(&tcp_arrival(a, b, 100));
    ledger.add(&tcp_arrival(b, c, 200));
    // Half of the second packet, then its rest.
    ledger.add(&tcp_take(a, 9, (50, 0, 210)));
    assert_eq!(ledger.sessions()[0].receive.total.count(), 1);
    ledger.add(&tcp_take(9, c, (220, 0, 230)));
    let receive = &ledger.sessions()[0].receive;
    assert_eq!((receive.total.count(), receive.calls, receive.without), (2, 2, 0));
}

#[test]
fn a_lost_event_costs_its_own_chain_only() {
    let mut ledger = Ledger::default();
    ledger.add(&tcp_take(0, 10, (50, 0, 60)));
    ledger.add(&tcp_arrival(10, 20, 100));
    ledger.add(&tcp_arrival(20, 30, 200));
    ledger.add(&tcp_take(20, 30, (150, 0, 210)));
    let receive = &ledger.sessions()[0].receive;
    assert_eq!((receive.total.count(), receive.calls, receive.without), (1, 2, 1));
    assert_eq!(ledger.faults().dropped, 1);
}

#[test]
fn datagrams_are_matched_by_packet_and_an_empty_queue_forgets() {
    let arrival = |number, ready| Event {
        packet: packet(number),
        ..event(
            Kind::Arrived,
            Protocol::Udp,
            &[(arrived::FILTER, ready - 5), (arrived::READY, ready)],
        )
    };
    let take = |number, (enter, run, exit)| Event {
        packet: packet(number),
        ..event(
            Kind::Taken,
            Protocol::Udp,
            &[(taken::ENTER, enter), (taken::RUN, run), (taken::EXIT, exit)],
        )
    };
    let mut ledger = Ledger::default();
    [(1, 100), (2, 110)].iter().for_each(|(number, at)| ledger.add(&arrival(*number, *at)));
    ledger.add(&take(2, (120, 0, 130)));
    assert_eq!(ledger.sessions()[0].row(Row::InSocket).sum_ns(), 10);
    // The kernel does not say which, and the call slept: packet 1 cannot be in the queue.
    ledger.add(&arrival(3, 200));
    ledger.add(&take(0, (150, 220, 230)));
    assert_eq!(ledger.sessions()[0].row(Row::WakeUp).sum_ns(), 20);
    assert_eq!(ledger.faults().dropped, 1);
}

#[test]
fn transit_is_of_one_packet_in_either_order_of_events() {
    for is_sent_first in [true, false] {
        let mut ledger = Ledger::default();
        let stamps = [(sent::ENTER, 100), (sent::LINK, 180), (sent::DONE, 200), (sent::EXIT, 900)];
        let left = Event { packet: packet(9), ..event(Kind::Sent, Protocol::Tcp, &stamps) };
        let came = Event { packet: packet(9), ..tcp_arrival(0, 10, 290) };
        let stale = Event { packet: packet(9), ..tcp_arrival(0, 10, 150) };
        ledger.add(&stale);
        let events = if is_sent_first { [left, came] } else { [came, left] };
        events.iter().for_each(|event| ledger.add(event));
        let transit = &ledger.sessions()[0].transit;
        assert_eq!((transit.count(), transit.sum_ns()), (1, 50), "{is_sent_first}");
    }
}

#[test]
fn a_packet_at_the_same_address_on_another_way_is_no_transit() {
    let ends = |local: u16, remote: u16| Ends {
        local: Some(([127, 0, 0, 1], local).into()),
        remote: Some(([127, 0, 0, 1], remote).into()),
        ..event(Kind::Sent, Protocol::Tcp, &[]).ends
    };
    for (came, expected) in [(ends(80, 90), 0), (ends(90, 81), 0), (ends(90, 80), 1)] {
        let mut ledger = Ledger::default();
        let stamps = [(sent::ENTER, 100), (sent::LINK, 180), (sent::DONE, 200), (sent::EXIT, 900)];
        let left = event(Kind::Sent, Protocol::Tcp, &stamps);
        ledger.add(&Event { packet: packet(9), ends: ends(80, 90), ..left });
        ledger.add(&Event { packet: packet(9), ends: came, ..tcp_arrival(0, 10, 290) });
        assert_eq!(ledger.sessions()[0].transit.count(), expected, "{came:?}");
    }
}

#[test]
fn a_failed_call_and_an_end_are_no_data() {
    let mut ledger = Ledger::default();
    for result in [0, -11] {
        ledger.add(&Event { result, ..tcp_take(0, 0, (1, 0, 2)) });
    }
    assert_eq!(ledger.sessions()[0].receive.calls, 0);
}

#[test]
fn what_is_kept_is_bounded() {
    let mut ledger = Ledger::default();
    for at in 0..ARRIVALS_MAX as u32 + 7 {
        ledger.add(&tcp_arrival(at, at + 1, 1000 + u64::from(at)));
    }
    assert_eq!(ledger.faults().dropped, 7);
    for inode in 0..SESSIONS_MAX as u64 + 3 {
        let mut event = tcp_take(0, 1, (1, 0, 2));
        event.ends.inode = Inode(inode);
        ledger.add(&event);
    }
    assert_eq!((ledger.sessions().len(), ledger.faults().beyond), (SESSIONS_MAX, 3));
}

/// Any event, in and out of order.
fn any_event() -> impl Strategy<Value = Event> {
    let stamp = (0_u64..2000, 0_u32..400, 0_u32..2).prop_map(|(at, spent, processor)| Stamp {
        at,
        spent,
        processor,
    });
    let kind = prop_oneof![Just(Kind::Sent), Just(Kind::Arrived), Just(Kind::Taken)];
    let protocol = prop_oneof![
        Just(Protocol::Tcp),
        Just(Protocol::Udp),
        Just(Protocol::Unix),
        Just(Protocol::Pipe)
    ];
    let stamps = proptest::array::uniform6(stamp);
    let numbers = (0_u32..50, 0_u32..50, 0_u64..4, -1_i32..3, 0_u32..300);
    (kind, protocol, stamps, numbers).prop_map(|(kind, protocol, stamps, numbers)| {
        let (first, last, number, result, usual) = numbers;
        let packet = packet(number);
        Event { first, last, packet, result, usual, stamps, ..event(kind, protocol, &[]) }
    })
}

proptest! {
    #[test]
    fn rows_add_up_to_totals_whatever_comes(events in proptest::collection::vec(any_event(), 0..80)) {
        let mut ledger = Ledger::default();
        events.iter().for_each(|event| ledger.add(event));
        for session in ledger.sessions() {
            for direction in [Direction::Send, Direction::Receive] {
                let rows = Row::ALL.into_iter().filter(|row| row.direction() == direction);
                let sum: u64 = rows.map(|row| session.row(row).sum_ns()).sum();
                let total = &session.direction_times(direction).total;
                prop_assert_eq!(sum, total.sum_ns());
                // No time is longer than all of them, which a negative one would be.
                prop_assert!(total.quantile_ns(1.0).unwrap_or(0) < 2200);
            }
        }
    }
}

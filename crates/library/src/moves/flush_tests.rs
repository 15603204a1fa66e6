//! Returns with a full kernel: nobody waits for bytes that move only when the peer's program reads,
//! and the order is kept.

use crate::host::lock::lock;
use crate::moves::descriptors::SocketOption;
use crate::moves::flush::Rest;
use crate::process::library::library;
use crate::session::directions::TxPhase;
use crate::session_fakes::{Pair, common_inbox, is_away, read, write};
use core::time::Duration;
use rustix::io::Errno;
use rustix::net::sockopt;
use sojourn_session::ReasonT;
use std::thread;
use std::time::Instant;

const LIMIT: Duration = Duration::from_secs(20);
/// The bytes of a full ring, for which the kernel has no room.
const BYTES: usize = 64 * 1024;
/// The bytes that are in the kernel before.
const BACKLOG: usize = 2000;

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

fn bytes(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(byte).collect()
}

/// A session whose end 0 has sent more than the kernel takes, to an end that has not read anything.
fn full() -> Pair {
    let pair = Pair::new();
    let (ours, theirs) = (pair.ends[0].as_ref().unwrap(), pair.ends[1].as_ref().unwrap());
    sockopt::set_socket_send_buffer_size(ours, 4608).unwrap();
    sockopt::set_socket_recv_buffer_size(theirs, 4608).unwrap();
    assert_eq!(rustix::io::write(ours, &bytes(0, BACKLOG)), Ok(BACKLOG));
    assert!(pair.join_in_no_set([common_inbox(), common_inbox()]));
    assert_eq!(write(pair.fd(0), &bytes(BACKLOG, BYTES)), Ok(BYTES));
    pair
}

/// Reads until there are so many, whichever way.
fn receive(len: usize, mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) {
    let (deadline, mut at, mut buf) = (Instant::now() + LIMIT, 0, [0; 3000]);
    while at < len {
        let room = buf.len().min(len - at);
        match read(&mut buf[..room]) {
            Ok(0) => panic!("the end after {at}"),
            Ok(got) => {
                assert_eq!(buf[..got], bytes(at, got), "at {at}");
                at += got;
            }
            Err(Errno::AGAIN) => {
                assert!(Instant::now() < deadline, "no more after {at}");
                thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// The peer's protocol thread would do it.
fn attend(fd: i32) {
    if let Some(session) = library().session_of(fd) {
        session.attend();
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// End 1 is passed on while nobody reads: as before an `exec`.
fn passed_on() -> Pair {
    let pair = full();
    let theirs = pair.fd(1);
    let leaver = thread::spawn(move || library().go_home(theirs, ReasonT::Exec, false));
    wait_for("a freeze", || {
        let session = library().session_of(pair.fd(0)).unwrap();
        session.stream().is_some_and(|stream| stream.is_frozen())
    });
    attend(pair.fd(0));
    wait_for("the way home", || leaver.is_finished());
    pair
}

#[test]
fn who_passes_a_descriptor_on_does_not_wait_for_its_program_to_read() {
    let pair = passed_on();
    // The next owner of the end reads from the kernel.
    receive(BACKLOG + BYTES, |buf| rustix::io::read(pair.ends[1].as_ref().unwrap(), buf));
    wait_for("the sender at home", || !is_away(pair.fd(0)));
}

/// What may become of an end while its bytes are to follow, and whose next user is the kernel.
#[test]
fn what_is_to_follow_is_not_lost_to_the_next_holder_when_the_kernel_serves_an_operation() {
    type Operation = fn(i32);
    let operations: [(&str, Operation); 6] = [
        ("passed on", |fd| library().passing(fd)),
        ("before exec", |fd| library().go_home(fd, ReasonT::Exec, false)),
        ("an option", |fd| library().option_changed(fd, SocketOption::Binding)),
        ("splice", |fd| library().go_home(fd, ReasonT::Operation, false)),
        ("shutdown", |fd| {
            library().shutting(fd, false);
            let end = crate::host::kernel::at(fd).unwrap();
            rustix::net::shutdown(end, rustix::net::Shutdown::Write).unwrap();
            library().ended();
        }),
        ("all home", |_| library().all_home(ReasonT::Operation, false)),
    ];
    for (what, operation) in operations {
        library().patience.restore();
        let pair = passed_on();
        assert!(is_away(pair.fd(0)), "{what}: nothing is to follow");
        operation(pair.fd(0));
        println!("{what}");
        receive(BACKLOG + BYTES, |buf| rustix::io::read(pair.ends[1].as_ref().unwrap(), buf));
    }
}

/// The same of an end whose peer passes its own on later.
#[test]
fn what_had_no_room_is_not_lost_when_the_peer_passes_its_end_on_later() {
    library().patience.restore();
    let pair = full();
    library().passing(pair.fd(0));
    library().passing(pair.fd(1));
    receive(BACKLOG + BYTES, |buf| rustix::io::read(pair.ends[1].as_ref().unwrap(), buf));
}

#[test]
fn what_is_written_later_comes_later() {
    let pair = passed_on();
    let last = bytes(BACKLOG + BYTES, 100);
    assert_eq!(write(pair.fd(0), &last), Err(Errno::AGAIN));
    let mut polled = [crate::PollFd { fd: pair.fd(0), events: 4, revents: 0 }];
    assert_eq!(library().poll(&mut polled, Some(Duration::ZERO), None), Ok(0));
    let ours = pair.fd(0);
    let writer = thread::spawn(move || {
        let mut polled = [crate::PollFd { fd: ours, events: 4, revents: 0 }];
        assert_eq!(library().poll(&mut polled, Some(LIMIT), None), Ok(1));
        assert_eq!(write(ours, &bytes(BACKLOG + BYTES, 100)), Ok(100));
    });
    let all = BACKLOG + BYTES + 100;
    receive(all, |buf| rustix::io::read(pair.ends[1].as_ref().unwrap(), buf));
    writer.join().unwrap();
}

#[test]
fn the_library_reads_while_the_rest_follows() {
    let pair = full();
    library().session_of(pair.fd(0)).unwrap().leave(ReasonT::User, false);
    assert_eq!(
        lock(&library().session_of(pair.fd(0)).unwrap().tx).phase,
        TxPhase::Flushing,
        "the kernel takes it all: the test shows nothing"
    );
    receive(BACKLOG + BYTES, |buf| read(pair.fd(1), buf));
    wait_for("both at home", || !is_away(pair.fd(0)) && !is_away(pair.fd(1)));
    // The other direction was the kernel's all the time.
    assert_eq!(write(pair.fd(1), b"back"), Ok(4));
    assert_eq!(read(pair.fd(0), &mut [0; 10]), Ok(4));
}

#[test]
fn the_other_direction_goes_on_while_the_rest_follows() {
    let pair = full();
    library().session_of(pair.fd(0)).unwrap().leave(ReasonT::User, false);
    attend(pair.fd(1));
    assert_eq!(write(pair.fd(1), b"back"), Ok(4));
    assert_eq!(read(pair.fd(0), &mut [0; 10]), Ok(4));
    assert_eq!(read(pair.fd(0), &mut [0; 10]), Err(Errno::AGAIN));
    assert!(is_away(pair.fd(0)));
    receive(BACKLOG + BYTES, |buf| read(pair.fd(1), buf));
}

#[test]
fn a_writer_that_closes_makes_room_in_the_kernel() {
    let mut pair = full();
    pair.close(0);
    // The next owner of the other end has no library.
    receive(BACKLOG + BYTES, |buf| rustix::io::read(pair.ends[1].as_ref().unwrap(), buf));
    assert_eq!(rustix::io::read(pair.ends[1].as_ref().unwrap(), &mut [0; 10]), Ok(0));
}

#[test]
fn what_cannot_follow_stays_in_the_ring() {
    let mut pair = Pair::new();
    let ours = pair.ends[0].as_ref().unwrap();
    // As large as every system allows: no room can be made.
    sockopt::set_socket_send_buffer_size(ours, 212_992).unwrap();
    let mut backlog = 0;
    while let Ok(sent) = rustix::io::write(ours, &bytes(backlog, 1000)) {
        backlog += sent;
    }
    assert!(pair.join_in_no_set([common_inbox(), common_inbox()]));
    assert_eq!(write(pair.fd(0), &bytes(backlog, BYTES)), Ok(BYTES));
    // Another process may write next: the reader's library takes the bytes that the kernel has not
    // taken by then.
    library().session_of(pair.fd(0)).unwrap().leave(ReasonT::Exec, true);
    pair.close(0);
    receive(backlog + BYTES, |buf| read(pair.fd(1), buf));
    assert_eq!(read(pair.fd(1), &mut [0; 10]), Ok(0));
}

#[test]
fn what_follows_and_what_stays() {
    assert_eq!(Rest::of(ReasonT::PeerLeft, false), Rest::Follows);
    assert_eq!(Rest::of(ReasonT::Exec, true), Rest::Stays);
    assert_eq!(Rest::of(ReasonT::Closed, false), Rest::Ends);
    assert_eq!(Rest::of(ReasonT::Closed, true), Rest::Ends);
}

/// The peer's last bytes were in the kernel when it turned out that it had not read ours.
#[test]
fn what_has_come_is_read_before_the_reset() {
    let pair = Pair::joined();
    pair.warm_up();
    assert_eq!(rustix::io::write(pair.ends[1].as_ref().unwrap(), b"last words"), Ok(10));
    let session = library().session_of(pair.fd(0)).unwrap();
    lock(&session.rx).is_reset = true;
    session.leave(ReasonT::PeerLeft, false);
    let mut buf = [0; 4];
    assert_eq!(read(pair.fd(0), &mut buf), Ok(4));
    assert_eq!(read(pair.fd(0), &mut [0; 20]), Ok(6));
    assert_eq!(read(pair.fd(0), &mut buf), Err(Errno::CONNRESET));
    assert_eq!(read(pair.fd(0), &mut buf), Err(Errno::AGAIN));
    assert!(!is_away(pair.fd(0)));
}

/// A session with another host whose carrier ends before it has taken the session out: the kernel
/// gets what is in the ring, and has no room for it now. Returns the number of bytes sent, too.
fn carrier_lost() -> (Pair, usize) {
    carrier_lost_with_buffer(4608)
}

fn carrier_lost_with_buffer(buffer: usize) -> (Pair, usize) {
    let mut pair = Pair::tcp();
    pair.is_carried = true;
    let [ours, theirs] = pair.ends.each_ref().map(|end| end.as_ref().unwrap());
    sockopt::set_socket_send_buffer_size(ours, buffer).unwrap();
    sockopt::set_socket_recv_buffer_size(theirs, 4608).unwrap();
    let mut backlog = 0;
    while let Ok(sent) = rustix::io::write(ours, &bytes(backlog, 1000)) {
        backlog += sent;
    }
    let carrier = pair.join_hostile();
    carrier.side.consent();
    assert_eq!(write(pair.fd(0), &bytes(backlog, BYTES)), Ok(BYTES));
    let session = library().session_of(pair.fd(0)).unwrap();
    session.carrier_is_lost();
    assert_eq!(lock(&session.tx).phase, TxPhase::Flushing, "the test shows nothing");
    // The carrier has asked for attention, and others ask for the return as well.
    session.attend();
    session.leave(ReasonT::User, false);
    (pair, backlog + BYTES)
}

#[test]
fn what_the_ring_of_a_lost_carrier_holds_follows() {
    let (pair, sent) = carrier_lost();
    receive(sent, |buf| rustix::io::read(pair.ends[1].as_ref().unwrap(), buf));
    wait_for("the sender at home", || !is_away(pair.fd(0)));
}

#[test]
fn what_the_ring_of_a_lost_carrier_holds_comes_before_the_end() {
    let (mut pair, sent) = carrier_lost();
    pair.close(0);
    receive(sent, |buf| rustix::io::read(pair.ends[1].as_ref().unwrap(), buf));
    assert_eq!(rustix::io::read(pair.ends[1].as_ref().unwrap(), &mut [0; 10]), Ok(0));
}

/// A carrier that lives but stands still: it has not begun to take the session out.
#[test]
fn what_a_carrier_that_stands_still_has_not_begun_with_stays_in_the_kernel() {
    library().returns.meet_server();
    let mut pair = Pair::tcp();
    pair.is_carried = true;
    let carrier = pair.join_hostile();
    carrier.side.consent();
    assert_eq!(write(pair.fd(0), &bytes(0, 300)), Ok(300));
    library().session_of(pair.fd(0)).unwrap().leave(ReasonT::User, false);
    assert!(!is_away(pair.fd(0)));
    receive(300, |buf| rustix::io::read(pair.ends[1].as_ref().unwrap(), buf));
    assert_eq!(rustix::io::write(pair.ends[1].as_ref().unwrap(), b"answer"), Ok(6));
    assert_eq!(read(pair.fd(0), &mut [0; 10]), Ok(6));
}

/// The other host takes all that there is, a little at a time, for longer than a wait for one that
/// takes nothing lasts. The socket has as much room as it may have, and all of it is used.
#[test]
fn who_closes_waits_for_another_host_as_long_as_it_takes_something() {
    library().room_patience.restore();
    let (mut pair, sent) = carrier_lost_with_buffer(212_992);
    let theirs = pair.ends[1].take().unwrap();
    let slowly = Instant::now() + Duration::from_secs(6);
    let reader = thread::spawn(move || {
        receive(sent, |buf| {
            let is_slow = Instant::now() < slowly;
            match is_slow {
                true => thread::sleep(Duration::from_millis(100)),
                false => sockopt::set_socket_recv_buffer_size(&theirs, 200_000).unwrap(),
            }
            let len = if is_slow { buf.len().min(2000) } else { buf.len() };
            rustix::io::read(&theirs, &mut buf[..len])
        });
        assert_eq!(rustix::io::read(&theirs, &mut [0; 10]), Ok(0));
    });
    pair.close(0);
    assert!(Instant::now() > slowly, "it had room: the test shows nothing");
    reader.join().unwrap();
}

/// The peer is killed between the look at whether it lives and the flush: TCP has its end first,
/// and then answers the flushed bytes. Returns the way home that the survivor believes in.
fn killed_before_the_flush(reason: ReasonT) -> Pair {
    let mut pair = Pair::tcp();
    let peer = pair.join_hostile();
    peer.side.consent();
    assert_eq!(write(pair.fd(0), &[1; 300]), Ok(300));
    drop(pair.ends[1].take());
    library().session_of(pair.fd(0)).unwrap().leave(reason, false);
    pair
}

#[test]
fn bytes_that_a_killed_peer_never_read_make_a_reset_whatever_sent_the_session_home() {
    for reason in [ReasonT::PeerLeft, ReasonT::User, ReasonT::PeerDied] {
        let pair = killed_before_the_flush(reason);
        assert_eq!(read(pair.fd(0), &mut [0; 4]), Err(Errno::CONNRESET), "{reason:?}");
        assert_eq!(read(pair.fd(0), &mut [0; 4]), Ok(0), "{reason:?}");
        assert_eq!(write(pair.fd(0), &[1]), Err(Errno::PIPE), "{reason:?}");
    }
}

#[test]
fn a_send_that_comes_first_reports_that_reset_as_the_kernel_does() {
    for reason in [ReasonT::PeerLeft, ReasonT::User, ReasonT::PeerDied] {
        let pair = killed_before_the_flush(reason);
        assert_eq!(write(pair.fd(0), &[1]), Err(Errno::CONNRESET), "{reason:?}");
        assert_eq!(write(pair.fd(0), &[1]), Err(Errno::PIPE), "{reason:?}");
        assert_eq!(read(pair.fd(0), &mut [0; 4]), Ok(0), "{reason:?}");
    }
}

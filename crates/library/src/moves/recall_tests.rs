//! Bytes on their way while a peer is taken for dead that lives, or whose end another process still
//! holds.
//!
//! The server takes a process for dead if it hears nothing of it any more, also if that has lost
//! only its connection.

use crate::process::library::library;
use crate::session_fakes::{Pair, common_inbox, is_away, read, write};
use rustix::io::Errno;
use sojourn_session::ReasonT;

fn joined(pair: Pair) -> Pair {
    assert!(pair.join_in_no_set([common_inbox(), common_inbox()]));
    pair.warm_up();
    pair
}

/// All that comes until there is nothing more.
fn received(fd: i32) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), [0; 100]);
    loop {
        match read(fd, &mut buf) {
            Ok(0) => panic!("the end after {all:?}"),
            Ok(len) => all.extend_from_slice(&buf[..len]),
            Err(Errno::AGAIN) => return all,
            Err(error) => panic!("{error} after {all:?}"),
        }
    }
}

/// Both ends have sent something that is in the rings when end 0 is told that its peer has died.
fn is_told_of_a_death(pair: &Pair) {
    assert_eq!(write(pair.fd(0), b"to one"), Ok(6));
    assert_eq!(write(pair.fd(1), b"to nought"), Ok(9));
    library().session_of(pair.fd(0)).unwrap().recalled(ReasonT::PeerDied);
    if let Some(session) = library().session_of(pair.fd(1)) {
        session.attend();
    }
    assert_eq!(received(pair.fd(0)), b"to nought");
    assert_eq!(received(pair.fd(1)), b"to one");
    assert!(!is_away(pair.fd(0)) && !is_away(pair.fd(1)));
    for end in 0..2 {
        assert_eq!(write(pair.fd(end), b"more"), Ok(4));
        assert_eq!(received(pair.fd(1 - end)), b"more");
    }
}

#[test]
fn a_peer_that_the_server_has_lost_loses_nothing() {
    is_told_of_a_death(&joined(Pair::new()));
    is_told_of_a_death(&joined(Pair::tcp()));
}

/// Before the peer has gone home, which it does when it hears of the freeze.
#[test]
fn what_such_a_peer_owes_comes_from_the_kernel_only() {
    for pair in [joined(Pair::new()), joined(Pair::tcp())] {
        assert_eq!(write(pair.fd(1), b"to nought"), Ok(9));
        library().session_of(pair.fd(0)).unwrap().recalled(ReasonT::PeerDied);
        let theirs = pair.fd(1);
        let peer = std::thread::spawn(move || library().session_of(theirs).unwrap().attend());
        let mut buf = [0; 100];
        let got = loop {
            match read(pair.fd(0), &mut buf) {
                Err(Errno::AGAIN) => std::thread::yield_now(),
                other => break other,
            }
        };
        peer.join().unwrap();
        assert_eq!((got, &buf[..9]), (Ok(9), &b"to nought"[..]));
        assert_eq!(received(pair.fd(0)), b"");
    }
}

/// The process of end 1 has died; a child of it has the descriptor, and no library.
#[test]
fn who_holds_the_end_of_a_dead_process_reads_on() {
    for pair in [joined(Pair::new()), joined(Pair::tcp())] {
        assert_eq!(write(pair.fd(0), b"to one"), Ok(6));
        library().session_of(pair.fd(0)).unwrap().leave(ReasonT::PeerDied, false);
        let mut buf = [0; 100];
        assert_eq!(rustix::io::read(pair.ends[1].as_ref().unwrap(), &mut buf), Ok(6));
        assert_eq!(received(pair.fd(0)), b"", "no reset");
    }
}

#[test]
fn what_a_change_of_its_set_has_sent_home_is_offered_later() {
    let pair = Pair::joined();
    pair.warm_up();
    let entry = library().table.known(pair.fd(0)).unwrap();
    assert!(!entry.is_put_off());
    library().go_home_for_set(pair.fd(0));
    assert!(!is_away(pair.fd(0)));
    assert!(entry.is_put_off() && !entry.is_put_off(), "the first time by one");
    // At home already, nothing more is put off.
    library().go_home_for_set(pair.fd(0));
    assert!(!entry.is_put_off());
}

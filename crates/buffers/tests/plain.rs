//! Tests of the buffers over streams that are in the kernel: no Sojourn is in the process.
//!
//! Not here: streams that have moved (`tests/system/tests/buffers.rs`), and C (`c_api`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sojourn_buffers::{Deadline, Error, Receiver, Sender};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// Returns the writing and the reading end of each kind of stream.
fn streams() -> Vec<(OwnedFd, OwnedFd)> {
    let (one, two) = UnixStream::pair().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let server = listener.accept().unwrap().0;
    vec![(one.into(), two.into()), (client.into(), server.into()), (writer.into(), reader.into())]
}

#[test]
fn what_is_committed_is_lent_until_it_is_used_up() {
    for (one, two) in streams() {
        let (mut sender, mut receiver) = (Sender::new(one).unwrap(), Receiver::new(two).unwrap());
        let mut space = sender.reserve(10, 10, soon()).unwrap();
        assert_eq!(space.len(), 10);
        assert_eq!(space.put(0, b"abcdefghijk"), 10);
        space.commit(6, soon()).unwrap();
        // A reservation that is dropped sends nothing.
        sender.reserve(3, 3, soon()).unwrap().put(0, b"xyz");
        let mut space = sender.reserve(4, 100, Deadline::NEVER).unwrap();
        write!(space, "{}z", 12).unwrap();
        assert_eq!(space.filled(), 3);
        space.commit_filled(Deadline::NEVER).unwrap();

        let loan = receiver.loan(6, 6, soon()).unwrap();
        assert_eq!((loan.len(), loan.find(b'e', 1), loan.find(b'q', 0)), (6, Some(4), None));
        loan.give_back(2);
        // A loan that is dropped uses nothing up.
        assert!(!receiver.loan(1, 3, Deadline::NEVER).unwrap().is_empty());
        let mut bytes = [0; 7];
        let loan = receiver.loan(7, 7, soon()).unwrap();
        assert_eq!(loan.copy_to(1, &mut bytes), 6);
        assert_eq!(&bytes[..6], b"def12z");
        loan.give_back(6);
        let copied = receiver.loan_copied(1, 9, soon()).unwrap();
        assert_eq!(&*copied, b"z");
        copied.give_back(9);
        drop(sender);
        assert!(receiver.loan(1, 1, soon()).unwrap().is_empty());
    }
}

#[test]
fn a_loan_that_ends_too_early_is_kept() {
    for (one, two) in streams() {
        let (mut sender, mut receiver) = (Sender::new(one).unwrap(), Receiver::new(two).unwrap());
        assert_eq!(receiver.loan(1, 1, Deadline::NOW).unwrap_err(), Error::TimedOut);
        sender.reserve(3, 3, soon()).unwrap().commit(3, soon()).unwrap();
        let short = Deadline::after(Duration::from_millis(20));
        assert_eq!(receiver.loan(4, 4, short).unwrap_err(), Error::TimedOut);
        assert_eq!(receiver.loan(3, 9, Deadline::NOW).unwrap().len(), 3);
        drop(sender);
        assert_eq!(receiver.loan(4, 9, soon()).unwrap().len(), 3, "no more will come");
    }
}

#[test]
fn a_commit_whose_time_is_over_stays_committed() {
    for (one, two) in streams() {
        let (mut sender, mut receiver) = (Sender::new(one).unwrap(), Receiver::new(two).unwrap());
        let mut sent = 0usize;
        let refused = loop {
            let mut space = sender.reserve(50_000, 50_000, soon()).unwrap();
            space.put(0, &[sent as u8 + 1; 50_000]);
            sent += 50_000;
            let result = space.commit(50_000, Deadline::NOW);
            if result.is_err() {
                break result;
            }
        };
        assert_eq!(refused, Err(Error::TimedOut));
        assert!((1..=50_000).contains(&sender.pending()));
        assert_eq!(sender.reserve(1, 1, Deadline::NOW).unwrap_err(), Error::TimedOut);
        let reader = std::thread::spawn(move || {
            let mut got = 0;
            loop {
                let loan = receiver.loan(1, usize::MAX, soon()).unwrap();
                if loan.is_empty() {
                    break;
                }
                let mut first = [0];
                loan.copy_to(0, &mut first);
                assert_eq!(first[0], (got / 50_000 * 50_000) as u8 + 1);
                // To the end of a block at most, so that each look is at a block's byte.
                let len = loan.len().min(50_000 - got % 50_000);
                loan.give_back(len);
                got += len;
            }
            got
        });
        sender.flush(soon()).unwrap();
        assert_eq!(sender.pending(), 0);
        drop(sender);
        assert_eq!(reader.join().unwrap(), sent);
    }
}

#[test]
fn a_peer_that_has_gone_is_an_error_of_the_commit() {
    let (one, two) = UnixStream::pair().unwrap();
    let mut sender = Sender::new(&one).unwrap();
    let space = sender.reserve(1, 1, soon()).unwrap();
    drop(two);
    assert_eq!(space.commit(1, soon()), Err(Error::System(libc::EPIPE)));
    assert_eq!(sender.pending(), 0);
    assert_eq!(
        sender.reserve(1, 1, soon()).unwrap().commit(2, soon()),
        Err(Error::System(libc::EINVAL))
    );
}

#[test]
fn datagrams_are_refused() {
    let (one, _two) = UnixDatagram::pair().unwrap();
    assert_eq!(Receiver::new(&one).unwrap_err(), Error::System(libc::EPROTOTYPE));
    assert_eq!(Sender::new(&one).unwrap_err(), Error::System(libc::EPROTOTYPE));
}

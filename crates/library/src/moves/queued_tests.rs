//! A session's bytes are counted, and poll as readable, at every moment of a move home.

use crate::host::kernel;
use crate::process::library::library;
use crate::session_fakes::{Pair, common_inbox, read, write};
use sojourn_session::ReasonT;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const BYTES: usize = 300;
const ROUNDS: usize = 400;

fn counted(fd: i32) -> usize {
    let mut kernels = 0;
    let more = library().input_queue(fd, || kernels = kernel::input_queue(fd));
    more.map_or_else(|| kernel::input_queue(fd), |more| kernels + more)
}

#[test]
fn every_byte_is_counted_once_while_the_session_comes_home() {
    for round in 0..ROUNDS {
        library().patience.restore();
        let pair = Pair::joined();
        pair.warm_up();
        assert_eq!(write(pair.fd(0), &[7; BYTES]), Ok(BYTES));
        let (theirs, ours, is_home) = (pair.fd(0), pair.fd(1), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                library().go_home(theirs, ReasonT::User, false);
                is_home.store(true, Ordering::SeqCst);
            });
            while !is_home.load(Ordering::SeqCst) {
                assert_eq!(counted(ours), BYTES, "round {round}");
            }
        });
        assert_eq!(counted(ours), BYTES, "round {round}, at home");
        assert_eq!(read(ours, &mut [0; 2 * BYTES]), Ok(BYTES));
        assert_eq!(counted(ours), 0);
    }
}

#[test]
fn a_pipe_says_at_both_ends_what_it_holds() {
    let pair = Pair::pipe();
    let (ours, theirs) = (pair.fd(0), pair.fd(1));
    assert_eq!(rustix::io::write(pair.ends[0].as_ref().unwrap(), &[7; 59]), Ok(59));
    assert!(pair.join_in_no_set([common_inbox(), common_inbox()]));
    assert_eq!(write(ours, &[7; 9000]), Ok(9000));
    assert_eq!(kernel::input_queue(ours), 59, "the write went to the kernel");
    assert_eq!([ours, theirs].map(counted), [9059; 2]);
    assert_eq!(read(theirs, &mut [0; 59]), Ok(59));
    assert_eq!(read(theirs, &mut [0; 1000]), Ok(1000));
    assert_eq!([ours, theirs].map(counted), [8000; 2]);
    library().go_home(theirs, ReasonT::User, false);
    assert_eq!([ours, theirs].map(counted), [8000; 2], "on the way home");
}

//! Receiving where the kernel's bytes end and those of the ring begin.
//!
//! The test is the peer. Not here: the same in the middle of a flush (`moves::residue_tests`).

use crate::host::kernel;
use crate::session_fakes::{Pair, read};
use core::time::Duration;
use rustix::event::PollFlags;
use rustix::net::SendFlags;

/// A call ends at a byte that was sent out of band, also where those behind it are in the ring.
#[test]
fn the_rings_bytes_do_not_follow_a_byte_out_of_band_in_one_call() {
    let pair = Pair::tcp();
    let hostile = pair.join_hostile();
    let sender = pair.ends[1].as_ref().unwrap();
    assert_eq!(rustix::net::send(sender, b"kernel!", SendFlags::OOB), Ok(7));
    let receiver = kernel::at(pair.fd(0)).unwrap();
    let found = kernel::wait(receiver, PollFlags::PRI, Some(Duration::from_secs(10)));
    assert_eq!(found, Ok(PollFlags::PRI));
    hostile.sends(b"ring");
    let mut buf = [0; 20];
    assert_eq!(read(pair.fd(0), &mut buf), Ok(6));
    assert_eq!(&buf[..6], b"kernel");
    assert_eq!(read(pair.fd(0), &mut buf), Ok(4));
    assert_eq!(&buf[..4], b"ring");
}

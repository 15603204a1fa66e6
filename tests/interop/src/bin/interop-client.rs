//! `interop-client ADDRESS FILE SEED ROUNDS`: calls every operation of an example file; ends with a
//! text and status 1 if anything is not as it must be.

use sojourn_interop::{Failure, connect, drive};
use sojourn_ipc::rt;

fn main() -> Result<(), Failure> {
    // As in the ACF that `build.rs` makes for C.
    rt::set_reference_threshold(8);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, file, seed, rounds] = arguments.as_slice() else {
        return Err("usage: interop-client ADDRESS FILE SEED ROUNDS".into());
    };
    drive(file, connect(address)?, seed.parse()?, rounds.parse()?)
}

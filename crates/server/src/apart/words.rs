//! The words by which the server's processes are started, and one by which a process ends.
//!
//! Not here: who starts them (`generation`), what becomes of them (`main`).

/// The words that make this program one of the processes; one argument follows, and then the
/// words of the server's own command line.
pub const FRONT: &str = "--front";
/// See [`FRONT`].
pub const PROBER: &str = "--prober";
/// See [`FRONT`].
pub const CARRIER: &str = "--carrier";

/// The exit status of a carrier that cannot carry: the server does without it.
pub const CANNOT: u8 = 3;

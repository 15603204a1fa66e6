//! TCP's segments (RFC 9293 section 3.1) and their options (RFC 7323, RFC 2018).
//!
//! [`Segment`] is the view, [`Header`] the value. Not here: the processing of a segment by a
//! connection (`sojourn-proto`).

mod flags;
mod header;
mod options;
mod segment;
mod seq;

pub use flags::Flags;
pub use header::{CHECKSUM_OFFSET, HEADER_BYTES, HEADER_BYTES_MAX, Header, write_checksum};
pub use options::{
    OPTIONS_BYTES_MAX, OptionIter, Options, SACK_BLOCKS_MAX, SackBlock, SackBlocks, TcpOption,
    Timestamps,
};
pub use segment::Segment;
pub use seq::SeqNum;

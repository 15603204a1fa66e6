//! TCP's segments (RFC 9293 section 3.1) and their options (RFC 7323, RFC 2018).
//!
//! [`Segment`] is the view, [`Header`] the value. Not here: what a segment means to a connection.

mod flags;
mod header;
mod options;
mod segment;
mod seq;

pub use flags::Flags;
pub use header::Header;
pub use options::{
    OptionIter, Options, SACK_BLOCKS_MAX, SackBlock, SackBlocks, TcpOption, Timestamps,
};
pub use segment::Segment;
pub use seq::SeqNum;

/// Bytes of a header without options.
pub const HEADER_BYTES: usize = 20;
/// Bytes of options at most.
pub const OPTIONS_BYTES_MAX: usize = 40;
/// Bytes of a header at most.
pub const HEADER_BYTES_MAX: usize = HEADER_BYTES + OPTIONS_BYTES_MAX;
/// Where in the header the checksum is.
pub const CHECKSUM_OFFSET: u16 = 16;

/// Writes `checksum` into an emitted header; `false` if `header` is too short to be one.
pub fn write_checksum(header: &mut [u8], checksum: u16) -> bool {
    let place = header.get_mut(usize::from(CHECKSUM_OFFSET)..usize::from(CHECKSUM_OFFSET) + 2);
    place.map(|place| place.copy_from_slice(&checksum.to_be_bytes())).is_some()
}

//! Partial checksums: completing one where the device does not.
//!
//! Not here: the checksum itself (`sojourn_wire::checksum`), and who leaves one partial.

use sojourn_wire::vnet::Checksum;

/// Completes a partial checksum. Returns false if the checksum's position lies outside the frame. A
/// computed UDP checksum of zero is sent as 0xffff, because zero means no checksum (RFC 768).
pub(crate) fn complete_checksum(frame: &mut [u8], checksum: Checksum) -> bool {
    const UDP_OFFSET: u16 = 6;
    let Checksum::Partial { start, offset } = checksum else { return true };
    let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
    let Some(covered) = frame.get(start..) else { return false };
    let sum = match sojourn_wire::checksum::sum(covered).finish() {
        0 if offset == UDP_OFFSET => 0xffff,
        sum => sum,
    };
    let Some(place) = frame.get_mut(field..field + 2) else { return false };
    place.copy_from_slice(&sum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_checksum_is_completed_or_refused() {
        let mut frame = *b"headers.\x12\x34\x56\x78\x00\x00\x00\x10";
        let partial = |start, offset| Checksum::Partial { start, offset };
        assert!(complete_checksum(&mut frame, partial(8, 4)));
        assert_eq!(sojourn_wire::checksum::sum(&frame[8..]).value(), 0xffff);
        assert_eq!(&frame[..8], b"headers.");
        let before = frame;
        assert!(!complete_checksum(&mut frame, partial(17, 0)));
        assert!(!complete_checksum(&mut frame, partial(8, 7)), "half outside");
        assert!(!complete_checksum(&mut frame, partial(u16::MAX, u16::MAX)));
        assert!(complete_checksum(&mut frame, Checksum::Unknown));
        assert_eq!(frame, before);
    }

    #[test]
    fn udp_never_says_that_it_has_no_checksum() {
        // The covered bytes sum to 0xffff, whose complement is zero.
        let mut frame = [0u8; 8];
        frame[..2].copy_from_slice(&[0xff, 0xff]);
        assert!(complete_checksum(&mut frame, Checksum::Partial { start: 0, offset: 6 }));
        assert_eq!(frame[6..], [0xff, 0xff]);
    }
}

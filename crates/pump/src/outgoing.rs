//! The datagrams of one send call on their way out: as one frame, as one frame that the interface
//! splits, or as one frame for each.
//!
//! Not here: the sockets and their ways (`datagrams`), and the headers (`sojourn_wire::frame`).

use sojourn_netif::{Interface, Outgoing, SendError};
use sojourn_shm::copy::slice;
use sojourn_wire::frame::{HEADERS_BYTES_MAX, Header, Offload, PacketFields};
use sojourn_wire::ip::Ecn;
use sojourn_wire::udp::HEADER_BYTES;
use std::io::IoSlice;

/// Offset of the checksum in a UDP header (RFC 768).
const CHECKSUM_AT: usize = 6;

/// Returns the payload in two slices, without a copy if it has no more than two parts.
pub(crate) fn gather<'p>(parts: &'p [IoSlice<'_>], scratch: &'p mut [u8]) -> Option<[&'p [u8]; 2]> {
    match parts {
        [] => Some([&[], &[]]),
        [one] => Some([one, &[]]),
        [one, other] => Some([one, other]),
        many => {
            let mut at = 0usize;
            for part in many {
                slice(part, scratch.get_mut(at..at.checked_add(part.len())?)?);
                at += part.len();
            }
            Some([&scratch[..at], &[]])
        }
    }
}

/// The datagrams of one send call on their way out.
pub(crate) struct Frames<'a> {
    pub(crate) header: Header,
    /// The congestion bits.
    pub(crate) ecn: Ecn,
    pub(crate) has_checksum: bool,
    pub(crate) out: &'a mut dyn Interface,
}

impl Frames<'_> {
    /// Sends them. Returns false if none went out, so that the kernel has to send.
    pub(crate) fn send(
        mut self,
        payload: [&[u8]; 2],
        segment_size: u16,
        identification: &mut u16,
    ) -> bool {
        let properties = *self.out.properties();
        let length = payload[0].len() + payload[1].len();
        if segment_size == 0 {
            let offloads = properties.checksum_offload && self.has_checksum;
            let offload = if offloads { Offload::Checksum } else { Offload::Nothing };
            return self.send_one(payload, offload, identification);
        }
        let whole = self.header.transport_at() + HEADER_BYTES + length;
        if properties.checksum_offload && self.has_checksum && whole <= properties.gso_max {
            return self.send_one(payload, Offload::Segments(segment_size), identification);
        }
        let size = usize::from(segment_size);
        let mut is_first = true;
        for from in (0..length).step_by(size) {
            let part = between(payload, from, (from + size).min(length));
            // Once the first has gone the others count as sent: the kernel would send all of them
            // again.
            if !self.send_one(part, Offload::Nothing, identification) && is_first {
                return false;
            }
            is_first = false;
        }
        true
    }

    fn send_one(
        &mut self,
        payload: [&[u8]; 2],
        offload: Offload,
        identification: &mut u16,
    ) -> bool {
        let Self { header, ecn, has_checksum, out } = self;
        *identification = identification.wrapping_add(1);
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let emitted = header.emit_udp(
            &payload,
            PacketFields { ecn: *ecn, identification: *identification, offload },
            &mut bytes,
        );
        let Ok(emitted) = emitted else { return false };
        // A checksum of zero says that there is none (RFC 768), as SO_NO_CHECK asks for.
        if !*has_checksum {
            let at = header.transport_at() + CHECKSUM_AT;
            bytes[at..at + 2].fill(0);
        }
        let frame =
            Outgoing { vnet: emitted.vnet, parts: [&bytes[..emitted.len], payload[0], payload[1]] };
        let mut sent = out.send(&frame);
        if sent == Err(SendError::Full) {
            let _ = out.flush();
            sent = out.send(&frame);
        }
        // A frame that finds no room is lost, as in a queue of the kernel's.
        matches!(sent, Ok(()) | Err(SendError::Full | SendError::Dropped))
    }
}

fn between(payload: [&[u8]; 2], from: usize, to: usize) -> [&[u8]; 2] {
    let [first, second] = payload;
    let of_first = &first[from.min(first.len())..to.min(first.len())];
    let of_second = &second[from.saturating_sub(first.len())..to.saturating_sub(first.len())];
    [of_first, of_second]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_in_two_parts_is_cut_anywhere() {
        let whole = *b"0123456789";
        for at in 0..=whole.len() {
            let payload = [&whole[..at], &whole[at..]];
            for from in 0..whole.len() {
                for to in from..=whole.len() {
                    assert_eq!(between(payload, from, to).concat(), whole[from..to]);
                }
            }
        }
    }

    #[test]
    fn many_parts_are_gathered_if_there_is_room() {
        let parts = [b"ab", b"cd", b"ef"].map(|part| IoSlice::new(&part[..]));
        let mut scratch = [0; 6];
        assert_eq!(gather(&parts[..2], &mut scratch), Some([&b"ab"[..], b"cd"]));
        assert_eq!(gather(&parts, &mut scratch), Some([&b"abcdef"[..], b""]));
        assert_eq!(gather(&parts, &mut scratch[..5]), None);
    }
}

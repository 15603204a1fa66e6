//! The keys that `sock_diag` tells of a TCP socket. Pure.
//!
//! Not here: the question (`signed`).

use sojourn_wire::netlink::find;

/// Length of `struct inet_diag_msg`, and `INET_DIAG_MD5SIG` of the attributes behind it.
const MESSAGE: usize = 72;
const MD5SIG: u16 = 18;

/// Returns true if the kernel's answer for a socket lists keys.
pub(super) fn tells_of_keys(message: &[u8]) -> bool {
    find(message.get(MESSAGE..).unwrap_or_default(), MD5SIG).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_among_other_attributes() {
        let attribute = |len: u16, kind: u16| {
            let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.resize(usize::from(len).next_multiple_of(4), 0);
            bytes
        };
        let answer =
            |attributes: &[Vec<u8>]| [&[0; MESSAGE][..], &attributes.concat()[..]].concat();
        assert!(!tells_of_keys(&[0; MESSAGE]));
        assert!(!tells_of_keys(&answer(&[attribute(5, 8), attribute(12, 21)])));
        assert!(tells_of_keys(&answer(&[attribute(5, 8), attribute(108, MD5SIG)])));
        assert!(!tells_of_keys(&answer(&[vec![0; 3]])) && !tells_of_keys(&[18; 20]));
    }
}

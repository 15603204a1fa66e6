//! Filters of tc(8) on packets that come in.
//!
//! The packet sockets of sessions that are away get packets before these filters. What goes out
//! passes the interface's queueing discipline and its filters as ever. Not here: notice of their
//! changes (`kernel`).

use crate::attributes::{find, text};
use crate::netlink::{Question, dump};
use crate::session::Session;
use rustix::io::Errno;

/// `RTM_GETTFILTER`.
const GET_FILTER: u16 = 46;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`: of `clsact` and of `ingress`.
const INGRESS: u32 = 0xffff_fff2;
/// `TCA_KIND`, `TCA_OPTIONS` and `TCA_BPF_NAME`.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const BPF_NAME: u16 = 7;
/// The name of Sojourn's own filter begins so (`bpf/`).
const OWN: &str = "sojourn";
/// Length of `struct tcmsg`.
const HEADER: usize = 20;
/// The place of `tcm_handle` in it.
const HANDLE: std::ops::Range<usize> = 8..12;

/// Returns the filter that could say something about the session's packets.
pub(crate) fn concerning(session: &Session) -> Option<String> {
    let interface = session.interface.as_ref()?;
    let mut body = [0; HEADER];
    body[4..8].copy_from_slice(&interface.index.to_ne_bytes());
    body[12..16].copy_from_slice(&INGRESS.to_ne_bytes());
    let question = Question { protocol: None, kind: GET_FILTER, body: &body };
    let read = dump(
        &[question],
        || None,
        |found: &mut Option<String>, message| {
            let filter = message.body.get(HEADER..).unwrap_or_default();
            if found.is_none() && !is_empty_head(message.body) && !is_own(filter) {
                *found = Some(text(filter, KIND).unwrap_or_default());
            }
        },
    );
    let name = &interface.name;
    match read {
        Ok(kind) => kind.map(|kind| format!("a tc filter ({kind}) on packets that come by {name}")),
        // The interface has no such queueing discipline, or is gone.
        Err(Errno::INVAL | Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => None,
        Err(error) => Some(format!("tc, whose filters of {name} cannot be read: {error}")),
    }
}

/// Returns true for the entry that stands before the filters of kind `bpf` of one priority. It has
/// no handle, which each filter has, nor options, and by itself says nothing about packets. Where
/// programs are not attached by link (before Linux 6.6), it stands before Sojourn's own filter,
/// too.
fn is_empty_head(body: &[u8]) -> bool {
    let attributes = body.get(HEADER..).unwrap_or_default();
    body.get(HANDLE).is_some_and(|handle| handle.iter().all(|byte| *byte == 0))
        && text(attributes, KIND).as_deref() == Some("bpf")
        && find(attributes, OPTIONS).is_none()
}

/// Returns true for the filter of Sojourn's own that turns the packets of sessions away.
fn is_own(filter: &[u8]) -> bool {
    let options = find(filter, OPTIONS).unwrap_or_default();
    text(options, BPF_NAME).is_some_and(|name| name.starts_with(OWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// What Linux 6.1 says of one filter of kind `bpf` are two entries.
    #[test]
    fn the_entry_before_filters_of_a_priority_is_no_filter() {
        let entry = |handle: u8, attributes: &[u8]| {
            let mut body = vec![0; HEADER];
            body[HANDLE.start] = handle;
            body.extend(attributes);
            body
        };
        let kind = |kind: &[u8]| attribute(KIND, kind);
        assert!(is_empty_head(&entry(0, &kind(b"bpf\0"))));
        assert!(!is_empty_head(&entry(1, &kind(b"bpf\0"))));
        // Other kinds are left alone: the head of `fw` is a filter without filters.
        assert!(!is_empty_head(&entry(0, &kind(b"fw\0"))));
        let with_options = [kind(b"bpf\0"), attribute(OPTIONS, b"")].concat();
        assert!(!is_empty_head(&entry(0, &with_options)));
        assert!(!is_empty_head(&[]));
    }

    #[test]
    fn only_the_own_filter_is_left_out() {
        let bpf = |name: &[u8]| {
            let mut filter = attribute(KIND, b"bpf\0");
            filter.extend(attribute(OPTIONS, &attribute(BPF_NAME, name)));
            filter
        };
        assert!(is_own(&bpf(b"sojourn_turn\0")));
        assert!(!is_own(&bpf(b"drop\0")));
        assert!(!is_own(&attribute(KIND, b"flower\0")));
        assert!(!is_own(&[]));
    }
}

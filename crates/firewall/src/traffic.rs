//! Filters of tc(8).
//!
//! The packet sockets of sessions that are away get packets before filters on what comes in. What
//! goes out passes the interface's queueing discipline and its filters, but is sent by another
//! socket than in the kernel: by that of a packet socket or of a port. So filters that can ask for
//! the socket (its user, control group, or route) would find another answer. Not here: notice of
//! their changes (`kernel`); filters below a class, which choose among classes of theirs.

use crate::attributes::{find, text};
use crate::netlink::{Question, dump};
use crate::session::Session;
use rustix::io::Errno;

/// `RTM_GETTFILTER`.
const GET_FILTER: u16 = 46;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`: of `clsact` and of `ingress`.
const INGRESS: u32 = 0xffff_fff2;
/// The same for what goes out of `clsact`, and the root's queueing discipline.
const OUT: [u32; 2] = [0xffff_fff3, 0];
/// The kinds of filters that look at the headers of a packet and no further.
const BY_HEADERS: [&str; 4] = ["u32", "flower", "matchall", "fw"];
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
    let name = &interface.name;
    let of = |parent: u32, is_concerned: fn(&str) -> bool, what: &str| {
        match filter_at(interface.index, parent, is_concerned) {
            Ok(kind) => {
                kind.map(|kind| format!("a tc filter ({kind}) on packets that {what} {name}"))
            }
            // The interface has no such queueing discipline, or is gone.
            Err(Errno::INVAL | Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => None,
            Err(error) => Some(format!("tc, whose filters of {name} cannot be read: {error}")),
        }
    };
    let out = |parent| of(parent, |kind| !BY_HEADERS.contains(&kind), "go out by");
    of(INGRESS, |_| true, "come by").or_else(|| OUT.into_iter().find_map(out))
}

/// Returns the kind of the first such filter of an interface that is not Sojourn's own.
fn filter_at(
    index: u32,
    parent: u32,
    is_concerned: fn(&str) -> bool,
) -> Result<Option<String>, Errno> {
    let mut body = [0; HEADER];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[12..16].copy_from_slice(&parent.to_ne_bytes());
    let question = Question { protocol: None, kind: GET_FILTER, body: &body };
    dump(
        &[question],
        || None,
        |found: &mut Option<String>, message| {
            let filter = message.body.get(HEADER..).unwrap_or_default();
            let kind = text(filter, KIND).unwrap_or_default();
            let is_other = !is_empty_head(message.body) && !is_own(filter);
            if found.is_none() && is_other && is_concerned(&kind) {
                *found = Some(kind);
            }
        },
    )
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

    /// Linux 6.1 lists one filter of kind `bpf` as two entries.
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

//! The last sessions with other hosts that stayed in the kernel for a rule of the host, with the
//! rule's name, for administrators.
//!
//! Not here: the rules (`sojourn_firewall`), and the sessions (`registry`).

use sojourn_session::ConcernedInfoT;
use std::collections::VecDeque;
use std::ffi::CString;
use std::net::SocketAddr;

/// Sessions that are remembered.
const SESSIONS_MAX: usize = 64;
/// Longer names are cut (bytes).
const NAME_MAX: usize = 240;

/// A session's ends, and the name of the rule.
pub(crate) type Texts = [CString; 3];

/// Returns the texts by which the carrier tells of a session and a rule.
pub(crate) fn texts(local: SocketAddr, remote: Option<SocketAddr>, hook: &str) -> Texts {
    let address = |address: SocketAddr| {
        SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
    };
    let remote = remote.map(address).unwrap_or_default();
    [address(local), remote, hook.to_owned()].map(|text| {
        let text: String = text.chars().filter(|one| !one.is_control()).collect();
        let mut end = text.len().min(NAME_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        CString::new(&text[..end]).unwrap_or_default()
    })
}

/// The sessions, those told of last at the end.
#[derive(Debug, Default)]
pub(crate) struct Concerned(VecDeque<Texts>);

impl Concerned {
    /// Notes a session; what was known of it is forgotten. Texts that are too long are not noted.
    pub(crate) fn note(&mut self, texts: Texts) {
        if texts.iter().any(|text| text.as_bytes().len() > NAME_MAX) {
            return;
        }
        self.0.retain(|known| known[..2] != texts[..2]);
        if self.0.len() >= SESSIONS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(texts);
    }

    /// Returns all of them.
    pub(crate) fn list(&self) -> Vec<ConcernedInfoT> {
        let info = |[from, to, hook]: &Texts| ConcernedInfoT {
            from: Some(from.clone()),
            to: Some(to.clone()),
            hook: Some(hook.clone()),
        };
        self.0.iter().map(info).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(port: u16, hook: &str) -> Texts {
        texts(([10, 0, 0, 1], port).into(), None, hook)
    }

    #[test]
    fn the_last_name_of_a_session_counts() {
        let mut concerned = Concerned::default();
        for port in 0..100 {
            concerned.note(of(port, "one"));
        }
        concerned.note(of(99, "other"));
        let list = concerned.list();
        assert_eq!(list.len(), SESSIONS_MAX);
        let last = list.last().and_then(|last| last.hook.clone());
        assert_eq!(last.as_deref(), Some(c"other"));
    }

    #[test]
    fn names_are_cut_and_have_no_control_characters() {
        let [from, to, hook] = of(1, &format!("a\u{1b}[0m\0{}", "\u{e4}".repeat(300)));
        assert_eq!((from.as_c_str(), to.as_c_str()), (c"10.0.0.1:1", c""));
        assert!(hook.as_bytes().len() <= NAME_MAX && hook.as_bytes().starts_with(b"a[0m"));
        let mut concerned = Concerned::default();
        let long = CString::new("x".repeat(NAME_MAX + 1)).unwrap();
        concerned.note([long, to, hook]);
        assert!(concerned.list().is_empty());
    }
}

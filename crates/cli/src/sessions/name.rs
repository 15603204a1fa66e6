//! The name of a session in the first column of `ss` and as argument of `move`.

use sojourn_session::{Inode, StreamNumber};

/// The name of a session in the first column of `ss` and as argument of `move`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A session that is away: its stream's number.
    Stream(StreamNumber),
    /// A session in the kernel: the inode of its socket or pipe.
    Inode(Inode),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stream(number) => write!(f, "{number}"),
            Self::Inode(inode) => write!(f, "@{inode}"),
        }
    }
}

impl std::str::FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, name): (_, fn(u64) -> Self) = match text.strip_prefix('@') {
            Some(inode) => (inode, |number| Self::Inode(Inode(number))),
            None => (text, |number| Self::Stream(StreamNumber(number))),
        };
        text.parse().map(name).map_err(|_| "neither a number nor @ and a number".into())
    }
}

//! The name of a session in the first column of `ss` and as argument of `move`.

/// The name of a session in the first column of `ss` and as argument of `move`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A session that is away: its stream's number.
    Stream(u64),
    /// A session in the kernel: the inode of its socket or pipe.
    Inode(u64),
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
            Some(inode) => (inode, Self::Inode),
            None => (text, Self::Stream),
        };
        text.parse().map(name).map_err(|_| "neither a number nor @ and a number".into())
    }
}

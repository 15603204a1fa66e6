//! The address of an endpoint: a path, an abstract name or an inherited descriptor.

use rustix::fd::{FromRawFd, OwnedFd, RawFd};
use rustix::net::SocketAddrUnix;
use std::path::PathBuf;

/// The address of an endpoint.
#[derive(Debug)]
pub enum Address {
    /// A socket in the file system. Its directory's permissions decide who may connect. The file is
    /// removed when the endpoint ends, even if its process is killed.
    Path(PathBuf),
    /// A name in the abstract name space of the network namespace: every process there can connect,
    /// and the name ends with the endpoint. Written `@name`.
    Abstract(Vec<u8>),
    /// For a server: a listening socket; for a client: a connected one. Both of type
    /// `SOCK_SEQPACKET`. Written `fd:N`.
    Descriptor(OwnedFd),
}

/// The reason why a text is not an address.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AddressError {
    /// The text is empty.
    #[error("the address is empty: give a path, @name or fd:N")]
    Empty,
    /// The text is `fd:` without the number of an open descriptor.
    #[error("`{0}` does not name an open descriptor: give fd:N with N from the parent process")]
    Descriptor(String),
    /// The name is longer than a Unix socket address allows (107 bytes, unix(7)), or has a zero
    /// byte.
    #[error("`{0}` does not fit a Unix socket address: at most 107 bytes, none of them zero")]
    TooLong(String),
}

impl Address {
    /// Reads `/path`, `@name` or `fd:N`.
    ///
    /// The address owns a parsed descriptor and closes it, so the caller must not parse the same
    /// `fd:N` twice.
    ///
    /// # Errors
    /// [`AddressError`] if the text is not an address.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        if let Some(number) = text.strip_prefix("fd:") {
            return inherited(number).ok_or_else(|| AddressError::Descriptor(text.into()));
        }
        let address = match text.strip_prefix('@') {
            Some(name) => Self::Abstract(name.into()),
            None => Self::Path(text.into()),
        };
        if address.socket_address().is_none() {
            return Err(AddressError::TooLong(text.into()));
        }
        Ok(address)
    }

    /// Creates the address of the abstract name `name`, without the `@`.
    pub fn abstract_name(name: &str) -> Self {
        Self::Abstract(name.into())
    }

    /// Returns the socket address for bind(2) or connect(2); `None` for inherited descriptors and
    /// for names that are too long.
    pub fn socket_address(&self) -> Option<SocketAddrUnix> {
        match self {
            Self::Path(path) => SocketAddrUnix::new(path).ok(),
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name).ok(),
            Self::Descriptor(_) => None,
        }
    }
}

fn inherited(number: &str) -> Option<Address> {
    let number: RawFd = number.parse().ok().filter(|n| *n >= 0)?;
    // SAFETY: F_GETFD only asks whether the descriptor is open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: open as just seen; the caller hands it over by naming it, as documented.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    let _ = rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC);
    Some(Address::Descriptor(fd))
}

impl core::fmt::Display for Address {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        use rustix::fd::AsRawFd;
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Abstract(name) => write!(f, "@{}", String::from_utf8_lossy(name)),
            Self::Descriptor(fd) => write!(f, "fd:{}", fd.as_raw_fd()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_the_same() {
        for text in ["/run/x.sock", "@name", "relative"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_names_no_endpoint_is_refused() {
        assert_eq!(Address::parse("").unwrap_err(), AddressError::Empty);
        for text in ["fd:", "fd:x", "fd:-1", "fd:999999"] {
            assert!(matches!(Address::parse(text), Err(AddressError::Descriptor(_))), "{text}");
        }
        let long = "x".repeat(200);
        assert!(matches!(Address::parse(&long), Err(AddressError::TooLong(_))));
        assert!(matches!(Address::parse("a\0b"), Err(AddressError::TooLong(_))));
    }
}

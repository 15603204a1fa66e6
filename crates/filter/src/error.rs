//! The crate's errors. An error of the kernel comes with the step that failed.

use crate::rule::{Key, OwnerId};
use std::error::Error;
use std::io;
use thiserror::Error;

/// A step that the kernel refused.
#[derive(Debug, Error)]
#[error("{step}: {source}")]
pub struct Failed {
    /// The failed step.
    pub step: &'static str,
    /// The kernel's error: `EPERM` for a missing capability.
    pub source: io::Error,
}

impl Failed {
    pub(crate) fn at(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { step, source }
    }

    pub(crate) fn other(
        step: &'static str,
        error: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        let mut error: Box<dyn Error + Send + Sync> = error.into();
        // An aya error wraps the kernel's error in a few words; the text of the whole chain is
        // kept.
        let mut text = error.to_string();
        let mut cause = error.source();
        let mut number = None;
        while let Some(inner) = cause {
            if let Some(inner) = inner.downcast_ref::<io::Error>() {
                number = inner.raw_os_error();
            }
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        if let Some(number) = number {
            let kind = io::Error::from_raw_os_error(number).kind();
            return Self { step, source: io::Error::new(kind, text) };
        }
        error = text.into();
        Self { step, source: io::Error::other(error) }
    }

    pub(crate) fn missing(name: &'static str) -> Self {
        Self { step: name, source: io::ErrorKind::NotFound.into() }
    }
}

/// The reason why an interface has no filter.
#[derive(Debug, Error)]
pub enum AttachError {
    /// Sojourn was built without the compiler of the filter's programs.
    #[error("the packet filter was not built: install the package {package} and build again")]
    Unavailable {
        /// The package to install.
        package: &'static str,
    },
    /// The kernel refused.
    #[error(transparent)]
    Failed(#[from] Failed),
}

/// The reason why a program has no access to packets.
#[derive(Debug, Error)]
pub enum OwnerError {
    /// No such owner.
    #[error("owner {} is not known", .0.0)]
    Unknown(OwnerId),
    /// All places are taken.
    #[error("there is no room for another owner")]
    Full,
    /// The kernel refused.
    #[error(transparent)]
    Failed(#[from] Failed),
}

/// The reason why a session's packets cannot be directed.
#[derive(Debug, Error)]
pub enum FlowError {
    /// The session has an owner already.
    #[error("session {0} has an owner already")]
    Taken(Key),
    /// No such session.
    #[error("session {0} is not away")]
    Absent(Key),
    /// No such owner.
    #[error("owner {} is not known", .0.0)]
    NoOwner(OwnerId),
    /// All places are taken.
    #[error("there is no room for another session")]
    Full,
    /// The kernel refused.
    #[error(transparent)]
    Failed(#[from] Failed),
}

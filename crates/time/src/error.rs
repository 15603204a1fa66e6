//! Why no time stamps are taken in the kernel: cause, and next step.
//!
//! Not here: the command (`sojourn time`).

use std::io;
use thiserror::Error;

/// Why the programs cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Sojourn was built without the compiler of the programs.
    #[error(
        "the kernel's time stamps were not built: install the package clang and build again (x86-64 and arm64 only)"
    )]
    NotBuilt,
    /// The kernel refuses: rights are missing.
    #[error(
        "time stamps in the kernel take root, or CAP_BPF and CAP_PERFMON ({step}: {answer}): run it with sudo"
    )]
    Rights {
        /// The refused step.
        step: String,
        /// The kernel's answer; not a source, because the text has it already.
        answer: io::Error,
    },
    /// The kernel does not describe its types.
    #[error(
        "the kernel does not describe its types (/sys/kernel/btf/vmlinux: {0}): it takes one with CONFIG_DEBUG_INFO_BTF, as the distributions' are"
    )]
    NoTypes(String),
    /// The kernel lacks a trace point.
    #[error(
        "this kernel has no trace point {0}: it takes Linux 5.11 or later with CONFIG_BPF_EVENTS and CONFIG_FTRACE_SYSCALLS"
    )]
    NoPoint(&'static str),
    /// Another failure.
    #[error("{step}: {text}")]
    Other {
        /// The failed step.
        step: String,
        /// The kernel's answer.
        text: String,
    },
}

impl LoadError {
    /// Tells by the kernel's number which of the causes it is.
    pub(crate) fn of(step: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let (mut text, mut number) = (error.to_string(), None);
        let mut cause = Some(error);
        while let Some(inner) = cause {
            if let Some(inner) = inner.downcast_ref::<io::Error>() {
                number = number.or(inner.raw_os_error());
            }
            cause = inner.source();
            if let Some(cause) = cause {
                text = format!("{text}: {cause}");
            }
        }
        let refused =
            [rustix::io::Errno::PERM, rustix::io::Errno::ACCESS].map(|errno| errno.raw_os_error());
        let step = step.to_owned();
        match number {
            // A program that the verifier rejects has its reasons in the text, and is a defect.
            Some(number) if refused.contains(&number) && !text.contains("verifier") => {
                Self::Rights { step, answer: io::Error::from_raw_os_error(number) }
            }
            _ => Self::Other { step, text },
        }
    }

    /// The failed step and the kernel's answer, without advice.
    pub(crate) fn answer(&self) -> String {
        match self {
            Self::Rights { step, answer } => format!("{step}: {answer}"),
            other => other.to_string(),
        }
    }
}

//! The reasons why a program is not loaded; it then runs without Sojourn, with a message.

use sojourn_abi::elf::ElfError;
use std::fmt;

/// The reason why a program is not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The file is malformed.
    File(ElfError),
    /// The preload library is not in this process.
    NoLibrary,
    /// The program uses the GS register, which the loader needs.
    Gs,
    /// The program tests the integrity of its code, and ends if that was rewritten.
    Integrity,
    /// This processor or kernel does not let programs set their FS and GS bases.
    NoBases,
    /// Memory that was written cannot be executed (`PR_SET_MDWE`, SELinux).
    WriteExecute,
    /// The program asks for an executable stack.
    ExecutableStack,
    /// The program's code is writable: it may change itself.
    WritableCode,
    /// The program runs another program on a processor of its own making (valgrind).
    Simulator,
    /// This many calls cannot be rewritten, and the kernel cannot trap them.
    Untrapped(usize),
    /// The kernel refuses a mapping, with this `errno`.
    Kernel(i32),
    /// The program's first thread has returned, which it cannot.
    Ended,
    /// The kernel refuses to let the text be overwritten, with this `errno`.
    Text(i32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = |number: &i32| std::io::Error::from_raw_os_error(*number);
        match self {
            Self::File(cause) => write!(out, "{cause}"),
            Self::NoLibrary => write!(
                out,
                "its loader was started without the preload library; start it with `sojourn run`"
            ),
            Self::Gs => write!(out, "it uses the GS register, which its loader needs"),
            Self::Integrity => write!(
                out,
                "it compares its code with a checksum (FIPS 140), so its system calls cannot be \
                 rewritten"
            ),
            Self::NoBases => write!(
                out,
                "this processor or kernel does not let programs set their FS and GS bases (fsgsbase)"
            ),
            Self::WriteExecute => write!(
                out,
                "memory that was written cannot be executed here (PR_SET_MDWE), so its system calls \
                 cannot be rewritten"
            ),
            Self::WritableCode => write!(out, "its code is writable, so it may change itself"),
            Self::Simulator => {
                write!(out, "it is valgrind, which watches every call and address of a program")
            }
            Self::ExecutableStack => write!(out, "it wants an executable stack"),
            Self::Untrapped(count) => write!(
                out,
                "{count} of its system calls cannot be rewritten, and this kernel cannot trap them \
                 (Linux 6.18 can)"
            ),
            Self::Kernel(number) => write!(out, "it cannot be put into memory: {}", error(number)),
            Self::Ended => write!(out, "it has ended"),
            Self::Text(number) => {
                write!(out, "its system calls cannot be rewritten: {}", error(number))
            }
        }
    }
}

//! Execution of another program in this process.
//!
//! `std::process::Command` is not used: it empties the signal mask and resets `SIGPIPE`. The
//! program must inherit both unchanged.

use crate::environment::Variable;
use crate::failure::{Failure, RUN_NOT_EXECUTABLE, RUN_NOT_FOUND};
use crate::search::{SearchError, find};
use anyhow::{Context as _, Result};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Executes the program in `file`. `words` are its name as given and its arguments. Returns only on
/// failure: the kernel's error, or an error if a word has a zero byte.
pub(crate) fn become_program(
    file: &Path,
    words: &[OsString],
    variables: &[Variable],
) -> Result<Errno> {
    let file = c_string(file.as_os_str())?;
    let words = words.iter().map(|word| c_string(word)).collect::<Result<Vec<_>>>()?;
    let variables = variables
        .iter()
        .map(|Variable { name, value }| {
            let pair = [name.as_bytes(), b"=", value.as_bytes()].concat();
            CString::new(pair).context("a variable has a zero byte")
        })
        .collect::<Result<Vec<_>>>()?;
    let refused = exec(&file, &words, &variables);
    if refused != Errno::NOEXEC {
        return Ok(refused);
    }
    // The kernel knows no format for the file. As execvp(3) and shells do, it is run as a shell
    // script, unless it is binary: a program for another machine, or a damaged one.
    if is_binary(Path::new(OsStr::from_bytes(file.as_bytes()))) {
        return Ok(refused);
    }
    let shell = c"/bin/sh";
    let mut with_shell = vec![shell.to_owned(), file];
    with_shell.extend(words.into_iter().skip(1));
    Ok(exec(shell, &with_shell, &variables))
}

/// Returns true if the first line has a byte that no text has.
fn is_binary(file: &Path) -> bool {
    let mut first = [0; 128];
    let len = std::fs::File::open(file).and_then(|mut file| file.read(&mut first)).unwrap_or(0);
    let line = first[..len].split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.contains(&0) || line.starts_with(b"\x7fELF")
}

fn exec(file: &CStr, words: &[CString], variables: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| {
        let each = strings.iter().map(|string| string.as_ptr());
        each.chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (words, variables) = (pointers(words), pointers(variables));
    // SAFETY: both lists end with a null pointer, and their strings live until the call returns.
    unsafe { libc::execve(file.as_ptr(), words.as_ptr(), variables.as_ptr()) };
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn c_string(text: &OsStr) -> Result<CString> {
    CString::new(text.to_owned().into_vec()).context("an argument has a zero byte")
}

/// Returns the file that a program's name means in this process's environment.
///
/// # Errors
/// The failure has a shell's exit status for a program that does not exist, or cannot be executed.
pub(crate) fn find_here(name: &OsStr) -> Result<PathBuf, Failure> {
    find(name, std::env::var_os("PATH").as_deref()).map_err(|error| {
        let status = match error {
            SearchError::NotFound(_) => RUN_NOT_FOUND,
            SearchError::NotExecutable { .. } => RUN_NOT_EXECUTABLE,
        };
        Failure::new(status, error.into())
    })
}

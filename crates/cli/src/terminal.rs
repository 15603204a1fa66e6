//! The size of the terminal on standard output. Not here: what is shortened to fit (`output`,
//! `top`).

use std::io::IsTerminal as _;

/// Lines and columns of a terminal that does not report its size.
const USUAL: (usize, usize) = (24, 80);

/// Size of a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    pub(crate) lines: usize,
    pub(crate) columns: usize,
}

/// Returns the size of the terminal; `None` if standard output is none.
pub(crate) fn terminal() -> Option<Terminal> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes a `winsize` there, or nothing. (rustix is not used: its feature for
    // terminals would build its dependents a second time.)
    unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    let or = |found: u16, usual| if found == 0 { usual } else { usize::from(found) };
    Some(Terminal { lines: or(size.ws_row, USUAL.0), columns: or(size.ws_col, USUAL.1) })
}

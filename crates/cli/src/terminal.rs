//! The terminal that standard output is, if it is one: how large it is. What fits is decided
//! elsewhere (`output`).

use std::io::IsTerminal as _;

/// Lines and columns if the terminal does not say how many it has.
const USUAL: (usize, usize) = (24, 80);

/// Size of a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    pub(crate) lines: usize,
    pub(crate) columns: usize,
}

/// The terminal, or `None`: a file, a pipe.
pub(crate) fn terminal() -> Option<Terminal> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes a `winsize` there, or nothing. (Not rustix, whose feature for
    // terminals would have everything below us built twice.)
    unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    let or = |found: u16, usual| if found == 0 { usual } else { usize::from(found) };
    Some(Terminal { lines: or(size.ws_row, USUAL.0), columns: or(size.ws_col, USUAL.1) })
}

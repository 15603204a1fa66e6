//! Polling of descriptors that do not block.

use std::io::{ErrorKind, Read, Result, Write};

/// A descriptor that does not block. Reads and writes are repeated until there is data or room.
pub(crate) struct Spinning<T>(pub(crate) T);

impl<T: Read> Read for Spinning<T> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        again(|| self.0.read(buf))
    }
}

impl<T: Write> Write for Spinning<T> {
    fn write(&mut self, buf: &[u8]) -> Result<usize> {
        again(|| self.0.write(buf))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Repeats `step` while it would have to wait (EWOULDBLOCK).
pub(crate) fn again<T>(mut step: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match step() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            done => return done,
        }
    }
}

//! The operations `add` and `sum` over a Unix stream socket, for comparison.
//!
//! A request consists of an operation number, a count, and that many 32-bit numbers. An answer is
//! one 64-bit number. Nothing in this file uses Sojourn.

use crate::sum::sum;
use anyhow::Result;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

const TERMS_MAX: usize = 4096;

/// Serves one client after another. With `spinning` a read that finds no data is repeated at once
/// instead of waiting in the kernel.
pub(crate) fn serve(path: &str, spinning: bool) -> Result<()> {
    let listener = UnixListener::bind(path)?;
    println!("ready");
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(spinning)?;
        // An error ends the service of this client only, as when the client hangs up.
        let _ = serve_one(stream);
    }
}

fn serve_one(mut stream: UnixStream) -> std::io::Result<()> {
    let mut bytes = vec![0; TERMS_MAX * 4];
    loop {
        let mut head = [0; 8];
        read_all(&mut stream, &mut head)?;
        let half = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| head[at + i]));
        let count = (half(4) as usize).min(TERMS_MAX);
        let payload = &mut bytes[..count * 4];
        read_all(&mut stream, payload)?;
        let terms: Vec<i32> = payload
            .chunks_exact(4)
            .map(|four| i32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
            .collect();
        let answer = match (half(0), terms.as_slice()) {
            (0, [a, b]) => i64::from(a.wrapping_add(*b)),
            _ => sum(&terms),
        };
        stream.write_all(&answer.to_ne_bytes())?;
    }
}

fn read_all(stream: &mut UnixStream, mut rest: &mut [u8]) -> std::io::Result<()> {
    while !rest.is_empty() {
        match stream.read(rest) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => rest = &mut rest[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

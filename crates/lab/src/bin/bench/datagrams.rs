//! UDP: the server of `flow`'s questions, one datagram each, and a client's first question.
//!
//! Not here: the rest of the client, for which a connected socket is an end like any other
//! (`ends`).

use crate::spinning::again;
use sojourn_lab::measuring::flow::{PROCESSOR_TIME, SEND_BACK, cpu_ns};
use std::io::{Error, ErrorKind, Result};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Bytes of the longest datagram.
const LONGEST: usize = 1 << 16;
/// Longest time to the first answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers every client, for ever.
pub(crate) fn serve(address: &str, is_spinning: bool) -> Result<()> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(is_spinning)?;
    let mut frame = vec![0; LONGEST];
    loop {
        let (len, client) = match is_spinning {
            true => again(|| socket.recv_from(&mut frame))?,
            false => socket.recv_from(&mut frame)?,
        };
        // An answer that cannot be sent counts as lost, as any datagram may be.
        let _ = match frame[0] {
            SEND_BACK => socket.send_to(&frame[..len], client),
            PROCESSOR_TIME => socket.send_to(&cpu_ns().to_le_bytes(), client),
            _ => Ok(0),
        };
    }
}

/// Asks a server, which may not listen yet, until it answers.
pub(crate) fn greet(socket: &UdpSocket) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut answer = [0; 8];
    while Instant::now() < deadline {
        // Before the server listens, the send fails (ECONNREFUSED, udp(7)) or no answer comes.
        let asked = socket.send(&[SEND_BACK]);
        if asked.is_ok() && socket.recv(&mut answer).is_ok() {
            return drain(socket);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(Error::new(ErrorKind::TimedOut, "no answer"))
}

/// Takes late answers to earlier questions. Lets reads wait for five seconds from now on: a lost
/// datagram then ends the measurement with an error.
fn drain(socket: &UdpSocket) -> Result<()> {
    let mut answer = [0; 8];
    socket.set_read_timeout(Some(Duration::from_millis(60)))?;
    while socket.recv(&mut answer).is_ok() {}
    socket.set_read_timeout(Some(Duration::from_secs(5)))
}

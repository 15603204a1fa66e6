//! `sojourn capture`: the packets of sessions that are away from the kernel, both directions, as
//! pcapng.
//!
//! # Theory of operation
//! A packet socket on an interface sees received frames before the packet filter takes them, and
//! sees the frames that a protocol engine sends, in the program or in a server. No other process
//! has to copy packets for a capture. The capture has to know the set of sessions that are away
//! (`sessions`). The set changes while frames arrive, so a frame is judged by a snapshot of the set
//! that was taken *after* the frame arrived: each round takes a snapshot, then judges the frames
//! that are older than it; younger frames wait for the next round. A session's first packets are
//! therefore not missed. The file also has up to one round of the kernel's own frames from just
//! before the move and just after the return.
//!
//! Not here: the format (`sojourn_netif::pcapng`). Frames that are sent or received by AF_XDP pass
//! no packet socket and are not captured; tcpdump does not see them either.

mod sessions;
mod tap;

use crate::args::Capture as Options;
use crate::created::create;
use crate::output::note;
use crate::signals::Signals;
use anyhow::{Context as _, Result, bail};
use sessions::{Belonging, Sessions};
use sojourn_netif::pcapng::Writer;
use std::io::{BufWriter, IsTerminal as _, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use tap::{Frame, Out, Taps, now_ns};

/// The time between two snapshots of the sessions that are away.
const ROUND: Duration = Duration::from_millis(20);
/// The most bytes of frames that wait for the next snapshot.
const WAITING_MAX: usize = 64 << 20;

/// Captures until it is interrupted or has enough.
pub(crate) fn capture(options: &Options) -> Result<()> {
    let signals = Signals::block().context("cannot wait for signals")?;
    let mut taps = Taps::new()?;
    let sessions = Sessions::new(options)?;
    let out = open(options.file.as_deref())?;
    let mut out = Writer::new(BufWriter::with_capacity(1 << 20, out), "sojourn capture")
        .context("cannot write the capture")?;
    for name in &options.interfaces {
        taps.open(name, &mut out)?;
    }
    let names_all = options.interfaces.is_empty() && !sessions.knows_interfaces();
    if names_all {
        taps.open_all(&mut out)?;
    }
    let opens = options.interfaces.is_empty() && !names_all;
    let end = options.duration.map(|duration| Instant::now() + duration);
    let mut capture = Capture {
        taps,
        sessions,
        out,
        opens,
        waiting: Vec::new(),
        left: options.count,
        count: 0,
        bytes: 0,
    };
    capture.out.flush().context("cannot write the capture")?;
    let mut is_over = false;
    loop {
        // The last round takes the frames that had arrived before the signal.
        capture.round()?;
        if is_over || capture.left == Some(0) {
            break;
        }
        let left = end.map_or(ROUND, |end| end.saturating_duration_since(Instant::now()));
        is_over = signals.came(left.min(ROUND)) || left.is_zero();
    }
    capture.finish()
}

fn open(file: Option<&Path>) -> Result<Box<dyn Write>> {
    match file.filter(|file| *file != Path::new("-")) {
        Some(file) => {
            // The file has the payload of other users' connections: only its owner may read it.
            let opened = create(file);
            Ok(Box::new(opened.with_context(|| format!("cannot write {}", file.display()))?))
        }
        None if std::io::stdout().is_terminal() => bail!(
            "packets are not for a terminal: name a file with -w, or pipe them: sojourn capture | tshark -r -"
        ),
        None => Ok(Box::new(std::io::stdout())),
    }
}

/// A frame that waits for the next snapshot.
struct WaitingFrame {
    /// The index of its interface's tap.
    tap: usize,
    frame: Frame<Vec<u8>>,
}

struct Capture {
    taps: Taps,
    sessions: Sessions,
    out: Out,
    /// True if an interface is added when a session is found on it.
    opens: bool,
    /// Frames that arrived after the last snapshot.
    waiting: Vec<WaitingFrame>,
    left: Option<u64>,
    count: u64,
    bytes: u64,
}

impl Capture {
    fn round(&mut self) -> Result<()> {
        let looked_ns = now_ns();
        self.sessions.refresh()?;
        if self.opens {
            for name in self.sessions.interfaces() {
                self.taps.open_new(&name, &mut self.out)?;
            }
        }
        let before = self.count;
        for WaitingFrame { tap, frame } in std::mem::take(&mut self.waiting) {
            self.judge(tap, &frame.borrowed())?;
        }
        for tap in 0..self.taps.len() {
            self.drain(tap, looked_ns)?;
        }
        if self.count > before {
            self.out.flush().context("cannot write the capture")?;
        }
        Ok(())
    }

    /// Takes the frames that have arrived on an interface, until one is younger than the snapshot.
    fn drain(&mut self, tap: usize, looked_ns: u64) -> Result<()> {
        let mut size = 0;
        loop {
            let (mut failed, mut is_young) = (None, false);
            let Self { taps, sessions, out, waiting, left, count, bytes, .. } = self;
            let Some(source) = taps.tap(tap) else { return Ok(()) };
            let (index, id) = (source.index, source.id);
            let more = source.receive(&mut |frame| {
                // When no room is left, a younger frame is judged by this snapshot: a late
                // judgement is better than a lost frame.
                if frame.time_ns > looked_ns && size < WAITING_MAX {
                    is_young = true;
                    size += frame.bytes.len();
                    waiting.push(WaitingFrame { tap, frame: frame.owned() });
                    return;
                }
                let written = Record { sessions, out, left, count, bytes }.judge(index, id, &frame);
                failed = failed.take().or(written.err());
            });
            if let Some(error) = failed {
                return Err(error).context("cannot write the capture");
            }
            if !more || is_young || self.left == Some(0) {
                return Ok(());
            }
        }
    }

    fn judge(&mut self, tap: usize, frame: &Frame<&[u8]>) -> Result<()> {
        let Self { taps, sessions, out, left, count, bytes, .. } = self;
        let Some(source) = taps.tap(tap) else { return Ok(()) };
        let mut record = Record { sessions, out, left, count, bytes };
        record.judge(source.index, source.id, frame).context("cannot write the capture")
    }

    fn finish(mut self) -> Result<()> {
        let lost = self.taps.finish(&mut self.out, now_ns()).context("cannot write the capture")?;
        self.out.flush().context("cannot write the capture")?;
        let (count, bytes) = (self.count, self.bytes);
        let sessions = self.sessions.captured();
        note(&format!("{count} packets captured, {bytes} bytes, of {sessions} sessions"));
        if lost > 0 {
            note(&format!(
                "{lost} packets were lost: they came faster than they could be looked at"
            ));
        }
        Ok(())
    }
}

/// The output of the capture, for frames of selected sessions.
struct Record<'c> {
    sessions: &'c mut Sessions,
    out: &'c mut Out,
    left: &'c mut Option<u64>,
    count: &'c mut u64,
    bytes: &'c mut u64,
}

impl Record<'_> {
    /// Writes the frame if it belongs to a selected session.
    fn judge(
        &mut self,
        interface: u32,
        id: sojourn_netif::pcapng::InterfaceId,
        frame: &Frame<&[u8]>,
    ) -> std::io::Result<()> {
        if *self.left == Some(0) {
            return Ok(());
        }
        let Ok(parsed) = sojourn_wire::frame::parse(frame.bytes, frame.link) else { return Ok(()) };
        let found = self.sessions.session_of(interface, &parsed.key);
        let Some(Belonging { direction, label }) = found else {
            return Ok(());
        };
        *self.count += 1;
        *self.bytes += frame.bytes.len() as u64;
        *self.left = self.left.map(|left| left - 1);
        self.out.packet_with(id, frame.time_ns, direction, &[frame.bytes], label)
    }
}

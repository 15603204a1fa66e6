//! An interface whose frames are recorded as pcapng.
//!
//! Not here: the format (`pcapng`). An error of the writer ends the capture and is kept; it does
//! not disturb the traffic.

use crate::interface::{Interface, LinkError, Outgoing, Received, SendError};
use crate::pass_on::pass_on;
use crate::pcapng::{InterfaceId, Writer};
use crate::trace::Direction;
use std::io::{self, Write};

/// An interface with a writer of its frames. Frames are written in the form that this process sees:
/// outgoing ones before the interface cuts them into segments and completes their checksums, and
/// arriving ones after merging.
#[derive(Debug)]
pub struct Capture<I, W, C> {
    inner: I,
    record: Record<W, C>,
}

#[derive(Debug)]
struct Record<W, C> {
    writer: Writer<W>,
    id: InterfaceId,
    clock: C,
    error: Option<io::Error>,
}

impl<W: Write, C: FnMut() -> u64> Record<W, C> {
    fn write(&mut self, time_ns: Option<u64>, direction: Direction, parts: &[&[u8]]) {
        if self.error.is_some() {
            return;
        }
        let time_ns = time_ns.unwrap_or_else(&mut self.clock);
        self.error = self.writer.packet(self.id, time_ns, direction, parts).err();
    }

    fn received(&mut self, received: &Received<'_>) {
        let time_ns = received.time_ns;
        // A tag that the kernel took out is put back behind the two addresses.
        let Some((tag, (addresses, rest))) = received.tag.zip(received.frame.split_at_checked(12))
        else {
            return self.write(time_ns, Direction::In, &[received.frame]);
        };
        let words = [tag.ether_type.0.to_be_bytes(), tag.control.to_be_bytes()];
        self.write(time_ns, Direction::In, &[addresses, words.as_flattened(), rest]);
    }
}

impl<I: Interface, W: Write, C: FnMut() -> u64> Capture<I, W, C> {
    /// Writes all frames to `writer` as frames of an interface called `name`. `clock` gives the
    /// time of frames that have none, in nanoseconds since 1970.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(inner: I, mut writer: Writer<W>, name: &str, clock: C) -> io::Result<Self> {
        let id = writer.interface(name, inner.properties().link)?;
        Ok(Self { inner, record: Record { writer, id, clock, error: None } })
    }

    /// Returns the error that ended the capture, if one did.
    pub const fn error(&self) -> Option<&io::Error> {
        self.record.error.as_ref()
    }

    /// Ends the capture and returns the writer.
    pub fn into_writer(self) -> Writer<W> {
        self.record.writer
    }
}

impl<I: Interface, W: Write, C: FnMut() -> u64> Interface for Capture<I, W, C> {
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        let Self { inner, record } = self;
        inner.receive(budget, &mut |received| {
            record.received(&received);
            accept(received);
        })
    }

    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        self.inner.send(frame)?;
        self.record.write(None, Direction::Out, &frame.parts);
        Ok(())
    }

    pass_on!(self.inner: flush, wait_fd, take_error, properties, refresh, statistics);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim;

    #[test]
    fn both_directions_are_written_with_their_times() {
        let options = sim::Options { latency_ns: 5, ..sim::Options::default() };
        let sim::Link { near, mut far, clock } = sim::pair(&options);
        let writer = Writer::new(Vec::new(), "test").unwrap();
        let start = writer_len("test", "near");
        let mut capture = Capture::new(near, writer, "near", || 77).unwrap();
        capture.send(&Outgoing { parts: [b"he", b"ll", b"o!!!"], ..Outgoing::default() }).unwrap();
        far.send(&Outgoing::plain(b"answer..")).unwrap();
        clock.advance(5);
        assert_eq!(capture.receive(9, &mut |_| ()), Ok(1));
        assert!(capture.error().is_none());
        let writer = capture.into_writer();
        let bytes = writer.into_inner();
        let blocks = &bytes[start..];
        assert_eq!(blocks.len(), 2 * 52);
        assert_eq!((blocks[16], &blocks[28..36], blocks[40]), (77, &b"hello!!!"[..], 2));
        let blocks = &blocks[52..];
        assert_eq!((blocks[16], &blocks[28..36], blocks[40]), (5, &b"answer.."[..], 1));
    }

    fn writer_len(application: &str, name: &str) -> usize {
        let mut writer = Writer::new(Vec::new(), application).unwrap();
        writer.interface(name, sojourn_wire::frame::LinkType::Ethernet).unwrap();
        writer.into_inner().len()
    }

    /// A disk that is full after the section header.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_ends_the_capture_and_not_the_traffic() {
        let sim::Link { near, mut far, .. } = sim::pair(&sim::Options::default());
        let writer = Writer::new(Full(writer_len("test", "near")), "test").unwrap();
        let mut capture = Capture::new(near, writer, "near", || 0).unwrap();
        capture.send(&Outgoing::plain(b"one")).unwrap();
        capture.send(&Outgoing::plain(b"two")).unwrap();
        assert_eq!(capture.error().map(io::Error::kind), Some(io::ErrorKind::StorageFull));
        assert_eq!(far.receive(9, &mut |_| ()), Ok(2));
    }
}

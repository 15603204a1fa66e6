//! The player of a case: moves the clock, hands in the peer's segments, and compares the
//! connection's segments.

use crate::line::{Line, Segment, Verb};
use crate::setup;
use sojourn_proto::record::{Kind, SessionRecord, TcpRecord};
use sojourn_proto::tcp::{Arrival, Connection, Limits};
use sojourn_proto::time::{Duration, Instant};
use sojourn_wire::tcp::{Flags, Header, Options, SackBlock, SackBlocks, SeqNum, Timestamps};
use std::collections::VecDeque;

/// A segment that the connection sent.
struct Sent {
    at: Instant,
    header: Header,
    payload: Vec<u8>,
    segment_size: u16,
    ect: bool,
}

/// One case being played.
pub(crate) struct Player {
    starts: (u32, u32),
    record: TcpRecord,
    connection: Option<Connection>,
    now: Instant,
    sent: VecDeque<Sent>,
    written: i64,
    read: i64,
    limits: Limits,
}

/// The time at which cases begin, so that times before the import exist.
const BEGINNING: Duration = Duration::from_secs(1_000);

impl Player {
    pub(crate) fn new(starts: (u32, u32)) -> Player {
        Player {
            starts,
            record: setup::plain(starts),
            connection: None,
            now: Instant::ZERO + BEGINNING,
            sent: VecDeque::new(),
            written: 0,
            read: 0,
            limits: Limits { gso_max_segments: 1, gaps_max: 4, ..Limits::default() },
        }
    }

    pub(crate) fn step(&mut self, line: &Line) -> Result<(), String> {
        if let Verb::With(words) = &line.verb {
            if words.first().is_some_and(|word| word == "gso") {
                self.limits.gso_max_segments = 64;
                return setup::apply(&mut self.record, &words[1..]);
            }
            return setup::apply(&mut self.record, words);
        }
        self.begin()?;
        match (line.at, &line.verb) {
            (Some(at), Verb::From(segment)) if segment.is_late => self.now = at + BEGINNING,
            (Some(at), _) => self.advance(at + BEGINNING)?,
            (None, _) => {}
        }
        match &line.verb {
            Verb::With(_) => {}
            Verb::To(expected) => return self.expect_segment(expected),
            Verb::Expect(what, value) => return self.expect(what, value),
            Verb::Quiet => self.expect_silence()?,
            Verb::From(segment) => {
                self.expect_silence()?;
                self.hand_in(segment)?;
                if segment.is_late {
                    let now = self.now;
                    self.connection().on_timeout(now);
                }
            }
            Verb::Send(count, more) => self.write(*count, *more)?,
            Verb::Recv(count) => self.read(*count)?,
            Verb::Do(words) => self.act(words)?,
        }
        self.collect()
    }

    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.begin()?;
        self.expect_silence()
    }

    fn begin(&mut self) -> Result<(), String> {
        if self.connection.is_none() {
            let record = setup::session(self.record.clone());
            let encoded = encode(&record);
            let record = SessionRecord::decode(&encoded).map_err(|error| error.to_string())?;
            self.written = self.record.send_queue.len() as i64;
            let made = Connection::import(&record, &self.limits, self.now);
            self.connection = Some(made.map_err(|error| error.to_string())?);
            self.collect()?;
        }
        Ok(())
    }

    fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a case has begun")
    }

    /// Lets time pass; every timer is handled at its time.
    fn advance(&mut self, to: Instant) -> Result<(), String> {
        if to < self.now {
            return Err("time goes back".into());
        }
        for _ in 0..10_000 {
            match self.connection().next_timeout() {
                Some(at) if at <= to => {
                    self.now = self.now.max(at);
                    let now = self.now;
                    self.connection().on_timeout(now);
                    self.collect()?;
                }
                _ => {
                    self.now = to;
                    return Ok(());
                }
            }
        }
        Err("a timer does not stop running out".into())
    }

    fn collect(&mut self) -> Result<(), String> {
        let now = self.now;
        for _ in 0..10_000 {
            let connection = self.connection.as_mut().expect("a case has begun");
            let Some(transmit) = connection.poll_transmit(now) else { return Ok(()) };
            self.sent.push_back(Sent {
                at: now,
                header: transmit.header,
                payload: transmit.payload.concat(),
                segment_size: transmit.segment_size,
                ect: transmit.ect,
            });
        }
        Err("the output does not end".into())
    }

    fn relative(&self, seq: SeqNum, ours: bool) -> i64 {
        let start = if ours { self.starts.0 } else { self.starts.1 };
        i64::from(seq.0.wrapping_sub(start) as i32)
    }

    fn absolute(&self, place: i64, ours: bool) -> SeqNum {
        let start = if ours { self.starts.0 } else { self.starts.1 };
        SeqNum(start.wrapping_add(place as u32))
    }

    fn hand_in(&mut self, segment: &Segment) -> Result<(), String> {
        let mut options = Options::NONE;
        if let Some((value, echo)) = segment.stamps {
            options.timestamps = Some(Timestamps { value: value as u32, echo: echo as u32 });
        }
        for (start, end) in segment.sack.iter().flatten() {
            let (start, end) = (self.absolute(*start, true), self.absolute(*end, true));
            options.sack.push(SackBlock { start, end });
        }
        let header = Header {
            source_port: 80,
            target_port: 4_000,
            seq: self.absolute(segment.start, false),
            ack: self.absolute(segment.ack.unwrap_or(0), true),
            flags: segment.flags,
            window: segment.window.unwrap_or(65_000),
            urgent: segment.urgent,
            options,
        };
        let fin = i64::from(segment.flags.contains(Flags::FIN));
        let payload = setup::bytes(segment.start, segment.end - fin, false);
        let now = self.now;
        let arrival = Arrival {
            segment_size: segment.segment_size.unwrap_or(0),
            congestion: segment.congestion,
            ..Arrival::new(&header, &payload)
        };
        let became = self.connection().on_segment(now, &arrival);
        match &segment.becomes {
            Some(name) if format!("{became:?}") != *name => Err(format!("became {became:?}")),
            _ => Ok(()),
        }
    }

    fn write(&mut self, count: usize, more: bool) -> Result<(), String> {
        let bytes = setup::bytes(self.written, self.written + count as i64, true);
        let (front, back) = bytes.split_at(count / 3);
        let taken = self.connection().send(&[front, back], more);
        self.written += taken as i64;
        if taken == count { Ok(()) } else { Err(format!("took {taken} of {count}")) }
    }

    fn read(&mut self, count: usize) -> Result<(), String> {
        let mut bytes = vec![0; count];
        let taken = self.connection().recv(&mut [&mut bytes]);
        if bytes[..taken] != setup::bytes(self.read, self.read + taken as i64, false) {
            return Err("the bytes read are not those that were sent".into());
        }
        self.read += taken as i64;
        if taken == count { Ok(()) } else { Err(format!("read {taken} of {count}")) }
    }

    fn act(&mut self, words: &[String]) -> Result<(), String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (now, limits) = (self.now, self.limits);
        let number = |word: &str| word.parse::<u32>().map_err(|_| format!("not a number: {word}"));
        let connection = self.connection();
        match words[..] {
            ["shutdown"] => connection.shutdown_send(),
            ["shutread"] => connection.shutdown_receive(),
            ["abort"] => connection.abort(),
            ["nodelay", word] => connection.set_nodelay(word == "on"),
            ["cork", word] => connection.set_cork(word == "on"),
            ["quickack", word] => connection.set_quickack(word == "on"),
            ["mtu", size] => connection.set_path_mtu(now, number(size)?, false),
            ["toobig", size] => connection.set_path_mtu(now, number(size)?, true),
            ["usertimeout", ms] => {
                connection.set_user_timeout(Duration::from_millis(number(ms)?.into()));
            }
            ["rcvbuf", bytes] => connection.set_rcvbuf(number(bytes)?),
            ["sndbuf", bytes] => connection.set_sndbuf(number(bytes)?),
            ["keepalive", idle, interval, count] => {
                let span = |ms: u32| Duration::from_millis(ms.into());
                let (idle, interval) = (span(number(idle)?), span(number(interval)?));
                connection.set_keepalive(now, true, idle, interval, number(count)? as u8);
            }
            ["keepalive", "off"] => {
                let hour = Duration::from_secs(3_600);
                connection.set_keepalive(now, false, hour, hour, 9);
            }
            ["move"] => {
                let record = connection.export(now).ok_or("exported before")?;
                if connection.poll_transmit(now).is_some() || connection.export(now).is_some() {
                    return Err("a connection that was exported still speaks".into());
                }
                let record = SessionRecord::decode(&encode(&record));
                let mut record = record.map_err(|error| error.to_string())?;
                *connection =
                    Connection::import(&record, &limits, now).map_err(|error| error.to_string())?;
                // The new home begins with the timeout not doubled.
                if let Kind::Tcp(tcp) = &mut record.kind {
                    tcp.backoff = 0;
                }
                let again = connection.snapshot(now);
                if again != record {
                    return Err(format!("the record changed\n{record:?}\n{again:?}"));
                }
            }
            _ => return Err("unknown words".into()),
        }
        Ok(())
    }

    fn expect_silence(&mut self) -> Result<(), String> {
        match self.sent.front() {
            None => Ok(()),
            Some(sent) => Err(format!("not expected: {}", self.describe(sent))),
        }
    }

    fn expect(&mut self, what: &str, value: &str) -> Result<(), String> {
        let now = self.now;
        let connection = self.connection();
        let info = connection.info(now);
        let is = match what {
            "state" => format!("{:?}", connection.state()),
            "closed" => format!("{:?}", connection.close_reason()),
            "end" => format!("{:?}", connection.receive_end()),
            "readable" => connection.is_readable().to_string(),
            "writable" => connection.is_writable().to_string(),
            "siocinq" => connection.siocinq().to_string(),
            "siocoutq" => connection.siocoutq().to_string(),
            "siocoutqnsd" => connection.siocoutqnsd().to_string(),
            "mss" => connection.mss().to_string(),
            "quickack" => connection.quickack().to_string(),
            "cwnd" => info.snd_cwnd.to_string(),
            "castate" => info.ca_state.to_string(),
            "unacked" => info.unacked.to_string(),
            "sacked" => info.sacked.to_string(),
            "lost" => info.lost.to_string(),
            "retrans" => info.total_retrans.to_string(),
            "rto" => (info.rto / 1_000).to_string(),
            "rtt" => (info.rtt / 1_000).to_string(),
            "probes" => info.probes.to_string(),
            "bytes_acked" => info.bytes_acked.to_string(),
            "bytes_received" => info.bytes_received.to_string(),
            _ => return Err(format!("unknown: {what}")),
        };
        if is == value { Ok(()) } else { Err(format!("{what} is {is}")) }
    }

    fn describe(&self, sent: &Sent) -> String {
        let start = self.relative(sent.header.seq, true);
        let fin = i64::from(sent.header.flags.contains(Flags::FIN));
        let mut text = format!(
            "{} > {:?} {start}:{} ack {} win {} gso {}",
            sent.at.since(Instant::ZERO + BEGINNING).as_micros() as f64 / 1_000.0,
            sent.header.flags,
            start + sent.payload.len() as i64 + fin,
            self.relative(sent.header.ack, false),
            sent.header.window,
            sent.segment_size,
        );
        if let Some(stamps) = sent.header.options.timestamps {
            text += &format!(" ts {} {}", stamps.value, stamps.echo);
        }
        for block in sent.header.options.sack.as_slice() {
            let (start, end) = (self.relative(block.start, false), self.relative(block.end, false));
            text += &format!(" sack {start}-{end}");
        }
        text
    }

    /// Compares the next sent segment with the script's.
    fn expect_segment(&mut self, expected: &Segment) -> Result<(), String> {
        let sent = self.sent.pop_front().ok_or("nothing was sent")?;
        let differs = |what: &str| Err(format!("{what} differs: {}", self.describe(&sent)));
        if sent.at != self.now {
            return differs("the time");
        }
        let unsaid = Flags::PSH;
        if sent.header.flags | unsaid != expected.flags | unsaid {
            return differs("a flag");
        }
        let start = self.relative(sent.header.seq, true);
        let fin = i64::from(sent.header.flags.contains(Flags::FIN));
        let end = start + sent.payload.len() as i64;
        if (start, end + fin) != (expected.start, expected.end) {
            return differs("the range");
        }
        if sent.payload != setup::bytes(start, end, true) {
            return differs("the payload");
        }
        if expected.ack.is_some_and(|ack| ack != self.relative(sent.header.ack, false)) {
            return differs("the acknowledgement");
        }
        if expected.window.is_some_and(|window| window != sent.header.window) {
            return differs("the window");
        }
        if expected.segment_size.is_some_and(|size| size != sent.segment_size) {
            return differs("the segment size");
        }
        if expected.congestion && !sent.ect {
            return differs("ECT");
        }
        let stamps = sent.header.options.timestamps;
        let stamps = stamps.map(|stamps| (i64::from(stamps.value), i64::from(stamps.echo)));
        if expected.stamps.is_some() && expected.stamps != stamps {
            return differs("a timestamp");
        }
        let blocks = sent.header.options.sack.as_slice().iter();
        let found: Vec<_> = blocks
            .map(|block| (self.relative(block.start, false), self.relative(block.end, false)))
            .collect();
        if expected.sack.as_ref().is_some_and(|blocks| *blocks != found) {
            return differs("a SACK block");
        }
        let blocks: SackBlocks = sent.header.options.sack;
        if blocks.is_empty() || expected.sack.is_some() || expected.segment_size.is_some() {
            return Ok(());
        }
        differs("a SACK block (there is one)")
    }
}

fn encode(record: &SessionRecord) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

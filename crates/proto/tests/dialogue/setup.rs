//! The session record that a case begins with: the words after `with`.

use sojourn_proto::record::{
    ControllerKind, EcnRecord, IpOptions, Kind, SessionRecord, TcpRecord, TcpState, TimestampUnit,
    TimestampsRecord,
};
use sojourn_proto::time::Duration;
use std::net::SocketAddr;

/// Returns the byte at a place of a stream, so that every byte can be checked.
pub(crate) fn byte(place: i64, ours: bool) -> u8 {
    let mixed = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    mixed as u8 ^ if ours { 0 } else { 0x55 }
}

/// Returns the bytes of a range of a stream.
pub(crate) fn bytes(start: i64, end: i64, ours: bool) -> Vec<u8> {
    (start..end).map(|place| byte(place, ours)).collect()
}

/// Returns the record with which scripts begin: an established connection, segments of 1000 bytes,
/// a window of 65 000 bytes, Nagle off.
pub(crate) fn plain(starts: (u32, u32)) -> TcpRecord {
    let mut tcp = TcpRecord {
        snd_una: starts.0,
        snd_nxt: starts.0,
        rcv_nxt: starts.1,
        rcv_wup: starts.1,
        snd_wl1: starts.1,
        snd_wl2: starts.0,
        snd_wnd: 65_000,
        rcv_wnd: 60_000,
        max_window: 0,
        peer_mss: 1_000,
        advertised_mss: 1_000,
        cwnd: 10_000,
        srtt: Duration::from_millis(100),
        rttvar: Duration::from_millis(25),
        min_rtt: Duration::from_millis(100),
        ..TcpRecord::default()
    };
    tcp.options.nodelay = true;
    tcp
}

/// Returns a session record with `tcp`.
pub(crate) fn session(tcp: TcpRecord) -> SessionRecord {
    let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
    SessionRecord {
        local: address("192.0.2.1:4000"),
        remote: Some(address("192.0.2.2:80")),
        ip: IpOptions::default(),
        kind: Kind::Tcp(tcp),
    }
}

fn state(word: &str) -> Option<TcpState> {
    TcpState::ALL.iter().copied().find(|state| format!("{state:?}") == word)
}

/// Applies one line of `with`.
pub(crate) fn apply(tcp: &mut TcpRecord, words: &[String]) -> Result<(), String> {
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if !switch(tcp, word) && !numbers(tcp, word, &mut words)? {
            name(tcp, word, words.next().ok_or("a name is missing")?)?;
        }
    }
    Ok(())
}

/// Applies a word without an argument.
fn switch(tcp: &mut TcpRecord, word: &str) -> bool {
    match word {
        "sack" => tcp.sack = true,
        "nodsack" => tcp.tuning.dsack = false,
        "noprobe" => tcp.tuning.early_retrans = 0,
        "nofrto" => tcp.tuning.frto = false,
        "noquick" => tcp.options.quickack = false,
        "reno" => tcp.options.controller = ControllerKind::Reno,
        "nagle" => tcp.options.nodelay = false,
        "cork" => tcp.options.cork = true,
        "ecn" => tcp.ecn = EcnRecord { negotiated: true, ..EcnRecord::default() },
        "ackpending" => tcp.ack_pending = true,
        _ => return false,
    }
    true
}

/// Applies a word with numbers after it.
fn numbers<'a>(
    tcp: &mut TcpRecord,
    word: &str,
    words: &mut impl Iterator<Item = &'a str>,
) -> Result<bool, String> {
    let mut number = || -> Result<u32, String> {
        let word = words.next().ok_or("a number is missing")?;
        word.parse().map_err(|_| format!("not a number: {word}"))
    };
    let milliseconds = |number: u32| Duration::from_millis(number.into());
    let options = &mut tcp.options;
    match word {
        "mss" => (tcp.peer_mss, tcp.advertised_mss) = both(number()? as u16),
        "wnd" => tcp.snd_wnd = number()?,
        "maxwnd" => tcp.max_window = number()?,
        "rcvwnd" => tcp.rcv_wnd = number()?,
        "rcvbuf" => (options.rcvbuf, options.rcvbuf_locked) = (number()?, true),
        "sndbuf" => (options.sndbuf, options.sndbuf_locked) = (number()?, true),
        "lowat" => options.rcvlowat = number()?,
        "clamp" => options.window_clamp = number()?,
        "maxseg" => tcp.user_mss = number()? as u16,
        "cwnd" => tcp.cwnd = number()?,
        "ssthresh" => tcp.ssthresh = number()?,
        "mtu" => tcp.path_mtu = number()?,
        "retries" => tcp.tuning.retries2 = number()?,
        "challenges" => tcp.tuning.challenge_ack_limit = number()?,
        "ratelimit" => tcp.tuning.invalid_ratelimit = milliseconds(number()?),
        "usertimeout" => options.user_timeout = milliseconds(number()?),
        "srtt" => tcp.srtt = milliseconds(number()?),
        "rttvar" => tcp.rttvar = milliseconds(number()?),
        "queued" => tcp.send_queue = bytes(0, number()?.into(), true),
        "sent" => tcp.snd_nxt = tcp.snd_una.wrapping_add(number()?),
        "unread" => put_unread(tcp, number()?),
        "scale" => {
            tcp.window_scaling = true;
            (tcp.snd_wscale, tcp.rcv_wscale) = (number()? as u8, number()? as u8);
        }
        "keepalive" => {
            options.keepalive = true;
            options.keepalive_idle = milliseconds(number()?);
            options.keepalive_interval = milliseconds(number()?);
            options.keepalive_count = number()? as u8;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn both(number: u16) -> (u16, u16) {
    (number, number)
}

fn put_unread(tcp: &mut TcpRecord, count: u32) {
    tcp.receive_queue = bytes(0, count.into(), false);
    tcp.rcv_nxt = tcp.rcv_nxt.wrapping_add(count);
    tcp.rcv_wup = tcp.rcv_nxt;
    tcp.snd_wl1 = tcp.rcv_nxt;
}

/// Applies a word with a name after it.
fn name(tcp: &mut TcpRecord, word: &str, name: &str) -> Result<(), String> {
    match (word, name) {
        ("state", name) => tcp.state = state(name).ok_or(format!("no state {name}"))?,
        ("ts", unit) => {
            let unit = match unit {
                "ms" => TimestampUnit::Milliseconds,
                "us" => TimestampUnit::Microseconds,
                _ => return Err("ts ms or ts us".into()),
            };
            tcp.timestamps = Some(TimestampsRecord {
                unit,
                value: 5_000,
                recent: 7_000,
                recent_age: Duration::ZERO,
                recent_valid: true,
            });
        }
        _ => return Err(format!("unknown word {word}")),
    }
    Ok(())
}

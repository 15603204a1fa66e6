//! The session record that a case begins with: the words after `with`.

use sojourn_proto::record::{
    ControllerKind, EcnRecord, IpOptions, Kind, SessionRecord, TcpRecord, TcpState, TimestampUnit,
    TimestampsRecord,
};
use sojourn_proto::time::Duration;
use std::net::SocketAddr;

/// Contents of a stream at a place: so that every byte can be checked.
pub(crate) fn byte(place: i64, ours: bool) -> u8 {
    let mixed = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    mixed as u8 ^ if ours { 0 } else { 0x55 }
}

/// Bytes of a stream.
pub(crate) fn bytes(start: i64, end: i64, ours: bool) -> Vec<u8> {
    (start..end).map(|place| byte(place, ours)).collect()
}

/// What scripts begin with: an established connection, segments of 1000 bytes, a window of 65 000 bytes, Nagle off.
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

/// The session around it.
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
        let mut number = || -> Result<u32, String> {
            let word = words.next().ok_or("a number is missing")?;
            word.parse().map_err(|_| format!("not a number: {word}"))
        };
        match word {
            "mss" => {
                (tcp.peer_mss, tcp.advertised_mss) = {
                    let n = number()? as u16;
                    (n, n)
                }
            }
            "wnd" => tcp.snd_wnd = number()?,
            "maxwnd" => tcp.max_window = number()?,
            "rcvwnd" => tcp.rcv_wnd = number()?,
            "rcvbuf" => (tcp.options.rcvbuf, tcp.options.rcvbuf_locked) = (number()?, true),
            "sndbuf" => (tcp.options.sndbuf, tcp.options.sndbuf_locked) = (number()?, true),
            "lowat" => tcp.options.rcvlowat = number()?,
            "cwnd" => tcp.cwnd = number()?,
            "ssthresh" => tcp.ssthresh = number()?,
            "mtu" => tcp.path_mtu = number()?,
            "scale" => {
                tcp.window_scaling = true;
                (tcp.snd_wscale, tcp.rcv_wscale) = (number()? as u8, number()? as u8);
            }
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
            "ts" => {
                let unit = match words.next() {
                    Some("ms") => TimestampUnit::Milliseconds,
                    Some("us") => TimestampUnit::Microseconds,
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
            "retries" => tcp.tuning.retries2 = number()?,
            "challenges" => tcp.tuning.challenge_ack_limit = number()?,
            "ratelimit" => tcp.tuning.invalid_ratelimit = Duration::from_millis(number()?.into()),
            "usertimeout" => tcp.options.user_timeout = Duration::from_millis(number()?.into()),
            "keepalive" => {
                tcp.options.keepalive = true;
                tcp.options.keepalive_idle = Duration::from_millis(number()?.into());
                tcp.options.keepalive_interval = Duration::from_millis(number()?.into());
                tcp.options.keepalive_count = number()? as u8;
            }
            "srtt" => tcp.srtt = Duration::from_millis(number()?.into()),
            "rttvar" => tcp.rttvar = Duration::from_millis(number()?.into()),
            "unread" => {
                let count = number()?;
                tcp.receive_queue = bytes(0, count.into(), false);
                tcp.rcv_nxt = tcp.rcv_nxt.wrapping_add(count);
                tcp.rcv_wup = tcp.rcv_nxt;
                tcp.snd_wl1 = tcp.rcv_nxt;
            }
            "queued" => tcp.send_queue = bytes(0, number()?.into(), true),
            "sent" => tcp.snd_nxt = tcp.snd_una.wrapping_add(number()?),
            "state" => {
                let word = words.next().ok_or("which state?")?;
                tcp.state = state(word).ok_or(format!("no state {word}"))?;
            }
            other => return Err(format!("unknown word {other}")),
        }
    }
    Ok(())
}

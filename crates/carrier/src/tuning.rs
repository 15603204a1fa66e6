//! The system's settings that govern TCP sessions, as a session record has them.
//!
//! Those of the network namespace of the calling thread; what this kernel does not have keeps the engine's default,
//! which is Linux's. Read the kernel's `Documentation/networking/ip-sysctl.rst`.

use sojourn_proto::record::TcpTuning;
use sojourn_proto::time::Duration;

fn text(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).ok()
}

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    text(name)?.split_whitespace().next()?.parse().ok()
}

fn three(name: &str) -> Option<[u32; 3]> {
    let text = text(name)?;
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    Some([words.next()??, words.next()??, words.next()??])
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// The settings now.
pub(crate) fn read() -> TcpTuning {
    let mut tuning = TcpTuning::default();
    let is_on = |name| number::<u32>(name).map(|value| value != 0);
    set(&mut tuning.dsack, is_on("dsack"));
    set(&mut tuning.frto, is_on("frto"));
    set(&mut tuning.slow_start_after_idle, is_on("slow_start_after_idle"));
    set(&mut tuning.moderate_rcvbuf, is_on("moderate_rcvbuf"));
    set(&mut tuning.autocorking, is_on("autocorking"));
    set(&mut tuning.shrink_window, is_on("shrink_window"));
    set(&mut tuning.recovery, number("recovery"));
    set(&mut tuning.early_retrans, number("early_retrans"));
    set(&mut tuning.reordering, number("reordering"));
    set(&mut tuning.max_reordering, number("max_reordering"));
    set(&mut tuning.retries2, number("retries2"));
    set(&mut tuning.limit_output_bytes, number("limit_output_bytes"));
    set(&mut tuning.min_tso_segs, number("min_tso_segs"));
    set(&mut tuning.tso_win_divisor, number("tso_win_divisor"));
    set(&mut tuning.challenge_ack_limit, number("challenge_ack_limit"));
    set(&mut tuning.rto_min, number("rto_min_us").map(Duration::from_micros));
    set(&mut tuning.invalid_ratelimit, number("invalid_ratelimit").map(Duration::from_millis));
    if let Some([least, usual, most]) = three("rmem") {
        (tuning.rmem_min, tuning.rmem_default, tuning.rmem_max) = (least, usual, most);
    }
    if let Some([least, usual, most]) = three("wmem") {
        (tuning.wmem_min, tuning.wmem_default, tuning.wmem_max) = (least, usual, most);
    }
    tuning
}

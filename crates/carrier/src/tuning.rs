//! The system's settings for TCP sessions, in the form of the session record.
//!
//! They are those of the network namespace of the calling thread. A setting that this kernel does
//! not have keeps the engine's default, which is Linux's. Not here: the options of one socket
//! (`export`). Read the kernel's `Documentation/networking/ip-sysctl.rst`.

use sojourn_proto::record::TcpTuning;
use sojourn_proto::time::{Duration, Instant};

/// The age from which settings are read again: thirty files, where hundreds of sessions may move in
/// a second.
const AGE_MAX: Duration = Duration::from_millis(250);

/// The settings, as they were read last.
#[derive(Debug, Default)]
pub(crate) struct Tuning {
    read: Option<ReadTuning>,
}

#[derive(Clone, Copy, Debug)]
struct ReadTuning {
    at: Instant,
    tuning: TcpTuning,
}

impl Tuning {
    /// Returns the settings as they are, or were a moment ago.
    pub(crate) fn at(&mut self, at: Instant) -> TcpTuning {
        self.at_by(at, read)
    }

    fn at_by(&mut self, at: Instant, read: impl FnOnce() -> TcpTuning) -> TcpTuning {
        if let Some(known) = self.read
            && at.since(known.at) < AGE_MAX
        {
            return known.tuning;
        }
        let tuning = read();
        self.read = Some(ReadTuning { at, tuning });
        tuning
    }
}

/// Reads the current settings.
fn read() -> TcpTuning {
    of(|name| std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).ok())
}

/// Parses the settings; `text` gives the content of a setting's file, by its name without `tcp_`.
fn of(text: impl Fn(&str) -> Option<String>) -> TcpTuning {
    let settings = Settings { text };
    let mut tuning = TcpTuning::default();
    settings.switches(&mut tuning);
    settings.numbers(&mut tuning);
    settings.times(&mut tuning);
    if let Some([least, usual, most]) = settings.three("rmem") {
        (tuning.rmem_min, tuning.rmem_default, tuning.rmem_max) = (least, usual, most);
    }
    if let Some([least, usual, most]) = settings.three("wmem") {
        (tuning.wmem_min, tuning.wmem_default, tuning.wmem_max) = (least, usual, most);
    }
    tuning
}

struct Settings<T> {
    text: T,
}

impl<T: Fn(&str) -> Option<String>> Settings<T> {
    fn switches(&self, tuning: &mut TcpTuning) {
        let is_on = |name| self.number::<u32>(name).map(|value| value != 0);
        set(&mut tuning.dsack, is_on("dsack"));
        set(&mut tuning.frto, is_on("frto"));
        set(&mut tuning.slow_start_after_idle, is_on("slow_start_after_idle"));
        set(&mut tuning.moderate_rcvbuf, is_on("moderate_rcvbuf"));
        set(&mut tuning.autocorking, is_on("autocorking"));
        set(&mut tuning.shrink_window, is_on("shrink_window"));
        set(&mut tuning.thin_linear_timeouts, is_on("thin_linear_timeouts"));
        set(&mut tuning.workaround_signed_windows, is_on("workaround_signed_windows"));
        set(&mut tuning.rfc1337, is_on("rfc1337"));
    }

    fn numbers(&self, tuning: &mut TcpTuning) {
        set(&mut tuning.recovery, self.number("recovery"));
        set(&mut tuning.early_retrans, self.number("early_retrans"));
        set(&mut tuning.reordering, self.number("reordering"));
        set(&mut tuning.max_reordering, self.number("max_reordering"));
        // With 0 the kernel gives a connection up at its first time-out, and so does the engine
        // with 1.
        set(&mut tuning.retries2, self.number("retries2").map(|count: u32| count.max(1)));
        set(&mut tuning.orphan_retries, self.number("orphan_retries"));
        set(&mut tuning.pingpong_thresh, self.number("pingpong_thresh"));
        set(&mut tuning.challenge_ack_limit, self.number("challenge_ack_limit"));
        set(&mut tuning.limit_output_bytes, self.number("limit_output_bytes"));
        set(&mut tuning.min_tso_segs, self.number("min_tso_segs"));
        set(&mut tuning.tso_win_divisor, self.number("tso_win_divisor"));
        set(&mut tuning.pacing_ss_ratio, self.number("pacing_ss_ratio"));
        set(&mut tuning.pacing_ca_ratio, self.number("pacing_ca_ratio"));
        set(&mut tuning.min_snd_mss, self.number("min_snd_mss"));
    }

    fn times(&self, tuning: &mut TcpTuning) {
        let time = |name, unit: fn(u64) -> Duration| self.number(name).map(unit);
        set(&mut tuning.rto_min, time("rto_min_us", Duration::from_micros));
        set(&mut tuning.rto_max, time("rto_max_ms", Duration::from_millis));
        set(&mut tuning.invalid_ratelimit, time("invalid_ratelimit", Duration::from_millis));
        set(&mut tuning.min_rtt_window, time("min_rtt_wlen", Duration::from_secs));
        set(&mut tuning.fin_timeout, time("fin_timeout", Duration::from_secs));
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        (self.text)(name)?.split_whitespace().next()?.parse().ok()
    }

    fn three(&self, name: &str) -> Option<[u32; 3]> {
        let text = (self.text)(name)?;
        let mut words = text.split_whitespace().map(|word| word.parse().ok());
        Some([words.next()??, words.next()??, words.next()??])
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_proto::record::{IpOptions, Kind, SessionRecord, TcpRecord};

    /// What a machine says whose settings are all different from Linux's own.
    fn changed(name: &str) -> Option<String> {
        let text = match name {
            "dsack" | "frto" | "slow_start_after_idle" | "moderate_rcvbuf" | "autocorking" => "0",
            "shrink_window" | "thin_linear_timeouts" | "workaround_signed_windows" | "rfc1337" => {
                "1"
            }
            "rmem" | "wmem" => "5000\t6000\t7000\n",
            "rto_max_ms" => "9000",
            "rto_min_us" => "5000",
            _ => "7",
        };
        Some(text.into())
    }

    #[test]
    fn settings_are_read_again_after_a_while() {
        let mut tuning = Tuning::default();
        let mut read_at = |ms: u64, retries2| {
            let at = Instant::from_micros(ms * 1000);
            tuning.at_by(at, || TcpTuning { retries2, ..TcpTuning::default() }).retries2
        };
        let seen = [(1000, 3), (1249, 4), (1250, 5), (1400, 6)].map(|(ms, now)| read_at(ms, now));
        assert_eq!(seen, [3, 3, 5, 5]);
    }

    #[test]
    fn every_setting_is_read() {
        let (usual, changed) = (TcpTuning::default(), of(changed));
        assert_eq!(of(|_| None), usual);
        // The names of those that are as they were, by what is printed of both.
        let (usual, changed) = (format!("{usual:?}"), format!("{changed:?}"));
        let both = usual.split(", ").zip(changed.split(", "));
        let same = both.filter(|(usual, changed)| usual == changed);
        let same = same.filter_map(|(field, _)| field.split_once(": ").map(|(name, _)| name));
        let constants = ["delayed_ack_max", "delayed_ack_min", "time_wait", "pacing"];
        assert!(
            same.clone().all(|name| constants.contains(&name)),
            "{:?}",
            same.collect::<Vec<_>>()
        );
    }

    #[test]
    fn no_setting_makes_a_record_that_is_refused() {
        let records = |tuning| {
            let tcp = TcpRecord { tuning, ..TcpRecord::default() };
            let record = SessionRecord {
                local: "192.0.2.1:1".parse().unwrap(),
                remote: Some("192.0.2.2:2".parse().unwrap()),
                ip: IpOptions::default(),
                kind: Kind::Tcp(tcp),
            };
            record.check()
        };
        for text in ["0", "1", "2147483647"] {
            let but_of_bounds = |name: &str| {
                // The kernel takes none that are not in order: 1 to 120 s, and at most a second.
                (!matches!(name, "rto_min_us" | "rto_max_ms")).then(|| text.to_owned())
            };
            assert_eq!(records(of(but_of_bounds)), Ok(()), "{text}");
        }
    }
}

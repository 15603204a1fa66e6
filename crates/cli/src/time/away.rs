//! Times of a session that is away from the kernel: its program stamps its own layers on request.
//!
//! The session server passes the request on and reads the sums, which takes no rights. Not here:
//! sessions in the kernel (`time`), the program's stamps (`sojourn_pump::timing`).

use crate::args::{Filter, Time};
use crate::client::Client;
use crate::sessions::gather;
use crate::signals::Signals;
use crate::time::shown::TimeOutput;
use anyhow::{Context as _, Result, bail};
use sojourn_session::{StreamNumber, TimesInfoT};
use sojourn_time::{Distribution, Row, Session, Taken};
use std::time::{Duration, Instant};

/// The time that one request lasts (s). It is renewed in time, and expires if this process ends.
const REQUEST_S: u32 = 5;
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Readings of the clock whose cost is measured.
const READINGS: usize = 2000;

/// Times a session, by default for `usual`, and shows the times.
pub(super) fn time(options: &Time, stream: StreamNumber, usual: Duration) -> Result<()> {
    let mut client = Client::connect(&options.server_args)?;
    let Some(first) = client.times(stream, REQUEST_S)? else {
        bail!(refusal(&mut client, stream)?)
    };
    let row = gather(Some(&mut client), &Filter { kind: None, pid: None }, false)?
        .into_iter()
        .find(|row| row.stream == Some(stream));
    let mut session = Session::in_library(stream.0);
    if let Some(row) = row {
        (session.process, session.local, session.remote) =
            (row.pid.0, row.from.parse().ok(), row.to.parse().ok());
    }
    let signals = Signals::block().context("signals cannot be waited for")?;
    let shown = TimeOutput::new(options);
    let clock = clock_ns();
    let deadline = Instant::now() + options.duration.unwrap_or(usual);
    let mut next = options.interval.map(|every| Instant::now() + Duration::from_secs(every.into()));
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let is_over = left.is_zero() || signals.came(left.min(ASK_EVERY));
        let seconds = if is_over { 0 } else { REQUEST_S };
        // A session that has gone home meanwhile is shown as far as it was timed.
        let times = client.times(stream, seconds)?;
        if let Some(times) = &times {
            fill(&mut session, &first, times, clock);
        }
        if is_over || times.is_none() || Instant::now() >= deadline {
            return shown.last(&[&session], &taken(clock));
        }
        if next.is_some_and(|next| Instant::now() >= next) {
            next = options.interval.map(|every| Instant::now() + Duration::from_secs(every.into()));
            shown.again(&[&session], &taken(clock))?;
        }
    }
}

fn taken(clock: u64) -> Taken {
    Taken { clock_ns: Some(clock), ..Taken::default() }
}

/// Returns the reason why a session has no times.
fn refusal(client: &mut Client, stream: StreamNumber) -> Result<String> {
    let rows = gather(Some(client), &Filter { kind: None, pid: None }, false)?;
    Ok(match rows.iter().find(|row| row.stream == Some(stream)) {
        Some(row) if row.kind == "udp" => {
            format!("session {stream} is UDP's, away from the kernel: its layers are not stamped")
        }
        Some(_) => format!(
            "session {stream} goes through memory that its two programs share: there are no layers between them"
        ),
        None => {
            format!("there is no session {stream} that is yours; `sojourn ss` shows their names")
        }
    })
}

/// Returns the median cost of one reading of the clock (ns).
fn clock_ns() -> u64 {
    let now = || rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let mut costs: Vec<u64> = (0..READINGS)
        .map(|_| {
            let (before, after) = (now(), now());
            u64::try_from(after.tv_nsec - before.tv_nsec).unwrap_or(0)
        })
        .collect();
    costs.sort_unstable();
    costs[READINGS / 2]
}

/// Sets the session's times to those between the first and the last reading. Each row contains one
/// reading of the clock, whose cost is subtracted.
fn fill(session: &mut Session, first: &TimesInfoT, last: &TimesInfoT, clock: u64) {
    let sent = last.sent.saturating_sub(first.sent);
    let received = last.received.saturating_sub(first.received);
    let mut set = |row, count: u64, before: u64, after: u64| {
        let mut times = Distribution::default();
        if let Some(mean) = after.saturating_sub(before).checked_div(count) {
            times.add_many(mean.saturating_sub(clock), count);
        }
        session.set_row(row, times.clone());
        times.mean_ns().unwrap_or(0.0) as u64
    };
    let send = [
        set(Row::EntryCopyIn, sent, first.entry_copy_in_ns, last.entry_copy_in_ns),
        set(Row::ProtocolOutput, sent, first.protocol_output_ns, last.protocol_output_ns),
        set(Row::IpOutput, sent, first.ip_output_ns, last.ip_output_ns),
        set(Row::LinkOutput, sent, first.link_output_ns, last.link_output_ns),
    ];
    let receive = [
        set(Row::Queue, received, first.queue_ns, last.queue_ns),
        set(Row::IpInput, received, first.ip_input_ns, last.ip_input_ns),
        set(Row::ProtocolInput, received, first.protocol_input_ns, last.protocol_input_ns),
        set(Row::WakeUp, received, first.wake_up_ns, last.wake_up_ns),
        set(Row::InSocket, received, first.in_socket_ns, last.in_socket_ns),
        set(Row::CopyOutExit, received, first.copy_out_exit_ns, last.copy_out_exit_ns),
    ];
    session.send.total = Distribution::default();
    session.send.total.add_many(send.iter().sum(), sent);
    session.send.calls = sent;
    session.receive.total = Distribution::default();
    session.receive.total.add_many(receive.iter().sum(), received);
    session.receive.calls = received;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(each: u64, count: u64) -> TimesInfoT {
        let sum = each * count;
        TimesInfoT {
            sent: count,
            received: count,
            entry_copy_in_ns: sum,
            protocol_output_ns: sum,
            ip_output_ns: sum,
            link_output_ns: sum,
            queue_ns: sum,
            ip_input_ns: sum,
            protocol_input_ns: sum,
            wake_up_ns: 0,
            in_socket_ns: sum,
            copy_out_exit_ns: sum,
        }
    }

    #[test]
    fn rows_are_means_without_the_clock_and_add_up() {
        let mut session = Session::in_library(1);
        fill(&mut session, &times(0, 0), &times(100, 7), 30);
        assert_eq!(session.share_ns(Row::IpOutput), Some(70.0));
        assert_eq!(session.send.total.mean_ns(), Some(280.0));
        assert_eq!(session.receive.total.mean_ns(), Some(350.0));
        assert_eq!((session.send.calls, session.row(Row::WakeUp).sum_ns()), (7, 0));
    }

    #[test]
    fn without_messages_nothing_is_timed() {
        let mut session = Session::default();
        fill(&mut session, &times(100, 7), &times(100, 7), 30);
        assert_eq!(session.chains(), 0);
    }
}

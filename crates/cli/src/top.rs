//! `sojourn top`: the busiest sessions, again and again.
//!
//! On a terminal each look replaces the one before; elsewhere they follow each other. Ctrl-C ends it.

use crate::args::Top;
use crate::client::Client;
use crate::output::{Table, bytes, print};
use crate::sessions::{Row, gather};
use anyhow::Result;
use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

/// Lines if the terminal does not say how many it has.
const LINES: usize = 24;
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Bytes each way, by stream and process.
type Totals = HashMap<(u64, u32), u64>;

/// Shows until interrupted, or so many times.
pub(crate) fn top(options: &Top) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    let delay = Duration::from_secs(options.delay.into());
    let mut before: Option<(Instant, Totals)> = None;
    let mut looks = 0;
    loop {
        // A new connection each time: the server may be another one by now.
        let mut client = Client::connect(&options.place)?;
        let rows = gather(Some(&mut client), &options.filter, false)?;
        let now = Instant::now();
        let elapsed = before.as_ref().map(|(then, _)| now - *then);
        let empty = Totals::new();
        let then = before.as_ref().map_or(&empty, |(_, totals)| totals);
        let body = text(&rows, then, elapsed);
        let height = if is_terminal { height() } else { usize::MAX };
        let shown: Vec<&str> = body.lines().take(height).collect();
        let clear = if is_terminal { CLEAR } else { "" };
        print(&format!("{clear}{}\n{}\n", client.address, shown.join("\n")))?;
        before = Some((now, totals(&rows)));
        looks += 1;
        if options.count.is_some_and(|count| looks >= count) {
            return Ok(());
        }
        std::thread::sleep(delay);
    }
}

fn height() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes a `winsize` there, or nothing. (Not rustix, whose feature for terminals would have everything
    // below us built twice.)
    unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    let lines = if size.ws_row == 0 { LINES } else { size.ws_row.into() };
    lines.max(4) - 2
}

fn totals(rows: &[Row]) -> Totals {
    let known = rows.iter().filter_map(|row| Some(((row.stream?, row.pid), total(row))));
    known.collect()
}

fn total(row: &Row) -> u64 {
    row.sent.unwrap_or(0).saturating_add(row.received.unwrap_or(0))
}

/// The list, busiest first. What has no rate yet is sorted by its bytes.
fn text(rows: &[Row], then: &Totals, elapsed: Option<Duration>) -> String {
    let rate = |row: &Row| {
        let elapsed = elapsed.filter(|elapsed| !elapsed.is_zero())?;
        let since = total(row).saturating_sub(*then.get(&(row.stream?, row.pid))?);
        Some((since as f64 / elapsed.as_secs_f64()) as u64)
    };
    let mut rated: Vec<_> = rows.iter().map(|row| (rate(row), row)).collect();
    rated.sort_by_key(|(rate, row)| std::cmp::Reverse((*rate, total(row))));
    let mut table = Table::new(&[
        ">STREAM",
        "KIND",
        "HOME",
        "REASON",
        ">PID",
        "PROGRAM",
        "TO",
        ">PER SECOND",
        ">BYTES",
    ]);
    for (rate, row) in rated {
        table.row(vec![
            row.stream.map_or("-".into(), |number| number.to_string()),
            row.kind.into(),
            row.home.into(),
            if row.is_in_kernel() { row.reason.into() } else { "-".into() },
            row.pid.to_string(),
            row.program.clone(),
            row.to.clone(),
            rate.map_or("-".into(), bytes),
            row.sent.map_or("-".into(), |_| bytes(total(row))),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::tests::{joined, waiting};

    #[test]
    fn rates_come_from_two_looks_and_the_busiest_is_first() {
        let mut busy = joined();
        busy.stream = Some(8);
        busy.sent = Some(11 << 20);
        let rows = [waiting(), joined(), busy];
        let mut then = totals(&rows);
        then.insert((8, rows[2].pid), total(&rows[2]) - (4 << 20));
        let text = text(&rows, &then, Some(Duration::from_secs(2)));
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].trim_start().starts_with('8'), "{text}");
        assert!(lines[1].contains("2.0 MiB"), "{text}");
        assert!(lines[3].contains("no-peer"), "{text}");
    }
}

//! Limits and processors.

use super::item::Item;
use crate::output::bytes;
use rustix::process::{Resource, getrlimit};

/// A limit on open files below this is soon used up.
const FILES_ENOUGH: u64 = 1024;
/// The cost of a wake-up above which spinning is far better than sleeping (ns).
const WAKE_COST_HIGH_NS: u64 = 20_000;

/// Checks the number of processors that this process may use, against the number of runnable
/// threads.
pub(super) fn processors() -> Item {
    const NAME: &str = "processors";
    let usable = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let running = running(&load).unwrap_or(0);
    let found = format!("{usable} usable; {running} threads run or want to");
    if usable == 1 {
        let advice =
            "both ends share the processor, so that nobody spins: expect less than with two";
        return Item::limited(NAME, found, advice);
    }
    match running > usable {
        true => Item::limited(
            NAME,
            found,
            "more threads than processors: waiting threads sleep at once as long as that is so",
        ),
        false => Item::ok(NAME, found),
    }
}

/// Returns the number of runnable threads from `/proc/loadavg`, without this thread.
fn running(load: &str) -> Option<usize> {
    let field = load.split(' ').nth(3)?;
    let running: usize = field.split('/').next()?.parse().ok()?;
    Some(running.saturating_sub(1))
}

/// Measures a sleep with its wake-up.
pub(super) fn wake_cost() -> Item {
    const NAME: &str = "wake-cost";
    let cost_ns = sojourn_ipc::sleep_cost_ns();
    let us = cost_ns as f64 / 1000.0;
    match cost_ns {
        0 => Item::ok(NAME, "not measured: spinning cannot pay on this machine"),
        WAKE_COST_HIGH_NS.. => {
            let advice = "threads that wait spin so long before they sleep; a virtual machine that does not give idle processors away would wake faster";
            Item::ok(NAME, format!("{us:.1} µs of processor time ({advice})"))
        }
        _ => Item::ok(
            NAME,
            format!(
                "{us:.1} µs of processor time: threads that wait spin no longer before they sleep"
            ),
        ),
    }
}

/// Checks the limit on open files. The server raises its own limit as far as it may. A program
/// needs a few descriptors more than without Sojourn.
pub(super) fn open_files() -> Item {
    const NAME: &str = "open-files";
    let limit = getrlimit(Resource::Nofile);
    let number = |value: Option<u64>| value.map_or("no limit".into(), |value| value.to_string());
    let found = format!("{}, at most {}", number(limit.current), number(limit.maximum));
    match limit.current.is_some_and(|files| files < FILES_ENOUGH) {
        true => Item::limited(
            NAME,
            found,
            "raise it for programs with many connections: ulimit -n 4096",
        ),
        false => Item::ok(NAME, found),
    }
}

/// Reports the limit on locked memory. Sojourn locks no memory; the item answers a frequent
/// question.
pub(super) fn locked_memory() -> Item {
    let limit = getrlimit(Resource::Memlock).current;
    let found = limit.map_or("no limit".into(), bytes);
    Item::ok("locked-memory", format!("{found} (none is needed)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_threads_are_those_of_others() {
        assert_eq!(running("0.1 0.2 0.3 4/567 890\n"), Some(3));
        assert_eq!(running("0.1"), None);
    }
}

//! Published figures of the same division of work: TCP and UDP in a library beside the kernel, on
//! machines of 1993.
//!
//! Maeda and Bershad, "Protocol Service Decomposition for High-Performance Networking" (SOSP 1993),
//! table 2. Bulk is a transfer of 16 MB from memory to memory.

use crate::table::{Table, ratio};

/// The table, tab-separated; the first line names its source, the second its columns. Times are
/// milliseconds per round trip.
const TABLE: &str = include_str!("../../data/decomposition_1993.tsv");
/// The row to which the ratios of a machine refer.
const KERNEL: &str = "Mach 2.5 In-Kernel";

/// The published figures of the library on one machine.
struct Published {
    /// The library's form, and the machine.
    name: String,
    ratios: Vec<ColumnRatio>,
}

/// A figure, divided by that of the same machine's kernel.
struct ColumnRatio {
    column: &'static str,
    ratio: f64,
}

/// Returns the library's figures in the columns that `is_wanted` accepts.
fn published(is_wanted: fn(&str) -> bool) -> Vec<Published> {
    let mut lines = TABLE.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    let head = lines.next().unwrap_or_default();
    let lines: Vec<Vec<&str>> = lines.collect();
    let columns: Vec<usize> = (0..head.len()).filter(|&at| is_wanted(head[at])).collect();
    let number = |line: &[&str], at: usize| line.get(at)?.parse::<f64>().ok();
    let mut found = Vec::new();
    for line in lines.iter().filter(|line| line.get(1).is_some_and(|it| it.starts_with("Library")))
    {
        let kernel = lines.iter().find(|other| other[0] == line[0] && other[1] == KERNEL);
        let of = |&at: &usize| {
            let ratio = number(line, at)? / number(kernel?, at)?;
            Some(ColumnRatio { column: head[at], ratio })
        };
        let ratios = columns.iter().filter_map(of).collect();
        found.push(Published { name: format!("{}, {}", line[1], line[0]), ratios });
    }
    found
}

fn is_bulk(column: &str) -> bool {
    column == "tcp_kb_per_s"
}

/// Returns the published table that corresponds to a group of rows, if there is one.
pub(super) fn beside(group: &str) -> Option<String> {
    let rows = match group {
        "tcp-rtt" | "tcp-rtt-pinned" => {
            published(|name| name.starts_with("tcp_") && !is_bulk(name))
        }
        "udp-rtt" | "udp-rtt-pinned" => published(|name| name.starts_with("udp_")),
        "bulk" => published(is_bulk),
        _ => return None,
    };
    let names: Vec<&str> = rows.first()?.ratios.iter().map(|one| one.column).collect();
    let mut table = Table::new(["published in 1993, x kernel"].into_iter().chain(names));
    for Published { name, ratios } in rows {
        let cells = ratios.iter().map(|one| ratio(one.ratio, 1.0));
        table.row([name].into_iter().chain(cells));
    }
    Some(table.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_kernel_of_the_same_machine() {
        let all = published(is_bulk);
        assert_eq!(all[0].name, "Library-IPC, DECstation 5000/200");
        assert!((all[0].ratios[0].ratio - 910.0 / 1070.0).abs() < 1e-9);
        let gateway = all.iter().find(|one| one.name.contains("Gateway")).unwrap();
        assert!((gateway.ratios[0].ratio - 469.0 / 457.0).abs() < 1e-9);
    }

    #[test]
    fn only_what_was_published_is_printed() {
        assert!(beside("bulk").unwrap().contains("Library-SHM-IPF"));
        assert!(beside("udp-rtt").unwrap().contains("udp_1472"));
        assert!(!beside("tcp-rtt").unwrap().contains("kb_per_s"));
        assert!(beside("redis").is_none());
    }
}

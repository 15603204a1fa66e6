//! The published figures: tables as the papers have them, one file each in `data/`.
//!
//! The first line of a file names its paper, the second its columns. Fields are separated by tabs;
//! `NA` and an empty field stand for figures that the paper does not have.

/// The table of a file.
pub(crate) struct Published {
    head: Vec<&'static str>,
    rows: Vec<Vec<&'static str>>,
}

/// Reads a file of `data/`.
pub(crate) fn read(text: &'static str) -> Published {
    let mut lines = text.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    Published { head: lines.next().unwrap_or_default(), rows: lines.collect() }
}

impl Published {
    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.head.iter().position(|one| *one == name)
    }

    /// Returns a field as text.
    pub(crate) fn word(&self, row: usize, column: &str) -> &'static str {
        let field = self.column(column).and_then(|at| self.rows.get(row)?.get(at).copied());
        field.unwrap_or_default()
    }

    /// Returns a field as a number; `None` if the paper does not have it.
    pub(crate) fn number(&self, row: usize, column: &str) -> Option<f64> {
        self.word(row, column).parse().ok()
    }

    /// Returns the names of the columns from `name` on.
    pub(crate) fn columns_from(&self, name: &str) -> &[&'static str] {
        &self.head[self.column(name).unwrap_or(self.head.len())..]
    }
}

pub(crate) const UDP_1992: &str = include_str!("../../data/udp_server_1992.tsv");
pub(crate) const DECOMPOSITION_2: &str = include_str!("../../data/decomposition_1993.tsv");
pub(crate) const DECOMPOSITION_3: &str = include_str!("../../data/decomposition_1993_table3.tsv");
pub(crate) const DECOMPOSITION_4: &str = include_str!("../../data/decomposition_1993_table4.tsv");
pub(crate) const IPC_1990S: &str = include_str!("../../data/ipc_1990s.tsv");
pub(crate) const GETPID_1997: &str = include_str!("../../data/getpid_1997.tsv");
pub(crate) const PIPES_1997: &str = include_str!("../../data/pipes_1997.tsv");
pub(crate) const MEMORY_1993: &str = include_str!("../../data/memory_1993.tsv");
pub(crate) const FIDL_2000: &str = include_str!("../../data/fidl_2000.tsv");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_names_its_paper_and_has_its_columns_filled() {
        let all = [
            (UDP_1992, "rtt_ms", 7),
            (DECOMPOSITION_2, "udp_1472", 12),
            (DECOMPOSITION_3, "udp_1472", 5),
            (DECOMPOSITION_4, "udp_serv_1472", 16),
            (IPC_1990S, "cycles_per_ipc", 15),
            (GETPID_1997, "us", 5),
            (PIPES_1997, "throughput_mb_per_s", 7),
            (MEMORY_1993, "user_store", 14),
            (FIDL_2000, "marshalling_cycles", 4),
        ];
        for (text, column, rows) in all {
            assert!(text.starts_with("# "), "{text}");
            let table = read(text);
            assert_eq!(table.len(), rows, "{text}");
            let filled = (0..rows).filter(|row| table.number(*row, column).is_some()).count();
            assert_eq!(filled, rows, "{text}");
        }
        let memory = read(MEMORY_1993);
        for row in 0..memory.len() {
            let columns = memory.columns_from("system_fetch");
            let parts = columns.iter().filter_map(|part| memory.number(row, part)).sum::<f64>();
            assert!((parts - memory.number(row, "mcpi").unwrap()).abs() < 1e-3, "{row}");
        }
        assert_eq!(read(PIPES_1997).number(1, "latency_us"), Some(56.0));
        assert_eq!(read(GETPID_1997).word(0, "system"), "Linux");
    }
}

//! The machine on which the figures were measured: part of every JSON file.

use serde::Serialize;

/// This machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// Processor model.
    pub(crate) processor: String,
    /// Number of processors that this process may use.
    pub(crate) processors: usize,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Load average of the last minute when the run began: above about 0.5 the figures are noise.
    pub(crate) load: f64,
    /// True for a build with the rivals that are other crates.
    pub(crate) rivals: bool,
}

impl Machine {
    /// Reads `/proc`; fields whose file is missing stay empty.
    pub(crate) fn here() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let model = read("/proc/cpuinfo");
        let model = model.lines().find_map(|line| line.strip_prefix("model name"));
        let model = model.and_then(|rest| rest.split_once(':')).map_or("", |(_, name)| name.trim());
        let load = read("/proc/loadavg");
        Self {
            processor: model.into(),
            processors: crate::os::processors().len(),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            load: load.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0),
            rivals: cfg!(feature = "rivals"),
        }
    }
}

//! The bar that shows how far a run is.

use std::cell::Cell;

use indicatif::{ProgressBar, ProgressStyle};

/// So much of the bar for a second of work.
const STEPS: f64 = 10.0;

/// The progress bar. A part's weight is its expected time (about seconds).
pub(crate) struct Progress {
    bar: ProgressBar,
    /// The beginning and the weight of the current part.
    part: Cell<(f64, f64)>,
}

impl Progress {
    /// Makes a bar for parts of this total weight. The bar is hidden if standard error is no
    /// terminal.
    pub(crate) fn new(weight: f64) -> Self {
        let bar = ProgressBar::new((weight * STEPS) as u64);
        // The template is constant and valid. With an invalid one the bar would have its default
        // style.
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}  {elapsed}")
        {
            bar.set_style(style);
        }
        Self { bar, part: Cell::new((0.0, 0.0)) }
    }

    /// Begins a part and ends the part before.
    pub(crate) fn begin(&self, name: &str, weight: f64) {
        let (start, before) = self.part.get();
        self.part.set((start + before, weight));
        self.bar.set_message(name.to_owned());
        self.at(0.0);
    }

    /// Sets the finished fraction of the current part, 0 to 1.
    pub(crate) fn at(&self, fraction: f64) {
        let (start, weight) = self.part.get();
        self.bar.set_position(((start + weight * fraction) * STEPS) as u64);
    }

    /// Ends the bar.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
